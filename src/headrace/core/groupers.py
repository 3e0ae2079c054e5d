"""Owns which task reads which SSPs, when a job is planned for the first time. Seed: SEP-5 (GroupByPartition and kin).

A grouper is a pure function from SSPs to tasks. It makes whole tasks only: key buckets are cut from them, and a former
assignment is respected, by functions that take a grouper's result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from headrace.model.job_model import TaskModel
from headrace.model.streams import SSP, SystemStream
from headrace.model.tasks import EverySspGroup, Group, PartitionGroup, SspGroup, TaskName


class Grouper(Protocol):
    """Groups SSPs (whole partitions, in any order) into tasks, sorted by name.

    Of a stream in `broadcast` every task reads every partition. The same SSPs give the same tasks, in any process.
    """

    def __call__(
        self,
        ssps: Iterable[SSP],
        sub_topology: str | None = None,
        broadcast: frozenset[SystemStream] = frozenset(),
    ) -> tuple[TaskModel, ...]: ...


def group_by_partition(
    ssps: Iterable[SSP],
    sub_topology: str | None = None,
    broadcast: frozenset[SystemStream] = frozenset(),
) -> tuple[TaskModel, ...]:
    """One task per partition number: task 3 reads partition 3 of every input that has one.

    >>> [str(task.name) for task in group_by_partition([SSP("k", "a", 0), SSP("k", "a", 1), SSP("k", "b", 0)])]
    ['Partition_0', 'Partition_1']
    """
    return _grouped(ssps, lambda ssp: PartitionGroup(ssp.partition), sub_topology, broadcast)


def group_by_system_stream_partition(
    ssps: Iterable[SSP],
    sub_topology: str | None = None,
    broadcast: frozenset[SystemStream] = frozenset(),
) -> tuple[TaskModel, ...]:
    """One task per SSP: the most parallelism; streams cannot be joined, nor two of them counted under one key."""
    return _grouped(ssps, lambda ssp: SspGroup(ssp.system, ssp.stream, ssp.partition), sub_topology, broadcast)


def all_ssps_to_every_task(
    ssps: Iterable[SSP],
    tasks: int,
    sub_topology: str | None = None,
) -> tuple[TaskModel, ...]:
    """`tasks` tasks that each read everything."""
    assert tasks >= 1, tasks
    everything = _checked(ssps)
    if not everything:
        return ()
    return tuple(TaskModel(TaskName(EverySspGroup(index), sub_topology), everything) for index in range(tasks))


GROUPERS: Mapping[str, Grouper] = {
    "GroupByPartition": group_by_partition,
    "GroupBySystemStreamPartition": group_by_system_stream_partition,
}
"""What the configuration key `ssp_grouper` may name."""


def _grouped(
    ssps: Iterable[SSP],
    group_of: Callable[[SSP], Group],
    sub_topology: str | None,
    broadcast: frozenset[SystemStream],
) -> tuple[TaskModel, ...]:
    everything = _checked(ssps)
    to_all = [ssp for ssp in everything if ssp.system_stream in broadcast]
    owned: dict[TaskName, list[SSP]] = {}
    for ssp in everything:
        if ssp.system_stream not in broadcast:
            owned.setdefault(TaskName(group_of(ssp), sub_topology), []).append(ssp)
    if to_all and not owned:
        owned[TaskName(PartitionGroup(0), sub_topology)] = []
    return tuple(TaskModel(name, tuple(sorted(owned[name] + to_all))) for name in sorted(owned))


def _checked(ssps: Iterable[SSP]) -> tuple[SSP, ...]:
    everything = tuple(sorted(set(ssps)))
    assert all(ssp.key_bucket is None for ssp in everything), "a grouper takes whole partitions"
    return everything
