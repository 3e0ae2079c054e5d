"""Resolving startpoints in a system whose streams say where they begin and end, and what offset a time has."""

from __future__ import annotations

from typing import Any

from headrace.core.rewind.startpoints import offset_of
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP
from headrace.ports import Streams, SystemConsumer


class StreamConsumer(SystemConsumer):
    """Takes startpoints of every type. Each stream is asked once: all that is resolved together sees one state of it."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._known: dict[Any, dict[int, int]] = {}

    def register(self, ssp: SSP, startpoint: Startpoint | int) -> int:
        if isinstance(startpoint, int):
            super().register(ssp, startpoint)
            startpoint = Startpoint(PositionType.SPECIFIC_OFFSET, startpoint)
        beginnings = self._asked("beginning", ssp.stream)
        ends = self._asked("end", ssp.stream)
        return offset_of(
            startpoint,
            ssp,
            beginnings[ssp.partition],
            ends[ssp.partition],
            lambda time_us: self._asked(time_us, ssp.stream)[ssp.partition],
        )

    def _asked(self, what: str | int, stream: str) -> dict[int, int]:
        if (what, stream) not in self._known:
            if what == "beginning":
                found = self._streams.beginning_offsets(stream)
            elif what == "end":
                found = self._streams.end_offsets(stream)
            else:
                found = self._streams.offsets_for_time(stream, int(what))
            self._known[what, stream] = found
        return self._known[what, stream]
