"""Tasks of a location that was away come home to it, by what plans know of where they have lived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from headrace.core.affinity.groupers import LocalityInfo, locality_of
from headrace.core.affinity.lived import Left, Lived
from headrace.core.affinity.locations import LocationId
from headrace.core.affinity.members import Member, TaskHistory, assigned
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from planning.planned_model import STRINGS, PlannedModel

DAY_US = 86_400_000_000
Places = Mapping[str, str | None]


def whole(count: int) -> list[TaskModel]:
    return [TaskModel(TaskName.parse(f"Partition_{number}"), (SSP("k", "in", number),)) for number in range(count)]


def places_of(containers: tuple[ContainerModel, ...]) -> dict[TaskName, str]:
    return {task.name: str(one.location_id) for one in containers for task in one.tasks}


@pytest.mark.parametrize(("tasks", "hosts", "per_host"), [(8, 2, 2), (16, 2, 2), (64, 2, 2), (64, 4, 1), (60, 3, 4)])
def test_all_tasks_of_a_host_are_the_same_ones_when_it_is_back(tasks: int, hosts: int, per_host: int) -> None:
    """Though the others have run them meanwhile, and so have stores of all."""
    group = [Member(f"p{host}-{slot}", f"host{host}") for host in range(hosts) for slot in range(per_host)]
    first = assigned(whole(tasks), group)
    lived = {task: Lived(LocationId(place)) for task, place in places_of(first).items()}
    now = first
    for number, members in enumerate([group[per_host:], group, group[:-per_host], group], 1):
        known = locality_of(lived)
        former: dict[TaskName, Mapping[str, Left]] = {
            task: {str(place): left for place, left in places.items()} for task, places in known.former.items()
        }
        now = assigned(whole(tasks), members, TaskHistory(now, known.locality, {}, former))
        for task, place in places_of(now).items():
            lived[task] = lived[task].moved_to(LocationId(place), number)
    assert places_of(now) == places_of(first)


def test_what_was_cut_otherwise_since_has_no_home_that_it_came_from() -> None:
    """The stores of virtual tasks are of no use to those of another factor, nor to the same ones that come again."""
    two = [each for task in whole(2) for each in virtual_tasks_of(task, 2)]
    group = [Member("a", "host-1"), Member("b", "host-2")]
    former = {task.name: {"host-2": Left(True, 5)} for task in two}
    before = assigned(whole(2), [group[0]])
    known = TaskHistory(before, former_locations=former)
    assert assigned(two, group, known) == assigned(two, group, TaskHistory(before))
    whole_again = {task.name: {"host-2": Left(True, 5)} for task in whole(2)[:1]}
    assert places_of(assigned(whole(2), group, TaskHistory(before, former_locations=whole_again)))[whole(1)[0].name] == "host-2"


def planned_places(model: PlannedModel) -> dict[str, str | None]:
    found = model.snapshot.model
    assert found is not None
    return {str(task.name): one.location_id for sub in found.sub_topologies for one in sub.containers for task in one.tasks}


def committed(model: PlannedModel, slots: Mapping[str, int], locality: LocalityInfo, now_us: int) -> Places:
    """Where tasks are by the next plan, which is made at `now_us`."""
    model.terms = replace(model.terms, locations=slots)
    model.snapshot = replace(model.snapshot, locality=locality, now_us=now_us - 1_000)  # a plan of it is made later by so much
    model.start()
    return planned_places(model)


@pytest.mark.parametrize(("back_us", "is_home"), [(DAY_US - 1, True), (DAY_US, False)])
def test_a_plan_knows_where_tasks_came_from_as_long_as_their_stores_are_kept(back_us: int, is_home: bool) -> None:
    app = PlannedModel(lambda app: app.stream("lines", **STRINGS).to("out"), {"lines": 8}, store_retention_us=DAY_US)
    both, left = {"host-1": 1, "host-2": 1}, {"host-1": 1}
    first = committed(app, both, LocalityInfo(), 0)
    assert Counter(first.values()) == {"host-1": 4, "host-2": 4}
    committed(app, left, LocalityInfo(), 0)
    here = LocationId("host-1")
    ran = {TaskName.parse(task): Lived(LocationId(str(place))).moved_to(here, 1) for task, place in first.items()}
    assert (committed(app, both, locality_of(ran), 1 + back_us) == first) is is_home


@pytest.mark.parametrize(
    ("slots", "tasks", "shares"),
    [
        ({"h1": 4, "h2": 4, "h3": 4}, 4, [2, 1, 1]),
        ({"h1": 2, "h2": 2, "h3": 2}, 2, [1, 1, 0]),
        ({"h1": 2, "h2": 2, "h3": 2}, 4, [2, 1, 1]),
        ({"h1": 8, "h2": 8}, 10, [5, 5]),
        ({"h1": 4, "h2": 2}, 4, [2, 2]),
        ({"h1": 4, "h2": 1}, 4, [3, 1]),
        ({"h1": 4, "h2": 2}, 16, [10, 6]),
    ],
)
def test_a_plan_shares_tasks_out_among_locations_before_their_slots(
    slots: dict[str, int], tasks: int, shares: list[int]
) -> None:
    app = PlannedModel(lambda app: app.stream("lines", **STRINGS).to("out"), {"lines": tasks})
    found = Counter(committed(app, slots, LocalityInfo(), 0).values())
    assert [found[place] for place in slots] == shares
