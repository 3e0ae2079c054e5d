"""What a round counts as whose containers have not all taken part, which lanes sit out after it, and which were lost again.

An engine runs a container elsewhere where no worker at its location is free, and where attempts there have failed; it declines
in both cases, which is no failure to the engine. Here the two are distinguished, by where attempts have failed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.model.checkpoint import RoundId
from headrace.model.tasks import TaskName

AGAIN_S, AGAIN_S_MAX = 1.0, 10.0  # for so long a lane sits out whose location is busy: at first, and at most


@dataclass(frozen=True, slots=True)
class Absence:
    """A container that took no part in its round. `home`: the location that it was planned for, None for anywhere; `run_at`:
    where it was run in place of that, None where its location was lost, or where its stores are restored first."""

    lane: int
    home: str | None
    run_at: str | None = None


def failed_lanes(absences: Iterable[Absence], failed_at: Collection[str]) -> frozenset[int]:
    """The lanes for which the round has failed: they were run elsewhere after attempts at home. `failed_at`: the locations
    where attempts of the round have failed.

    >>> absences = [Absence(0, "host-1", "host-3"), Absence(1, "host-2", "host-3"), Absence(2, "host-1")]
    >>> sorted(failed_lanes(absences, {"host-1"})), sorted(failed_lanes(absences, ()))
    ([0], [])
    """
    return frozenset(one.lane for one in absences if one.run_at is not None and one.home in failed_at)


def busy_lanes(absences: Iterable[Absence], failed: Collection[int], present: Collection[str]) -> frozenset[int]:
    """The lanes that were run elsewhere though a worker is at home and nothing has failed there: it was busy, or takes itself
    to be at another location than it said before. `failed`: the lanes that have failed; `present`: the locations that have a
    worker.

    >>> absences = [Absence(0, "host-1", "host-3"), Absence(1, "host-2", "host-3"), Absence(2, "host-1")]
    >>> sorted(busy_lanes(absences, {}, {"host-1", "host-3"})), sorted(busy_lanes(absences, {0}, {"host-1", "host-3"}))
    ([0], [])
    """
    elsewhere = (one for one in absences if one.run_at is not None and one.home in present)
    return frozenset(one.lane for one in elsewhere if one.lane not in failed)


@dataclass(frozen=True, slots=True)
class BusyLanes:
    """The lanes whose location was busy in their last rounds: in how many in a row, and until when each sits out. Times are of
    a clock that only goes forward."""

    held: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def after_round(self, busy: Collection[int], others: Collection[int], now_s: float) -> BusyLanes:
        """The same when a round has ended in which these lanes were found busy, and these `others` were not.

        >>> lanes = BusyLanes().after_round({0, 1}, {2}, 10.0).after_round({0}, {1, 2}, 12.0)
        >>> lanes.held, sorted(lanes.sitting_out(13.9)), sorted(lanes.sitting_out(14.0))
        ({0: (2, 14.0)}, [0], [])
        """
        left = {lane: one for lane, one in self.held.items() if lane not in others}
        for lane in busy:
            times = left.get(lane, (0, 0.0))[0] + 1
            left[lane] = times, now_s + min(AGAIN_S_MAX, AGAIN_S * 2.0 ** min(times - 1, 10))
        return BusyLanes(left)

    def due_in_s(self, now_s: float) -> float:
        """
        >>> BusyLanes({0: (1, 12.0), 1: (1, 11.0), 2: (1, 10.0)}).due_in_s(10.5), BusyLanes().due_in_s(10.5)
        (0.5, inf)
        """
        return min((until_s - now_s for _, until_s in self.held.values() if now_s < until_s), default=math.inf)

    def sitting_out(self, now_s: float) -> frozenset[int]:
        return frozenset(lane for lane, (_, until_s) in self.held.items() if now_s < until_s)


@dataclass(frozen=True, slots=True)
class LossesInARow:
    """The tasks whose location was lost while they were in a round: the round that each had committed last, and how many times
    it was lost since. One record may do it each time, where it takes more memory than there is."""

    held: Mapping[TaskName, tuple[RoundId, int]] = field(default_factory=dict)

    def after_round(self, lost: Mapping[TaskName, RoundId]) -> LossesInARow:
        """The same when these tasks were lost in a round. The values: what each builds on there.

        >>> task, first, second = TaskName.parse("Partition_0"), RoundId(1, None, 4), RoundId(1, None, 6)
        >>> twice = LossesInARow().after_round({task: first}).after_round({task: first})
        >>> twice.of([task]), twice.after_round({task: second}).of([task]), twice.of([])
        (2, 1, 0)
        """
        held = {**self.held}
        for task, base in lost.items():
            before, times = held.get(task, (base, 0))
            held[task] = base, times + 1 if before == base else 1
        return LossesInARow(held)

    def of(self, tasks: Iterable[TaskName]) -> int:
        """How many times in a row one of these tasks was lost, the most of them."""
        return max((self.held[task][1] for task in tasks if task in self.held), default=0)
