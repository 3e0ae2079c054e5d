"""Which tasks run together in a container, and when a job model is a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.model.job_model import ContainerModel, JobModel, LeftPosition, SubTopologyModel, TaskModel


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


def job_model_of(
    previous: JobModel | None,
    application: str,
    sub_topologies: Sequence[SubTopologyModel],
    partition_counts: Mapping[str, int],
    stores: Mapping[str, str],
    elasticity_factor: int = 1,
    stream_ids: Mapping[str, str] | None = None,
    left: tuple[LeftPosition, ...] = (),
    partitioned_by_users: tuple[str, ...] = (),
    partitioned_otherwise: tuple[str, ...] = (),
    databases: Mapping[str, str] | None = None,
    dropped: Mapping[str, str] | None = None,
) -> JobModel:
    """The job model: version 1 without a `previous` one, the same version if nothing changed, else the next.

    The source sub-topology comes first, the others follow by name, whatever order they are given in.
    """
    assert previous is None or previous.application == application, (previous, application)
    ordered = tuple(sorted(sub_topologies, key=lambda model: (model.name is not None, model.name or "")))
    assert len({model.name for model in ordered}) == len(ordered), "two sub-topologies of one name"
    model = JobModel(
        application,
        previous.version if previous else 1,
        ordered,
        dict(sorted(partition_counts.items())),
        dict(sorted(stores.items())),
        elasticity_factor,
        dict(sorted((stream_ids or {}).items())),
        left,
        tuple(sorted(partitioned_by_users)),
        tuple(sorted(partitioned_otherwise)),
        dict(sorted((databases or {}).items())),
        dict(sorted((dropped or {}).items())),
    )
    if previous is None or model == previous:
        return model
    return replace(model, version=previous.version + 1)
