"""Which tasks take no part in a round, and which stores are looked for when a plan brings them to a location."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.affinity.arrivals import arrivals
from headrace.core.affinity.sitting_out import (
    LaneProgress,
    SittingOut,
    TaskProgress,
    WaitingStores,
    sitting_out,
    waits_for_lost,
)
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

PLACES = ("a", "b")


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[ContainerModel], set[str], WaitingStores]:
    """Containers whose tasks share some partitions, the locations that are there, and the stores that are waited for."""
    number, containers, lanes = 0, [], dict[int, LaneProgress]()
    for lane in range(draw(st.integers(1, 4))):
        tasks = []
        for _ in range(draw(st.integers(1, 5))):
            read = draw(st.sets(st.integers(0, 6), min_size=1, max_size=3))
            ssps = tuple(SSP("k", f"stream-{lane}", partition) for partition in sorted(read))
            tasks.append(TaskModel(TaskName.parse(f"Partition_{number}"), ssps))
            number += 1
        location = draw(st.sampled_from(PLACES))
        containers.append(ContainerModel(lane, tuple(tasks), f"{location}#{lane}", location))
        if waiting := [task for task in tasks if draw(st.booleans())]:
            lanes[lane] = LaneProgress(location, tuple(TaskProgress(str(task.name), 0, 9) for task in waiting))
    return containers, draw(st.sets(st.sampled_from(PLACES))), WaitingStores(lanes)


def connected(container: ContainerModel, to: set[str]) -> set[str]:
    """The tasks from which steps over common partitions lead to one of these; each pair of tasks is one step."""
    found = set(to)
    for _ in container.tasks:
        for one in container.tasks:
            for other in container.tasks:
                if str(other.name) in found and set(one.partitions) & set(other.partitions):
                    found.add(str(one.name))
    return found


def those_out(out: SittingOut, container: ContainerModel) -> set[str]:
    return {str(task.name) for task in container.tasks} - {str(task.name) for task in out.part_of(container)}


@given(rounds())
def test_who_sits_out(given_: tuple[list[ContainerModel], set[str], WaitingStores]) -> None:
    """All of a location that is not there; else those that wait for a store, and those that cannot commit without them."""
    containers, present, waiting = given_
    out = sitting_out(containers, present, waiting)
    for one in containers:
        waits = {task.task for task in waiting.lanes[one.lane].tasks} if one.lane in waiting.lanes else set()
        everyone = {str(task.name) for task in one.tasks}
        assert those_out(out, one) == (connected(one, waits) if one.location_id in present else everyone)
        read_by_part = {ssp for task in out.part_of(one) for ssp in task.partitions}
        read_by_out = {ssp for task in one.tasks if str(task.name) in those_out(out, one) for ssp in task.partitions}
        assert not read_by_part & read_by_out, "a partition has one position in a container"
    assert bool(out.text) == any(those_out(out, one) for one in containers)


@given(st.lists(st.sampled_from([*PLACES, None])), st.sets(st.sampled_from(PLACES)))
def test_a_round_is_ended_only_where_none_is_left_that_may_answer(left: list[str | None], present: set[str]) -> None:
    may_answer = [location for location in left if location is None or location in present]
    assert waits_for_lost(left, present) == (len(left) > 0 and not may_answer)


def model_of(places: Mapping[str, tuple[int, str | None]]) -> JobModel:
    """By task its lane and location."""
    lanes = dict[int, tuple[str | None, list[TaskModel]]]()
    for task, (lane, location) in places.items():
        name = TaskName.parse(task)
        lanes.setdefault(lane, (location, []))[1].append(TaskModel(name, (SSP("k", "in", int(task[-1])),)))
    containers = tuple(ContainerModel(lane, tuple(tasks), str(lane), location) for lane, (location, tasks) in lanes.items())
    return JobModel("app", 1, (SubTopologyModel(None, containers),), {"in": len(places)})


def checkpoints_of(sizes: Mapping[str, int]) -> dict[TaskName, Checkpoint]:
    """By task how many bytes of state it has; none: it has committed, and has none."""
    found = {}
    for task, size in sizes.items():
        head = Head(1, (StateFile(f"{task}.arrow", StateFileKind.SNAPSHOT, size, 10, "c", 1),)) if size else None
        name = TaskName.parse(task)
        found[name] = Checkpoint(name, RoundId(1, None, 1), 1, {SSP("k", "in", int(task[-1])): 5}, head=head)
    return found


def test_what_a_plan_brings_to_a_location_is_looked_for_there() -> None:
    before = model_of({"P_0": (0, "a"), "P_1": (0, "a"), "P_2": (1, "b"), "P_3": (1, "b")})
    after = model_of({"P_0": (0, "a"), "P_1": (0, "a"), "P_2": (0, "a"), "P_3": (0, "a")})
    checkpoints = checkpoints_of({"P_0": 900, "P_1": 900, "P_2": 300, "P_3": 0})
    (one,) = arrivals(before, after, checkpoints, 200)
    assert (one.sub_topology, one.lane, one.location) == ("source", 0, "a")
    assert [str(task) for task in one.heads] == ["P_2"], "those that stay are there, and one has no state"
    assert not arrivals(before, after, checkpoints, 300), "so little is restored by a round"
    assert not arrivals(after, after, checkpoints, 0)
    assert not arrivals(before, model_of({"P_0": (0, None)}), checkpoints, 0), "on one machine there is nothing to look for"
