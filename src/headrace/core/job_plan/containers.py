"""Which tasks run together in a container and what these read, and when a job model is a new one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from headrace.core.job_plan.elasticity import siblings_of
from headrace.model.job_model import ContainerModel, JobModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import KeyBucket, TaskName


def containers_of(tasks: Sequence[TaskModel], count: int) -> tuple[ContainerModel, ...]:
    """`tasks`, in order of their names, in `count` containers (or fewer: none is empty), numbered from lane 0.

    Neighbours stay together, and sizes differ by at most 1: 7 tasks in 3 containers are 3, 2, 2. The virtual tasks of a task
    count as one, and are in one container, which reads their partitions alone.

    Where there are fewer tasks than containers, virtual ones are cut into slices: as many containers each, a power of two that
    their factor allows, and slice s of k has the buckets b with b mod k = s. So a slice is itself a bucket of factor k.

    >>> from headrace.core.job_plan.elasticity import virtual_tasks_of
    >>> from headrace.model.tasks import TaskName
    >>> tasks = virtual_tasks_of(TaskModel(TaskName.parse("Partition_0"), (SSP("k", "views", 0),)), 4)
    >>> for container in containers_of(tasks, 3):
    ...     print(container.lane, *(task.name for task in container.tasks))
    0 Partition_0-0-4 Partition_0-2-4
    1 Partition_0-1-4 Partition_0-3-4
    """
    shares = portions_of(tasks, count)
    lanes = min(count, len(shares))
    containers, start = [], 0
    for lane in range(lanes):
        size = len(shares) // lanes + (lane < len(shares) % lanes)
        mine = (task for share in shares[start : start + size] for task in share)
        containers.append(ContainerModel(lane, tuple(mine)))
        start += size
    return tuple(containers)


def portions_of(tasks: Sequence[TaskModel], count: int) -> list[list[TaskModel]]:
    """What can be shared out to `count` containers, in order of the tasks' names: each task, the virtual tasks of one together;
    where these are fewer than containers, their slices."""
    assert count >= 1, count
    keys = [task.name.sort_key for task in tasks]
    assert len(set(keys)) == len(tasks), "two tasks of one name"
    siblings = list(siblings_of(task for _, task in sorted(zip(keys, tasks, strict=True), key=itemgetter(0))))
    slices, most = 1, max(map(len, siblings), default=1)
    while slices < most and sum(min(2 * slices, len(own)) for own in siblings) <= count:
        slices *= 2
    return [share for own in siblings for share in _cut(own, min(slices, len(own)))]


def _cut(siblings: Sequence[TaskModel], slices: int) -> Iterator[list[TaskModel]]:
    """The tasks of each slice, in order of their buckets; a whole task has one slice."""
    if slices == 1:
        yield list(siblings)
        return
    for number in range(slices):
        yield [task for task in siblings if (task.name.bucket.index if task.name.bucket else 0) % slices == number]


def not_sliced(tasks: Iterable[TaskModel]) -> list[TaskModel]:
    """Of the tasks of a container the first siblings that are no slice, see `containers_of`: it has no key bucket that is
    theirs alone. Empty where there are none."""
    siblings: dict[TaskName, list[TaskModel]] = {}
    for task in tasks:
        if task.name.bucket is not None:
            siblings.setdefault(task.name.whole, []).append(task)
    return next((own for own in siblings.values() if not _is_slice([one.name.bucket for one in own if one.name.bucket])), [])


def _is_slice(buckets: Sequence[KeyBucket]) -> bool:
    """
    >>> [_is_slice([KeyBucket(index, 4) for index in indexes]) for indexes in [(0, 1, 2, 3), (1, 3), (2,), (0, 1), (0, 1, 2)]]
    [True, True, True, False, False]
    """
    slices, rest = divmod(buckets[0].factor, len(buckets))
    return rest == 0 and len({bucket.index % slices for bucket in buckets}) == 1


def inputs_of(container: ContainerModel) -> dict[SSP, KeyBucket | None]:
    """The partitions that a container's tasks read, sorted, and which of their records these take: those of one key bucket,
    which is a slice of the partition, or all (None). Records without one, of broadcast streams, come to each reader."""
    readers: dict[SSP, list[TaskModel]] = {}
    for task in container.tasks:
        for ssp in task.partitions:
            readers.setdefault(ssp, []).append(task)
    return {ssp: _slice_of(readers[ssp], ssp) for ssp in sorted(readers)}


def _slice_of(readers: Sequence[TaskModel], ssp: SSP) -> KeyBucket | None:
    bucket = readers[0].name.bucket
    if bucket is None or ssp.stream in readers[0].broadcast or len(readers) == bucket.factor:
        return None
    slices = bucket.factor // len(readers)
    assert {task.name.bucket.index % slices for task in readers if task.name.bucket} == {bucket.index % slices}, readers
    return KeyBucket(bucket.index % slices, slices)


def next_job_model(previous: JobModel | None, model: JobModel, version: int | None = None) -> JobModel:
    """`model` in its order, with `version`; where that is None: 1 without a `previous` one, the same one if nothing changed,
    else the next.

    The source sub-topology comes first, the others follow by name, whatever order they are given in.
    """
    assert previous is None or previous.application == model.application, (previous, model)
    ordered = tuple(sorted(model.sub_topologies, key=lambda sub: (sub.name is not None, sub.name or "")))
    assert len({sub.name for sub in ordered}) == len(ordered), "two sub-topologies of one name"
    model = replace(
        model,
        version=previous.version if previous else 1,
        sub_topologies=ordered,
        partition_counts=dict(sorted(model.partition_counts.items())),
        stores=dict(sorted(model.stores.items())),
        stream_ids=dict(sorted(model.stream_ids.items())),
        partitioned_by_users=tuple(sorted(model.partitioned_by_users)),
        partitioned_otherwise=tuple(sorted(model.partitioned_otherwise)),
        databases=dict(sorted(model.databases.items())),
        dropped=dict(sorted(model.dropped.items())),
    )
    if version is not None:
        assert previous is None or previous.version < version, f"version {version} after {previous.version}"
        return replace(model, version=version)
    if previous is None or model == previous:
        return model
    return replace(model, version=previous.version + 1)
