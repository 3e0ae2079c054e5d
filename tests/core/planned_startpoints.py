"""A driver that takes up startpoints, without a job around it: what is stored, in its stored form, and what happens to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.codec.documents import decode, encode
from headrace.core.job_plan.apply_rewinds import StateHistory, StateRewinds
from headrace.core.job_plan.apply_startpoints import AppliedStartpoints, apply_startpoints
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.startpoint_rules import TaskPartition, offset_of
from headrace.driver.planning.job_plan import StartpointRecords
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.startpoint import (
    PositionType,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointRequest,
    StartpointStatus,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports.system import SystemConsumer

Owners = Mapping[SSP, Collection[TaskName]]


class Consumer(SystemConsumer):
    """Every partition holds the offsets from 0 to an end of its own; the record at offset n has time n."""

    def __init__(self, ends: Mapping[SSP, int]) -> None:
        self.ends = dict(ends)

    def register(self, ssp: SSP, startpoint: Startpoint | int) -> int:
        assert isinstance(startpoint, Startpoint)
        return offset_of(startpoint, ssp, 0, self.ends[ssp], lambda time_us: time_us)

    def high_watermarks(self, stream: str) -> dict[int, int]:
        return {ssp.partition: end for ssp, end in self.ends.items() if ssp.stream == stream}


class Stored:
    """What the store and the driver of an application have. `position` is where a task begins or has come to."""

    def __init__(self, owners: Owners, ends: Mapping[SSP, int], position: int) -> None:
        self.consumer, self.requests, self.records = Consumer(ends), {}, {}
        self.checkpoints: dict[TaskName, Checkpoint] = {}
        self._numbers, self._now_us = 0, 1_000
        for task in sorted({task for tasks in owners.values() for task in tasks}):
            positions = {ssp: position for ssp, tasks in owners.items() if task in tasks}
            self.checkpoints[task] = Checkpoint(task, RoundId(1, None, 0), 1, positions)
        self.running = StartpointRecords()
        self.requests: dict[str, bytes]
        self.records: dict[str, bytes]

    # --- from outside -------------------------------------------------------------------------------------------------

    def ask(self, *entries: StartpointEntry, delete: Iterable[str] = ()) -> str:
        self._numbers += 1
        id_ = f"{self._numbers:05d}"
        self.requests[id_] = encode(StartpointRequest(tuple(entries), tuple(delete)))
        return id_

    # --- the driver ---------------------------------------------------------------------------------------------------

    def plan(
        self,
        owners: Owners | None = None,
        *,
        removes: bool = True,
        now_us: int | None = None,
        read_from_start: Collection[str] = (),
    ) -> AppliedStartpoints:
        """Plan anew and commit the plan; without `removes` it ends before it has removed the requests that are done."""
        self._now_us = self._now_us + 1 if now_us is None else now_us
        requests = {id_: decode(StartpointRequest, data, id_) for id_, data in sorted(self.requests.items())}
        records = {id_: decode(StartpointRecord, data, id_) for id_, data in self.records.items()}
        carried = self.checkpoints if owners is None else self._carried(owners)
        rewinds = StateRewinds(StateHistory(), (), self.consumer, self._now_us)
        taken = apply_startpoints(
            StartpointRequests(requests, records), self.checkpoints, carried, rewinds, read_from_start
        )
        for id_, record in taken.written.items():
            if record is None:
                del self.records[id_]
            else:
                self.records[id_] = encode(record)
        assert self.records == {id_: encode(record) for id_, record in taken.records.items()}
        self.checkpoints = dict(taken.checkpoints)
        if removes:
            self.requests = {id_: data for id_, data in self.requests.items() if id_ not in taken.done}
        self.running = StartpointRecords(taken.records)
        return taken

    def commit(self, task: TaskName, moves: Mapping[SSP, int]) -> None:
        """A round of one task, as a container commits it."""
        base = self.checkpoints[task]
        positions = {ssp: position + moves.get(ssp, 0) for ssp, position in base.positions.items()}
        spent = {ssp: id_ for ssp, (id_, offset) in self.running.pending_of(task).items() if positions[ssp] != offset}
        self.checkpoints[task] = replace(base, positions=positions, spent_startpoints=spent)
        self.running.committed([self.checkpoints[task]])

    def settle(self) -> None:
        """Store that those are applied which commits have spent."""
        self._now_us += 1
        self.running.settle(self, 1, self._now_us)  # type: ignore[arg-type]

    def write_metadata(self, epoch: int, namespace: str, values: Mapping[str, Any]) -> None:
        self.records |= values

    def _carried(self, owners: Owners) -> dict[TaskName, Checkpoint]:
        """The checkpoints of other tasks, each SSP where the one that read it was."""
        positions = {ssp: position for one in self.checkpoints.values() for ssp, position in one.positions.items()}
        tasks = sorted({task for tasks in owners.values() for task in tasks})
        return {
            task: Checkpoint(
                task, RoundId(1, None, 0), 2, {ssp: positions[ssp] for ssp, tasks in owners.items() if task in tasks}
            )
            for task in tasks
        }

    # --- for judging --------------------------------------------------------------------------------------------------

    @property
    def positions(self) -> dict[TaskPartition, int]:
        return {(one.task, ssp): position for one in self.checkpoints.values() for ssp, position in one.positions.items()}

    @property
    def status(self) -> dict[str, StartpointStatus]:
        return {id_: self.record(id_).status for id_ in sorted(self.records)}

    def record(self, id_: str) -> StartpointRecord:
        return decode(StartpointRecord, self.records[id_], id_)


def entry(id_: str, ssp: SSP, at: int | PositionType, task: TaskName | None = None, written_at_us: int = 0) -> StartpointEntry:
    """For an offset, or of a type that has none."""
    startpoint = Startpoint(at) if isinstance(at, PositionType) else Startpoint(PositionType.SPECIFIC_OFFSET, at)
    return StartpointEntry(id_, StartpointKey(ssp, task), startpoint, "ann@desk", written_at_us)
