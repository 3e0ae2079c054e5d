"""What every implementation of `core.affinity.groupers.LocalityManager` must do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.affinity.groupers import LocalityInfo, LocalityManager
from headrace.core.affinity.locations import LocationId
from headrace.driver.planning.stored_locality import StoredLocality
from headrace.errors import FencedError
from headrace.model.commits import DriverLease
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
    assert opened().read_processor_locality() == info(Partition_0="host-1", Partition_1="rack-7/node:2")


def test_who_does_not_hold_the_job_writes_nothing(opened: Opened, job_store: Any) -> None:
    before = opened()
    job_store.acquire(HOLDER, 0)
    with pytest.raises(FencedError):
        before.write_processor_locality(info(Partition_0="host-1"))
    assert before.read_processor_locality() == info()
