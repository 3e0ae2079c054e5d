"""Owns the work of one container in one round: read, split by task, run the operators, write state and outputs, and
answer with one summary. Nothing it does is visible to anyone before it is committed: by the driver, from the summary
(the embedded log), or here, by the worker's side of the system in `WorkerPorts.commit` (Kafka).

Steps of protocol.md that happen here: `STEPS`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.key_samples import KeySample
from headrace.core.stream_limits import ANY
from headrace.errors import StoreDamagedError
from headrace.model import topology as t
from headrace.model.checkpoint import Checkpoint
from headrace.runtime import dead_letters
from headrace.runtime.key_sampling import sampling_of
from headrace.runtime.operators.base import Reject
from headrace.runtime.plan import ContainerPlan, Failure, Program, Summary, TaskPlan
from headrace.runtime.rows import Field, Rows
from headrace.runtime.steps import reached
from headrace.runtime.task_commits import checkpoint_of
from headrace.runtime.task_run import Outputs, TaskRun, is_table
from headrace.runtime.worker_ports import STEPS, WorkerPorts
from headrace.wire import encode_checkpoint

RAW = -1  # the endpoint of prepared rows that no expression has seen: a batch with offset, timestamp_us, headers, key, value


class _Stopped(Exception):
    """The driver cancelled this round; what was done is thrown away."""


def run(
    plan: ContainerPlan, program: Program, ports: WorkerPorts, prepared: Iterable[tuple[int, int, Any]]
) -> Summary:
    """Work off one container. `prepared`: (endpoint, SSP number, rows) that come out of Spark's engine; where the
    endpoint is `RAW`, a batch of records as they were read."""
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
    committed = False
    try:
        done = ports.begin()
        if done is not None:
            committed = True
            return Summary(plan.lane, [_wired(checkpoint) for checkpoint in done])
        container.work(prepared)
        worked = time.monotonic()
        failure = container.failure()
        if failure is not None:
            return Summary(plan.lane, failure=failure)
        checkpoints, files = container.written(outputs)
        receipt = ports.commit(checkpoints)
        committed = True
        timings = {"work": (worked - began) * 1e3, "write": (time.monotonic() - worked) * 1e3}
        summary = container.summary(checkpoints, files, receipt, outputs, timings)
    except _Stopped:
        return Summary(plan.lane, stopped=True)
    except StoreDamagedError as error:
        for task_run in runs:  # which of them met it is not known: all that are open are rebuilt
            task_run.close(error)
        raise
    finally:
        if not committed:
            ports.abandon()
        for task_run in runs:
            task_run.close()
    ports.committed(plan.tasks, checkpoints)
    container.reached("summary")
    return summary


def _wired(checkpoint: Checkpoint) -> msgspec.Raw:
    return msgspec.Raw(encode_checkpoint(checkpoint))


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
        self.readers_of: dict[int, list[TaskRun]] = {}
        for task_run in runs:
            for ssp in task_run.plan.positions:
                self.readers_of.setdefault(ssp, []).append(task_run)
        self.reached_offsets: dict[int, int] = {}
        self.sampled_at = program.sampled_at
        self.sampling = sampling_of(program, self.sampled_at)
        self.direct = [i for i, endpoint in enumerate(program.endpoints) if not endpoint.chain]
        self.endpoints_of: dict[str, list[int]] = {}
        for i, endpoint in enumerate(program.endpoints):
            source = program.node(endpoint.source)
            assert isinstance(source, t.Source)
            self.endpoints_of.setdefault(source.stream, []).append(i)

    def reached(self, step: str) -> None:
        number = STEPS[self.plan.system].get(step)
        if number is not None:
            reached(self.plan.system, number)

    # --- reading ----------------------------------------------------------------------------------------------------

    def work(self, prepared: Iterable[tuple[int, int, Any]]) -> None:
        self.reached("read")
        for task_run in self.runs:
            task_run.begin()
        merging = {run.task for run in self.runs if self._feeds(run) > 1}
        gathered: dict[str, list[tuple[int, bool, Rows]]] = {name: [] for name in merging}
        self.reached("work")
        for endpoint, ssp, rows, is_prepared in self._rows(prepared):
            self._poll()
            for task_run in self.readers_of.get(ssp, ()):
                mine = self._rows_of(task_run, ssp, rows)
                if not len(mine):
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

    def _rows(self, prepared: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Rows, bool]]:
        for number, piece in enumerate(self.plan.ranges):
            stream = self.plan.ssps[piece.ssp][1]
            endpoints = [i for i in self.endpoints_of[stream] if i in self.direct]
            if not endpoints or piece.terms is None:
                continue
            # Where the engine gives rows of this stream too, these are of the whole range: several readers would stop at
            # different offsets, and what one of them has written would be written again.
            may_stop = len(endpoints) == len(self.endpoints_of[stream])
            for offsets, batch in self.ports.read(number):
                if may_stop and self._is_time():
                    self.cut_short = True
                    self.reached_offsets[piece.ssp] = int(offsets[0])
                    break
                for endpoint in endpoints:
                    yield endpoint, piece.ssp, self._raw_rows(endpoint, piece.ssp, offsets, batch), False
        for endpoint, ssp, rows in prepared:
            if endpoint == RAW:
                yield from self._untouched(ssp, rows)
            else:
                yield endpoint, ssp, rows, True

    def _untouched(self, ssp: int, batch: Any) -> Iterator[tuple[int, int, Rows, bool]]:
        """Rows that Spark read, for every operator that takes them as they are; past the time limit they go by unread."""
        offsets = batch.column("offset").to_numpy()
        readers = self.endpoints_of[self.plan.ssps[ssp][1]]
        if ssp in self.reached_offsets:
            return
        if len(readers) == 1 and self._is_time():  # several readers would stop at different offsets
            self.cut_short = True
            self.reached_offsets[ssp] = int(offsets[0])
            return
        for endpoint in readers:
            if endpoint in self.direct:
                yield endpoint, ssp, self._raw_rows(endpoint, ssp, offsets, batch), False

    def _raw_rows(self, endpoint: int, ssp: int, offsets: Any, batch: pa.RecordBatch) -> Rows:
        source = self.program.node(self.program.endpoints[endpoint].source)
        assert isinstance(source, t.Source)
        if endpoint in self.sampled_at:
            self.sampling.see(source.stream, self.plan.ssps[ssp][2], batch.column("key"))
        count = batch.num_rows
        headers = batch.column("headers")
        return Rows(
            np.full(count, ssp, np.int32),
            offsets,
            batch.column("timestamp_us").to_numpy(),
            Field(source.key, raw=batch.column("key")),
            Field(source.value, raw=batch.column("value")),
            None if headers.null_count == count else headers,
        )

    def _rows_of(self, task_run: TaskRun, ssp: int, rows: Rows) -> Rows:
        """The rows that the task owns and has not processed yet. (Key buckets come with elasticity.)"""
        position = task_run.plan.positions[ssp]
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

    def _is_time(self) -> bool:
        """Whether to end here and commit what was reached: after `max_round_ms`, or as soon as the driver asks for it."""
        if os.path.exists(self.plan.cut_flag):
            self.deadline = 0.0
        return time.monotonic() > self.deadline

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

    def _rejects(self) -> list[Reject]:
        """In the order of their offsets: operators find them in orders of their own."""
        found = [reject for task_run in self.runs for reject in task_run.rejects.values()]
        return sorted(found, key=lambda reject: (reject.ssp, reject.offset))

    def failure(self) -> Failure | None:
        """The first record that failed, where there is no stream for such records: the round must not be committed."""
        rejects = self._rejects()
        if not rejects or self.program.dead_letter is not None:
            return None
        return self._failure(rejects[0])

    def written(self, outputs: Outputs) -> tuple[list[Checkpoint], list[str]]:
        """Write state and outputs; the checkpoints of the tasks, and the state files that they need."""
        rejects = self._rejects()
        if rejects:
            assert self.program.dead_letter is not None
            originals = self._originals(rejects)
            stream = self.program.dead_letter
            limits = self.program.limits.get(stream, ANY)
            dead_letters.write(outputs, stream, limits, rejects, originals, self.plan.ssps, self.plan.now_us)
        heads: dict[str, Any] = {}
        files: list[str] = []
        for task_run in self.runs:
            state = task_run.state_if_open
            heads[task_run.task] = task_run.plan.head
            if state is not None and state.changed:
                self.reached("segments")
                heads[task_run.task], written = self.ports.write_state(task_run.plan, state)
                files.extend(written)
        self.reached("outputs")
        self.ports.write_outputs(outputs)
        self.reached("written")
        self._poll()
        return [self._checkpoint(task_run, heads[task_run.task]) for task_run in self.runs], files

    def summary(
        self, checkpoints: list[Checkpoint], files: list[str], receipt: Any, outputs: Outputs, timings_ms: dict[str, float]
    ) -> Summary:
        return Summary(
            self.plan.lane,
            [_wired(checkpoint) for checkpoint in checkpoints],
            receipt,
            files,
            self._counters(outputs),
            notes=[note for task_run in self.runs for note in getattr(task_run.state_if_open, "notes", ())],
            timings_ms=timings_ms,
            keys=self._keys(),
            cut_short=self.cut_short,
        )

    def _keys(self) -> list[KeySample]:
        """What was sampled here, and by the Column prefix's readers of what is this container's."""
        mine = {self.plan.ssps[ssp][1:] for ssp in self.ends}
        theirs = [key for key in self.ports.engine_keys() if (key.stream, key.partition) in mine] if self.sampled_at else []
        return self.sampling.samples() + theirs

    def _originals(self, rejects: list[Reject]) -> list[Any]:
        """Each rejected record as it was read; None for a timer, which has none."""
        offsets: dict[int, set[int]] = {}
        for reject in rejects:
            if reject.offset >= 0:
                offsets.setdefault(reject.ssp, set()).add(reject.offset)
        found = {ssp: self.ports.originals(ssp, sorted(mine)) for ssp, mine in offsets.items()}
        return [None if reject.offset < 0 else found[reject.ssp][reject.offset] for reject in rejects]

    def _counters(self, outputs: Outputs) -> dict[str, int]:
        counters: dict[str, int] = {}
        for task_run in self.runs:
            for metric, count in task_run.counters.items():
                counters[metric] = counters.get(metric, 0) + count
        dead = sum(reject.error_class != "LateRecord" for reject in self._rejects())
        if dead:
            counters["dead_letters"] = dead
        counters["records_written"] = sum(outputs.records.values())
        return counters

    def _checkpoint(self, task_run: TaskRun, head: Any) -> Checkpoint:
        plan = task_run.plan
        positions = {
            ssp: max(position, self.reached_offsets.get(ssp, self.ends.get(ssp, position)))
            for ssp, position in plan.positions.items()
        }
        return checkpoint_of(
            self.plan, self.program, plan, positions, head, task_run.watermarks, task_run.timers.earliest
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
