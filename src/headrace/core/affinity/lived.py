"""Where a task has run last, and where it came from, so that it can come home to the store that is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.core.affinity.locations import LOCATION, LocationId
from headrace.model.tasks import TaskName

FORMER_MAX = 8  # former locations of a task that are remembered
_LEFT = re.compile(r"([0-9]{1,18})(v?)", re.ASCII)


class Left(NamedTuple):
    """When a task has left a location, in µs. `is_home`: it lived there; else it was there while it was away from home. Where
    it lived comes before where it visited, then what it left of late: that much less is to be read there."""

    is_home: bool
    left_us: int


@dataclass(frozen=True, slots=True)
class Lived:
    """Of one task. `last`: where it has run last. `former`: where it ran before that, by when it left. Once it is back where it
    lived, where it was meanwhile was a visit."""

    last: LocationId
    former: Mapping[LocationId, Left] = field(default_factory=dict)

    def moved_to(self, place: LocationId, now_us: int) -> Lived:
        """The same, had it run there for the first time at `now_us`.

        >>> away = Lived(LocationId("a")).moved_to(LocationId("b"), 5).moved_to(LocationId("c"), 7)
        >>> away.text, away.moved_to(LocationId("b"), 9).text, away.moved_to(LocationId("a"), 9).text
        ('c a 5 b 7', 'b a 5 c 9v', 'a b 7v c 9v')
        """
        if place == self.last:
            return self
        left_us = max(now_us, 1 + max((one.left_us for one in self.former.values()), default=0))
        former = {**self.former, self.last: Left(True, left_us)}
        back = former.pop(place, Left(False, 0))
        if back.is_home:
            former = {one: Left(left.is_home and left < back, left.left_us) for one, left in former.items()}
        return Lived(place, dict(list(former.items())[-FORMER_MAX:]))

    @property
    def text(self) -> str:
        """As it is stored; where it was in one place only, as that was stored before there was more to say."""
        pairs = (f"{place} {left.left_us}{'' if left.is_home else 'v'}" for place, left in self.former.items())
        return " ".join([self.last, *pairs])


def after_running(before: Lived | None, place: LocationId, now_us: int) -> Lived:
    """Where a task has lived once it has run at `place`; `before`: what was known of it."""
    return Lived(place) if before is None else before.moved_to(place, now_us)


def with_store(
    former: Mapping[TaskName, Mapping[LocationId, Left]], now_us: int, retention_us: int
) -> dict[TaskName, Mapping[str, Left]]:
    """Of the `former` locations of tasks those that may have a store still, as it is not removed before `retention_us` have
    passed since it was used.

    >>> task = TaskName.parse("Partition_0")
    >>> former = {task: {LocationId("a"): Left(True, 5), LocationId("b"): Left(True, 7)}}
    >>> with_store(former, 14, 9)[task], with_store(former, 16, 9)
    ({'b': Left(is_home=True, left_us=7)}, {})
    """
    found = dict[TaskName, Mapping[str, Left]]()
    for task, places in former.items():
        if kept := {str(place): left for place, left in places.items() if now_us - left.left_us < retention_us}:
            found[task] = kept
    return found


def lived_of(text: str) -> Lived | None:
    """The value whose `text` this is; None where it is none.

    >>> lived_of("c a 5v"), lived_of("c"), lived_of("c a"), lived_of("c a b")
    (Lived(last='c', former={'a': Left(is_home=False, left_us=5)}), Lived(last='c', former={}), None, None)
    """
    last, *rest = text.split(" ")
    places, times = [last, *rest[::2]], [_LEFT.fullmatch(one) for one in rest[1::2]]
    if len(rest) % 2 or not all(map(LOCATION.fullmatch, places)):
        return None
    former = {LocationId(place): Left(not one[2], int(one[1])) for place, one in zip(rest[::2], times, strict=True) if one}
    return Lived(LocationId(last), former) if len(former) == len(times) else None
