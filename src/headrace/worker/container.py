"""The work of one container in one round: read, split by task, run the operators, write state and outputs, and
answer with one summary. Nothing it does is visible to anyone before it is committed: by the driver, from the summary
(the embedded log), or here, by the worker's side of the system in `WorkerPorts.commit` (Kafka).

Steps of protocol.md that happen here: `STEPS`."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.codec.documents import encode
from headrace.core.keys.compaction import is_snapshot_due
from headrace.core.rounds.event_times import METRIC
from headrace.core.topology.program import Program
from headrace.errors import StoreDamagedError, TopologyError
from headrace.exchange.fault_injection import reached
from headrace.exchange.messages import RAW, ContainerPlan, Failure, InputRange, Reject, Summary
from headrace.exchange.texts import ERROR_CHARS_MAX, cut
from headrace.model.checkpoint import Checkpoint, Head
from headrace.model.topology import SourceKind
from headrace.worker import dead_letters
from headrace.worker.checkpoints import checkpoint_of
from headrace.worker.measures import Measures
from headrace.worker.merging import merging_tasks
from headrace.worker.outputs import Outputs
from headrace.worker.ports import STEPS, WorkerPorts
from headrace.worker.round_limits import RoundLimits, Stopped
from headrace.worker.row_owners import RowOwners, not_processed
from headrace.worker.rows import Field, Rows
from headrace.worker.state.own_keys import check_own_keys
from headrace.worker.task import FarTimes, TaskRun
from headrace.worker.task_queues import Part
from headrace.worker.task_threads import TaskThreads


def run(plan: ContainerPlan, program: Program, ports: WorkerPorts, prepared: Iterable[tuple[int, int, Any]]) -> Summary:
    """Process one container. `prepared`: (endpoint, SSP number, rows) that come out of Spark's engine; where the
    endpoint is `RAW`, a batch of records as they were read."""
    began = time.monotonic()
    outputs = Outputs(program.partition_counts)
    far_times = FarTimes(program.far_us, [(stream, partition) for _, stream, partition in plan.ssps])
    runs = [TaskRun(program, task, plan, ports, outputs.of_task(), far_times) for task in plan.tasks]
    container = _Container(plan, program, ports, runs, far_times, began)
    committed = False
    try:
        done = ports.begin()
        if done is not None:
            committed = True
            return Summary(plan.lane, _wired(done))
        container.work(prepared)
        container.measures.worked()
        failure = container.failure()
        if failure is not None:
            return Summary(plan.lane, failure=failure)
        checkpoints, files = container.written(outputs)
        container.measures.written()
        receipt = ports.commit(checkpoints)
        committed = True
        container.measures.committed()
        ports.committed(checkpoints)
        summary = container.summary(checkpoints, files, receipt, outputs)
    except Stopped:
        return Summary(plan.lane, stopped=True)
    except StoreDamagedError as error:
        for task_run in runs:  # which of them met it is not known: all that are open are rebuilt
            task_run.close(error)
        raise
    finally:
        ports.signals.close()
        if not committed:
            ports.abandon()
        for task_run in runs:
            task_run.close()
    container.reached("summary")
    return summary


def _whole_records(prepared: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """The same rows in batches that divide no record: an expression may have made several rows of one."""
    held: tuple[int, int, Any] | None = None
    for endpoint, ssp, rows in prepared:
        if held is not None and held[:2] == (endpoint, ssp) and endpoint != RAW and held[2].offset[-1] == rows.offset[0]:
            before = held[2]
            cut = int(np.searchsorted(before.offset, rows.offset[0]))
            held, rows = (endpoint, ssp, before.slice(0, cut)), Rows.concat([before.slice(cut, len(before)), rows])
        if held is not None and (endpoint == RAW or len(held[2])):
            yield held
        held = endpoint, ssp, rows
    if held is not None:
        yield held


def _last_error(task_run: TaskRun) -> str:
    """Of the last record that the task could not process; a late one is none."""
    failed = [reject for reject in task_run.rejects.values() if reject.error_class != "LateRecord"]
    return cut(f"{failed[-1].operator}: {failed[-1].error_class}: {failed[-1].message}", ERROR_CHARS_MAX) if failed else ""


def _wired(checkpoints: list[Checkpoint]) -> list[msgspec.Raw]:
    return [msgspec.Raw(encode(checkpoint)) for checkpoint in checkpoints]


class _Container:
    def __init__(
        self, plan: ContainerPlan, program: Program, ports: WorkerPorts, runs: list[TaskRun], far_times: FarTimes, began: float
    ) -> None:
        self.plan, self.program, self.ports, self.runs = plan, program, ports, runs
        self.far_times = far_times
        self.limits = RoundLimits(ports.signals, began + plan.deadline_s)
        self.starts = {r.ssp: r.start for r in plan.ranges}
        self.ends = {r.ssp: r.end for r in plan.ranges}
        for task_run in runs:
            task_run.is_time, task_run.check = self.limits.is_over, self.limits.check
        self.merging = merging_tasks(plan, program)
        self.tasks = TaskThreads(runs, self.merging, self.starts, plan.threads, self.limits)
        self.measures = Measures()
        self.owners = RowOwners(plan, program, runs)
        self.reached_offsets: dict[int, int] = {}  # where reading stopped
        self.reached_by: dict[str, dict[int, int]] = {}  # of tasks that have not processed all that was read
        self.direct = [i for i, endpoint in enumerate(program.endpoints) if not endpoint.chain]
        self.endpoints_of: dict[str, list[int]] = {}
        for i in range(len(program.endpoints)):
            self.endpoints_of.setdefault(program.source(i).stream, []).append(i)
        own_reads = {piece.ssp: self.endpoints_of[plan.ssps[piece.ssp][1]] for piece in plan.ranges if self._reads(piece)}
        self.own_reads = {ssp: next(i for i in endpoints if i in self.direct) for ssp, endpoints in own_reads.items()}

    def reached(self, step: str) -> None:
        number = STEPS[self.plan.system].get(step)
        if number is not None:
            reached(self.plan.system, number)

    def work(self, prepared: Iterable[tuple[int, int, Any]]) -> None:
        self.reached("read")
        with self.tasks as tasks:
            tasks.begin()
            self.reached("work")
            for endpoint, ssp, rows, is_prepared in self._rows(prepared):
                self.limits.check()
                self._give(endpoint, ssp, rows, is_prepared)
            self._note_where_the_engine_stopped()
            for task_run in self.runs:
                task_run.upstream_us = self._upstream_us(task_run)
            tasks.finish()
        self.reached_by = tasks.left()
        self._reject_what_the_engine_could_not_take()

    def _rows(self, prepared: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Rows, bool]]:
        yield from self._read()
        for endpoint, ssp, rows in _whole_records(self.measures.reading(prepared)):
            if endpoint != RAW:
                yield endpoint, ssp, rows, True
                continue
            offsets = rows.column("offset").to_numpy()
            for reader in self.endpoints_of[self.plan.ssps[ssp][1]]:
                if reader in self.direct:
                    yield reader, ssp, self._raw_rows(reader, ssp, offsets, rows), False

    def _read(self) -> Iterator[tuple[int, int, Rows, bool]]:
        """What the container itself reads: range by range, or, where several threads process it, from all ranges in turn."""
        pieces = ((number, piece) for number, piece in enumerate(self.plan.ranges) if piece.ssp in self.own_reads)
        turns = deque((piece.ssp, self.measures.reading(self.ports.read(number))) for number, piece in pieces)
        full = 0  # so many ranges one behind the other have tasks that have enough to do
        while turns:
            ssp, batches = turns[0]
            if self.tasks.is_cut and self._may_stop(ssp):
                self.reached_offsets.setdefault(ssp, self.starts[ssp])
                turns.popleft()
                continue
            if self.tasks.is_threaded and full < len(turns) and not self.tasks.has_room(self.owners.readers(ssp)):
                turns.rotate(-1)
                full += 1
                continue
            full = 0
            found = next(batches, None)
            if found is None:
                turns.popleft()
                continue
            for endpoint in self.endpoints_of[self.plan.ssps[ssp][1]]:
                if endpoint in self.direct:
                    yield endpoint, ssp, self._raw_rows(endpoint, ssp, *found), False
            self.starts[ssp] = int(found[0][-1]) + 1
            if self.tasks.is_threaded:
                turns.rotate(-1)

    def _reads(self, piece: InputRange) -> bool:
        return piece.terms is not None and any(i in self.direct for i in self.endpoints_of[self.plan.ssps[piece.ssp][1]])

    def _may_stop(self, ssp: int) -> bool:
        """Whether reading may stop in the midst of a range: not where a task merges what it reads, which is also so where
        several endpoints read one stream."""
        return not any(task_run.task in self.merging for task_run in self.owners.readers(ssp))

    def _give(self, endpoint: int, ssp: int, rows: Rows, is_prepared: bool) -> None:
        """Give rows to the tasks that they are for, as far as there is room; past the end of the round they go by."""
        readers = self.owners.readers(ssp)  # those of other containers may come along
        if not readers or ssp not in self.ends or ssp in self.reached_offsets:
            return
        source = self.program.source(endpoint)
        is_table = source.kind is SourceKind.TABLE or source.of_table
        factor = self.owners.factor(ssp)
        lead = None if factor == 1 else self.plan.lead
        is_first = self.own_reads.get(ssp) == endpoint  # of several endpoints of one stream each gets all of its rows
        start, may_stop = 0, self._may_stop(ssp)
        if may_stop and is_prepared:
            self._check_order(ssp, rows)
        while start < len(rows):
            until = self.tasks.room(readers, int(rows.offset[start]), lead) if may_stop else None
            if may_stop and until is None:
                self.reached_offsets[ssp] = int(rows.offset[start])
                return
            stop = len(rows) if until is None or until > rows.offset[-1] else int(np.searchsorted(rows.offset, until))
            piece = rows if stop - start == len(rows) else rows.slice(start, stop)
            shares = list(self.owners.of_rows(ssp, piece, self.measures.lows))
            self.measures.fetched += (len(piece) if factor == 1 else sum(len(own) for _, own in shares)) if is_first else 0
            owned = ((task_run, not_processed(task_run, ssp, own)) for task_run, own in shares)
            self.tasks.give([(task_run, Part(endpoint, is_table, is_prepared, own)) for task_run, own in owned if len(own)])
            start = stop

    def _check_order(self, ssp: int, rows: Rows) -> None:
        """Where a task stops says one offset: what comes out of the engine must be in the order in which it went in."""
        if bool((np.diff(rows.offset) < 0).any()) or int(rows.offset[0]) < self.starts[ssp]:
            _, stream, partition = self.plan.ssps[ssp]
            raise TopologyError(
                f"rows of stream {stream!r} partition {partition} left Spark's engine in another order than they came",
                "a transform must work row by row: look in it for what changes the order of rows",
            )
        self.starts[ssp] = int(rows.offset[-1])

    def _raw_rows(self, endpoint: int, ssp: int, offsets: Any, batch: pa.RecordBatch) -> Rows:
        source = self.program.source(endpoint)
        count = batch.num_rows
        headers = batch.column("headers")
        return Rows(
            np.full(count, ssp, np.int32),
            offsets,
            batch.column("timestamp_us").to_numpy(),
            Field(source.key, raw=batch.column("key")),
            Field(source.value, raw=batch.column("value")),
            None if headers.null_count == count else headers,
            low=batch.column("low").to_numpy() if "low" in batch.schema.names else None,
        )

    def _note_where_the_engine_stopped(self) -> None:
        report = self.ports.engine_report()
        if report.stopped:
            raise Stopped
        for ssp in report.cuts.keys() & self.ends.keys():  # those of other containers may be in it
            self.reached_offsets[ssp] = min(report.cuts[ssp], self.reached_offsets.get(ssp, report.cuts[ssp]))

    def _upstream_us(self, task_run: TaskRun) -> dict[int, int]:
        """Up to which event time a task will know all of repartition streams, by SSP, once it has processed its rows."""
        reached = {ssp: self.reached_offsets.get(ssp, end) for ssp, end in self.ends.items()}
        positions, upstream = task_run.plan.positions, self.plan.upstream
        known = {ssp: max(positions[ssp], reached.get(ssp, 0)) for ssp in positions.keys() & upstream.keys()}
        return {ssp: upstream[ssp][1] for ssp, position in known.items() if position >= upstream[ssp][0]}

    def _reject_what_the_engine_could_not_take(self) -> None:
        by_ssp: dict[int, list[Reject]] = {}
        for reject in self.ports.engine_report().rejects:
            by_ssp.setdefault(reject.ssp, []).append(reject)
        for ssp, mine in by_ssp.items():
            owners = self.owners.of_offsets(ssp, [reject.offset for reject in mine], self.ports.originals)
            for reject, owner in zip(mine, owners, strict=True):
                if owner is not None and owner.plan.positions[ssp] <= reject.offset < self._end_of(owner, ssp):
                    owner.reject(reject)

    def _rejects(self) -> list[Reject]:
        """In the order of their offsets: operators find them in orders of their own."""
        found = [reject for task_run in self.runs for reject in task_run.rejects.values()]
        return sorted(found, key=lambda reject: (reject.ssp, reject.offset))

    def failure(self) -> Failure | None:
        """The first record that failed, where there is no stream for such records: the round must not be committed."""
        rejects = self._rejects()
        if not rejects or self.program.dead_letter is not None:
            return None
        first = rejects[0]
        _, stream, partition = self.plan.ssps[first.ssp]
        return Failure(stream, partition, first.offset, first.operator, first.error_class, first.message, first.traceback)

    def written(self, outputs: Outputs) -> tuple[list[Checkpoint], list[str]]:
        """Write state and outputs; the checkpoints of the tasks, and the state files that they need."""
        rejects = self._rejects()
        if rejects:
            originals = self._originals(rejects)
            dead_letters.write(outputs, self.program, rejects, originals, self.plan.ssps, self.plan.now_us)
        heads = {task_run.task: task_run.plan.head for task_run in self.runs}
        changed = [task_run for task_run in self.runs if (state := task_run.state_if_open) is not None and state.changed]
        files: list[str] = []
        if changed:
            with self.ports.writing_state():
                has_due = False  # one in a round: after a change of the elasticity factor all tasks are due at once
                for task_run in changed:
                    state, plan = task_run.state, task_run.plan
                    state.is_snapshot_due = not (has_due or plan.held_files > 0) and is_snapshot_due(plan.head)
                    has_due = has_due or state.is_snapshot_due
                    check_own_keys(task_run, state)
                    self.reached("segments")
                    heads[task_run.task], written = self.ports.write_state(plan, state)
                    files.extend(written)
        self.reached("outputs")
        self.ports.write_outputs(outputs)
        self.reached("written")
        self.limits.check()
        return [self._checkpoint(task_run, heads[task_run.task]) for task_run in self.runs], files

    def summary(
        self, checkpoints: list[Checkpoint], files: list[str], receipt: Any, outputs: Outputs
    ) -> Summary:
        notes = [note for task_run in self.runs for note in getattr(task_run.state_if_open, "notes", ())]
        return Summary(
            self.plan.lane,
            _wired(checkpoints),
            receipt,
            files,
            self._counters(outputs),
            notes=[*notes, *self.ports.signals.troubles()],
            far_times=list(self.far_times.first.values()),
            cut_short=bool(self.reached_offsets or self.reached_by),
            worked_s=self.tasks.worked_s,
            waited_s=self.tasks.waited_s,
            measures=self.measures.of_round(self.runs, self.tasks),
            written=dict(outputs.records),
            task_errors={one.task: text for one in self.runs if (text := _last_error(one))},
        )

    def _originals(self, rejects: list[Reject]) -> list[Any]:
        """Each rejected record as it was read; None for a timer, which has none."""
        offsets: dict[int, set[int]] = {}
        for reject in rejects:
            if reject.offset >= 0:
                offsets.setdefault(reject.ssp, set()).add(reject.offset)
        found = {ssp: self.ports.originals(ssp, sorted(mine)) for ssp, mine in offsets.items()}
        return [None if reject.offset < 0 else found[reject.ssp][reject.offset] for reject in rejects]

    def _counters(self, outputs: Outputs) -> dict[str, int]:
        counters = Counter[str]()
        for task_run in self.runs:
            counters.update(task_run.counters)
        others = {
            "stores_restored": sum(getattr(task_run.state_if_open, "is_restored", False) for task_run in self.runs),
            "dead_letters": sum(reject.error_class != "LateRecord" for reject in self._rejects()),
            METRIC: self.far_times.count,
        }
        counters.update({metric: count for metric, count in others.items() if count})
        counters["records_written"] = sum(outputs.records.values())
        return dict(counters)

    def _checkpoint(self, task_run: TaskRun, head: Head | None) -> Checkpoint:
        plan = task_run.plan
        positions = {
            ssp: max(position, self._end_of(task_run, ssp) if ssp in self.ends else position)
            for ssp, position in plan.positions.items()
        }
        made = checkpoint_of(self.plan, self.program, plan, positions, head, task_run.watermarks, task_run.times_us)
        return replace(made, punctuations=task_run.punctuations)

    def _end_of(self, task_run: TaskRun, ssp: int) -> int:
        """Up to where a task came in an SSP that the round reads."""
        reached_by = self.reached_by.get(task_run.task, {})
        return reached_by.get(ssp, self.reached_offsets.get(ssp, self.ends.get(ssp, sys.maxsize)))
