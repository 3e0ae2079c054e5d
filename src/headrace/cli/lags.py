"""How far behind tasks are, counted now: in what their job model knows, and in partitions that have come since."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.core.job_plan.stream_readers import UnassignedPartitions
    from headrace.core.rewind.skipped_ranges import SkippedRanges
    from headrace.model.checkpoint import Checkpoint
    from headrace.model.job_model import JobModel, SubTopologyModel
    from headrace.model.streams import SSP
    from headrace.model.tasks import TaskName
    from headrace.ports import JobStore


class Ends:
    """The ends of streams, looked up once each; a stream that was deleted meanwhile has none. `application`: whose skipped
    ranges count."""

    def __init__(self, system: Any, application: str) -> None:
        self._system, self._application = system, application
        self._known: dict[str, Mapping[int, int]] = {}

    def of(self, ssp: SSP) -> int | None:
        return self.of_stream(ssp.stream).get(ssp.partition)

    def of_stream(self, stream: str) -> Mapping[int, int]:
        """By partition."""
        from headrace.errors import StreamNotFoundError

        if stream not in self._known:
            try:
                self._known[stream] = self._system.end_offsets(stream)
            except StreamNotFoundError:
                self._known[stream] = {}
        return self._known[stream]

    def lag(self, ssp: SSP, position: int) -> int:
        """Offsets from a position to the end that will be read: skipped ranges will not."""
        from headrace.core.rewind.skipped_ranges import skipped_between

        end = max(position, self.of(ssp) or 0)
        return end - position - skipped_between({ssp.whole: position}, {ssp.whole: end}, self._skipped)

    @cached_property
    def _skipped(self) -> SkippedRanges:
        from headrace.codec.job_records import rewinds_of
        from headrace.core.rewind.rewinds import skipped_ranges_of

        return skipped_ranges_of(rewinds_of(self._system.metadata_store(self._application)))


def lag_of(ends: Ends, task: TaskName, ssps: tuple[SSP, ...], checkpoints: Mapping[TaskName, Checkpoint]) -> int:
    """Records between a task's committed positions and the ends of what it reads."""
    positions = checkpoints[task].positions if task in checkpoints else {}
    return sum(ends.lag(ssp, positions.get(ssp, 0)) for ssp in ssps)


class NewPartitions:
    """The partitions that the streams of `model` have got since it was made, and what is to be said of them."""

    def __init__(self, system: Any, model: JobModel, ends: Ends, is_running: bool) -> None:
        self._system, self._model, self._ends, self._is_running = system, model, ends, is_running

    @cached_property
    def _found(self) -> tuple[UnassignedPartitions, ...]:
        from headrace.core.job_plan.stream_readers import unassigned_of

        known = self._model.partition_counts
        grown = {name: count for name, count in self._system.partition_counts(sorted(known)).items() if count > known[name]}
        return unassigned_of(self._model, grown, {stream: self._system.describe_stream(stream).id for stream in grown})

    def lag_of(self, sub: SubTopologyModel) -> int:
        """Records in those that `sub` would read, counted once."""
        return sum(self._records_in(one) for one in self._found if one.stream in _reads(sub))

    def notes(self, subs: Iterable[SubTopologyModel]) -> list[str]:
        """What is to be said of those that `subs` would read."""
        from headrace.core.job_plan.stream_readers import unassigned_text

        reads = {stream for sub in subs for stream in _reads(sub)}
        return [unassigned_text(one, self._is_running) for one in self._found if one.stream in reads]

    def _records_in(self, one: UnassignedPartitions) -> int:
        beginnings = self._system.beginning_offsets(one.stream)
        ends = self._ends.of_stream(one.stream)
        return sum(end - beginnings.get(number, 0) for number, end in ends.items() if number >= one.known)


def _reads(sub: SubTopologyModel) -> set[str]:
    return {ssp.stream for task in sub.tasks for ssp in task.ssps}


def is_run(store: JobStore) -> bool:
    """Whether a driver holds the application of `store`, and is alive."""
    from headrace.adapters.common.lease_holder import is_alive

    return is_alive(store.holder(), time.time_ns() // 1000)
