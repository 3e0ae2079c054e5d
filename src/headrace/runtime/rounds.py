"""Owns the rounds of one sub-topology: plan exact ranges, run the containers, commit, and begin again.

A round is the unit of retry: whatever fails, its work is thrown away, what is committed is read again, and a new round is
planned from that (protocol.md, Words). `Rounds` decides nothing about time: the caller says when to look.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from headrace.core.planning import OffsetRange, ranges_of, spark_tasks_of
from headrace.core.sub_topologies import SubTopology
from headrace.core.watermarks import joined_reports, task_watermark
from headrace.errors import RoundFailedError
from headrace.model.checkpoint import Checkpoint, Head, RoundId
from headrace.model.job_model import SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import SourceKind
from headrace.ports import Chunk, ContainerWork, Engine, RoundCommit
from headrace.runtime.plan import (
    ContainerPlan,
    InputRange,
    KnownFailure,
    Program,
    Summary,
    TaskPlan,
    decoded_summary,
    encoded,
)
from headrace.runtime.reported_errors import error_of, record_error
from headrace.runtime.steps import reached


@dataclass(frozen=True, slots=True)
class Place:
    """Where workers find things, and how long a container may work. Folders are absolute."""

    run_id: str
    boot_id: str
    local_store_dir: str
    state_uri: str
    log_root: str
    staging: Path
    max_round_s: float


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """One attempt: what it reads, what it builds on, and the payloads of its containers, packed into Spark tasks."""

    id: RoundId
    ranges: tuple[OffsetRange, ...]
    ends: Mapping[SSP, int]
    upstream_watermark: int | None
    base: Mapping[TaskName, Checkpoint]
    works: tuple[tuple[ContainerWork, ...], ...]
    ssps: tuple[SSP, ...]
    lanes: frozenset[int]


@dataclass(slots=True)
class Progress:
    """What a sub-topology has done since this driver started, and where it stands."""

    rounds: int = 0
    records: int = 0
    records_written: int = 0
    lag: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)


class Rounds:
    """The rounds of one sub-topology. Not for several threads, but `checkpoints` may be read from any."""

    def __init__(
        self,
        sub: SubTopology,
        model: SubTopologyModel,
        program: Program,
        checkpoints: Mapping[TaskName, Checkpoint],
        epoch: int,
        model_version: int,
        system: Any,
        store: Any,
        engine: Engine,
        place: Place,
        max_records: int,
        slots: int,
    ) -> None:
        self.sub, self.model, self.program = sub, model, program
        self.tasks: tuple[TaskModel, ...] = tuple(model.tasks)
        self.checkpoints: dict[TaskName, Checkpoint] = {
            task.name: checkpoints[task.name] for task in self.tasks
        }
        self.progress = Progress()
        self.known_failures: list[tuple[SSP, int, str, str]] = []
        self._epoch, self._model_version = epoch, model_version
        self._system, self._store, self._engine = system, store, engine
        self._place, self._max_records, self._slots = place, max_records, slots
        self._number = 0
        self._idle_since: dict[SSP, float] = {}
        self._kinds = {source.stream: source.kind for source in sub.sources}
        self.live_files: set[str] = set()

    @property
    def max_round_s(self) -> float:
        """How long a container may work before it cuts its round short."""
        return self._place.max_round_s

    # --- where things stand -----------------------------------------------------------------------------------------

    def positions(self) -> dict[SSP, int]:
        """Per whole partition the lowest position among the tasks that read it."""
        lowest: dict[SSP, int] = {}
        for checkpoint in self.checkpoints.values():
            for ssp, position in checkpoint.positions.items():
                lowest[ssp.whole] = min(position, lowest.get(ssp.whole, position))
        return lowest

    def ends(self) -> dict[SSP, int]:
        found: dict[SSP, int] = {}
        for stream in self.sub.reads:
            for partition, end in self._system.end_offsets(stream).items():
                ssp = SSP(self._system.name, stream, partition)
                found[ssp] = end
        return found

    def note_idle(self, ends: Mapping[SSP, int], now_s: float) -> None:
        """Remember since when each SSP has been at its end."""
        positions = self.positions()
        for ssp, position in positions.items():
            if position >= ends.get(ssp, 0):
                self._idle_since.setdefault(ssp, now_s)
            else:
                self._idle_since.pop(ssp, None)

    def idle(self, now_s: float, timeout_s: float) -> set[SSP]:
        return {ssp for ssp, since in self._idle_since.items() if now_s - since >= timeout_s}

    def watermarks(
        self, ends: Mapping[SSP, int], upstream: int | None, idle: set[SSP]
    ) -> dict[TaskName, int | None]:
        """The watermark of every task as it stands: what the next round judges by."""
        known: dict[SSP, int | None] = dict(joined_reports(self.checkpoints.values()))
        positions = self.positions()
        for ssp, position in positions.items():
            if self._kinds[ssp.stream] is SourceKind.REPARTITION and position >= ends.get(ssp, 0):
                known[ssp] = upstream if upstream is not None else known.get(ssp)
        return {task.name: task_watermark(task.ssps, known, idle) for task in self.tasks}

    # --- plan -------------------------------------------------------------------------------------------------------

    def plan(
        self, ends: Mapping[SSP, int], upstream: int | None, idle: set[SSP], now_us: int, limit: Mapping[SSP, int] | None = None
    ) -> PlannedRound | None:
        """The next round, or None where there is nothing to do: no record, no due timer."""
        reached("log", 1)
        bounded = ends if limit is None else {ssp: min(end, limit.get(ssp, end)) for ssp, end in ends.items()}
        positions = self.positions()
        bounded = {ssp: max(end, positions.get(ssp, 0)) if limit is not None else end for ssp, end in bounded.items()}
        ranges = ranges_of(positions, bounded, self._max_records)
        watermarks = self.watermarks(ends, upstream, idle)
        by_ssp = {r.ssp: r for r in ranges}
        lanes: list[tuple[int, int]] = []
        for container in self.model.containers:
            wanted = sum(by_ssp[ssp.whole].records for task in container.tasks for ssp in task.ssps if ssp.whole in by_ssp)
            due = any(self._is_due(self.checkpoints[task.name], watermarks[task.name], now_us) for task in container.tasks)
            if wanted or due:
                lanes.append((container.lane, wanted))
        if not lanes:
            return None
        self._number += 1
        round_id = RoundId(self._epoch, self.sub.name, self._number)
        ssps = tuple(sorted({ssp.whole for task in self.tasks for ssp in task.ssps}))
        payloads = {lane: self._payload(lane, round_id, ssps, by_ssp, watermarks, now_us) for lane, _ in lanes}
        records = dict(lanes)
        packed = spark_tasks_of(lanes, self._slots)
        works = tuple(
            tuple(ContainerWork(lane, payloads[lane], self._location(lane), records[lane]) for lane in group)
            for group in packed
        )
        chosen = frozenset(records)
        base = {
            task.name: self.checkpoints[task.name]
            for container in self.model.containers
            if container.lane in chosen
            for task in container.tasks
        }
        return PlannedRound(round_id, ranges, ends, upstream, base, works, ssps, chosen)

    @staticmethod
    def _is_due(checkpoint: Checkpoint, watermark_us: int | None, now_us: int) -> bool:
        event, wall = checkpoint.event_timer_us, checkpoint.wall_timer_us
        return (event is not None and watermark_us is not None and event <= watermark_us) or (
            wall is not None and wall <= now_us
        )

    def _location(self, lane: int) -> str | None:
        return next(container.location_id for container in self.model.containers if container.lane == lane)

    def _payload(
        self,
        lane: int,
        round_id: RoundId,
        ssps: tuple[SSP, ...],
        ranges: Mapping[SSP, OffsetRange],
        watermarks: Mapping[TaskName, int | None],
        now_us: int,
        staging: Path | None = None,
    ) -> bytes:
        container = next(container for container in self.model.containers if container.lane == lane)
        number = {ssp: i for i, ssp in enumerate(ssps)}
        mine = sorted({ssp.whole for task in container.tasks for ssp in task.ssps if ssp.whole in ranges})
        plan = ContainerPlan(
            round_id=str(round_id),
            epoch=round_id.epoch,
            lane=lane,
            ssps=[(ssp.system, ssp.stream, ssp.partition) for ssp in ssps],
            tasks=[
                _task_plan(self.checkpoints[task.name], task, number, watermarks[task.name]) for task in container.tasks
            ],
            ranges=[self._input_range(ranges[ssp], number[ssp]) for ssp in mine],
            now_us=now_us,
            deadline_s=self._place.max_round_s,
            run_id=self._place.run_id,
            boot_id=self._place.boot_id,
            local_store_dir=self._place.local_store_dir,
            state_uri=self._place.state_uri,
            log_root=self._place.log_root,
            stop_flag=str((staging or self.staging_of(round_id)) / "stopped"),
            known_failures=[
                KnownFailure(number[ssp], offset, kind, message)
                for ssp, offset, kind, message in self.known_failures
                if ssp in mine
            ],
        )
        return encoded(plan)

    def probe_payload(self, planned: PlannedRound, piece: OffsetRange) -> bytes:
        """A payload that reads nothing but `piece`, for the search for a record that fails in the engine.

        It has a folder of its own: the round is given up, and the flag in its folder says so to whoever still reads.
        """
        staging = self.staging_of(planned.id) / "probes"
        staging.mkdir(parents=True, exist_ok=True)
        lane = min(planned.lanes)
        ranges = {piece.ssp: piece}
        watermarks = dict.fromkeys((task.name for task in self.tasks), None)
        owner = next(
            container.lane
            for container in self.model.containers
            if any(ssp.whole == piece.ssp for task in container.tasks for ssp in task.ssps)
        )
        lane = owner if owner in planned.lanes else lane
        return self._payload(lane, planned.id, planned.ssps, ranges, watermarks, 0, staging)

    def _input_range(self, piece: OffsetRange, number: int) -> InputRange:
        chunks = self._system.chunks(piece.ssp.stream, piece.ssp.partition, piece.start, piece.end)
        return InputRange(number, piece.start, piece.end, [msgspec.to_builtins(chunk) for chunk in chunks])

    def staging_of(self, round_id: RoundId) -> Path:
        """The folder of an attempt: its stop flag, and what its Spark tasks leave for each other."""
        return self._place.staging / f"{round_id.epoch}-{round_id.sub_topology or 'source'}-{round_id.number}"

    # --- run and commit ---------------------------------------------------------------------------------------------

    def run(self, planned: PlannedRound) -> list[Summary]:
        """Run the containers; one summary each. Raises what made the round fail, with nothing committed."""
        staging = self.staging_of(planned.id)
        staging.mkdir(parents=True, exist_ok=True)
        summaries = [
            decoded_summary(data)
            for data in self._engine.run(self.sub.title, str(planned.id), planned.works, self.program)
        ]
        for summary in sorted(summaries, key=lambda summary: summary.lane):
            if summary.failure is not None:
                raise record_error(summary.failure)
            if summary.error is not None:
                raise error_of(summary.error)
        lanes = {summary.lane for summary in summaries if not summary.stopped}
        if lanes != planned.lanes or len(summaries) != len(lanes):
            raise RoundFailedError(f"round {planned.id}: containers {sorted(lanes)} answered, expected {sorted(planned.lanes)}")
        shutil.rmtree(staging, ignore_errors=True)
        return summaries

    def stop_flag(self, planned: PlannedRound) -> None:
        """Tell workers of a round that is given up, zombies included, to stop."""
        staging = self.staging_of(planned.id)
        staging.mkdir(parents=True, exist_ok=True)
        (staging / "stopped").touch()

    def commit(self, planned: PlannedRound, summaries: list[Summary]) -> None:
        began = time.monotonic()
        checkpoints = tuple(self._checkpoint(planned, task) for summary in summaries for task in summary.tasks)
        chunks = tuple(msgspec.convert(chunk, Chunk) for summary in summaries for chunk in summary.chunks)
        files = tuple(path for summary in summaries for path in summary.state_files)
        self._store.commit_round(
            RoundCommit(
                planned.id,
                checkpoints,
                chunks,
                files,
                bases={name: checkpoint.round_id for name, checkpoint in planned.base.items()},
            )
        )
        before = self.positions()
        self.checkpoints.update({checkpoint.task: checkpoint for checkpoint in checkpoints})
        # By positions: workers count what passed the Column prefix, and a record that several tasks read several times.
        self.progress.records += sum(position - before[ssp] for ssp, position in self.positions().items())
        self.known_failures = [
            known for known in self.known_failures if known[1] >= self.positions().get(known[0], 0)
        ]
        self._note(summaries, (time.monotonic() - began) * 1e3)

    def _note(self, summaries: list[Summary], commit_ms: float) -> None:
        progress = self.progress
        progress.rounds += 1
        timings: dict[str, float] = {"commit": round(commit_ms, 1)}
        for summary in summaries:
            progress.records_written += summary.counters.get("records_written", 0)
            for metric, count in summary.counters.items():
                progress.counters[metric] = progress.counters.get(metric, 0) + count
            for name, duration_ms in summary.timings_ms.items():
                timings[name] = round(max(duration_ms, timings.get(name, 0.0)), 1)
            progress.notes.extend(summary.notes)
        del progress.notes[:-20]
        progress.timings_ms = timings

    def _checkpoint(self, planned: PlannedRound, task: Any) -> Checkpoint:
        name = TaskName.parse(task.name)
        base = planned.base[name]
        positions = {planned.ssps[number]: position for number, position in task.positions.items()}
        watermarks = dict(base.watermarks)
        for number, time_us in task.watermarks.items():
            ssp = planned.ssps[number]
            if self._kinds[ssp.stream] is not SourceKind.REPARTITION:
                watermarks[ssp] = max(time_us, watermarks.get(ssp, time_us))
        for ssp, position in positions.items():
            at_end = position >= planned.ends.get(ssp, 0)
            if self._kinds[ssp.stream] is SourceKind.REPARTITION and at_end and planned.upstream_watermark is not None:
                watermarks[ssp] = max(planned.upstream_watermark, watermarks.get(ssp, planned.upstream_watermark))
        return replace(
            base,
            round_id=planned.id,
            job_model_version=self._model_version,
            positions=positions,
            head=None if task.head is None else msgspec.convert(task.head, Head),
            watermarks=watermarks,
            event_timer_us=task.event_timer_us,
            wall_timer_us=task.wall_timer_us,
        )

    def read_again(self) -> None:
        """After a failure: what is committed is what counts, if it is still ours; `FencedError` if it is not."""
        with self._store.holding(self._epoch):
            stored = self._store.checkpoints()
        self.checkpoints.update({task.name: stored[task.name] for task in self.tasks if task.name in stored})


def _task_plan(
    checkpoint: Checkpoint, task: TaskModel, number: Mapping[SSP, int], watermark_us: int | None
) -> TaskPlan:
    return TaskPlan(
        str(task.name),
        {number[ssp.whole]: checkpoint.positions[ssp] for ssp in task.ssps},
        None if checkpoint.head is None else msgspec.to_builtins(checkpoint.head),
        watermark_us,
        checkpoint.event_timer_us,
        checkpoint.wall_timer_us,
    )
