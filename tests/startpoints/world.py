"""An application on either system whose job passes on what it reads, and those outside who ask for startpoints.

What was processed, and what there was to process, is read by checkers of their own (`support.checker`, `startpoints.reading`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.codec.documents import decode, encode
from headrace.codec.job_records import STARTPOINTS
from headrace.model.startpoint import (
    PositionType,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointRequest,
    StartpointStatus,
    StatePolicy,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from startpoints.checker import Place as StreamPlace
from startpoints.checker import by_place, processed_in
from startpoints.reading import TopicReader
from support.checker import Row
from support.children import Children
from support.world import Place, World

LOG_START_US = 1_700_000_000_000_000


def passed_on(record: Any) -> bytes:
    return f"{record.stream}:{record.partition}:{record.offset}".encode()


class PassingWorld(World):
    """One application whose job passes on what it reads, and what somebody asks for from outside."""

    def __init__(self, folder: Path, place: Place, children: Children | None = None, build: str = "") -> None:
        super().__init__(folder, place, children, build)
        self.input, self.output = self.stream("in"), self.stream("out")
        self._numbers: dict[str, int] = {}
        self._asked_us = 0
        self._readers: dict[str, TopicReader] = {}
        self.is_passing = False  # whether its job passes on what it reads, in the form that the checker knows
        self.seen: dict[str, int] = {}  # id of a startpoint to how many records of its partition were processed before

    # --- the job ------------------------------------------------------------------------------------------------------

    def passing(self, *streams: str, source: Mapping[str, Any] | None = None, **keys: Any) -> hr.App:
        """An application that passes on all that it reads of `streams`; none given: of the input."""
        self.is_passing = True
        app = self.app(**keys)
        first, *others = [app.stream(stream, **(source or {})) for stream in streams or (self.input,)]
        for other in others:
            first = first.merge(other)
        first.map_values(passed_on, value=hr.Bytes()).to(self.output, partitioner=to_the_only_one)
        return app

    def create(self, partitions: int, *streams: str) -> None:
        for stream in streams or (self.input,):
            self.system.create_stream(stream, partitions)
        self.system.create_stream(self.output, 1)

    # --- its streams --------------------------------------------------------------------------------------------------

    def send(self, count: int, *partitions: int, stream: str | None = None) -> None:
        """So many records to each of the partitions (none given: to all), a second after each other on the log."""
        name = stream or self.input
        records = []
        for partition in partitions or range(self.system.describe_stream(name).partitions):
            for _ in range(count):
                number = self._numbers[name] = self._numbers.get(name, 0) + 1
                time_us = None if self.place.servers else LOG_START_US + number * 1_000_000
                records.append(hr.Record(b"k%d" % (number % 7), b"v%d" % number, time_us, partition=partition))
        self.system.produce(name, records)

    def put(self, table: str, key: str, value: str) -> None:
        """A record of a table, older than all that is sent later."""
        time_us = None if self.place.servers else LOG_START_US
        self.system.produce(table, [hr.Record(key.encode(), value.encode(), time_us)])

    def sending(self, stream: str | None = None, every_s: float = 0.1) -> AbstractContextManager[None]:
        """While the context lasts, records arrive in all partitions."""
        return self.producing(lambda _: self.send(2, stream=stream), every_s)

    def ends(self, stream: str | None = None) -> dict[int, int]:
        return dict(self.system.end_offsets(stream or self.input))

    def is_at_its_end(self, *streams: str) -> bool:
        """Whether the job's stored positions are where the streams end (none given: the input). For waiting, not judging."""
        stored = self.system.job_store(self.name).checkpoints().values()
        positions = {ssp.whole: position for one in stored for ssp, position in one.positions.items()}
        wanted = {(name, p): end for name in streams or (self.input,) for p, end in self.ends(name).items()}
        return all(positions.get(SSP(self.system.name, *place), 0) >= end for place, end in wanted.items())

    def rows_of(self, stream: str) -> list[Row]:
        """All that a stream holds, read without Headrace."""
        if not self.place.servers:
            return super().rows_of(stream)
        if stream not in self._readers:
            self._readers[stream] = TopicReader(self.settings, stream)
        return self._readers[stream].rows()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        super().close()

    def processed(self) -> list[tuple[str, int, int]]:
        return processed_in(self.rows_of(self.output))

    def processed_by_place(self) -> dict[StreamPlace, list[int]]:
        return by_place(self.processed())

    # --- startpoints --------------------------------------------------------------------------------------------------

    def entry(
        self, position_type: PositionType, partition: int, position: int | None = None, *, task: str | None = None,
        stream: str | None = None, at_us: int | None = None,
    ) -> StartpointEntry:
        self._asked_us = max(time.time_ns() // 1000, self._asked_us + 1)
        ssp = SSP(self.system.name, stream or self.input, partition)
        key = StartpointKey(ssp, None if task is None else TaskName.parse(task))
        written_us = self._asked_us if at_us is None else at_us
        return StartpointEntry(
            uuid.uuid4().hex[:12], key, Startpoint(position_type, position), "a tester", written_us, StatePolicy.KEEP
        )

    def ask(self, *entries: StartpointEntry) -> list[str]:
        """One request for all of them, as a command writes it. What was processed before is noted for the checker."""
        before = self.processed_by_place() if self.is_passing else {}
        self.seen |= {entry.id: len(before.get((entry.key.ssp.stream, entry.key.ssp.partition), ())) for entry in entries}
        self.system.metadata_store(self.name).request(STARTPOINTS, encode(StartpointRequest(tuple(entries))))
        return [entry.id for entry in entries]

    def ask_for(self, position_type: PositionType, partition: int, position: int | None = None, **options: Any) -> str:
        return self.ask(self.entry(position_type, partition, position, **options))[0]

    def delete(self, *ids: str) -> None:
        self.system.metadata_store(self.name).request(STARTPOINTS, encode(StartpointRequest(deleted=ids)))

    def requests(self) -> int:
        return len(self.system.metadata_store(self.name).requests(STARTPOINTS))

    def records(self) -> dict[str, StartpointRecord]:
        found = self.system.metadata_store(self.name).all(STARTPOINTS)
        return {id_: decode(StartpointRecord, data, id_) for id_, data in found.items()}

    def status(self, id_: str) -> StartpointStatus | None:
        """What became of a startpoint, None where no driver has taken it up."""
        found = self.records().get(id_)
        return None if found is None else found.status

    def offset_of(self, id_: str) -> int:
        """What a startpoint came to; where several tasks have it, for all of them."""
        (offset,) = {one.offset for one in self.records()[id_].resolutions}
        return offset


def to_the_only_one(record: Any, count: int) -> int:
    return 0
