"""The tasks that come to a location with a plan, whose local stores may not be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.model.checkpoint import Checkpoint, Head
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class Arrival:
    """Tasks with state that come to a lane: the heads of their states."""

    sub_topology: str  # its title
    lane: int
    location: str
    heads: Mapping[TaskName, Head]


def arrivals(
    before: JobModel | None, now: JobModel, checkpoints: Mapping[TaskName, Checkpoint], inline_bytes: int
) -> tuple[Arrival, ...]:
    """Of each lane at a location the tasks that were not at that location `before` (None: none was): as far as together they
    have more than so many bytes of state files. What is less is restored by the lane's first round."""
    former = (one for sub in (() if before is None else before.sub_topologies) for one in sub.containers)
    places = {task.name: one.location_id for one in former for task in one.tasks}
    found = []
    for sub in now.sub_topologies:
        for one in sub.containers:
            if one.location_id is None:
                continue
            come = [task.name for task in one.tasks if places.get(task.name) != one.location_id and task.name in checkpoints]
            heads = {name: head for name in come if (head := checkpoints[name].head) is not None}
            if sum(file.counted_bytes for head in heads.values() for file in head.files) > inline_bytes:
                found.append(Arrival(sub.title, one.lane, one.location_id, heads))
    return tuple(found)
