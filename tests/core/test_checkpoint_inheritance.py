"""What of the former tasks' positions and state goes on after an edit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.core.job_plan.checkpoint_inheritance import (
    InheritedPositions,
    carrying_notes,
    check_tasks,
    inherited_positions_of,
    left_of,
)
from headrace.core.job_plan.containers import containers_of
from headrace.core.job_plan.groupers import GroupByPartition, GroupBySystemStreamPartition
from headrace.core.topology.compatibility import store_forms
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.errors import IncompatibleChangeError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.job_model import JobModel, LeftPosition, SubTopologyModel, TaskModel
from headrace.model.streams import SSP, SystemStream
from headrace.model.tasks import EverySspGroup, PartitionGroup, TaskName

X0, X1, Y0 = SSP("log", "x", 0), SSP("log", "x", 1), SSP("log", "y", 0)
P0, P1, Q0 = TaskName(PartitionGroup(0)), TaskName(PartitionGroup(1)), TaskName(PartitionGroup(0), "q")
HEAD = Head(1, (StateFile("f", StateFileKind.SNAPSHOT, 1, 1, "c", 1),))
MODEL = JobModel("app", 1, (), stores={"c": "source|form"}, stream_ids={"x": "x-1", "y": "y-1"})


def stored(*tasks: tuple[TaskName, dict[SSP, int]], **fields: object) -> dict[TaskName, Checkpoint]:
    return {
        name: replace(Checkpoint(name, RoundId(1, name.sub_topology, 1), 1, positions), **fields)  # type: ignore[arg-type]
        for name, positions in tasks
    }


def begins(carried: InheritedPositions, task: TaskName, ssp: SSP) -> int | None:
    return carried.positions_of(task).get(ssp, carried.lowest.get(ssp))


def test_a_task_goes_on_where_it_was_and_another_where_the_slowest_was() -> None:
    every = [TaskName(EverySspGroup(n)) for n in range(3)]
    carried = inherited_positions_of(MODEL, stored((every[0], {X0: 5}), (every[1], {X0: 8})), {"x": "x-1"})
    assert [begins(carried, name, X0) for name in (*every, Q0)] == [5, 8, 5, 5]
    assert begins(carried, P0, X1) is None


@given(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 99)))
def test_nobody_begins_behind_a_record_that_somebody_has_not_read(positions: dict[tuple[int, int], int]) -> None:
    by_task: dict[TaskName, dict[SSP, int]] = {}
    for (task, partition), position in positions.items():
        by_task.setdefault(TaskName(EverySspGroup(task)), {})[SSP("log", "x", partition)] = position
    carried = inherited_positions_of(MODEL, stored(*by_task.items()), {"x": "x-1"})
    for (_, partition), position in positions.items():
        begun = begins(carried, Q0, SSP("log", "x", partition))
        assert begun is not None and begun <= position


def test_watermarks_go_along() -> None:
    before = stored((P0, {X0: 5}), watermarks={X0: 70})
    moved = TaskModel(Q0, (X0, Y0))
    assert inherited_positions_of(MODEL, before, {"x": "x-1"}).watermarks_of(moved, None) == {X0: 70}


def test_positions_in_streams_that_go_are_kept_until_they_come_back() -> None:
    before = stored((P0, {X0: 5, Y0: 7}), (P1, {X1: 6}))
    left = left_of(MODEL, before, {"x"})
    assert left == (LeftPosition(P0, Y0, 7, "y-1"),)
    later = replace(MODEL, left=left, stream_ids={"x": "x-1"})
    only_x = stored((P0, {X0: 9}), (P1, {X1: 6}))
    assert left_of(later, only_x, {"x"}) == left, "over any number of starts"
    back = inherited_positions_of(later, only_x, {"x": "x-1", "y": "y-1"})
    assert (begins(back, P0, Y0), begins(back, Q0, Y0)) == (7, 7)
    assert (Y0, 7) in back.positions()
    assert left_of(later, only_x, {"x", "y"}) == ()


@pytest.mark.parametrize("id_", ["y-2", None])
def test_positions_of_a_stream_that_is_another_one_now_do_not_come_back(id_: str | None) -> None:
    later = replace(MODEL, left=(LeftPosition(P0, Y0, 7, "y-1"),))
    assert begins(inherited_positions_of(later, {}, {"x": "x-1", "y": id_}), P0, Y0) is None


def test_what_goes_and_comes_is_noted() -> None:
    before = stored((P0, {X0: 5, Y0: 7}))
    later = replace(MODEL, left=left_of(MODEL, before, {"x"}))
    only_x = stored((P0, {X0: 9}))
    assert carrying_notes(None, {}, {"x": "x-1"}) == []
    assert carrying_notes(MODEL, before, {"x": "x-1"}) == ["stream 'y' is not read any more; where the job was in it is kept"]
    assert carrying_notes(later, only_x, {"x": "x-1", "y": "y-1"}) == [
        "stream 'y' is an input again; reading resumes at the job's last position"
    ]
    assert carrying_notes(later, only_x, {"x": "x-1", "y": "y-2"}) == [
        "stream 'y' was recreated since the job last read it, and is read as a new stream"
    ]


# --- state and its tasks ------------------------------------------------------------------------------------------------


def counted(store: str = "c", beside: bool = False) -> hr.App:
    app = hr.App("app")
    app.stream("x", key=hr.String()).group_by_key().count(store=store)
    if beside:
        app.stream("y", key=hr.String()).to("z")
    return app


def check(
    app: hr.App,
    before: dict[TaskName, Checkpoint],
    by_ssp: bool = False,
    broadcast: frozenset[SystemStream] = frozenset(),
) -> None:
    (sub,) = sub_topologies_of(app.topology())
    ssps = [SSP("log", name, partition) for name in sub.reads for partition in range(2 if name == "x" else 1)]
    to_all = [ssp for ssp in ssps if ssp.system_stream in broadcast]
    grouper = GroupBySystemStreamPartition() if by_ssp else GroupByPartition()
    groups = grouper.group({}, [ssp for ssp in ssps if ssp not in to_all])
    tasks = [TaskModel(name, tuple(sorted([*members, *to_all]))) for name, members in groups.items()]
    previous = replace(MODEL, stores=store_forms(counted().topology()))
    models = [SubTopologyModel(None, containers_of(tasks, 1))]
    check_tasks(previous, before, store_forms(app.topology()), [sub], models)


def test_the_same_tasks_keep_their_state() -> None:
    check(counted(), stored((P0, {X0: 5}), (P1, {X1: 6}), head=HEAD))


def test_a_task_with_state_keeps_its_partitions() -> None:
    with pytest.raises(IncompatibleChangeError, match=r"task Partition_0 has state, and partition 0 of stream 'x' was read by"):
        check(counted(), stored((P0, {X0: 5}), (P1, {X1: 6}), head=HEAD), by_ssp=True)
    with pytest.raises(IncompatibleChangeError, match=r"partition 1 of stream 'x' .* would be read by task Partition_1"):
        check(counted(), stored((P0, {X0: 5, X1: 6}), head=HEAD))


def test_tasks_that_have_no_state_yet_may_become_others() -> None:
    check(counted(), stored((P0, {X0: 5}), (P1, {X1: 6})), by_ssp=True)


def test_where_the_store_goes_the_tasks_may_become_others() -> None:
    check(counted("another"), stored((P0, {X0: 5}), (P1, {X1: 6}), head=HEAD), by_ssp=True)


def test_an_input_that_becomes_broadcast_is_other_tasks_too() -> None:
    before = stored((P0, {X0: 5, Y0: 7}), (P1, {X1: 6}), head=HEAD)
    with pytest.raises(IncompatibleChangeError, match=r"stream 'y' was read by task Partition_0 and would be read by tasks"):
        check(counted(beside=True), before, broadcast=frozenset({SystemStream("log", "y")}))
    check(counted(beside=True), before)


def test_a_task_with_state_does_not_vanish() -> None:
    gone = TaskName(PartitionGroup(2))
    with pytest.raises(IncompatibleChangeError, match=r"task Partition_2 has state, of records of 'y', and there would be no"):
        check(counted(), stored((P0, {X0: 5}), (P1, {X1: 6}), (gone, {SSP("log", "y", 2): 1}), head=HEAD))
