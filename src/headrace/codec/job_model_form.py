"""What of a job model is stored: siblings, the virtual tasks of one task, as that one task, with the elasticity factor of their
sub-topology. 10,000 tasks in 16 key buckets are half a megabyte so, and nine one by one.

Virtual tasks are derived where a model is read. One in which they are stored one by one, each with its SSPs, is read too: an
older version wrote it, and what cannot be derived (tasks that no plan makes) still is stored so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.job_plan.elasticity import siblings_of, virtual_tasks_of
from headrace.model.job_model import ContainerModel, JobModel, LeftPosition, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

BucketSet = tuple[tuple[int, int], ...]
"""Key buckets of a factor: (s, k) are all b with b mod k = s. Each set has one such form: the fewest pairs, in order."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task as it is; or siblings that follow each other in a container, by bucket, as the task that they are parts of.

    `buckets`: of which siblings; None: of all, or of a task as it is. Empty: of a task that is not cut under a factor above 1.
    """

    name: TaskName
    ssps: tuple[SSP, ...]
    buckets: BucketSet | None = None


@dataclass(frozen=True, slots=True)
class StoredContainer:
    """A container, its fields in the order in which they are stored."""

    lane: int
    processor_id: str | None
    location_id: str | None
    tasks: tuple[StoredTask, ...]
    since: int | None = None


@dataclass(frozen=True, slots=True)
class StoredSubTopology:
    """A sub-topology. `broadcast`: the streams of which virtual tasks read whole partitions, sorted."""

    name: str | None
    containers: tuple[StoredContainer, ...]
    elasticity_factor: int = 1
    broadcast: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredJobModel:
    """A job model, its fields in the order in which they are stored.

    `elasticity_factor`: above 1 in models of an older version, for all sub-topologies; now each has its own.
    """

    application: str
    version: int
    elasticity_factor: int
    partition_counts: Mapping[str, int]
    stores: Mapping[str, str]
    stream_ids: Mapping[str, str]
    sub_topologies: tuple[StoredSubTopology, ...]
    left: tuple[LeftPosition, ...]
    partitioned_by_users: tuple[str, ...] = ()
    partitioned_otherwise: tuple[str, ...] = ()
    databases: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


_SAME = ("application", "version", "partition_counts", "stores", "stream_ids", "left")
_SAME_LATER = ("partitioned_by_users", "partitioned_otherwise", "databases", "dropped")


def stored_of(model: JobModel) -> StoredJobModel:
    """As which `model` is stored."""
    subs = tuple(map(_stored_sub, model.sub_topologies))
    same = {name: getattr(model, name) for name in (*_SAME, *_SAME_LATER)}
    return StoredJobModel(**same, elasticity_factor=1, sub_topologies=subs)


def model_of(stored: StoredJobModel) -> JobModel:
    """The model that is stored so. `ValueError` where what is stored makes no tasks."""
    subs = tuple(map(_sub, stored.sub_topologies))
    if stored.elasticity_factor != 1:
        subs = tuple(replace(sub, elasticity_factor=stored.elasticity_factor) for sub in subs)
    same = {name: getattr(stored, name) for name in (*_SAME, *_SAME_LATER)}
    return JobModel(**same, sub_topologies=subs)


# --- to what is stored --------------------------------------------------------------------------------------------------------


def _stored_sub(sub: SubTopologyModel) -> StoredSubTopology:
    factor, broadcast = sub.elasticity_factor, frozenset[str]()
    if factor > 1:
        firsts = [siblings[0] for container in sub.containers for siblings in siblings_of(container.tasks)]
        broadcast = broadcast.union(*(task.broadcast for task in firsts))
    containers = tuple(
        StoredContainer(
            one.lane, one.processor_id, one.location_id, tuple(_stored_tasks(one.tasks, factor, broadcast)), one.since
        )
        for one in sub.containers
    )
    return StoredSubTopology(sub.name, containers, factor, tuple(sorted(broadcast)))


def _stored_tasks(tasks: Sequence[TaskModel], factor: int, broadcast: Collection[str]) -> Iterator[StoredTask]:
    if factor == 1:
        yield from (StoredTask(task.name, task.ssps) for task in tasks)
        return
    for siblings in siblings_of(tasks):
        if _are_derived(siblings, factor, broadcast):
            first, indexes = siblings[0], [task.name.bucket.index for task in siblings if task.name.bucket is not None]
            buckets = None if len(indexes) == factor else tuple(_bucket_set(indexes, factor))
            yield StoredTask(first.name.whole, first.partitions, buckets)
        else:
            yield from (StoredTask(task.name, task.ssps, () if task.name.bucket is None else None) for task in siblings)


def _are_derived(siblings: Sequence[TaskModel], factor: int, broadcast: Collection[str]) -> bool:
    """Whether these, of one task, are what `_tasks` makes of that task: each bucket at most once, in order, of all its
    partitions."""
    first, before = siblings[0], -1
    if first.broadcast != {ssp.stream for ssp in first.partitions if ssp.stream in broadcast}:
        return False
    for task in siblings:
        bucket = task.name.bucket
        if bucket is None or bucket.factor != factor or bucket.index <= before:
            return False
        if task.partitions != first.partitions or task.broadcast != first.broadcast:
            return False
        before = bucket.index
    return len(first.broadcast) < len({ssp.stream for ssp in first.partitions})


def _bucket_set(indexes: Collection[int], factor: int, s: int = 0, k: int = 1) -> Iterator[tuple[int, int]]:
    """Those of `indexes` with b mod k = s as pairs.

    >>> list(_bucket_set([1, 3, 5, 7], 8)), list(_bucket_set([0, 1, 2], 4)), list(_bucket_set([], 4))
    ([(1, 2)], [(0, 2), (1, 4)], [])
    """
    here = [index for index in indexes if index % k == s]
    if len(here) == factor // k:
        yield s, k
    elif here:
        yield from _bucket_set(here, factor, s, 2 * k)
        yield from _bucket_set(here, factor, s + k, 2 * k)


# --- from what is stored ------------------------------------------------------------------------------------------------------


def _sub(stored: StoredSubTopology) -> SubTopologyModel:
    factor, broadcast = stored.elasticity_factor, frozenset(stored.broadcast)
    if factor < 1 or factor & (factor - 1):
        raise ValueError(f"elasticity factor {factor}: expected a power of two")
    containers = tuple(
        ContainerModel(
            one.lane,
            tuple(task for entry in one.tasks for task in _tasks(entry, factor, broadcast)),
            one.processor_id,
            one.location_id,
            one.since,
        )
        for one in stored.containers
    )
    return SubTopologyModel(stored.name, containers, factor)


def _tasks(stored: StoredTask, factor: int, broadcast: Collection[str]) -> tuple[TaskModel, ...]:
    is_whole = stored.name.bucket is None
    task, siblings = TaskModel(stored.name, stored.ssps) if is_whole else _alone(stored), tuple[TaskModel, ...]()
    if factor > 1 and is_whole and stored.buckets != ():
        siblings = virtual_tasks_of(task, factor, broadcast)
    if not stored.buckets:
        return siblings or (task,)
    if len(siblings) < factor or not all(0 <= s < k <= factor for s, k in stored.buckets):
        raise ValueError(f"task {stored.name}: it has no key buckets {list(stored.buckets)}")
    indexes = {index for s, k in stored.buckets for index in range(s, factor, k)}
    return tuple(siblings[index] for index in sorted(indexes))


def _alone(stored: StoredTask) -> TaskModel:
    """A virtual task that is stored with SSPs of its own, each with the task's key bucket or whole."""
    bucket = stored.name.bucket
    if bucket is None or any(ssp.key_bucket not in (bucket.index, None) for ssp in stored.ssps):
        raise ValueError(f"task {stored.name}: its SSPs have other key buckets than it has")
    whole = TaskModel(stored.name.whole, tuple(ssp.whole for ssp in stored.ssps))
    return TaskModel(stored.name, whole.partitions, frozenset(ssp.stream for ssp in stored.ssps if ssp.key_bucket is None))
