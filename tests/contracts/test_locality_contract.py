"""What every implementation of `core.affinity.groupers.LocalityManager` must do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.affinity.groupers import LocalityInfo, LocalityManager
from headrace.core.affinity.lived import Left
from headrace.core.affinity.locations import LocationId
from headrace.driver.planning.stored_locality import StoredLocality, locality_changes
from headrace.errors import FencedError
from headrace.model.commits import DriverLease
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.tasks import TaskName

HOLDER = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)
Opened = Callable[[], LocalityManager]


def info(**locations: str) -> LocalityInfo:
    return LocalityInfo({TaskName.parse(task): LocationId(place) for task, place in locations.items()})


@pytest.fixture
def opened(job_store: Any, metadata_store: Any) -> Opened:
    epoch = job_store.acquire(HOLDER, 0)
    return lambda: StoredLocality(metadata_store, job_store, epoch)


def test_at_first_nothing_is_kept(opened: Opened) -> None:
    assert opened().read_processor_locality() == info()
    assert not opened().write_processor_locality(info())


def test_what_is_written_is_read_by_another_and_only_changes_are_written(opened: Opened) -> None:
    first = opened()
    assert first.write_processor_locality(info(Partition_0="host-1", Partition_1="host-2"))
    assert not first.write_processor_locality(info(Partition_1="host-2"))
    assert not opened().write_processor_locality(info(Partition_1="host-2"))
    assert opened().write_processor_locality(info(Partition_1="rack-7/node:2"))
    found = opened().read_processor_locality()
    assert found.get_locality() == info(Partition_0="host-1", Partition_1="rack-7/node:2").get_locality()
    (left,) = found.former.values()
    assert left.keys() == {"host-2"} and left[LocationId("host-2")].is_home


def test_where_a_task_came_from_is_kept_until_it_is_back_there(opened: Opened) -> None:
    for place, former in [("host-1", {}), ("host-2", {"host-1": True}), ("host-1", {"host-2": False})]:
        opened().write_processor_locality(info(Partition_0=place))
        (task,) = info(Partition_0=place).locality
        found = opened().read_processor_locality().former.get(task, {})
        assert {one: left.is_home for one, left in found.items()} == former


def test_a_plan_removes_tasks_that_it_has_not_and_those_that_go_back_forget_where_they_came_from() -> None:
    gone, rewound, other = (TaskName.parse(f"Partition_{number}") for number in range(3))
    former = {LocationId("host-1"): Left(True, 5)}
    stored = LocalityInfo({task: LocationId("host-2") for task in (gone, rewound, other)}, {rewound: former, other: former})
    container = ContainerModel(0, (TaskModel(rewound, ()), TaskModel(other, ())))
    model = JobModel("app", 1, (SubTopologyModel(None, (container,)),), {})
    assert locality_changes(stored, model, {rewound}) == {"Partition_0": None, "Partition_1": b"host-2"}


def test_who_does_not_hold_the_job_writes_nothing(opened: Opened, job_store: Any) -> None:
    before = opened()
    job_store.acquire(HOLDER, 0)
    with pytest.raises(FencedError):
        before.write_processor_locality(info(Partition_0="host-1"))
    assert before.read_processor_locality() == info()
