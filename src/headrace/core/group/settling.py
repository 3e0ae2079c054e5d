"""When changes of a group have come to rest, so that one plan is made for several processors that come or leave together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.core.group.membership import unique_members
from headrace.core.group.state import GroupMember

QUIET_S, SETTLE_S_MAX, RETURN_WAIT_S = 1.0, 5.0, 30.0


@dataclass(frozen=True, slots=True)
class Settling:
    """What a leader has seen of its group's processors. Times are of a clock that only goes forward.

    `present`: id to registration of those that are there. `away`: id to since when, of those that were stopped in order and
    hold tasks. `counted`: the ids that a plan is made with: those that are there, and those that are away for less than
    `return_wait_s`. `first_s`, `last_s`: of the changes since the last decision; None where there were none.
    """

    return_wait_s: float = RETURN_WAIT_S
    present: Mapping[str, int] = field(default_factory=dict)
    away: Mapping[str, float] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    first_s: float | None = None
    last_s: float | None = None

    def with_look(
        self, members: Collection[GroupMember], stopped: Collection[str], holders: Collection[str], now_s: float
    ) -> Settling:
        """The same with what was seen at `now_s`. `stopped`: the ids that were stopped in order. `holders`: the ids that have
        tasks in the active plan: only these are waited for. One whose session has ended is not."""
        present = {one.processor_id: one.sequence for one in unique_members(members) if one.processor_id is not None}
        away = {id_: self.away.get(id_, now_s) for id_ in stopped if id_ in holders and id_ not in present}
        waited_for = {id_ for id_, since_s in away.items() if now_s - since_s < self.return_wait_s}
        counted = frozenset(present) | waited_for
        if present == self.present and counted == self.counted:
            return replace(self, away=away)
        first_s = now_s if self.first_s is None else self.first_s
        return replace(self, present=present, away=away, counted=counted, first_s=first_s, last_s=now_s)

    @property
    def due_s(self) -> float | None:
        """When to decide: some time after the last change, and not much later than the first; None without one."""
        if self.first_s is None or self.last_s is None:
            return None
        return min(self.last_s + QUIET_S, self.first_s + SETTLE_S_MAX)

    def is_due(self, now_s: float) -> bool:
        return self.due_s is not None and now_s >= self.due_s

    def decided(self) -> Settling:
        """After a decision was made with what is `counted`."""
        return replace(self, first_s=None, last_s=None)

    def again(self, now_s: float) -> Settling:
        """To decide once more though nothing has changed: a proposal came to nothing."""
        return replace(self, first_s=now_s if self.first_s is None else self.first_s, last_s=now_s)

    @property
    def given_up(self) -> frozenset[str]:
        """Those that have not come back in time: the marks of their stop are to be deleted."""
        return frozenset(self.away) - self.counted
