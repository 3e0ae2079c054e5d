"""An application on either system whose startpoints are asked for one partition after another, and the verdict."""

from __future__ import annotations

import json
import random
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.codec.documents import encode
from headrace.model.startpoint import PositionType, Startpoint, StartpointEntry, StartpointKey, StartpointRequest, StatePolicy
from headrace.model.streams import SSP
from startpoint_kills.passes import Jump, jumps_of, one_pass_each
from support.checker import KillReport, Row
from support.children import Children
from support.world import Place, World

LOCATED, COUNTED = "startpoint_kills.jobs:located", "startpoint_kills.jobs:counted"
READ_BEFORE = 20  # records of each partition that were read before the first startpoint
TURN_S = 0.05
TYPES = tuple(PositionType)


class StartpointWorld(World):
    """One application that reads one stream of so many partitions. Each partition gets one startpoint at most."""

    def __init__(
        self, folder: Path, place: Place, children: Children, partitions: int, seed: int, build: str = LOCATED
    ) -> None:
        super().__init__(folder, place, children, build)
        self.partitions, self.draw = partitions, random.Random(seed)
        self.system.create_stream(self.stream("in"), partitions)
        self.system.create_stream(self.stream("passed"), 1)
        self.asked: dict[str, StartpointEntry] = {}
        self._began_us = time.time_ns() // 1000 - 3_600_000_000
        self._written = 0
        self.write(READ_BEFORE)

    # --- what is written and asked for ------------------------------------------------------------------------------

    def write(self, turns: int, system: Any = None) -> None:
        """To each partition one record a turn; of each the time is one second later."""
        places = range(self.partitions)
        rows = [(self._time_us(self._written + turn), place) for turn in range(turns) for place in places]
        self._written += turns
        records = [hr.Record(b"%d" % place, b"v", time_us, partition=place) for time_us, place in rows]
        (system or self.system).produce(f"{self.name}-in", records)

    def _time_us(self, turn: int) -> int:
        return self._began_us + turn * 1_000_000

    def producer(self) -> AbstractContextManager[None]:
        """While the context lasts, records come all the time."""
        return self.producing(lambda system: self.write(1, system), TURN_S)

    def ask(self, kind: PositionType | None = None, state: StatePolicy = StatePolicy.KEEP) -> StartpointEntry:
        """A startpoint for the next partition, of each type in turn where none is given, to before what was read at first."""
        partition = len(self.asked)
        kind = kind or TYPES[partition % len(TYPES)]
        turn = self.draw.randrange(READ_BEFORE)
        position = {PositionType.SPECIFIC_OFFSET: turn, PositionType.TIMESTAMP: self._time_us(turn)}.get(kind)
        key = StartpointKey(SSP(self.system.name, f"{self.name}-in", partition))
        at, now_us = Startpoint(kind, position), time.time_ns() // 1000
        entry = StartpointEntry(f"sp-{partition}", key, at, "a test", now_us, state)
        self.asked[entry.id] = entry
        self._metadata().request("startpoints", encode(StartpointRequest((entry,))))
        return entry

    def _metadata(self) -> Any:
        return self.system.metadata_store(self.name)

    # --- what is committed ------------------------------------------------------------------------------------------

    def came_to(self, id_: str) -> Any:
        """What is on record of what a startpoint came to; None while it has not been taken up."""
        record = self.on_record().get(id_)
        return None if record is None else json.loads(record)["resolutions"]

    def on_record(self) -> dict[str, bytes]:
        """What is stored of each startpoint."""
        return dict(self._metadata().all("startpoints"))

    def judge(self, report: KillReport) -> None:
        """Whether all that was asked for has been applied, once, when the job is done."""
        self.finish()
        self.write(1)  # so that the positions move that wait at an end
        self.finish()
        self.finish()  # and what the last rounds have spent is stored
        assert not self._metadata().requests("startpoints"), "requests that nobody has taken up"
        records = self.on_record()
        assert records.keys() == self.asked.keys(), f"lost, or made up: {records.keys() ^ self.asked.keys()}"
        jumps, inputs = jumps_of(records), self.rows("in")
        report.checked("startpoints that meant what was asked for", self._as_asked(jumps, inputs))
        report.checked("records, in each pass once and in order", one_pass_each(inputs, self.rows("passed"), jumps))

    def _as_asked(self, jumps: list[Jump], inputs: list[Row]) -> int:
        for jump in jumps:
            offsets = [(row["offset"], row["timestamp_us"]) for row in inputs if row["partition"] == jump.partition]
            kind, position = (asked := self.asked[jump.id].startpoint).position_type, asked.position or 0
            assert jump.before >= offsets[READ_BEFORE - 1][0], f"{asked} was applied before what was read: {jump}"
            match kind:
                case PositionType.SPECIFIC_OFFSET:
                    expected = position
                case PositionType.TIMESTAMP:
                    expected = next(offset for offset, time_us in offsets if time_us >= position)
                case PositionType.LATEST:
                    assert jump.offset >= jump.before, f"{asked} went back: {jump}"
                    continue
                case _:
                    expected = offsets[0][0]
            assert jump.offset == expected, f"{asked} came to {jump.offset}, expected {expected}"
        return len(jumps)
