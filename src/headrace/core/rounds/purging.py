"""What keeps a repartition stream small: how much of it no task will read again (protocol.md 14), and when those that write it
wait for those that read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP


def lowest_positions(checkpoints: Iterable[Checkpoint]) -> dict[SSP, int]:
    """Per whole partition the lowest position in any of these, of several tasks or of several times.

    A kept state version needs the records from its own positions on, so its checkpoints belong among them.
    """
    lowest: dict[SSP, int] = {}
    for checkpoint in checkpoints:
        for ssp, position in checkpoint.positions.items():
            if ssp not in lowest or position < lowest[ssp]:
                lowest[ssp] = position
    return lowest


def purge_offsets(lowest: Mapping[SSP, int], done: Mapping[SSP, int]) -> dict[str, dict[int, int]]:
    """Stream to partition to the offset before which it can be forgotten; `done` is how far that was done already.

    >>> a, b = SSP("log", "by-carrier", 0), SSP("log", "by-carrier", 1)
    >>> purge_offsets({a: 7, b: 3}, {b: 3})
    {'by-carrier': {0: 7}}
    """
    offsets: dict[str, dict[int, int]] = {}
    for ssp in sorted(lowest):
        if lowest[ssp] > done.get(ssp, 0):
            offsets.setdefault(ssp.stream, {})[ssp.partition] = lowest[ssp]
    return offsets


def held_back_by(unread: Mapping[str, int], max_lag: int | None) -> str | None:
    """The repartition stream for whose reader a sub-topology waits before its next round; None: it continues.

    `unread`: of each stream that it writes how many offsets its reader has still before it. A round is begun while fewer
    than `max_lag` are unread and then writes all that it makes, so that a stream may come to hold that much more.

    >>> held_back_by({"by-day": 10, "by-carrier": 500}, max_lag=500), held_back_by({"by-carrier": 499}, max_lag=500)
    ('by-carrier', None)
    """
    if max_lag is None:
        return None
    return min((stream for stream, count in unread.items() if count >= max_lag), default=None)
