"""How tasks are put into containers, and when the job model's version rises."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.job_plan.containers import containers_of, next_job_model
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName


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


@given(st.integers(1, 12), st.integers(1, 20), st.sampled_from((2, 8)))
def test_virtual_tasks_of_a_task_are_in_one_container(tasks: int, count: int, factor: int) -> None:
    virtual = [one for task in tasks_of(tasks) for one in virtual_tasks_of(task, factor)]
    containers = containers_of(virtual[::-1], count)
    assert sorted(task.name for container in containers for task in container.tasks) == sorted(task.name for task in virtual)
    whole = [[task.name.whole for task in container.tasks] for container in containers]
    assert [sorted(set(names)) for names in whole] == [
        [task.name for task in container.tasks] for container in containers_of(tasks_of(tasks), count)
    ]


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
