"""How much of a repartition stream no task will read again (protocol.md 14)."""

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
            lowest[ssp.whole] = min(position, lowest.get(ssp.whole, position))
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
