"""What changes the plan of a job: a request for it, and what is on record of one that was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LOCAL_STORES = "local stores"  # made before the rounds end
PHASES = (LOCAL_STORES, "end of the rounds", "fence", "plan", "first round")  # of a change, in their order


class ChangeKind(StrEnum):
    START = "start"  # the application was edited, or planned for the first time
    EXPANSION = "expansion"  # a stream has more partitions
    STARTPOINT = "startpoint"
    REBALANCE = "rebalance"  # locations of a cluster, or processors of a group, came or went
    SCALE = "scale"  # another elasticity factor, or another number of containers


class Outcome(StrEnum):
    APPLIED = "applied"
    REFUSED = "refused"
    SUPERSEDED = "superseded"  # by a later one for the same partitions, before it was applied


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Somebody asks for another plan, or something was seen that needs one. `requested_by` is empty for what was only seen.

    `subject`: the stream of an expansion, the id of a request for startpoints or for a scale, what came or went.
    """

    kind: ChangeKind
    subject: str
    requested_by: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a job's history: what was requested by whom, and what came of it at `at_us` (µs since the epoch).

    `before` and `after` say what was changed from and to. `why`: the reason of a refusal, or what else is to be known.
    `pause_us`: how long no round ran for it; None where none was cut short for it, or where that is not known. `phases_us`: how
    long each of `PHASES` took: local stores, the end of the rounds and the first round are no part of the pause, as rounds run.
    """

    at_us: int
    kind: ChangeKind
    what: str
    outcome: Outcome
    job_model: int
    requested_by: str = ""
    before: str = ""
    after: str = ""
    why: str = ""
    pause_us: int | None = None
    phases_us: Mapping[str, int] = field(default_factory=dict)

    @property
    def ordered_phases_us(self) -> dict[str, int]:
        """`phases_us` in the order of the phases."""
        return {name: self.phases_us[name] for name in PHASES if name in self.phases_us}
