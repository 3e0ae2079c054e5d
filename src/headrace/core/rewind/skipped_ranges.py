"""Ranges of offsets that readers skip, because a rewind writes again what they hold."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.model.streams import SSP

Span = tuple[int, int]  # offsets start <= o < end
SkippedRanges = Mapping[SSP, tuple[Span, ...]]  # of each partition in order, apart from each other


def beyond_skipped(positions: Mapping[SSP, int], skipped_ranges: SkippedRanges) -> dict[SSP, int]:
    """Of these positions those that lie in a gap, each where that ends."""
    return {
        ssp: end
        for ssp, spans in skipped_ranges.items()
        for start, end in spans
        if ssp in positions and start <= positions[ssp] < end
    }


def before_skipped(positions: Mapping[SSP, int], ends: Mapping[SSP, int], skipped_ranges: SkippedRanges) -> dict[SSP, int]:
    """Up to where each partition may be read from these positions: nothing of a gap."""
    allowed = dict(ends)
    for ssp, spans in skipped_ranges.items():
        if ssp in allowed and ssp in positions:
            before = positions[ssp]
            allowed[ssp] = min([allowed[ssp], *(max(start, before) for start, end in spans if before < end)])
    return allowed


def skipped_between(before: Mapping[SSP, int], after: Mapping[SSP, int], skipped_ranges: SkippedRanges) -> int:
    """How many offsets between these positions are skipped, over all partitions.

    >>> a = SSP("log", "s", 0)
    >>> skipped_between({a: 2}, {a: 40}, {a: ((3, 20), (30, 31))})
    18
    """
    read = {ssp: (before[ssp], after[ssp]) for ssp in skipped_ranges if ssp in before and ssp in after}
    return sum(shared(span, skipped) for ssp, span in read.items() for skipped in skipped_ranges[ssp])


def shared(one: Span, other: Span) -> int:
    """How many offsets are in both."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))
