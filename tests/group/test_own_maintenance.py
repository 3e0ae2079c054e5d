"""What a processor's rounds are preceded and followed by, on ZooKeeper in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.affinity.locations import LocationId
from headrace.core.group.state import Registration
from headrace.driver.group.own_maintenance import OwnMaintenance
from headrace.errors import FencedError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from headrace.model.tasks import TaskName
from support.memory_zookeeper import MemoryTree, MemoryZooKeeper

TIMEOUT_S = 9.0
ONE, TWO = (TaskName.parse(f"Partition_{number}") for number in range(2))


class Place:
    """A processor that is registered; `ran`: rounds of tasks, and where they were."""

    def __init__(self) -> None:
        self.server = MemoryZooKeeper()
        self.tree: MemoryTree = self.server.tree(TIMEOUT_S)
        self.group = ProcessorGroup(self.tree, "/headrace", GroupName("delays"), self.server.clock)
        self.group.register(Registration("a", "at-a", 1, "code", "host", 1, "1@1", "boot"))
        self.maintenance = OwnMaintenance(self.group, None, None)  # type: ignore[arg-type]

    def ran(self, **locations: str) -> None:
        found = {TaskName.parse(task): LocationId(location) for task, location in locations.items()}
        self.maintenance.committed(runner(found))

    def stored(self) -> dict[TaskName, str]:
        return dict(self.group.locality.read_processor_locality().get_locality())


def runner(locations: Any = None) -> Any:
    return SimpleNamespace(new_locations=lambda: locations, sub=SimpleNamespace(title="source"))


@pytest.fixture
def place() -> Place:
    return Place()


def test_where_tasks_ran_is_stored_later_where_it_could_not_be_at_once(place: Place) -> None:
    place.ran(Partition_0="at-a")
    place.tree.is_cut = True
    place.maintenance.keep_locality()
    place.ran(Partition_1="at-a")
    place.tree.is_cut = False
    place.maintenance.keep_locality()
    assert place.stored() == {ONE: "at-a", TWO: "at-a"}


def test_what_is_stored_is_not_written_again(place: Place) -> None:
    """Another processor may have it by then."""
    place.ran(Partition_0="at-a")
    place.maintenance.keep_locality()
    place.group.locality.write_processor_locality(_at(ONE, "at-b"))
    place.maintenance.keep_locality()
    assert place.stored() == {ONE: "at-b"}


def test_nothing_is_said_of_tasks_that_others_have(place: Place) -> None:
    place.ran(Partition_0="at-a", Partition_1="at-a")
    place.maintenance.has_tasks([TWO])
    place.maintenance.keep_locality()
    assert place.stored() == {TWO: "at-a"}


def test_no_round_is_begun_when_the_lease_has_ended(place: Place) -> None:
    """Without waiting for the thread that looks at it all the time."""
    place.maintenance.began(runner())
    place.server.clock.pass_s(TIMEOUT_S * 2 / 3 + 0.1)
    with pytest.raises(FencedError, match="no round of source is begun"):
        place.maintenance.began(runner())
    place.group.confirm()
    place.maintenance.began(runner())


def _at(task: TaskName, location: str) -> LocalityInfo:
    return LocalityInfo({task: LocationId(location)})
