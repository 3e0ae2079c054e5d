"""How a task is cut into virtual tasks, each of one key bucket, and how their names and SSPs are made whole again.

Seed: SEP-32 "JobModel" 3. What runs them is elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import groupby

from headrace.model.job_model import TaskModel
from headrace.model.tasks import Group, KeyBucket, TaskName


def virtual_tasks_of(task: TaskModel, factor: int, broadcast: Collection[str] = ()) -> tuple[TaskModel, ...]:
    """The virtual tasks of `task` under an elasticity factor (a power of two; 1 leaves it whole), by bucket.

    Virtual task i has bucket i of each partition. Of a stream in `broadcast` each has whole partitions: its records have no
    bucket, and every task wants them. A task with nothing else has no keys to share out, and stays whole.

    >>> from headrace.model.streams import SSP
    >>> for virtual in virtual_tasks_of(TaskModel(TaskName.parse("Partition_3"), (SSP("k", "views", 3),)), 2):
    ...     print(virtual.name, *virtual.ssps)
    Partition_3-0-2 k.views.3/0
    Partition_3-1-2 k.views.3/1
    """
    assert factor >= 1 and factor & (factor - 1) == 0, factor
    assert task.name.bucket is None, f"{task.name} is cut already"
    if factor == 1 or all(ssp.stream in broadcast for ssp in task.partitions):
        return (task,)
    name, of_all = task.name, frozenset(ssp.stream for ssp in task.partitions if ssp.stream in broadcast)
    return tuple(
        TaskModel(TaskName(name.group, name.sub_topology, bucket), task.partitions, of_all) for bucket in _buckets(factor)
    )


def siblings_of(tasks: Iterable[TaskModel]) -> Iterator[list[TaskModel]]:
    """`tasks` in their order; virtual tasks of one task that follow each other are together, any other is alone."""

    def parts_of(task: TaskModel) -> tuple[Group, str | None, int]:
        name = task.name
        return name.group, name.sub_topology, 1 if name.bucket is None else name.bucket.factor

    return (list(siblings) for _, siblings in groupby(tasks, parts_of))


@cache
def _buckets(factor: int) -> tuple[KeyBucket, ...]:
    return tuple(KeyBucket(index, factor) for index in range(factor))


def bucketed(name: TaskName, factor: int) -> tuple[TaskName, ...]:
    """Of the virtual tasks under another factor those that have keys of `name`, by bucket.

    >>> [str(one) for one in bucketed(TaskName.parse("Partition_3-1-2"), 8)]
    ['Partition_3-1-8', 'Partition_3-3-8', 'Partition_3-5-8', 'Partition_3-7-8']
    >>> [str(one) for one in (*bucketed(TaskName.parse("Partition_3-5-8"), 2), *bucketed(TaskName.parse("Partition_3-5-8"), 1))]
    ['Partition_3-1-2', 'Partition_3']
    """
    index, before = (0, 1) if name.bucket is None else (name.bucket.index, name.bucket.factor)
    if factor == 1:
        return (name.whole,)
    indexes = range(index, factor, before) if factor >= before else (index % factor,)
    return tuple(TaskName(name.group, name.sub_topology, _buckets(factor)[each]) for each in indexes)
