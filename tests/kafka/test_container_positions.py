"""Which positions a container commits to Kafka's groups: few, one per partition, and none that another container writes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.adapters.kafka.positions import container_positions, positions_of, shared_ssps
from headrace.core.job_plan.containers import containers_of
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

EVERY = SSP("k", "every", 0)


@st.composite
def planned(draw: st.DrawFn) -> tuple[JobModel, list[Checkpoint]]:
    """Tasks of a stream each, some with a broadcast one, in containers; each task of a round and at positions of its own."""
    tasks, factor = draw(st.integers(1, 5)), draw(st.sampled_from((1, 2, 4, 16)))
    more = (EVERY,) if draw(st.booleans()) else ()
    whole = [TaskModel(TaskName(PartitionGroup(n)), (*more, SSP("k", "s", n))) for n in range(tasks)]
    virtual = [one for task in whole for one in virtual_tasks_of(task, factor, {"every"})]
    model = JobModel("app", 3, (SubTopologyModel(None, containers_of(virtual, draw(st.integers(1, 12)))),))
    checkpoints = []
    for task in model.tasks:
        positions = {ssp: draw(st.integers(0, 9)) for ssp in task.partitions}
        checkpoints.append(Checkpoint(task.name, RoundId(1, None, draw(st.integers(0, 2))), 3, positions))
    return model, checkpoints


@given(planned())
def test_a_container_has_two_groups_at_most_and_one_position_per_partition(given_: tuple[JobModel, list[Checkpoint]]) -> None:
    model, checkpoints = given_
    by_task = {one.task: one for one in checkpoints}
    shared = shared_ssps(model, None)
    written: Counter[tuple[str, str, int]] = Counter()
    for container in model.sub_topology(None).containers:
        mine = [by_task[task.name] for task in container.tasks]
        found = container_positions("app", "source", container.lane, mine, shared)
        assert {position.group for position in found} <= {"app.source", f"app.source/{container.lane}"}
        for position in found:
            written[position.group, position.topic, position.partition] += 1
            readers = [one for one in mine if SSP("k", position.topic, position.partition) in one.positions]
            assert position.offset == min(one.positions[SSP("k", position.topic, position.partition)] for one in readers)
            rounds = {str(one.round_id) for one in readers}
            assert (position.note.r in rounds) is (len(rounds) == 1), "a round of some of them must not pass for all"
        read = {ssp for task in container.tasks for ssp in task.partitions}
        assert {(one.topic, one.partition) for one in found} == {(ssp.stream, ssp.partition) for ssp in read}
    assert set(written.values()) <= {1}, "two containers write one position"
    assert sorted(written) == sorted((p.group, p.topic, p.partition) for p in positions_of("app", model, checkpoints))


@given(planned(), st.integers(0, 2))
def test_what_one_container_commits_leaves_the_positions_of_the_others(
    given_: tuple[JobModel, list[Checkpoint]], place: int
) -> None:
    model, checkpoints = given_
    containers = model.sub_topology(None).containers
    committing = {task.name for task in containers[place % len(containers)].tasks}
    after = [
        Checkpoint(one.task, RoundId(1, None, 9), 3, {ssp: offset + 10 for ssp, offset in one.positions.items()})
        if one.task in committing
        else one
        for one in checkpoints
    ]
    before_, after_ = positions_of("app", model, checkpoints), positions_of("app", model, after)
    moved = [new for old, new in zip(before_, after_, strict=True) if old != new]
    kept = [new for old, new in zip(before_, after_, strict=True) if old == new]
    assert all(position.note.r == str(RoundId(1, None, 9)) and position.offset >= 10 for position in moved)
    assert all(position.offset < 10 for position in kept)
