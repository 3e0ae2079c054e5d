"""The Spark tasks of a job group that has ended, as Spark has recorded them: where each ran, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_EVENTS_MS = 5_000
_TASKS_MAX = 10_000
_LOST = "ExecutorLostFailure"


@dataclass(frozen=True, slots=True)
class SparkTask:
    """One attempt. `executor`: Spark's id of it; `error`: what Spark says of one that has failed."""

    job: int
    executor: str
    partition: int
    status: str
    error: str

    @property
    def has_failed(self) -> bool:
        """In its own work, and not because its executor was lost."""
        return self.status == "FAILED" and not self.error.startswith(_LOST)


def tasks_of(context: Any, group: str) -> Iterator[SparkTask]:
    spark = context._jsc.sc()
    with suppress(Exception):  # others listen as well, and may be late: what is known by then
        spark.listenerBus().waitUntilEmpty(_EVENTS_MS)
    tracker = spark.statusTracker()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            listed = spark.statusStore().taskList(stage, 0, _TASKS_MAX)
            for number in range(listed.size()):
                one = listed.apply(number)
                error = one.errorMessage().get() if one.errorMessage().isDefined() else ""
                yield SparkTask(job, one.executorId(), one.partitionId(), one.status(), error)
