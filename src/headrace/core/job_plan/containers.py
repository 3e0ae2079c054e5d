"""Which tasks run together in a container, and when a job model is a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.model.job_model import ContainerModel, JobModel, TaskModel


def containers_of(tasks: Sequence[TaskModel], count: int) -> tuple[ContainerModel, ...]:
    """`tasks`, in order of their names, in `count` containers (or fewer: none is empty), numbered from lane 0.

    Neighbours stay together, and sizes differ by at most 1: 7 tasks in 3 containers are 3, 2, 2.
    """
    assert count >= 1, count
    ordered = sorted(tasks, key=lambda task: task.name)
    assert len({task.name for task in ordered}) == len(ordered), "two tasks of one name"
    lanes = min(count, len(ordered))
    containers, start = [], 0
    for lane in range(lanes):
        size = len(ordered) // lanes + (lane < len(ordered) % lanes)
        containers.append(ContainerModel(lane, tuple(ordered[start : start + size])))
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
