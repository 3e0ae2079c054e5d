"""Whether the streams that an operator with state takes bring a key to one task, against trying every hash there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.core.job_plan.assignment import Assignment, assignment_of, tasks_of
from headrace.core.job_plan.containers import containers_of
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.core.job_plan.groupers import GroupByPartition
from headrace.core.topology.co_partitioning import check_co_partitioned
from headrace.core.topology.sub_topologies import SubTopology, sub_topologies_of
from headrace.errors import TopologyError
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.model.topology import Function, FunctionKind


def counting(*streams: str) -> SubTopology:
    """Merges `streams`, and counts by key."""
    app = hr.App("app")
    first, *others = (app.stream(stream, key=hr.String()) for stream in streams)
    for other in others:
        first = first.merge(other)
    first.group_by_key().count(store="kept")
    return sub_topologies_of(app.topology())[0]


BOTH = counting("a", "b")


def tasks_by(owner: Callable[[str, int], int], counts: Mapping[str, int]) -> list[TaskModel]:
    owned: dict[int, list[SSP]] = {}
    for stream, count in counts.items():
        for partition in range(count):
            owned.setdefault(owner(stream, partition), []).append(SSP("k", stream, partition))
    return [TaskModel(TaskName(PartitionGroup(number)), tuple(sorted(ssps))) for number, ssps in owned.items()]


def grown(sub: SubTopology, *counts: Mapping[str, int], factor: int = 1) -> list[TaskModel]:
    """The tasks after these counts, one after the other."""
    stored: Assignment = {}
    tasks: tuple[TaskModel, ...] = ()
    for each in counts:
        ssps = [SSP("k", stream, partition) for stream, count in each.items() for partition in range(count)]
        tasks = tasks_of(sub, ssps, stored, GroupByPartition(), factor)
        stored = assignment_of(JobModel("app", 1, (SubTopologyModel(None, containers_of(tasks, 1)),)))
    return list(tasks)


def meets(tasks: Iterable[TaskModel], counts: Mapping[str, int]) -> bool:
    """The dumb way: for every hash, whether the task that reads its partition is the same one for both streams."""
    reader = {ssp: task.name for task in tasks for ssp in task.ssps}
    for number in range(counts["a"] * counts["b"]):
        if reader[SSP("k", "a", number % counts["a"])] != reader[SSP("k", "b", number % counts["b"])]:
            return False
    return True


@given(st.integers(1, 6), st.integers(1, 6), st.lists(st.integers(0, 1), min_size=12, max_size=12), st.sampled_from([1, 2]))
def test_against_every_hash(a: int, b: int, owners: list[int], factor: int) -> None:
    counts = {"a": a, "b": b}
    whole = tasks_by(lambda stream, partition: owners[partition + 6 * (stream == "b")], counts)
    tasks = [virtual for task in whole for virtual in virtual_tasks_of(task, factor)]
    if meets(whole, counts):
        check_co_partitioned(BOTH, counts, tasks)
    else:
        with pytest.raises(TopologyError, match=r"'kept' keeps state by key and takes records of the streams 'a' .*'b'"):
            check_co_partitioned(BOTH, counts, tasks)


@pytest.mark.parametrize("factor", [1, 4])
def test_a_stream_that_grew_meets_one_that_did_not(factor: int) -> None:
    sub = counting("a", "b", "c")
    now = {"a": 8, "b": 4, "c": 12}
    check_co_partitioned(sub, now, grown(sub, dict.fromkeys("abc", 4), {**now, "c": 4}, now, factor=factor))


def test_streams_of_as_many_partitions_do_not_meet_where_one_of_them_was_smaller_once() -> None:
    counts = {"a": 4, "b": 4}
    tasks = grown(BOTH, {"a": 2}, counts)
    words = r"'a' and 'b', but their partitions 2 are in different tasks: Partition_0 and Partition_2(.|\n)*repartition\(\)"
    with pytest.raises(TopologyError, match=words):
        check_co_partitioned(BOTH, counts, tasks)


@pytest.mark.parametrize(("a", "b"), [(2, 3), (4, 8), (1, 2)])
def test_counts_that_differ_are_named(a: int, b: int) -> None:
    counts = {"a": a, "b": b}
    words = rf"'a' \({a} partitions?\) and 'b' \({b} partitions\): a key's records(.|\n)*as many partitions"
    with pytest.raises(TopologyError, match=words):
        check_co_partitioned(BOTH, counts, grown(BOTH, counts))


def test_counts_without_a_common_multiple_worth_looking_at_are_refused() -> None:
    counts = {"a": 1009, "b": 1013}
    assert lcm(*counts.values()) > 1_000_000
    with pytest.raises(TopologyError, match=r"1009 partitions.*1013 partitions"):
        check_co_partitioned(BOTH, counts, tasks_by(lambda stream, partition: int(stream == "b" and partition == 7), counts))


def test_a_partitioner_of_a_user_says_nothing_of_other_counts() -> None:
    by_user = Function(FunctionKind.RECORD, print, "print")
    counts = {"a": 4, "b": 2}
    tasks = grown(BOTH, {"a": 2, "b": 2}, counts)
    check_co_partitioned(BOTH, counts, tasks)
    with pytest.raises(TopologyError, match=r"'a' \(4 partitions\) and 'b' \(2 partitions\)"):
        check_co_partitioned(BOTH, counts, tasks, {"a": by_user, "b": by_user})
    equal = {"a": 2, "b": 2}
    check_co_partitioned(BOTH, equal, grown(BOTH, equal), {"a": by_user, "b": by_user})
    with pytest.raises(TopologyError, match=r"'a' \(partitioned by print\) and 'b' \(by the key\)"):
        check_co_partitioned(BOTH, equal, grown(BOTH, equal), {"a": by_user})
