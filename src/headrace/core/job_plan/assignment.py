"""The tasks of a sub-topology: what a grouper gives, with prefix, broadcast streams and key buckets; and the assignment.

An assignment says which tasks read which SSPs. It is stored with every job model, and is what the next one builds on.
Seed: SEP-5 (the SSP-to-task assignment is read back as `previous`), SEP-32 (buckets; broadcast streams have none).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.core.job_plan.grouper_calls import groups_of
from headrace.core.job_plan.groupers import AllSspsToEveryTask, Groups, SystemStreamPartitionGrouper, under_state
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.errors import IncompatibleChangeError, NotSupportedError
from headrace.model.job_model import JobModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

Assignment = Mapping[SSP, tuple[TaskName, ...]]
"""Every whole partition to the tasks that read it, sorted: several, of a broadcast stream, under AllSspsToEveryTask, and
where it is read by virtual tasks, each a key bucket of it."""


def tasks_of(
    sub: SubTopology,
    ssps: Iterable[SSP],
    previous: Assignment,
    grouper: SystemStreamPartitionGrouper,
    factor: int = 1,
) -> tuple[TaskModel, ...]:
    """The tasks of `sub`, sorted by name.

    `ssps`: the whole partitions of all streams that it reads. `previous`: the stored assignment, of all sub-topologies and
    streams, under any factor. `factor`: its elasticity factor. Where the sub-topology has state, the plain groupers of ours
    mean their FixedTaskNum forms. Which tasks have state of stores that stay is not looked at: `check_tasks` does.

    Raises `ConfigError` where a grouper of a user raises, or gives what are no tasks of these partitions, each in one;
    `IncompatibleChangeError` where under state it does not give a partition that a stream has grown by to the task that has
    its keys; `NotSupportedError` where every task would read everything under state, or under a factor above 1.
    """
    everything = sorted(set(ssps), key=attrgetter("sort_key"))
    assert all(ssp.key_bucket is None for ssp in everything), "tasks are made of whole partitions"
    keeps = has_state(sub)
    if keeps:
        grouper = under_state(grouper)
    if isinstance(grouper, AllSspsToEveryTask):
        if keeps:
            raise NotSupportedError(
                f"ssp_grouper {grouper}: sub-topology {sub.title!r} has state, and every task would count every record",
                "leave ssp_grouper unset",
            )
        if factor > 1:
            raise NotSupportedError(
                f"elasticity_factor {factor} under ssp_grouper {grouper}: every task of sub-topology {sub.title!r} reads "
                "everything, and key buckets would take from each what it is there to read",
                f"set elasticity_factor.{sub.title} to 1, or leave ssp_grouper unset",
            )
        groups: Groups = grouper.group({}, everything)
        to_all: list[SSP] = []
    else:
        streams = {source.stream for source in sub.sources if source.broadcast}
        to_all = [ssp for ssp in everything if ssp.stream in streams]
        shared = [ssp for ssp in everything if ssp.stream not in streams]
        before = _owners(previous, sub.name)
        groups = groups_of(grouper, before, shared, sub.title, to_all)
        if keeps:
            by_key = {name: members.difference(to_all) for name, members in groups.items()}
            _check_keys_stay(by_key, before, grouper, sub)
    owned = {replace(name, sub_topology=sub.name): ssps for name, ssps in groups.items() if ssps}
    if to_all and not owned:
        owned[TaskName(PartitionGroup(0), sub.name)] = frozenset()
    broadcast = {ssp.stream for ssp in to_all}
    in_order = sorted(owned, key=attrgetter("sort_key"))
    whole = (TaskModel(name, tuple(sorted({*owned[name], *to_all}))) for name in in_order)
    return tuple(task for model in whole for task in virtual_tasks_of(model, factor, broadcast))


def owners_of(tasks: Iterable[tuple[TaskName, Iterable[SSP]]]) -> dict[SSP, tuple[TaskName, ...]]:
    """The tasks that read each whole partition, or a key bucket of it; all sorted. `tasks`: each once."""
    readers: dict[SSP, list[TaskName]] = {}
    for name, ssps in sorted(tasks, key=lambda task: task[0].sort_key):
        for ssp in ssps:
            readers.setdefault(ssp, []).append(name)
    return {ssp: tuple(readers[ssp]) for ssp in sorted(readers, key=attrgetter("sort_key"))}


def assignment_of(model: JobModel) -> dict[SSP, tuple[TaskName, ...]]:
    """The assignment that a job model makes, sorted."""
    return owners_of((task.name, task.partitions) for task in model.tasks)


def merged(previous: Assignment, now: Assignment) -> dict[SSP, tuple[TaskName, ...]]:
    """What is to be stored, sorted: `now`, and of `previous` the streams that are not read any more.

    Those are kept so that a stream that comes back, grown in between, finds its tasks.
    """
    read = {ssp.system_stream for ssp in now}
    kept = {ssp: names for ssp, names in previous.items() if ssp.system_stream not in read}
    both = {**kept, **now}
    return {ssp: both[ssp] for ssp in sorted(both, key=attrgetter("sort_key"))}


def bases_of(previous: Assignment, recorded: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """For every stream in `recorded` how many partitions its keys are shared out by: modulo which its tasks repeat.

    `recorded`: the counts that it had on record, oldest first. A stream that grew from 4 to 8 under state still has the
    base 4; without state, where partitions 4 to 7 have tasks of their own, it has 8.
    """
    readers: dict[str, dict[int, set[TaskName]]] = {}
    for ssp, names in previous.items():
        if len(recorded.get(ssp.stream, ())) > 1:
            readers.setdefault(ssp.stream, {}).setdefault(ssp.partition, set()).update(name.whole for name in names)
    bases: dict[str, int] = {}
    for stream in sorted(recorded):
        tasks = readers.get(stream, {})
        repeats = (c for c in recorded[stream] if all(names == tasks.get(p % c) for p, names in tasks.items()))
        bases[stream] = next(repeats, recorded[stream][-1])
    return bases


def as_first_shared_out(previous: Assignment, first: Mapping[str, int]) -> dict[SSP, tuple[TaskName, ...]]:
    """`previous` without the partitions that streams have grown by since they had the numbers in `first`.

    For what keeps state: its tasks are of the first number on record. Of a stream that grew while there was no state, the new
    partitions had tasks of their own; but records of their keys may still lie in the old ones, unread or read again.
    """
    return {ssp: names for ssp, names in previous.items() if ssp.partition < first.get(ssp.stream, ssp.partition + 1)}


def _owners(previous: Assignment, sub_topology: str | None) -> dict[SSP, TaskName]:
    """The one whole task of a sub-topology that read each whole partition; without prefix, as groupers know them.

    What several tasks read (a broadcast stream, then) has no owner.
    """
    readers: dict[SSP, set[TaskName]] = {}
    for ssp, names in previous.items():
        groups = {name.group for name in names if name.sub_topology == sub_topology}
        readers.setdefault(ssp.whole, set()).update(map(TaskName, groups))
    return {ssp: min(readers[ssp]) for ssp in sorted(readers, key=attrgetter("sort_key")) if len(readers[ssp]) == 1}


def _check_keys_stay(
    groups: Groups, before: Mapping[SSP, TaskName], grouper: SystemStreamPartitionGrouper, sub: SubTopology
) -> None:
    """`IncompatibleChangeError` where a key of a stream would come to another task than its state and older records."""
    now = {ssp: name for name, members in groups.items() for ssp in members}
    counts = Counter(ssp.system_stream for ssp in before)
    for ssp in sorted(now, key=attrgetter("sort_key")):
        count = counts[ssp.system_stream] or ssp.partition + 1
        parent = replace(ssp, partition=ssp.partition % count) if ssp.partition >= count else ssp
        if now[ssp] != now[parent]:
            raise IncompatibleChangeError(
                f"sub-topology {sub.title!r} is incompatible with its stored state under ssp_grouper {grouper}: partition "
                f"{ssp.partition} of stream {ssp.stream!r} is new, and its keys were in partition {parent.partition}, which "
                f"task {now[parent]} reads: it would be read by task {now[ssp]}, without their state",
                "leave ssp_grouper as it was, or unset; a grouper of your own has to keep partitions with the tasks that its "
                "argument previous_assignment names, and to put a new partition p of a stream that had n to partition p % n",
            )
