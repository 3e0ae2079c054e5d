"""Owns the work of one container in one round: read, split by task, run the operators, write state and outputs, and
answer with one summary. Nothing it does is visible to anyone until the driver commits the summary.

Steps of protocol.md that happen here: 2 read, 3 apply the last delta, 4 work, 5 write segments, 6 write output files,
7 fsync, 8 summary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import StoreDamagedError
from headrace.model import topology as t
from headrace.runtime import dead_letters
from headrace.runtime.operators.base import Reject
from headrace.runtime.plan import ContainerPlan, Failure, Program, Summary, TaskPlan, TaskSummary
from headrace.runtime.rows import Field, Rows
from headrace.runtime.steps import reached
from headrace.runtime.task_run import Outputs, TaskRun, is_table


class WorkerPorts(Protocol):
    """What a container needs from outside; `wiring` gives it the adapters of this job's system."""

    def read(self, number: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Range number `number` of the plan: (offset of the first row, rows), in order."""

    def originals(self, ssp: int, offsets: Sequence[int]) -> dict[int, tuple[bytes | None, bytes | None, int, Any]]:
        """Records as they were read, by offset: key, value, timestamp in µs, headers."""

    def engine_rejects(self) -> list[Reject]:
        """Records that never entered the Column prefix because they do not decode."""

    def engine_cuts(self) -> dict[int, int]:
        """SSPs of which the Column prefix's reader was stopped by the round's time limit, and the offset it reached."""

    def write_outputs(self, parts: Iterable[tuple[str, int, pa.Table]]) -> list[Any]:
        """Write and fsync; the chunks in wire form."""

    def open_state(self, task: TaskPlan) -> AbstractContextManager[Any]: ...

    def write_state(self, task: TaskPlan, state: Any) -> tuple[Any, list[str]]:
        """The new head in wire form, and the paths of the files it needs."""

    def cache_of(self, task: str) -> dict[str, Any]: ...

    def duration_us(self, value: Any) -> int: ...


class _Stopped(Exception):
    """The driver cancelled this round; what was done is thrown away."""


def run(
    plan: ContainerPlan, program: Program, ports: WorkerPorts, prepared: Iterable[tuple[int, int, Rows]]
) -> Summary:
    """Work off one container. `prepared`: (endpoint, SSP number, rows) that come out of Spark's engine."""
    began = time.monotonic()
    outputs = Outputs(program.partition_counts)
    streams = [(stream, partition) for _, stream, partition in plan.ssps]
    runs = [
        TaskRun(
            program, task, streams, plan.now_us, outputs, _opener(ports, task), ports.cache_of(task.name), ports.duration_us
        )
        for task in plan.tasks
    ]
    container = _Container(plan, program, ports, runs, began)
    try:
        container.work(prepared)
        worked = time.monotonic()
        return container.written(outputs, began, worked)
    except _Stopped:
        return Summary(plan.lane, stopped=True)
    except StoreDamagedError as error:
        for task_run in runs:  # which of them met it is not known: all that are open are rebuilt
            task_run.close(error)
        raise
    finally:
        for task_run in runs:
            task_run.close()


def _opener(ports: WorkerPorts, task: TaskPlan) -> Callable[[], AbstractContextManager[Any]]:
    def open_state() -> AbstractContextManager[Any]:
        return ports.open_state(task)

    return open_state


class _Container:
    def __init__(
        self, plan: ContainerPlan, program: Program, ports: WorkerPorts, runs: list[TaskRun], began: float
    ) -> None:
        self.plan, self.program, self.ports, self.runs = plan, program, ports, runs
        self.deadline = began + plan.deadline_s
        self.cut_short = False
        self.ends = {r.ssp: r.end for r in plan.ranges}
        self.reached_offsets: dict[int, int] = {}
        self.direct = [i for i, endpoint in enumerate(program.endpoints) if not endpoint.chain]
        self.endpoints_of: dict[str, list[int]] = {}
        for i, endpoint in enumerate(program.endpoints):
            source = program.node(endpoint.source)
            assert isinstance(source, t.Source)
            self.endpoints_of.setdefault(source.stream, []).append(i)

    # --- reading ----------------------------------------------------------------------------------------------------

    def work(self, prepared: Iterable[tuple[int, int, Rows]]) -> None:
        reached("log", 2)
        for task_run in self.runs:
            task_run.begin()
        merging = {run.task for run in self.runs if self._feeds(run) > 1}
        gathered: dict[str, list[tuple[int, bool, Rows]]] = {name: [] for name in merging}
        reached("log", 4)
        for endpoint, ssp, rows, is_prepared in self._rows(prepared):
            self._poll()
            for task_run in self.runs:
                mine = self._rows_of(task_run, ssp, rows)
                if mine is None or not len(mine):
                    continue
                if task_run.task in merging:
                    gathered[task_run.task].append((endpoint, is_prepared, mine))
                else:
                    task_run.feed(endpoint, mine, is_prepared)
        for task_run in self.runs:
            if task_run.task in merging:
                self._feed_merged(task_run, gathered[task_run.task])
        self._reject_what_the_engine_could_not_take()
        for task_run in self.runs:
            self._poll()
            task_run.finish()

    def _feeds(self, task_run: TaskRun) -> int:
        """From how many sides rows come: of several, their order must be made."""
        return sum(
            len(self.endpoints_of[self.plan.ssps[ssp][1]]) for ssp in task_run.plan.positions if ssp in self.ends
        )

    def _rows(self, prepared: Iterable[tuple[int, int, Rows]]) -> Iterator[tuple[int, int, Rows, bool]]:
        for number, piece in enumerate(self.plan.ranges):
            stream = self.plan.ssps[piece.ssp][1]
            endpoints = [i for i in self.endpoints_of[stream] if i in self.direct]
            if not endpoints:
                continue
            for offset, batch in self.ports.read(number):
                if time.monotonic() > self.deadline:
                    self.cut_short = True
                    self.reached_offsets[piece.ssp] = offset
                    break
                for endpoint in endpoints:
                    yield endpoint, piece.ssp, self._raw_rows(endpoint, piece.ssp, offset, batch), False
        for endpoint, ssp, rows in prepared:
            yield endpoint, ssp, rows, True

    def _raw_rows(self, endpoint: int, ssp: int, offset: int, batch: pa.RecordBatch) -> Rows:
        source = self.program.node(self.program.endpoints[endpoint].source)
        assert isinstance(source, t.Source)
        count = batch.num_rows
        headers = batch.column("headers")
        return Rows(
            np.full(count, ssp, np.int32),
            np.arange(offset, offset + count),
            batch.column("timestamp_us").to_numpy(),
            Field(source.key, raw=batch.column("key")),
            Field(source.value, raw=batch.column("value")),
            None if headers.null_count == count else headers,
        )

    def _rows_of(self, task_run: TaskRun, ssp: int, rows: Rows) -> Rows | None:
        """The rows that the task owns and has not processed yet. (Key buckets come with elasticity.)"""
        position = task_run.plan.positions.get(ssp)
        if position is None:
            return None
        if len(rows) and int(rows.offset[0]) < position:
            rows = rows.where(rows.offset >= position)
        return Rows(rows.ssp, rows.offset, rows.timestamp_us, rows.key, rows.value, rows.headers)

    def _feed_merged(self, task_run: TaskRun, gathered: list[tuple[int, bool, Rows]]) -> None:
        """Give a task that reads several SSPs its records by (timestamp, tables first, stream, partition, offset).

        A record never passes a smaller offset of its SSP: its time for this order is the highest up to it.
        """
        if not gathered:
            return
        by_ssp: dict[int, list[Rows]] = {}
        for _, _, rows in gathered:
            for ssp in np.unique(rows.ssp).tolist():
                by_ssp.setdefault(ssp, []).append(rows)
        columns = []
        for number, (endpoint, _, rows) in enumerate(gathered):
            source = self.program.node(self.program.endpoints[endpoint].source)
            table_first = np.full(len(rows), 0 if is_table(source) else 1)
            columns.append((rows.timestamp_us, table_first, rows.ssp, rows.offset, np.full(len(rows), number)))
        time_us, first, ssp_of, offset, batch = (np.concatenate([c[i] for c in columns]) for i in range(5))
        effective = _highest_so_far(time_us, ssp_of, offset)
        order = np.lexsort((batch, offset, ssp_of, first, effective))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        start = 0
        pushes = []
        for endpoint, is_prepared, rows in gathered:
            rows.rank = rank[start : start + len(rows)]
            start += len(rows)
            pushes.append((endpoint, is_prepared, rows))
        for endpoint in sorted({endpoint for endpoint, _, _ in pushes}):
            mine = [(is_prepared, rows) for e, is_prepared, rows in pushes if e == endpoint]
            whole = Rows.concat([rows for _, rows in mine])
            task_run.feed_ranked(endpoint, whole.take(np.argsort(whole.rank, kind="stable")), mine[0][0])
        task_run.graph.batch_end()

    def _poll(self) -> None:
        if os.path.exists(self.plan.stop_flag):
            raise _Stopped

    def _reject_what_the_engine_could_not_take(self) -> None:
        cuts = self.ports.engine_cuts()
        self.reached_offsets.update(cuts)
        self.cut_short = self.cut_short or bool(cuts)
        owners = {ssp: task_run for task_run in reversed(self.runs) for ssp in task_run.plan.positions}
        for reject in self.ports.engine_rejects():
            owner = owners.get(reject.ssp)
            if owner is not None and reject.offset >= owner.plan.positions[reject.ssp]:
                owner.reject(reject)

    # --- writing ----------------------------------------------------------------------------------------------------

    def written(self, outputs: Outputs, began: float, worked: float) -> Summary:
        rejects = [reject for task_run in self.runs for reject in task_run.rejects.values()]
        if rejects and self.program.dead_letter is None:
            return Summary(self.plan.lane, failure=self._failure(min(rejects, key=lambda r: (r.ssp, r.offset))))
        if rejects:
            originals = self._originals(rejects)
            assert self.program.dead_letter is not None
            dead_letters.write(outputs, self.program.dead_letter, rejects, originals, self.plan.ssps, self.plan.now_us)
        heads: dict[str, Any] = {}
        files: list[str] = []
        for task_run in self.runs:
            state = task_run.state_if_open
            heads[task_run.task] = task_run.plan.head
            if state is not None and state.changed:
                reached("log", 5)
                heads[task_run.task], written = self.ports.write_state(task_run.plan, state)
                files.extend(written)
        reached("log", 6)
        chunks = self.ports.write_outputs(outputs.by_partition())
        reached("log", 7)
        self._poll()
        summary = Summary(
            self.plan.lane,
            [self._task_summary(task_run, heads[task_run.task]) for task_run in self.runs],
            chunks,
            files,
            self._counters(rejects, outputs),
            notes=[note for task_run in self.runs for note in getattr(task_run.state_if_open, "notes", ())],
            timings_ms={"work": (worked - began) * 1e3, "write": (time.monotonic() - worked) * 1e3},
            cut_short=self.cut_short,
        )
        reached("log", 8)
        return summary

    def _originals(self, rejects: list[Reject]) -> list[Any]:
        """Each rejected record as it was read; None for a timer, which has none."""
        offsets: dict[int, set[int]] = {}
        for reject in rejects:
            if reject.offset >= 0:
                offsets.setdefault(reject.ssp, set()).add(reject.offset)
        found = {ssp: self.ports.originals(ssp, sorted(mine)) for ssp, mine in offsets.items()}
        return [None if reject.offset < 0 else found[reject.ssp][reject.offset] for reject in rejects]

    def _counters(self, rejects: list[Reject], outputs: Outputs) -> dict[str, int]:
        counters: dict[str, int] = {}
        for task_run in self.runs:
            for metric, count in task_run.counters.items():
                counters[metric] = counters.get(metric, 0) + count
        dead = sum(reject.error_class != "LateRecord" for reject in rejects)
        if dead:
            counters["dead_letters"] = dead
        counters["records_written"] = sum(outputs.records.values())
        return counters

    def _task_summary(self, task_run: TaskRun, head: Any) -> TaskSummary:
        plan = task_run.plan
        positions = {
            ssp: max(position, self.reached_offsets.get(ssp, self.ends.get(ssp, position)))
            for ssp, position in plan.positions.items()
        }
        return TaskSummary(
            plan.name,
            positions,
            head,
            task_run.watermarks,
            task_run.timers.earliest["event"],
            task_run.timers.earliest["wall"],
        )

    def _failure(self, reject: Reject) -> Failure:
        _, stream, partition = self.plan.ssps[reject.ssp]
        return Failure(
            stream, partition, reject.offset, reject.operator, reject.error_class, reject.message, reject.traceback
        )


def _highest_so_far(time_us: Any, ssp: Any, offset: Any) -> Any:
    """Per SSP, in the order of offsets, the highest time up to each row."""
    highest = np.empty_like(time_us)
    for number in np.unique(ssp):
        mine = np.flatnonzero(ssp == number)
        mine = mine[np.argsort(offset[mine], kind="stable")]
        highest[mine] = np.maximum.accumulate(time_us[mine])
    return highest
