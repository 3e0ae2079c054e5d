"""What is measured of a container and its tasks in one round. Clocks are read per batch and piece of work, never per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any, TypeVar

import msgspec

from headrace.exchange.messages import ContainerMeasures, TaskMeasures
from headrace.worker.batch_keys import key_lows
from headrace.worker.rows import Rows, flat
from headrace.worker.task import TaskRun
from headrace.worker.task_threads import TaskThreads

Batch = TypeVar("Batch")


class Measures:
    """`fetched`: records that the container has read itself, and that are of its tasks."""

    def __init__(self) -> None:
        self.fetched = 0
        self._read_ns = self._hash_ns = 0
        self._began_ns = self._worked_ns = self._written_ns = self._committed_ns = perf_counter_ns()

    def worked(self) -> None:
        """The tasks have processed their rows."""
        self._worked_ns = perf_counter_ns()

    def written(self) -> None:
        """State files and outputs are written; the commit begins."""
        self._written_ns = perf_counter_ns()

    def committed(self) -> None:
        """What is to be committed here is; it is applied to the local stores now."""
        self._committed_ns = perf_counter_ns()

    def reading(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; it is measured how long each is waited for."""
        source = iter(batches)
        while True:
            began_ns = perf_counter_ns()
            found = next(source, None)
            self._read_ns += perf_counter_ns() - began_ns
            if found is None:
                return
            yield found

    def lows(self, rows: Rows) -> Any:
        """The low bits of the hashes of the rows' keys, which say in which bucket each is; measured where it is done here."""
        if rows.low is not None:
            return rows.low
        began_ns = perf_counter_ns()
        lows = key_lows(flat(rows.key.raw), rows.offset)
        self._hash_ns += perf_counter_ns() - began_ns
        return lows

    def of_round(self, runs: Sequence[TaskRun], tasks: TaskThreads) -> ContainerMeasures:
        """All of it, at the end. Tasks that had nothing to do are left out."""
        applied_ns = perf_counter_ns() - self._committed_ns
        found = [
            _task_measures(run, process_s, wait_s)
            for run, process_s, wait_s in zip(runs, tasks.process_s, tasks.wait_s, strict=True)
            if run.counters["records"] or run.state_if_open is not None
        ]
        restored = sum(run.state.restored_bytes for run in runs if run.state_if_open is not None)
        return ContainerMeasures(
            tasks.threads,
            self.fetched,
            self._read_ns,
            self._hash_ns,
            self._committed_ns - self._worked_ns,
            found,
            restored,
            self._worked_ns - self._began_ns,
            self._written_ns - self._worked_ns,
            applied_ns,
        )


def _task_measures(run: TaskRun, process_s: float, wait_s: float) -> TaskMeasures:
    worked_s = max(0.0, process_s - (run.opened_s - run.waited_to_open_s))
    measures = TaskMeasures(
        run.task,
        records_processed=run.counters["records"],
        process_ns=round(worked_s * 1e9),
        wait_ns=round(min(wait_s, worked_s) * 1e9),
        store_identify_ns=round(run.opened_s * 1e9),
        decode_ns=run.decode_ns,
    )
    if run.state_if_open is None:
        return measures
    calls = run.state.calls
    return msgspec.structs.replace(
        measures,
        gets=calls.gets,
        get_ns=calls.get_ns,
        puts=calls.puts,
        put_ns=calls.put_ns,
        deletes=calls.deletes,
        delete_ns=calls.delete_ns,
        local_bytes=run.state.local_bytes,
    )
