"""The groupers of SEP-11: their three forms, and the one that balances by where tasks have run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.affinity.groupers import GroupByProcessor, LocalityInfo, TaskNameGrouper, containers_by
from headrace.core.affinity.locations import LocationId
from headrace.core.affinity.members import Member
from headrace.core.job_plan.containers import inputs_of
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.errors import ConfigError
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


def test_of_more_processors_than_tasks_only_as_many_have_a_container() -> None:
    """An empty one would be a lane for nothing; and those that have one keep it when others come."""
    two = frozenset(sorted(TASKS, key=lambda one: one.name)[:2])
    first = GroupByProcessor().group(two, ["c", "d"], ())
    assert shown(first) == {"c": ["Partition_0"], "d": ["Partition_1"]}
    assert GroupByProcessor().group(two, ["a", "b", "c", "d"], first) == first


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


# --- of a user --------------------------------------------------------------------------------------------------------


class Given(TaskNameGrouper):
    """Returns what `make` makes of its arguments, which it keeps."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make, self.asked = make, list[Any]()

    def group(self, tasks: Any, processor_ids: Any = None, previous_containers: Any = None) -> Any:
        self.asked.append((tasks, processor_ids, previous_containers))
        return self.make(tasks, processor_ids)


MEMBERS = [Member("b", "host-2"), Member("a", "host-1"), Member("c", "host-3")]


def made(make: Callable[..., Any], before: tuple[ContainerModel, ...] = ()) -> tuple[ContainerModel, ...]:
    return containers_by(Given(make), sorted(TASKS, key=lambda one: one.name), MEMBERS, before, "source")


def test_a_grouper_of_ones_own_says_who_has_which_tasks_and_nothing_else() -> None:
    """Lanes stay with their processors, and locations are those that these have."""

    def one_and_three(tasks: Any, ids: Any) -> list[ContainerModel]:
        return [ContainerModel(9, tuple(tasks[:1]), ids[1], "elsewhere", 5), ContainerModel(9, tuple(tasks[1:]), "a")]

    first = made(one_and_three)
    assert [(one.lane, one.processor_id, one.location_id, one.since, len(one.tasks)) for one in first] == [
        (0, "a", "host-1", None, 3),
        (1, "b", "host-2", None, 1),
    ]
    (after,) = made(lambda tasks, ids: (ContainerModel(0, tuple(reversed(tasks)), "b") for _ in range(1)), first)
    assert (after.lane, [str(task.name) for task in after.tasks]) == (1, [f"Partition_{p}" for p in range(4)])
    grouper = Given(lambda tasks, ids: [ContainerModel(0, tuple(tasks), "c")])
    containers_by(grouper, list(TASKS), MEMBERS, first, "source")
    assert grouper.asked == [(list(TASKS), ["a", "b", "c"], first)]


OTHER = TaskModel(TaskName.parse("Partition_9"), ())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda tasks, ids: [ContainerModel(0, tuple(tasks[1:]), "a")], "task Partition_0 is in no container"),
        (lambda tasks, ids: [ContainerModel(0, (*tasks, tasks[0]), "a")], "task Partition_0 is in two containers"),
        (lambda tasks, ids: [ContainerModel(0, (*tasks, OTHER), "a")], "task Partition_9 is none of those that it was given"),
        (lambda tasks, ids: [ContainerModel(0, tuple(tasks), "x")], r"group\(\) returned ContainerModel\("),
        (lambda tasks, ids: [ContainerModel(0, tuple(tasks))], r"group\(\) returned ContainerModel\("),
        (lambda tasks, ids: [tasks], r"group\(\) returned \["),
        (lambda tasks, ids: None, r"group\(\) raised TypeError"),
        (lambda tasks, ids: ids[7], r"group\(\) raised IndexError"),
    ],
)
def test_what_are_no_containers_of_these_tasks_is_refused(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^task_name_grouper Given, sub-topology 'source': {message}"):
        made(make)


def sliced(*shares: tuple[int, ...]) -> tuple[ContainerModel, ...]:
    """The containers of a task's 4 virtual tasks: of those with these buckets each, after a task that is whole."""
    whole, task = sorted(TASKS, key=lambda one: one.name)[:2]
    cut = virtual_tasks_of(task, 4)
    given = [ContainerModel(lane, tuple(cut[bucket] for bucket in share), "abc"[lane]) for lane, share in enumerate(shares)]
    given[0] = ContainerModel(0, (whole, *given[0].tasks), "a")
    return containers_by(Given(lambda tasks, ids: given), [whole, *cut], MEMBERS, (), "source")


@pytest.mark.parametrize("shares", [((0, 1, 2, 3),), ((1, 3), (0, 2)), ((0,), (1, 3), (2,))])
def test_virtual_tasks_may_be_shared_out_in_slices(shares: tuple[tuple[int, ...], ...]) -> None:
    made = sliced(*shares)
    assert [{task.name.bucket.index for task in one.tasks if task.name.bucket} for one in made] == [set(own) for own in shares]
    taken = [inputs_of(one)[SSP("k", "in", 1)] for one in made]  # what a processor reads of them
    assert [{b for b in range(4) if own is None or b % own.factor == own.index} for own in taken] == [set(s) for s in shares]


@pytest.mark.parametrize("shares", [((0, 1), (2, 3)), ((0, 2, 3), (1,)), ((3,), (0, 1, 2))])
def test_virtual_tasks_that_no_container_can_read_together_are_refused(shares: tuple[tuple[int, ...], ...]) -> None:
    lane = next(lane for lane, share in enumerate(shares) if len(share) > 1)
    names = ", ".join(f"Partition_1-{bucket}-4" for bucket in shares[lane])
    with pytest.raises(ConfigError, match=f"virtual tasks of Partition_1 processor '{'abc'[lane]}' has {names}: expected"):
        sliced(*shares)
