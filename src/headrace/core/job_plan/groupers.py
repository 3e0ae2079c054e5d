"""Which task reads which partitions: the groupers. Seed: SEP-5 (`group(previous, ssps)`, GroupByPartitionFixedTaskNum).

A grouper takes whole partitions and names whole tasks. It knows neither sub-topologies nor key buckets, and broadcast streams
only if it asks for them: those are added to what it gives (`core.job_plan.assignment`).
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from headrace.errors import ConfigError, StateError
from headrace.model.streams import SSP, SystemStream
from headrace.model.tasks import EverySspGroup, Group, PartitionGroup, SspGroup, TaskName

PreviousAssignment = Mapping[SSP, TaskName]
Groups = Mapping[TaskName, frozenset[SSP]]


class SystemStreamPartitionGrouper(ABC):
    """Groups partitions into tasks: what a grouper of one's own is derived from. Its class is made without arguments."""

    @abstractmethod
    def group(self, previous_assignment: PreviousAssignment, ssps: Iterable[SSP]) -> Groups:
        """Every one of `ssps` in exactly one task.

        `ssps`: whole partitions, in any order. `previous_assignment`: which task read which partition before, also of
        streams that are not among `ssps`; empty at the first run. The same arguments must give the same tasks, in any
        process. Where there is state a partition must stay with its task, and one that a stream has grown by must come
        to the task of the partition that had its keys: anything else is refused.

        Tasks are named as `hr.TaskName.parse("Partition_3")`, or by any name: `hr.TaskName.parse("europe")`. With a parameter
        `broadcast` it is given the partitions that every task reads in any case, sorted; it may put them into tasks
        all the same, and a task that has nothing else then is made.
        """

    def __str__(self) -> str:
        return type(self).__qualname__


class UsersGrouper(SystemStreamPartitionGrouper):
    """A grouper of a class that is not derived from ours, or of which `group` takes the partitions only (`is_older`)."""

    def __init__(self, grouper: Any, is_older: bool) -> None:
        self.grouper, self.is_older = grouper, is_older

    def group(self, previous_assignment: PreviousAssignment, ssps: Iterable[SSP], **broadcast: Iterable[SSP]) -> Groups:
        """What the user's method gives for as many arguments as it takes."""
        arguments = (ssps,) if self.is_older else (previous_assignment, ssps)
        groups: Groups = self.grouper.group(*arguments, **broadcast)
        return groups

    def __str__(self) -> str:
        return type(self.grouper).__qualname__


def takes_broadcast(grouper: SystemStreamPartitionGrouper) -> bool:
    """Whether `group` of a grouper, or of the user's that it calls, has the parameter `broadcast`."""
    called = grouper.grouper if isinstance(grouper, UsersGrouper) else grouper
    return "broadcast" in inspect.signature(called.group).parameters


class _BuiltIn(SystemStreamPartitionGrouper):
    """The groupers that come with Headrace; they can be called the older way too, as `group(ssps)`.

    `_is_fixed`: they keep the number of tasks when partitions are added.
    """

    _is_fixed = False

    def group(
        self, previous_assignment: PreviousAssignment | Iterable[SSP], ssps: Iterable[SSP] | None = None
    ) -> dict[TaskName, frozenset[SSP]]:
        if ssps is None:
            warnings.warn(
                f"{type(self).__name__}.group(ssps) is deprecated: call group(previous_assignment, ssps), with the task that "
                "read each partition before, or {} at the first run",
                DeprecationWarning,
                stacklevel=2,
            )
            previous_assignment, ssps = {}, previous_assignment
        assert isinstance(previous_assignment, Mapping), previous_assignment
        everything = sorted(set(ssps), key=attrgetter("sort_key"))
        assert all(ssp.key_bucket is None for ssp in (*everything, *previous_assignment)), "a grouper takes whole partitions"
        return self._grouped(previous_assignment, everything)

    def _grouped(self, previous: PreviousAssignment, ssps: list[SSP]) -> dict[TaskName, frozenset[SSP]]:
        """A stream that is new, or that another kind of grouper has shared out, is grouped as if for the first time. So is
        every stream, unless `_is_fixed`: then partition p of one that had n goes to the task that owned p mod n, since
        hash(key) mod n says in which of them its keys were. Those below n stay where they are, and a chain of expansions
        (4, 8, 16) comes to the first owners by looking up, whatever they are called.
        """
        counts = _partition_counts(previous) if self._is_fixed else {}
        others = {ssp.system_stream for ssp, name in previous.items() if not self._is_own(name.group, ssp)}
        owned: dict[TaskName, set[SSP]] = {}
        for ssp in ssps:
            count = 0 if ssp.system_stream in others else counts.get(ssp.system_stream, 0)
            parent = SSP(ssp.system, ssp.stream, ssp.partition % count) if count else None
            owned.setdefault(self._name_of(ssp) if parent is None else previous[parent], set()).add(ssp)
        return {name: frozenset(owned[name]) for name in sorted(owned, key=attrgetter("sort_key"))}

    @abstractmethod
    def _name_of(self, ssp: SSP) -> TaskName:
        """The task of a partition when nothing is known of before."""

    @abstractmethod
    def _is_own(self, group: Group, ssp: SSP) -> bool:
        """Whether this grouper may have put `ssp` into a task of that kind."""


class GroupByPartition(_BuiltIn):
    """One task per partition number: task 3 reads partition 3 of every input that has one. Under state, the next one.

    >>> ssps = [SSP("k", "a", 0), SSP("k", "a", 1), SSP("k", "b", 0)]
    >>> [str(name) for name in GroupByPartition().group({}, ssps)]
    ['Partition_0', 'Partition_1']
    """

    def _name_of(self, ssp: SSP) -> TaskName:
        return TaskName(PartitionGroup(ssp.partition))

    def _is_own(self, group: Group, ssp: SSP) -> bool:
        return isinstance(group, PartitionGroup)


class GroupBySystemStreamPartition(_BuiltIn):
    """One task per SSP: the most parallelism; streams cannot be joined, nor two of them counted under one key."""

    def _name_of(self, ssp: SSP) -> TaskName:
        return TaskName(SspGroup(ssp.system, ssp.stream, ssp.partition))

    def _is_own(self, group: Group, ssp: SSP) -> bool:
        return isinstance(group, SspGroup) and (group.system, group.stream) == (ssp.system, ssp.stream)


class GroupByPartitionFixedTaskNum(GroupByPartition):
    """As `GroupByPartition`; but a partition that a stream has grown by comes to the task that has its keys already.

    >>> before = {SSP("k", "a", p): TaskName.parse(f"Partition_{p}") for p in range(2)}
    >>> grown = GroupByPartitionFixedTaskNum().group(before, [SSP("k", "a", p) for p in range(4)])
    >>> {str(name): sorted(ssp.partition for ssp in ssps) for name, ssps in grown.items()}
    {'Partition_0': [0, 2], 'Partition_1': [1, 3]}
    """

    _is_fixed = True


class GroupBySystemStreamPartitionFixedTaskNum(GroupBySystemStreamPartition):
    """As `GroupBySystemStreamPartition`; but partitions that a stream has grown by come to the tasks that it has."""

    _is_fixed = True


TASKS_MAX = 10_000  # that a grouper makes of a number alone, whatever there is to read


class AllSspsToEveryTask(SystemStreamPartitionGrouper):
    """`tasks` tasks that each read everything, as many as there are containers if None: in a group as at its first plan. Not
    where there is state.

    Each output comes once for every task: for work that has to be done in every task.

    >>> sorted(map(str, AllSspsToEveryTask(2).group({}, [SSP("k", "a", 0)])))
    ['AllSsps_0', 'AllSsps_1']
    """

    def __init__(self, tasks: int | None = None) -> None:
        if tasks is not None and (type(tasks) is not int or not 1 <= tasks <= TASKS_MAX):
            raise ConfigError(
                f"AllSspsToEveryTask(tasks={tasks!r:.80}): expected a whole number, 1 to {TASKS_MAX:,}",
                "leave it out for as many tasks as there are containers",
            )
        self.tasks = tasks

    def group(self, previous_assignment: PreviousAssignment, ssps: Iterable[SSP]) -> dict[TaskName, frozenset[SSP]]:
        everything = frozenset(ssps)
        assert all(ssp.key_bucket is None for ssp in everything), "a grouper takes whole partitions"
        return {TaskName(EverySspGroup(index)): everything for index in range(self.tasks or 1) if everything}


_UNDER_STATE: Mapping[type, type[_BuiltIn]] = {
    GroupByPartition: GroupByPartitionFixedTaskNum,
    GroupBySystemStreamPartition: GroupBySystemStreamPartitionFixedTaskNum,
}


def under_state(grouper: SystemStreamPartitionGrouper) -> SystemStreamPartitionGrouper:
    """The grouper to take in its place where there is state: the plain ones of ours would part keys from their state.

    >>> type(under_state(GroupByPartition())).__name__
    'GroupByPartitionFixedTaskNum'
    """
    fixed = _UNDER_STATE.get(type(grouper))
    return grouper if fixed is None else fixed()


def _partition_counts(previous: PreviousAssignment) -> dict[SystemStream, int]:
    """How many partitions of each stream are assigned; they are numbered from 0 without a gap."""
    counts = Counter(ssp.system_stream for ssp in previous)
    for ssp in sorted(previous, key=attrgetter("sort_key")):
        if ssp.partition >= counts[ssp.system_stream]:
            raise StateError(
                f"the previous assignment has {counts[ssp.system_stream]} partitions of stream {ssp.stream!r}, and among them "
                f"partition {ssp.partition}: expected 0 to {counts[ssp.system_stream] - 1}",
                "give the assignment of every partition that the stream had, or none of them",
            )
    return dict(counts)
