"""Which tasks of a container rows are for: all that read their SSP, or, of virtual tasks, the one that has their key bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.core.keys.hashing import routing_hash
from headrace.core.topology.program import Program
from headrace.exchange.messages import ContainerPlan
from headrace.model.topology import Source
from headrace.worker.rows import Rows, order_of
from headrace.worker.task import TaskRun


class RowOwners:
    def __init__(self, plan: ContainerPlan, program: Program, runs: Sequence[TaskRun]) -> None:
        self._streams = [stream for _, stream, _ in plan.ssps]
        self._broadcast = {node.stream for node in program.nodes if isinstance(node, Source) and node.broadcast}
        self._readers: dict[int, list[TaskRun]] = {}
        for task_run in runs:
            for ssp in task_run.plan.positions:
                self._readers.setdefault(ssp, []).append(task_run)

    def readers(self, ssp: int) -> list[TaskRun]:
        """The tasks that read an SSP."""
        return self._readers.get(ssp, [])

    def factor(self, ssp: int) -> int:
        """Among how many virtual tasks the rows of an SSP are shared out, here and elsewhere; 1: each reader has them all."""
        readers = self.readers(ssp)
        bucket = readers[0].bucket if readers else None
        return 1 if bucket is None or self._streams[ssp] in self._broadcast else bucket.factor

    def of_rows(self, ssp: int, rows: Rows, lows_of: Callable[[Rows], Any]) -> Iterator[tuple[TaskRun, Rows]]:
        """The tasks that own some of these rows, and which. `lows_of`: the low bits of the hashes of their keys."""
        readers, factor = self.readers(ssp), self.factor(ssp)
        if factor == 1:
            for task_run in readers:
                yield task_run, rows
                rows = replace(rows, own_us=None)  # far times are looked at once
            return
        buckets = lows_of(rows) & (factor - 1)
        order = order_of(buckets)
        bounds = np.searchsorted(buckets[order], np.arange(factor + 1))
        places = {}
        for task_run in readers:
            assert task_run.bucket is not None, f"{task_run.task} reads what virtual tasks read"
            places[task_run.task] = order[slice(*bounds[task_run.bucket.index : task_run.bucket.index + 2])]
        ours, start = rows.take(np.concatenate(list(places.values()))), 0  # together: it costs less than task by task
        for task_run in readers:
            stop = start + len(places[task_run.task])
            if start < stop:
                yield task_run, ours.slice(start, stop)
            start = stop

    def of_offsets(
        self, ssp: int, offsets: Sequence[int], originals: Callable[[int, list[int]], Mapping[int, Any]]
    ) -> list[TaskRun | None]:
        """The tasks that own records which never came to a task: of virtual tasks that of the key bucket, else the first."""
        readers, factor = self.readers(ssp), self.factor(ssp)
        if factor == 1:
            return [readers[0] if readers else None] * len(offsets)
        by_bucket = {task_run.bucket.index: task_run for task_run in readers if task_run.bucket is not None}
        read = originals(ssp, sorted(set(offsets)))
        return [by_bucket.get(routing_hash(read[offset][0], offset) & (factor - 1)) for offset in offsets]


def not_processed(task_run: TaskRun, ssp: int, rows: Rows) -> Rows:
    """Those of a task's rows that it has not processed yet."""
    position = task_run.plan.positions[ssp]
    if len(rows) and int(rows.offset[0]) < position:
        rows = rows.where(rows.offset >= position)
    return replace(rows, low=None)
