"""The versions of one key of a table that keeps its history: each holds from its time on, up to the time of the next one.

What a record finds is the version of its own time. A version that another one follows is kept until the watermark is the
history past that one; the newest for ever, but for a deletion, which is kept as long as an older version may still come.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """What updates have done to a key. `put`: versions, by time; None for a deletion. When versions expire, by their times, as
    far as it has changed: `expired_us` it was before, `expires_us` it is now."""

    put: Mapping[int, bytes | None]
    expired_us: Mapping[int, int]
    expires_us: Mapping[int, int]


class Versions:
    """`known`: of one key (time, value) of all versions from some time on, and of the one before it, in order of time."""

    def __init__(self, known: Iterable[tuple[int, bytes | None]]) -> None:
        self._known = dict(known)
        self._put: dict[int, bytes | None] = {}
        self._times = list(self._known)

    def put(self, time_us: int, value: bytes | None) -> bool:
        """Take an update; whether its version is the newest one now. It replaces one of its own time.

        >>> versions = Versions([(10, b"a")])
        >>> versions.put(30, b"c"), versions.put(20, None), versions.as_of(25), versions.as_of(30), versions.as_of(9)
        (True, False, None, b'c', None)
        """
        if time_us not in self._put and time_us not in self._known:
            insort(self._times, time_us)
        self._put[time_us] = value
        return self._times[-1] == time_us

    def as_of(self, time_us: int) -> bytes | None:
        """The value at a time, None where there was none."""
        at = bisect_right(self._times, time_us)
        if not at:
            return None
        own_us = self._times[at - 1]
        return self._put[own_us] if own_us in self._put else self._known[own_us]

    def changes(self, history_us: int) -> VersionChanges:
        """What `put` did.

        >>> versions = Versions([(10, b"a")])
        >>> _ = versions.put(30, None)
        >>> versions.changes(100)
        VersionChanges(put={30: None}, expired_us={}, expires_us={10: 130, 30: 130})
        """
        before, now = _expiries(self._known, history_us), _expiries({**self._known, **self._put}, history_us)
        return VersionChanges(
            self._put,
            {time_us: at_us for time_us, at_us in before.items() if now.get(time_us) != at_us},
            {time_us: at_us for time_us, at_us in now.items() if before.get(time_us) != at_us},
        )


def _expiries(versions: Mapping[int, bytes | None], history_us: int) -> dict[int, int]:
    """When versions expire, by their times; the newest one does not, or as a deletion."""
    times = sorted(versions)
    ends = dict(pairwise(times))
    if times and versions[times[-1]] is None:
        ends[times[-1]] = times[-1]
    return {time_us: end_us + history_us for time_us, end_us in ends.items()}
