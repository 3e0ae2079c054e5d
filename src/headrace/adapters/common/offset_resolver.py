"""Which offsets are meant: of startpoints, and of what is to be read, in streams that say where they begin and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from headrace.core.rewind.startpoint_rules import offset_of
from headrace.errors import OffsetOutOfRangeError
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP
from headrace.ports.system import Streams, SystemConsumer


class StreamConsumer(SystemConsumer):
    """Takes startpoints of every type. Each stream is asked once: all that is resolved together sees one state of it."""

    def __init__(self, streams: Streams) -> None:
        self._beginnings, self._ends = cache(streams.beginning_offsets), cache(streams.end_offsets)
        self._at = cache(streams.offsets_for_time)

    def register(self, ssp: SSP, startpoint: Startpoint | int) -> int:
        if isinstance(startpoint, int):
            super().register(ssp, startpoint)
            startpoint = Startpoint(PositionType.SPECIFIC_OFFSET, startpoint)
        first, end = self._beginnings(ssp.stream)[ssp.partition], self._ends(ssp.stream)[ssp.partition]
        return offset_of(startpoint, ssp, first, end, lambda time_us: self._at(ssp.stream, time_us)[ssp.partition])


def ranges_to_read(
    stream: str, bounds: Mapping[int, tuple[int, int]], partitions: Sequence[int] | None, start: Any
) -> list[tuple[int, int, int]]:
    """(partition, start, end) of what `consume` is to read; `bounds`: first offset and end by partition; `start`: an offset,
    a mapping partition to offset, or None for the beginning. `OffsetOutOfRangeError` for what is not there."""
    ranges = []
    for partition in sorted(bounds) if partitions is None else partitions:
        first, end = checked_bounds(stream, bounds, partition)
        requested = start.get(partition) if isinstance(start, Mapping) else start
        begin = first if requested is None else requested
        if not isinstance(begin, int) or isinstance(begin, bool):
            raise OffsetOutOfRangeError(f"start {begin!r}: expected an offset, a mapping partition to offset, or None")
        check_range(stream, partition, (first, end), begin, end)
        ranges.append((partition, begin, end))
    return ranges


def checked_bounds(stream: str, bounds: Mapping[int, tuple[int, int]], partition: int) -> tuple[int, int]:
    """First offset and end of `partition`; `OffsetOutOfRangeError` if there is no such partition."""
    if partition not in bounds:
        raise OffsetOutOfRangeError(
            f"stream {stream!r} has no partition {partition!r}: it has 0 to {max(bounds)}", "choose one of those"
        )
    return bounds[partition]


def check_range(stream: str, partition: int, bounds: tuple[int, int], start: int, end: int) -> None:
    """`OffsetOutOfRangeError` unless start <= offset < end can be read."""
    first, last = bounds
    if not first <= start <= end <= last:
        wanted = f"offset {start}" if start == end or end == last else f"offsets {start} to {end}"
        hint = f"what was before {first} has been purged" if start < first else "name an offset up to the end"
        raise OffsetOutOfRangeError(
            f"{wanted} of {stream!r} partition {partition}: it holds {first} to {last} (exclusive)", hint
        )
