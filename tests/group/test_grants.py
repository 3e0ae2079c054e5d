"""What a plan changes in a group: portions, grants, and the versions of containers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.affinity.members import TaskHistory, assigned
from headrace.core.group.grants import (
    Grant,
    InForce,
    after_change,
    changes_of,
    holders_of,
    known_to_have_begun,
    lanes_of,
    members_in,
    portion_of,
    processor_of,
    processor_portions,
    processor_slots,
    processor_tasks,
)
from headrace.core.job_plan.containers import next_job_model
from headrace.core.job_plan.tasks import kept_as_they_are
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASKS = tuple(TaskModel(TaskName.parse(f"Partition_{number}"), (SSP("k", "a", number),)) for number in range(8))
SHAPES = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 3), min_size=1)
SHARED = SSP("k", "broadcast", 0)


def planned(shape: dict[str, int], version: int, before: JobModel | None = None) -> JobModel:
    """The job model of a group with these slots."""
    slots = [slot for id_, count in shape.items() for slot in processor_slots(id_, f"host-{id_}", count)]
    containers = before.sub_topologies[0].containers if before else ()
    sub = SubTopologyModel(None, assigned(TASKS, slots, TaskHistory(containers)))
    return next_job_model(before, JobModel("app", 1, kept_as_they_are([sub], before, version)), version)


def checkpoints(model: JobModel, position: int = 0) -> dict[TaskName, Checkpoint]:
    versions, round_id = model.versions, RoundId(1, None, 1)
    return {
        task.name: Checkpoint(task.name, round_id, versions[task.name], dict.fromkeys(task.partitions, position))
        for task in model.tasks
    }


def changed(before: JobModel, after: JobModel, ids_before: Collection[str] = (), ids_after: Collection[str] = ()) -> set[str]:
    stored = checkpoints(after)
    portions = processor_portions(before, ids_before), processor_portions(after, ids_after)
    return set(changes_of(*portions, after, stored, stored)[0])


@given(SHAPES, SHAPES)
def test_a_processor_with_the_same_containers_is_left_alone_and_no_other(first: dict[str, int], second: dict[str, int]) -> None:
    before = planned(first, 1)
    after = planned(second, 5, before)
    then = {id_: portion_of(before, id_).sub_topologies for id_ in holders_of(before)}
    now = {id_: portion_of(after, id_).sub_topologies for id_ in holders_of(after)}
    stays = {id_ for id_ in then.keys() & now.keys() if _but_versions(then[id_]) == _but_versions(now[id_])}
    assert changed(before, after) == (then.keys() | now.keys()) - stays
    for id_ in stays:
        assert {after.versions[task] for task in processor_tasks(after, [id_])} == {1}
    kept = before.sub_topologies[0].containers
    moved = [task for task in processor_tasks(after, now.keys() - stays - gains(before, after)) if _is_new(after, task, kept)]
    assert all(after.versions[task] == 5 for task in moved)
    assert after.version == 5


@given(SHAPES, SHAPES)
def test_one_that_gets_tasks_and_loses_none_works_on(first: dict[str, int], second: dict[str, int]) -> None:
    """What it had is as it was, down to the versions of its checkpoints and to the place of each; and it is the only one."""
    before = planned(first, 1)
    after = planned(second, 5, before)
    had = {id_: _places(before, id_) for id_ in holders_of(before)}
    has = {id_: _places(after, id_) for id_ in holders_of(after)}
    expected = {id_ for id_ in had.keys() & has.keys() if had[id_].items() < has[id_].items()}
    assert gains(before, after) == expected
    for id_ in expected:
        kept = [task for _, task in had[id_]]
        assert {after.versions[task] for task in kept} == {1}


def _but_versions(subs: tuple[SubTopologyModel, ...]) -> list[object]:
    return [replace(one, since=None) for sub in subs for one in sub.containers]


def gains(before: JobModel, after: JobModel) -> set[str]:
    stored = checkpoints(after)
    portions = processor_portions(before, ()), processor_portions(after, ())
    return set(changes_of(*portions, after, checkpoints(before), stored)[1])


def _places(model: JobModel, id_: str) -> dict[tuple[int, TaskName], str | None]:
    (sub,) = portion_of(model, id_).sub_topologies
    return {(one.lane, task.name): one.processor_id for one in sub.containers for task in one.tasks}


def _is_new(model: JobModel, task: TaskName, kept: Collection[object]) -> bool:
    return _container_of(model, task) not in kept


def _container_of(model: JobModel, task: TaskName) -> object:
    (sub,) = model.sub_topologies
    return next(replace(one, since=1) for one in sub.containers if task in {mine.name for mine in one.tasks})


def test_what_is_not_of_the_assignment_changes_everybody() -> None:
    model = planned({"a": 1, "b": 1}, 1)
    assert changed(model, replace(model, partition_counts={"a": 9})) == {"a", "b"}
    assert changed(model, replace(model, stream_ids={"a": "another"})) == {"a", "b"}
    assert changed(model, model, ["s-1"], ["s-1", "s-2"]) == changed(model, model, ["s-1"]) == {"a", "b"}
    assert changed(model, replace(model, version=7), ["s-1"], ["s-1"]) == set()


def test_a_partition_that_another_reads_as_well_changes_both() -> None:
    """Its position is in a group of each container's own."""
    model = planned({"a": 1, "b": 1}, 1)
    (sub,) = model.sub_topologies
    one, other = sub.containers
    reads = [replace(one.tasks[0], partitions=(*one.tasks[0].partitions, SHARED)), *one.tasks[1:]]
    alone = replace(model, sub_topologies=(replace(sub, containers=(replace(one, tasks=tuple(reads)), other)),))
    both_read = [replace(other.tasks[0], partitions=(*other.tasks[0].partitions, SHARED)), *other.tasks[1:]]
    containers = replace(one, tasks=tuple(reads)), replace(other, tasks=tuple(both_read))
    both = replace(model, sub_topologies=(replace(sub, containers=containers),))
    before, after = processor_portions(alone, ()), processor_portions(both, ())
    assert before["a"] != after["a"] and before["b"] != after["b"]


def test_a_processor_of_whose_task_a_checkpoint_is_written_changes() -> None:
    model = planned({"a": 1, "b": 1}, 1)
    portions, stored = processor_portions(model, ()), checkpoints(model)
    task = min(processor_tasks(model, ["b"]), key=str)
    written = {**stored, task: replace(stored[task], positions={SSP("k", "a", 0): 9})}
    assert changes_of(portions, portions, model, stored, written) == ({"b"}, frozenset())


@given(SHAPES)
def test_what_a_processor_has(shape: dict[str, int]) -> None:
    model = planned(shape, 1)
    ids = holders_of(model)
    assert ids <= shape.keys()
    assert frozenset().union(*(processor_tasks(model, [id_]) for id_ in ids)) == {task.name for task in TASKS}
    lanes = [lanes_of(model, [id_])["source"] for id_ in ids]
    assert sum(map(len, lanes)) == len(frozenset().union(*lanes)) == len(model.sub_topologies[0].containers)
    for id_ in ids:
        mine = portion_of(model, id_)
        assert {processor_of(one) for sub in mine.sub_topologies for one in sub.containers} == {id_}
        assert {one.id.partition("#")[0] for one in members_in(model, [id_])} == {id_}


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20)), st.sets(st.sampled_from("abcdef")), st.integers(20, 40))
def test_those_that_change_get_grants_that_never_were(numbers: dict[str, int], others: set[str], highest: int) -> None:
    present = {id_: str(number) for id_, number in numbers.items()}
    before = {id_: Grant(number, incarnation) for number, (id_, incarnation) in enumerate(sorted(present.items()), 1)}
    after = after_change(before, others, set("abc"), present, highest)
    assert {id_: one for id_, one in after.items() if id_ not in others} == {
        id_: one for id_, one in before.items() if id_ not in others
    }
    new = {id_: one for id_, one in after.items() if id_ in others}
    assert new.keys() == others & set("abc") & present.keys()
    assert all(one.number > highest and one.incarnation == present[id_] for id_, one in new.items())
    assert len({one.number for one in after.values()}) == len(after)


def test_a_former_number_goes_once_its_processor_is_known_to_have_begun() -> None:
    """However often each processor gains, the numbers in force do not become more."""
    model = planned({"a": 1, "b": 1}, 1)
    grants = {id_: Grant(10 + number, id_, former=number) for number, id_ in enumerate("ab", 1)}
    stored = checkpoints(model)
    assert known_to_have_begun(grants, model, stored) == known_to_have_begun(grants, None, stored) == set()
    task = min(processor_tasks(model, ["a"]), key=str)
    stored[task] = replace(stored[task], round_id=RoundId(11, None, 1))
    begun = known_to_have_begun(grants, model, stored)
    assert begun == {"a"}
    after = after_change(grants, {"b"}, {"a", "b"}, {"a": "a", "b": "b"}, 12, (), begun)
    assert after == {"a": Grant(11, "a"), "b": Grant(13, "b")}
    assert after_change(grants, (), {"a", "b"}, {"a": "a", "b": "b"}, 12, ["a"], begun)["a"] == Grant(13, "a", former=11)


def test_an_epoch_without_a_list_is_of_a_driver() -> None:
    assert InForce(0).allows(0) and not InForce(3, frozenset()).allows(3)
