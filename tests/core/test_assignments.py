"""The tasks of a sub-topology, with prefix, broadcast streams and key buckets; and the assignment that is stored of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle
from typing import Any

import pytest

import headrace as hr
from headrace.core.job_plan.assignment import Assignment, assignment_of, bases_of, merged, tasks_of
from headrace.core.job_plan.containers import containers_of
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.core.job_plan.groupers import (
    AllSspsToEveryTask,
    GroupByPartition,
    GroupByPartitionFixedTaskNum,
    GroupBySystemStreamPartition,
    SystemStreamPartitionGrouper,
)
from headrace.core.topology.sub_topologies import SubTopology, sub_topologies_of
from headrace.errors import ConfigError, IncompatibleChangeError, NotSupportedError, StateError
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

PLAIN = GroupByPartition()
name = TaskName.parse


def app_of(*streams: str, state: bool = True, table: str | None = None, behind: str | None = None) -> hr.App:
    """Reads `streams`, merged, and counts by key where there is state; behind a repartition stream if one is named."""
    app = hr.App("app")
    flow, *others = (app.stream(stream, key=hr.String()) for stream in streams)
    for other in others:
        flow = flow.merge(other)
    if table is not None:
        app.global_table(table, key=hr.String(), store="table")
    if behind is not None:
        flow = flow.repartition(name=behind)
    if state:
        flow.group_by_key().count(store="c")
    else:
        flow.to("out")
    return app


def sub_of(*streams: str, **how: Any) -> SubTopology:
    """The last sub-topology of such an application."""
    return sub_topologies_of(app_of(*streams, **how).topology())[-1]


def ssps_of(**counts: int) -> list[SSP]:
    return [SSP("k", stream, partition) for stream, count in counts.items() for partition in range(count)]


def model_of(*tasks: TaskModel, sub: str | None = None) -> JobModel:
    return JobModel("app", 1, (SubTopologyModel(sub, containers_of(tasks, 2)),))


def stored_of(tasks: Iterable[TaskModel], sub: SubTopology) -> Assignment:
    return assignment_of(model_of(*tasks, sub=sub.name))


def by_text(tasks: Iterable[TaskModel]) -> dict[str, list[str]]:
    return {str(task.name): [str(ssp).removeprefix("k.") for ssp in task.ssps] for task in tasks}


class Mine(SystemStreamPartitionGrouper):
    """What a function makes of the previous assignment and the partitions."""

    def __init__(self, function: Callable[[Mapping[SSP, TaskName], list[SSP]], Any]) -> None:
        self.function = function

    def group(self, previous_assignment: Mapping[SSP, TaskName], ssps: Iterable[SSP]) -> Any:
        return self.function(previous_assignment, list(ssps))


# --- tasks --------------------------------------------------------------------------------------------------------------


def test_tasks_have_the_prefix_of_their_sub_topology_and_are_sorted() -> None:
    sub = sub_of("a", behind="later")
    tasks = tasks_of(sub, [SSP("k", "app-later-repartition", p) for p in (10, 2, 0)], {}, PLAIN)
    assert [str(task.name) for task in tasks] == ["later/Partition_0", "later/Partition_2", "later/Partition_10"]


def test_with_state_a_grown_stream_keeps_its_tasks_and_without_it_gets_new_ones() -> None:
    for state, count in ((True, 2), (False, 4)):
        sub = sub_of("a", state=state)
        before = stored_of(tasks_of(sub, ssps_of(a=2), {}, PLAIN), sub)
        assert len(tasks_of(sub, ssps_of(a=4), before, PLAIN)) == count
    assert len(tasks_of(sub, ssps_of(a=4), before, GroupByPartitionFixedTaskNum())) == 2, "where it is asked for"


def test_without_state_the_fixed_one_and_the_plain_one_are_what_they_are_called() -> None:
    sub = sub_of("a")
    before = stored_of(tasks_of(sub, ssps_of(a=2), {}, GroupBySystemStreamPartition()), sub)
    grown = tasks_of(sub, ssps_of(a=4), before, GroupBySystemStreamPartition())
    assert by_text(grown) == {
        "SystemStreamPartition_[k,a,0]": ["a.0", "a.2"],
        "SystemStreamPartition_[k,a,1]": ["a.1", "a.3"],
    }


def test_only_the_tasks_of_the_same_sub_topology_count() -> None:
    """A stream that another sub-topology read before has no tasks here, however it was shared out there."""
    sub = sub_of("a")
    there = {ssp: (name("later/Partition_0"),) for ssp in ssps_of(a=2)}
    assert by_text(tasks_of(sub, ssps_of(a=2), there, PLAIN)) == {"Partition_0": ["a.0"], "Partition_1": ["a.1"]}
    both = {ssp: (name(f"Partition_{1 - ssp.partition}"), name("later/Partition_0")) for ssp in ssps_of(a=2)}
    assert by_text(tasks_of(sub, ssps_of(a=4), both, PLAIN)) == {
        "Partition_0": ["a.1", "a.3"],
        "Partition_1": ["a.0", "a.2"],
    }


def test_every_task_reads_all_of_a_broadcast_stream_which_makes_none_of_its_own() -> None:
    sub = sub_of("a", table="t")
    tasks = tasks_of(sub, ssps_of(a=2, t=3), {}, PLAIN)
    assert by_text(tasks) == {
        "Partition_0": ["a.0", "t.0", "t.1", "t.2"],
        "Partition_1": ["a.1", "t.0", "t.1", "t.2"],
    }
    grown = tasks_of(sub, ssps_of(a=2, t=4), stored_of(tasks, sub), PLAIN)
    assert [task.ssps[1:] for task in grown] == [tuple(ssps_of(t=4))] * 2, "all of what it has grown to as well"


def test_of_broadcast_streams_alone_there_is_one_task_under_any_factor() -> None:
    app = hr.App("app")
    app.global_table("t", key=hr.String(), store="table")
    (sub,) = sub_topologies_of(app.topology())
    for factor in (1, 4):
        assert by_text(tasks_of(sub, ssps_of(t=2), {}, PLAIN, factor)) == {"Partition_0": ["t.0", "t.1"]}


def test_a_stream_that_was_broadcast_is_shared_out_as_a_new_one() -> None:
    table = sub_of("a", table="b", state=False)
    before = stored_of(tasks_of(table, ssps_of(a=2, b=2), {}, PLAIN), table)
    assert by_text(tasks_of(sub_of("a", "b"), ssps_of(a=2, b=2), before, PLAIN)) == {
        "Partition_0": ["a.0", "b.0"],
        "Partition_1": ["a.1", "b.1"],
    }


def test_all_to_every_task_and_not_under_state() -> None:
    tasks = tasks_of(sub_of("a", state=False, behind="r"), ssps_of(a=2), {}, AllSspsToEveryTask(2))
    assert by_text(tasks) == {"r/AllSsps_0": ["a.0", "a.1"], "r/AllSsps_1": ["a.0", "a.1"]}
    with pytest.raises(NotSupportedError, match=r"AllSspsToEveryTask: sub-topology 'source' has state"):
        tasks_of(sub_of("a"), ssps_of(a=2), {}, AllSspsToEveryTask(2))
    with pytest.raises(NotSupportedError, match=r"elasticity_factor 2 under ssp_grouper AllSspsToEveryTask"):
        tasks_of(sub_of("a", state=False), ssps_of(a=2), {}, AllSspsToEveryTask(2), 2)
    with pytest.raises(NotSupportedError, match=r"every task of sub-topology 'r' reads everything") as refused:
        tasks_of(sub_of("a", state=False, behind="r"), ssps_of(a=2), {}, AllSspsToEveryTask(2), 2)
    assert refused.value.hint == "set elasticity_factor.r to 1, or leave ssp_grouper unset"


def test_a_first_state_behind_all_to_every_task_gets_tasks_of_its_own() -> None:
    sub = sub_of("a", state=False)
    before = stored_of(tasks_of(sub, ssps_of(a=2), {}, AllSspsToEveryTask(1)), sub)
    tasks = tasks_of(sub_of("a"), ssps_of(a=2), before, PLAIN)
    assert [str(task.name) for task in tasks] == ["Partition_0", "Partition_1"]


# --- virtual tasks --------------------------------------------------------------------------------------------------------


def test_a_task_is_cut_by_buckets_and_broadcast_partitions_are_whole_in_each() -> None:
    tasks = tasks_of(sub_of("a", table="t"), ssps_of(a=1, t=1), {}, PLAIN, factor=4)
    assert by_text(tasks) == {f"Partition_0-{i}-4": [f"a.0/{i}", "t.0"] for i in range(4)}


def test_every_bucket_has_one_owner_and_the_whole_is_as_it_was() -> None:
    sub = sub_of("a", "b")
    ssps = ssps_of(a=3, b=2)
    for factor in (2, 8):
        tasks = tasks_of(sub, ssps, {}, PLAIN, factor)
        assert sorted(ssp for task in tasks for ssp in task.ssps) == sorted(
            ssp.bucket(i) for ssp in ssps for i in range(factor)
        )
        assert all({ssp.key_bucket for ssp in task.ssps} == {task.name.bucket.index} for task in tasks if task.name.bucket)
        assert sorted({task.name.whole for task in tasks}) == [task.name for task in tasks_of(sub, ssps, {}, PLAIN)]


@pytest.mark.parametrize("before", [1, 2, 8])
@pytest.mark.parametrize("now", [1, 4])
def test_expansion_and_elasticity_work_together(before: int, now: int) -> None:
    sub = sub_of("a", table="t")
    stored = stored_of(tasks_of(sub, ssps_of(a=2, t=1), {}, PLAIN, before), sub)
    assert [ssp.key_bucket for ssp in stored] == [None] * 3, "an SSP has one entry, whatever the factor"
    assert {len(names) for ssp, names in stored.items() if ssp.stream == "a"} == {before}
    grown = tasks_of(sub, ssps_of(a=4, t=1), stored, PLAIN, now)
    whole = {(ssp.partition, str(task.name.whole)) for task in grown for ssp in task.ssps if ssp.stream == "a"}
    assert whole == {(p, f"Partition_{p % 2}") for p in range(4)}
    assert len(grown) == 2 * now


@pytest.mark.parametrize("factor", [0, 3, 6, -2])
def test_a_factor_is_a_power_of_two(factor: int) -> None:
    with pytest.raises(AssertionError):
        virtual_tasks_of(TaskModel(name("Partition_0"), tuple(ssps_of(a=1))), factor)


def test_what_is_cut_is_not_cut_again() -> None:
    half, _ = virtual_tasks_of(TaskModel(name("Partition_0"), tuple(ssps_of(a=1))), 2, {"t"})
    with pytest.raises(AssertionError, match="cut already"):
        virtual_tasks_of(half, 2)


# --- groupers of users ------------------------------------------------------------------------------------------------------


def test_a_grouper_sees_whole_partitions_and_names_without_prefix_and_no_broadcast_stream() -> None:
    seen: list[Any] = []

    def noted(previous: Mapping[SSP, TaskName], ssps: list[SSP]) -> Any:
        seen.append((previous, ssps))
        return PLAIN.group({}, ssps)

    sub = sub_of("a", table="t")
    stored = stored_of(tasks_of(sub, ssps_of(a=2, t=2), {}, PLAIN, factor=2), sub)
    tasks_of(sub, ssps_of(a=2, t=2), stored, Mine(noted))
    assert seen == [({SSP("k", "a", p): name(f"Partition_{p}") for p in range(2)}, ssps_of(a=2))]


class Showing(SystemStreamPartitionGrouper):
    """What a function makes of the partitions and the broadcast ones."""

    def __init__(self, function: Callable[[list[SSP], list[SSP]], Any]) -> None:
        self.function = function

    def group(self, previous_assignment: Any, ssps: Iterable[SSP], broadcast: Iterable[SSP] = ()) -> Any:
        return self.function(list(ssps), list(broadcast))


@pytest.mark.parametrize("state", [True, False])
def test_a_grouper_that_takes_broadcast_partitions_is_shown_them_and_every_task_has_all(state: bool) -> None:
    seen: list[Any] = []

    def grouped(ssps: list[SSP], broadcast: list[SSP]) -> Any:
        seen.append((ssps, broadcast))
        return {name("even"): [ssps[0], *broadcast], name("odd"): ssps[1:]}

    sub = sub_of("a", table="t", state=state)
    tasks = tasks_of(sub, ssps_of(a=2, t=2), {}, Showing(grouped))
    assert seen == [(ssps_of(a=2), ssps_of(t=2))]
    assert by_text(tasks) == {"even": ["a.0", "t.0", "t.1"], "odd": ["a.1", "t.0", "t.1"]}
    again = tasks_of(sub, ssps_of(a=2, t=1), stored_of(tasks, sub), Showing(grouped))
    assert by_text(again) == {"even": ["a.0", "t.0"], "odd": ["a.1", "t.0"]}


def test_a_broadcast_partition_in_another_task_than_before_parts_no_key() -> None:
    """One task alone has read it, and so it looks like that task's own."""
    sub = sub_of("a", table="t", state=True)
    stored = stored_of(tasks_of(sub, ssps_of(a=1, t=1), {}, Showing(lambda a, t: {name("one"): [*a, *t]})), sub)
    tasks = tasks_of(sub, ssps_of(a=1, t=1), stored, Showing(lambda a, t: {name("one"): a, name("spare"): t}))
    assert by_text(tasks) == {"one": ["a.0", "t.0"], "spare": ["t.0"]}


def test_of_broadcast_streams_alone_the_grouper_may_name_the_task() -> None:
    app = hr.App("app")
    app.global_table("t", key=hr.String(), store="table")
    (sub,) = sub_topologies_of(app.topology())
    assert by_text(tasks_of(sub, ssps_of(t=1), {}, Showing(lambda a, t: {name("all"): t}))) == {"all": ["t.0"]}
    assert by_text(tasks_of(sub, ssps_of(t=1), {}, Showing(lambda a, t: {}))) == {"Partition_0": ["t.0"]}


def test_a_grouper_that_takes_no_broadcast_partitions_may_give_none() -> None:
    with pytest.raises(ConfigError, match=r"task all has k\.t\.0, which is none of the partitions that it was given"):
        tasks_of(sub_of("a", table="t"), ssps_of(a=1, t=1), {}, Mine(lambda _, ssps: {name("all"): [*ssps, *ssps_of(t=1)]}))


def test_names_of_ones_own_keep_their_partitions_as_any_others() -> None:
    """Under state a partition that is born comes to the task that has its keys."""
    sub = sub_of("a")
    by_two = Mine(lambda _, ssps: {name(each): [s for s in ssps if (s.partition % 2 == 0) == (each == "even")] for each in TWO})
    first = tasks_of(sub, ssps_of(a=2), {}, by_two)
    assert by_text(first) == {"even": ["a.0"], "odd": ["a.1"]}
    grown = tasks_of(sub, ssps_of(a=4), stored_of(first, sub), by_two)
    assert by_text(grown) == {"even": ["a.0", "a.2"], "odd": ["a.1", "a.3"]}
    with pytest.raises(IncompatibleChangeError, match=r"partition 2 of stream 'a' is new.* would be read by task Partition_2"):
        tasks_of(sub, ssps_of(a=4), stored_of(first, sub), PLAIN)


TWO = ("even", "odd")


def test_a_task_that_is_left_empty_is_dropped() -> None:
    grouper = Mine(lambda _, ssps: {name("Partition_0"): set(ssps), name("Partition_1"): set()})
    assert by_text(tasks_of(sub_of("a"), ssps_of(a=2), {}, grouper)) == {"Partition_0": ["a.0", "a.1"]}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (lambda ssps: [ssps], r"group\(\) returned \[\["),
        (lambda ssps: {"Partition_0": ssps}, r"'Partition_0' is no name of a whole task"),
        (lambda ssps: {name("x/Partition_0"): ssps}, r"x/Partition_0 is no name of a whole task"),
        (lambda ssps: {name("Partition_0-0-2"): ssps}, r"Partition_0-0-2 is no name of a whole task"),
        (lambda ssps: {name("Partition_0"): 7}, r"the partitions of task Partition_0 are 7"),
        (lambda ssps: {name("Partition_0"): ssps[:1]}, r"partition k\.a\.1 is in no task"),
        (
            lambda ssps: {name("Partition_0"): ssps, name("Partition_1"): ssps[1:]},
            r"partition k\.a\.1 is in two tasks, Partition_0 and Partition_1",
        ),
        (lambda ssps: {name("Partition_0"): [*ssps, SSP("k", "z", 0)]}, r"task Partition_0 has k\.z\.0, which is none of"),
        (lambda ssps: {name("Partition_0"): [*ssps, "z"]}, r"task Partition_0 has z, which is none of"),
        (lambda ssps: {name("Partition_0"): [*ssps, [1]]}, r"task Partition_0 has \[1\], which is none of"),
        (lambda ssps: {name("Partition_0"): [ssps]}, r"task Partition_0 has \[SystemStream.*, which is none of"),
        (lambda ssps: {name("Partition_0"): [*ssps, ssps[1]]}, r"partition k\.a\.1 is twice in task Partition_0"),
        (lambda ssps: {name("Partition_0"): cycle(ssps)}, r"partition k\.a\.0 is twice in task Partition_0"),
        (lambda ssps: {name("Partition_0"): (1 // 0 for _ in ssps)}, r"group\(\) raised ZeroDivisionError: integer div"),
        (lambda ssps: sys.exit(), r"group\(\) raised SystemExit$"),
        (lambda ssps: sys.exit("enough"), r"group\(\) raised SystemExit: enough$"),
        (lambda ssps: [].pop(), r"group\(\) raised IndexError: pop from empty list$"),
    ],
)
def test_what_are_no_tasks_of_these_partitions_is_refused(groups: Callable[[list[SSP]], Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tasks_of(sub_of("a"), ssps_of(a=2), {}, Mine(lambda _, ssps: groups(ssps)))
    assert re.search(rf"^ssp_grouper Mine, sub-topology 'source': {words}", raised.value.message)
    assert raised.value.hint is not None


def test_what_a_grouper_raises_is_the_cause_of_its_error() -> None:
    with pytest.raises(ConfigError, match="ValueError: no") as raised:
        tasks_of(sub_of("a"), ssps_of(a=2), {}, Mine(raising(ValueError("no"))))
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.hint is not None and raised.value.hint.startswith("fix it at test_assignments.py:")


def test_a_name_that_is_refused_points_to_the_line_that_gave_it() -> None:
    with pytest.raises(ConfigError, match="'far east' is no task name: expected") as raised:
        tasks_of(sub_of("a"), ssps_of(a=2), {}, Mine(lambda _, ssps: {name("far east"): ssps}))
    assert raised.value.hint is not None and "test_assignments.py:" in raised.value.hint


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StateError("of ours", "do this")])
def test_signals_and_errors_of_ours_go_through_a_grouper(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        tasks_of(sub_of("a"), ssps_of(a=2), {}, Mine(raising(error)))
    assert raised.value is error


def raising(error: BaseException) -> Callable[[object, list[SSP]], Any]:
    def group(_: object, ssps: list[SSP]) -> Any:
        raise error

    return group


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("kind", [iter, reversed, dict.fromkeys, lambda ssps: (ssp for ssp in ssps)])
def test_the_partitions_of_a_task_may_be_any_iterable(kind: Callable[[list[SSP]], Any], state: bool) -> None:
    grouper = Mine(lambda _, ssps: {name("Partition_0"): kind(ssps)})
    tasks = tasks_of(sub_of("a", state=state), ssps_of(a=2), {}, grouper)
    assert by_text(tasks) == {"Partition_0": ["a.0", "a.1"]}


def test_a_mapping_that_gives_its_partitions_once_is_looked_at_once() -> None:
    class Once(Mapping[TaskName, Any]):
        def __init__(self, ssps: list[SSP]) -> None:
            self.rest = {name("Partition_0"): ssps}

        def __getitem__(self, key: TaskName) -> Any:
            return self.rest.pop(key)

        def __iter__(self) -> Iterator[TaskName]:
            return iter(list(self.rest))

        def __len__(self) -> int:
            return len(self.rest)

    assert len(tasks_of(sub_of("a"), ssps_of(a=2), {}, Mine(lambda _, ssps: Once(ssps)))) == 1


def test_a_grouper_that_changes_what_it_is_given_changes_nothing_but_its_own() -> None:
    sub = sub_of("a")
    before = stored_of(tasks_of(sub, ssps_of(a=2), {}, PLAIN), sub)

    class Clearing(SystemStreamPartitionGrouper):
        def group(self, previous_assignment: Any, ssps: Any) -> Any:
            previous_assignment.clear()
            groups = {name("Partition_0"): ssps[:3], name("Partition_1"): ssps[3:]}
            ssps.clear()
            return groups

    with pytest.raises(IncompatibleChangeError, match="partition 3 of stream 'a' is new, and its keys were in partition 1"):
        tasks_of(sub, ssps_of(a=4), before, Clearing())
    assert len(tasks_of(sub_of("a", state=False), ssps_of(a=4), before, Clearing())) == 2


def moving(first: str, *later: str) -> Mine:
    """Puts the partitions into these tasks, one after the other."""
    names = (first, *later)

    def group(_: object, ssps: list[SSP]) -> Any:
        return {name(each): {ssp for ssp, to in zip(ssps, names, strict=True) if to == each} for each in names}

    return Mine(group)


def test_under_state_a_new_partition_is_with_the_one_that_had_its_keys() -> None:
    sub = sub_of("a")
    before = stored_of(tasks_of(sub, ssps_of(a=2), {}, PLAIN), sub)
    apart = moving("Partition_0", "Partition_1", "Partition_1", "Partition_1")
    words = r"partition 2 of stream 'a' is new, and its keys were in partition 0, which task Partition_0 reads: it would be"
    with pytest.raises(IncompatibleChangeError, match=rf"'source' is incompatible with .* ssp_grouper Mine: {words}"):
        tasks_of(sub, ssps_of(a=4), before, apart)
    assert len(tasks_of(sub_of("a", state=False), ssps_of(a=4), before, apart)) == 2
    with_its_keys = moving("Partition_0", "Partition_1", "Partition_0", "Partition_1")
    assert len(tasks_of(sub, ssps_of(a=4), before, with_its_keys)) == 2


# --- what is stored ---------------------------------------------------------------------------------------------------------


def test_the_assignment_of_a_model_names_the_readers_of_every_ssp_sorted() -> None:
    tasks = tasks_of(sub_of("a", table="t"), ssps_of(a=11, t=1), {}, PLAIN)
    assignment = assignment_of(model_of(*reversed(tasks)))
    assert list(assignment) == sorted(ssps_of(a=11, t=1))
    assert assignment[SSP("k", "t", 0)] == tuple(task.name for task in tasks)
    assert assignment[SSP("k", "a", 10)] == (name("Partition_10"),)


def test_streams_that_are_not_read_any_more_stay_on_record() -> None:
    zero, one = name("Partition_0"), name("Partition_1-0-2")
    previous = {SSP("k", "a", 0): (zero,), SSP("k", "b", 0, 0): (one,), SSP("l", "a", 0): (zero,)}
    now = {SSP("k", "a", 0): (one,), SSP("k", "a", 1): (one,)}
    assert merged(previous, now) == {
        SSP("k", "a", 0): (one,),
        SSP("k", "a", 1): (one,),
        SSP("k", "b", 0, 0): (one,),
        SSP("l", "a", 0): (zero,),
    }
    assert list(merged(previous, now)) == sorted(merged(previous, now))
    assert merged({SSP("k", "a", 0, 1): (one,), SSP("k", "a", 7): (one,)}, now) == now, "a stream is stored as it is now"


def test_a_stream_that_comes_back_grown_finds_its_tasks() -> None:
    both, alone = sub_of("a", "b"), sub_of("a")
    first = stored_of(tasks_of(both, ssps_of(a=2, b=2), {}, PLAIN, factor=2), both)
    without = merged(first, stored_of(tasks_of(alone, ssps_of(a=2), first, PLAIN), alone))
    again = tasks_of(both, ssps_of(a=4, b=6), without, PLAIN)
    assert by_text(again) == {
        "Partition_0": ["a.0", "a.2", "b.0", "b.2", "b.4"],
        "Partition_1": ["a.1", "a.3", "b.1", "b.3", "b.5"],
    }


@pytest.mark.parametrize(("state", "base"), [(True, 2), (False, 8)])
@pytest.mark.parametrize("factor", [1, 4])
def test_a_base_is_the_count_that_the_tasks_are_of(state: bool, base: int, factor: int) -> None:
    sub = sub_of("a", state=state)
    stored: Assignment = {}
    for count in (2, 4, 8):
        stored = stored_of(tasks_of(sub, ssps_of(a=count), stored, PLAIN, factor), sub)
    assert bases_of(stored, {"a": (2, 4, 8), "b": (3,)}) == {"a": base, "b": 3}


def test_the_base_of_a_stream_that_did_not_grow_is_its_count_whatever_shares_it_out() -> None:
    one_task = {ssp: (name("Partition_0"),) for ssp in ssps_of(a=4)}
    assert bases_of(one_task, {"a": (4,)}) == {"a": 4}
