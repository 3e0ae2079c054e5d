"""Which locations a plan is made with, when these come and go: one that is away for a moment keeps its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

FIRST_WAIT_S, QUIET_S = 30.0, 2.0


def have_all_come(there: int, promised: int | None, quiet_s: float, waited_s: float) -> bool:
    """Whether a first plan is made with those that are `there`: with as many as are promised; where that is not known, or takes
    too long, once none has come for a while. Else the first would get all tasks, and each that comes would move some.

    >>> have_all_come(1, 3, 5.0, 10.0), have_all_come(3, 3, 0.0, 1.0), have_all_come(1, None, 2.0, 4.0)
    (False, True, True)
    """
    if not there:
        return False
    return there >= promised if promised is not None and waited_s < FIRST_WAIT_S else quiet_s >= QUIET_S


@dataclass(frozen=True, slots=True)
class Sightings:
    """What was seen of a cluster. `seen`: since when which slots were at which locations, in order of time; the last entry is
    so now. `return_wait_s`: for so long a location, and a slot of one, counts that is not there any more. `settle_s`: as long
    as that no plan is made for what has come, as more may come. Times are of a clock that only goes forward. While nothing was
    there at all no time passes: those that come back first would get the tasks of those that follow."""

    return_wait_s: float
    settle_s: float = 2.0
    seen: tuple[tuple[float, Mapping[str, int]], ...] = ()

    def with_look(self, slots: Mapping[str, int], now_s: float) -> Sightings:
        """The same with what was seen at `now_s`; without what is too long ago to count."""
        if not slots and self.seen and not self.present:
            return self
        before = self.seen
        if before and not self.present:
            away_s = now_s - before[-1][0]
            before = tuple((since_s + away_s, there) for since_s, there in before[:-1])
        seen = before if before and before[-1][1] == slots else (*before, (now_s, dict(slots)))
        ends = [since_s for since_s, _ in seen[1:]]  # an entry was so until the next one
        too_old = sum(end_s <= now_s - self.return_wait_s for end_s in ends)
        if not slots:  # no time passes from here on: the last that were there count, also where none is waited for
            too_old = min(too_old, max(0, len(ends) - 1))
        return replace(self, seen=seen[too_old:])

    @property
    def present(self) -> Mapping[str, int]:
        return self.seen[-1][1] if self.seen else {}

    @property
    def counted(self) -> dict[str, int]:
        """What a plan is made with: the most slots that each location had lately.

        >>> sightings = Sightings(10.0).with_look({"a": 2, "b": 1}, 0.0).with_look({"a": 1}, 5.0)
        >>> sightings.counted, sightings.with_look({"a": 1}, 15.0).counted
        ({'a': 2, 'b': 1}, {'a': 1})
        """
        found: dict[str, int] = {}
        for _, slots in self.seen:
            for location, count in slots.items():
                found[location] = max(count, found.get(location, 0))
        return dict(sorted(found.items()))

    def change_due(self, planned: Mapping[str, int], now_s: float) -> str:
        """Why another plan is due than the one that was made with `planned`, for people; empty where none is. None is made for
        no location at all: then its containers wait."""
        counted = self.counted
        if counted == planned or not self.present:
            return ""
        more = [location for location, count in counted.items() if count > planned.get(location, 0)]
        if more and now_s - self.seen[-1][0] < self.settle_s:
            return ""
        less = [location for location, count in planned.items() if counted.get(location, 0) < count]
        said = [f"{location} has joined" if location not in planned else f"{location} has more slots" for location in more]
        said += [f"{location} has left" if location not in counted else f"{location} has fewer slots" for location in less]
        return ", ".join(said)
