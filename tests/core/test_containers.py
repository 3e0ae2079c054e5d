"""How tasks are put into containers, and when the job model's version rises."""

from collections import Counter
from dataclasses import replace
from operator import attrgetter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.job_plan.containers import containers_of, inputs_of, next_job_model
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

by_name = attrgetter("name.sort_key")


def tasks_of(count: int, sub_topology: str | None = None) -> list[TaskModel]:
    return [
        TaskModel(TaskName(PartitionGroup(number), sub_topology), (SSP("k", "s", number),)) for number in range(count)
    ]


def sub_topology(name: str | None, tasks: int = 4, containers: int = 2) -> SubTopologyModel:
    return SubTopologyModel(name, containers_of(tasks_of(tasks, name), containers))


def model(previous: JobModel | None = None, **changes: object) -> JobModel:
    arguments: dict[str, Any] = {
        "application": "app",
        "version": 1,
        "sub_topologies": (sub_topology(None), sub_topology("by-day"), sub_topology("by-carrier")),
        "partition_counts": {"b": 4, "a": 4},
        "stores": {"y": "by-day|long", "x": "by-carrier|long"},
    }
    return next_job_model(previous, JobModel(**(arguments | changes)))


@given(st.integers(0, 60), st.integers(1, 30), st.randoms(use_true_random=False))
def test_containers_are_balanced_and_keep_neighbours_together(tasks: int, count: int, seed: Random) -> None:
    ordered = tasks_of(tasks)
    containers = containers_of(ordered, count)
    assert len(containers) == min(tasks, count)
    assert [container.lane for container in containers] == list(range(len(containers)))
    assert [task for container in containers for task in container.tasks] == ordered
    sizes = [len(container.tasks) for container in containers]
    assert not sizes or (min(sizes) >= 1 and max(sizes) - min(sizes) <= 1)
    shuffled = list(ordered)
    seed.shuffle(shuffled)
    assert containers_of(shuffled, count) == containers


FACTORS = st.sampled_from((1, 2, 8, 64))


def virtual_of(tasks: int, factor: int, broadcast: int = 0) -> list[TaskModel]:
    """Of partitions of a stream, and of as many of a broadcast stream, which each task reads whole."""
    more = tuple(SSP("k", "every", number) for number in range(broadcast))
    whole = [replace(task, partitions=(*more, *task.partitions)) for task in tasks_of(tasks)]
    return [one for task in whole for one in virtual_tasks_of(task, factor, {"every"})]


@given(st.integers(1, 12), st.integers(1, 40), FACTORS, st.randoms(use_true_random=False))
def test_containers_of_virtual_tasks(tasks: int, count: int, factor: int, seed: Random) -> None:
    virtual = virtual_of(tasks, factor)
    seed.shuffle(virtual)
    containers = containers_of(virtual, count)
    there = [task for container in containers for task in container.tasks]
    # valid: each task once, no container empty, no more of them than wanted, lanes without holes
    assert sorted(there, key=by_name) == sorted(virtual, key=by_name)
    assert all(container.tasks for container in containers)
    assert len(containers) <= count
    assert [container.lane for container in containers] == list(range(len(containers)))
    # deterministic
    assert containers_of(sorted(virtual, key=by_name), count) == containers
    whole = [{task.name.whole for task in container.tasks} for container in containers]
    if tasks >= count:  # whole: siblings are together, as their tasks would be
        assert whole == [
            {task.name for task in container.tasks} for container in containers_of(tasks_of(tasks), count)
        ]
        return
    # balanced: of one task each, a power of two of them per task, and as many as there can be
    slices = len(containers) // tasks
    assert all(len(names) == 1 for names in whole)
    assert len(containers) == tasks * slices
    assert slices & (slices - 1) == 0
    assert slices == factor or 2 * slices * tasks > count
    # numbered by task and slice; a slice has the buckets of its number modulo k
    for container in containers:
        for task in container.tasks:
            bucket = task.name.bucket.index if task.name.bucket else 0
            assert container.lane == task.ssps[0].partition * slices + bucket % slices


@given(st.integers(1, 4), st.integers(1, 20), FACTORS, st.integers(1, 3))
def test_each_record_of_a_partition_comes_to_one_container_and_of_a_broadcast_one_to_all(
    tasks: int, count: int, factor: int, broadcast: int
) -> None:
    containers = containers_of(virtual_of(tasks, factor, broadcast), count)
    given = [inputs_of(container) for container in containers]
    for low in range(factor):
        taken = [
            (ssp, container.lane)
            for container, inputs in zip(containers, given, strict=True)
            for ssp, of in inputs.items()
            if of is None or low % of.factor == of.index
        ]
        for ssp, lane in taken:
            owners = [task for task in containers[lane].tasks if ssp in task.ssps or ssp.bucket(low) in task.ssps]
            assert owners, f"lane {lane} is given what none of its tasks reads"
        of_stream = [ssp for ssp, _ in taken if ssp.stream == "s"]
        assert sorted(of_stream) == [SSP("k", "s", number) for number in range(tasks)]
        of_every = Counter(ssp for ssp, _ in taken if ssp.stream == "every")
        assert of_every == {SSP("k", "every", number): len(containers) for number in range(broadcast)}


def test_tasks_without_buckets_stay_in_one_container() -> None:
    tables = virtual_tasks_of(TaskModel(TaskName(PartitionGroup(7)), (SSP("k", "every", 7),)), 8, {"every"})
    containers = containers_of([*virtual_of(1, 8), *tables], 4)
    assert [len(container.tasks) for container in containers] == [4, 4, 1]
    assert [len(one.tasks) for one in containers_of([*virtual_of(1, 8), *tables], 5)] == [2, 2, 2, 2, 1]


def test_the_first_job_model_is_version_1_and_sorted() -> None:
    first = model()
    assert first.version == 1
    assert [sub.name for sub in first.sub_topologies] == [None, "by-carrier", "by-day"]
    assert list(first.partition_counts) == ["a", "b"]
    assert list(first.stores) == ["x", "y"]


def test_the_same_in_another_order_is_the_same_version() -> None:
    third = model(model(model(), partition_counts={}))
    again = model(
        third,
        sub_topologies=[sub_topology("by-carrier"), sub_topology("by-day"), sub_topology(None)],
        partition_counts={"a": 4, "b": 4},
        stores={"x": "by-carrier|long", "y": "by-day|long"},
    )
    assert (third.version, again) == (3, third)


@pytest.mark.parametrize(
    "changes",
    [
        {"sub_topologies": [sub_topology(None)]},
        {"sub_topologies": [sub_topology(None, containers=3), sub_topology("by-day"), sub_topology("by-carrier")]},
        {"partition_counts": {"a": 4, "b": 8}},
        {"stores": {}},
        {"sub_topologies": [replace(sub_topology(None), elasticity_factor=2)]},
        {"partitioned_by_users": ("a",)},
        {"partitioned_otherwise": ("a",)},
    ],
)
def test_any_change_is_the_next_version(changes: dict[str, object]) -> None:
    first = model()
    second = model(first, **changes)
    assert second.version == 2
    assert model(second, **changes) == second
    assert model(second).version == 3  # going back is a change too


def test_the_model_of_another_application_is_no_previous_one() -> None:
    with pytest.raises(AssertionError):
        model(model(), application="other")
