"""The groupers of SEP-11: their three forms, and the one that balances by where tasks have run."""

from __future__ import annotations

import pytest

from headrace.core.affinity.groupers import GroupByProcessor, LocalityInfo
from headrace.core.affinity.locations import LocationId
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASKS = frozenset(TaskModel(TaskName.parse(f"Partition_{p}"), (SSP("k", "in", p),)) for p in range(4))


class Kept:
    def __init__(self, **locations: str) -> None:
        self.info = LocalityInfo({TaskName.parse(task): LocationId(place) for task, place in locations.items()})

    def read_processor_locality(self) -> LocalityInfo:
        return self.info

    def write_processor_locality(self, info: LocalityInfo) -> bool:
        raise NotImplementedError


def shown(containers: frozenset[ContainerModel]) -> dict[str | None, list[str]]:
    return {one.processor_id: [str(task.name) for task in one.tasks] for one in containers}


def test_a_processor_that_comes_back_elsewhere_is_the_same() -> None:
    grouper = GroupByProcessor({"a": "host-1", "b": "host-2"})
    first = grouper.group(TASKS, ["a", "b"], ())
    assert shown(first) == {"a": ["Partition_0", "Partition_2"], "b": ["Partition_1", "Partition_3"]}
    assert {one.location_id for one in first} == {"host-1", "host-2"}
    assert shown(GroupByProcessor({"c": "host-1"}).group(TASKS, ["b", "c"], first)) == {
        "b": ["Partition_1", "Partition_3"],
        "c": ["Partition_0", "Partition_2"],
    }


def test_the_older_forms_are_there_and_deprecated() -> None:
    grouper = GroupByProcessor()
    with pytest.warns(DeprecationWarning, match=r"group\(tasks\) is deprecated"):
        assert shown(grouper.group(TASKS)) == {"0": [f"Partition_{p}" for p in range(4)]}
    with pytest.warns(DeprecationWarning, match=r"group\(tasks, processor_ids\) is deprecated"):
        assert grouper.group(TASKS, ["b", "a"]) == grouper.group(TASKS, ["a", "b"], ())
    kept = Kept(Partition_0="host-2", Partition_1="host-1", Partition_2="host-2", Partition_3="host-1")
    with pytest.warns(DeprecationWarning, match=r"balance\(tasks, locality_manager\) is deprecated"):
        assert shown(grouper.balance(TASKS, kept)) == {
            "host-1": ["Partition_1", "Partition_3"],
            "host-2": ["Partition_0", "Partition_2"],
        }
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert len(grouper.balance(TASKS, Kept())) == 1
