"""A job as other processes look at it: what is stored of it, and how far behind it is now."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from headrace.adapters.common.consistent_reads import plan_and_checkpoints
from headrace.adapters.common.lease_holder import is_alive
from headrace.codec.job_records import rewinds_of
from headrace.core.group.statuses import processors_at_work
from headrace.core.job_plan.stream_readers import UnassignedPartitions, unassigned_of, unassigned_text
from headrace.core.rewind.rewinds import skipped_ranges_of
from headrace.core.rewind.skipped_ranges import SkippedRanges, skipped_between
from headrace.errors import StreamNotFoundError
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import JobReader


class JobLook:
    """An application that has run on `system`. Everything is looked up once."""

    def __init__(self, system: Any, application: str) -> None:
        self.system, self.application = system, application
        self.store: JobReader = system.job_reader(application)
        self._ends: dict[str, Mapping[int, int]] = {}

    @cached_property
    def _plan(self) -> tuple[JobModel, Mapping[TaskName, Checkpoint]]:
        model, checkpoints = plan_and_checkpoints(self.store)
        assert model is not None, self.application
        return model, checkpoints

    @property
    def model(self) -> JobModel:
        return self._plan[0]

    @property
    def checkpoints(self) -> Mapping[TaskName, Checkpoint]:
        return self._plan[1]

    @cached_property
    def is_running(self) -> bool:
        return is_run(self.store)

    def ends(self, stream: str) -> Mapping[int, int]:
        """By partition; empty for a stream that was deleted meanwhile."""
        if stream not in self._ends:
            try:
                self._ends[stream] = self.system.end_offsets(stream)
            except StreamNotFoundError:
                self._ends[stream] = {}
        return self._ends[stream]

    def lag(self, ssp: SSP, position: int) -> int:
        """Offsets from a position to the end that will be read: skipped ranges will not."""
        end = max(position, self.ends(ssp.stream).get(ssp.partition, 0))
        skipped = skipped_between({ssp: position}, {ssp: end}, self._skipped) if ssp in self._skipped else 0
        return end - position - skipped

    def lag_of(self, tasks: Iterable[TaskModel]) -> int:
        """Records between the tasks' committed positions and the ends of what they read; of a partition that several tasks
        read, behind the lowest of these."""
        lowest: dict[SSP, int] = {}
        for task in tasks:
            known = self.checkpoints[task.name].positions if task.name in self.checkpoints else {}
            for ssp in task.partitions:
                lowest[ssp] = min(known.get(ssp, 0), lowest.get(ssp, sys.maxsize))
        return sum(self.lag(ssp, position) for ssp, position in lowest.items())

    def lag_of_new_partitions(self, sub: SubTopologyModel) -> int:
        """Records in partitions that came since the plan was made and that `sub` would read, counted once."""
        return sum(self._records_in(one) for one in self._new_partitions if one.stream in _reads(sub))

    def notes(self, subs: Iterable[SubTopologyModel]) -> list[str]:
        """What is to be said of partitions that came since, and that `subs` would read."""
        reads = {stream for sub in subs for stream in _reads(sub)}
        return [unassigned_text(one, self.is_running) for one in self._new_partitions if one.stream in reads]

    @cached_property
    def _skipped(self) -> SkippedRanges:
        return skipped_ranges_of(rewinds_of(self.system.metadata_store(self.application)))

    @cached_property
    def _new_partitions(self) -> tuple[UnassignedPartitions, ...]:
        known = self.model.partition_counts
        grown = {name: count for name, count in self.system.partition_counts(sorted(known)).items() if count > known[name]}
        return unassigned_of(self.model, grown, {stream: self.system.describe_stream(stream).id for stream in grown})

    def _records_in(self, one: UnassignedPartitions) -> int:
        beginnings = self.system.beginning_offsets(one.stream)
        ends = self.ends(one.stream).items()
        return sum(end - beginnings.get(number, 0) for number, end in ends if number >= one.known)


def _reads(sub: SubTopologyModel) -> set[str]:
    return {ssp.stream for task in sub.tasks for ssp in task.partitions}


def is_run(store: JobReader) -> bool:
    """Whether the application of `store` runs: a driver holds it that is not known to have ended, and was heard of lately; or,
    where a group has lost its leader just now, others of its processors work."""
    return is_alive(store.holder(), time.time_ns() // 1000) or bool(group_at_work(store))


def group_at_work(store: JobReader) -> list[str]:
    """The processors of a group that work; none where a single driver had the application last."""
    return [] if store.grants() is None else processors_at_work(store.processors(), time.time_ns() // 1000)
