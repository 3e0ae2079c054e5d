"""Which records of two streams meet, found for all of a round at once: pure functions over arrays, of a place per record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Records of both sides, those that were kept first and then those of the round in their order. `key`: a number for each
    key; `sub`: bytes of one length, by which the records of a key and side are in order, of time first; `kept`: how many were
    kept."""

    side: Numbers
    key: Numbers
    time_us: Numbers
    sub: Any
    kept: int


def pairs_of(entries: Entries, reach_us: tuple[tuple[int, int], tuple[int, int]], most: int) -> Iterator[tuple[Any, Any]]:
    """The places of a record of the round and of one that it meets, some `most` pairs at a time: those of the other side and of
    its key that came before it, and are at most so far before and after it as `reach_us` says of its side. In the order of the
    round's records, and for each in the order of those that it meets."""
    finders = [_Finder(entries, side, reach_us[1 - side]) for side in (0, 1)]
    new = np.arange(entries.kept, len(entries.side))
    first, last = np.zeros(len(new), np.int64), np.zeros(len(new), np.int64)
    for side in (0, 1):
        mine = np.flatnonzero(entries.side[new] == side)
        first[mine], last[mine] = finders[1 - side].spans(new[mine])
    ends = np.cumsum(last - first)
    begin = 0
    while begin < len(new):
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + most, "right")))
        yield from _pairs_between(entries, finders, new[begin:end], first[begin:end], last[begin:end])
        begin = end


def _pairs_between(
    entries: Entries, finders: list[_Finder], new: Numbers, first: Numbers, last: Numbers
) -> Iterator[tuple[Any, Any]]:
    counts = last - first
    later = np.repeat(new, counts)
    within = np.arange(len(later)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    is_left = entries.side[later] == 0
    met = np.empty(len(later), np.int64)
    for side in (0, 1):
        of_side = is_left == (side == 1)
        met[of_side] = finders[side].order[within[of_side]]
    came_before = met < later  # what was kept has lower places, too
    if came_before.any():
        yield later[came_before], met[came_before]


class _Finder:
    """The records of one side by key and sub-key. `reach_us`: how far from a record of the other side they may be."""

    def __init__(self, entries: Entries, side: int, reach_us: tuple[int, int]) -> None:
        self._entries, self._reach_us = entries, reach_us
        mine = np.flatnonzero(entries.side == side)
        self.order = mine[np.lexsort((entries.sub[mine], entries.key[mine]))]
        self._times = np.unique(entries.time_us[mine])
        self._places = self._place(entries.key[self.order], np.searchsorted(self._times, entries.time_us[self.order]))

    def _place(self, keys: Numbers, at: Any) -> Any:
        return keys * (len(self._times) + 1) + at

    def spans(self, records: Numbers) -> tuple[Any, Any]:
        """Of each of these records, which are of the other side, the places in `order` from which and up to which it meets."""
        keys, times = self._entries.key[records], self._entries.time_us[records]
        before_us, after_us = self._reach_us
        low = self._place(keys, np.searchsorted(self._times, times - before_us, "left"))
        high = self._place(keys, np.searchsorted(self._times, times + after_us, "right"))
        return np.searchsorted(self._places, low, "left"), np.searchsorted(self._places, high, "left")
