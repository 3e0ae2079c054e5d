"""Resolving startpoints in a system whose streams say where they begin and end, and what offset a time has."""

from __future__ import annotations

from functools import cache

from headrace.core.rewind.startpoints import offset_of
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP
from headrace.ports import Streams, SystemConsumer


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
