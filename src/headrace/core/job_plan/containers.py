"""Which tasks run together in a container, and when a job model is a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.model.job_model import ContainerModel, JobModel, TaskModel
from headrace.model.tasks import TaskName


def containers_of(tasks: Sequence[TaskModel], count: int) -> tuple[ContainerModel, ...]:
    """`tasks`, in order of their names, in `count` containers (or fewer: none is empty), numbered from lane 0.

    Neighbours stay together, and sizes differ by at most 1: 7 tasks in 3 containers are 3, 2, 2. The virtual tasks of a task
    count as one, and are in one container, which reads their partitions once.
    """
    assert count >= 1, count
    siblings: dict[TaskName, list[TaskModel]] = {}
    for task in sorted(tasks, key=lambda task: task.name.sort_key):
        siblings.setdefault(task.name.whole, []).append(task)
    assert len({task.name for task in tasks}) == len(tasks), "two tasks of one name"
    ordered = [siblings[name] for name in sorted(siblings, key=lambda name: name.sort_key)]
    lanes = min(count, len(ordered))
    containers, start = [], 0
    for lane in range(lanes):
        size = len(ordered) // lanes + (lane < len(ordered) % lanes)
        mine = (task for group in ordered[start : start + size] for task in group)
        containers.append(ContainerModel(lane, tuple(mine)))
        start += size
    return tuple(containers)


def next_job_model(previous: JobModel | None, model: JobModel) -> JobModel:
    """`model` in its order, with its version: 1 without a `previous` one, the same one if nothing changed, else the next.

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
    if previous is None or model == previous:
        return model
    return replace(model, version=previous.version + 1)
