"""Which task reads which SSPs."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.groupers import GROUPERS, Grouper, all_ssps_to_every_task
from headrace.model.job_model import TaskModel
from headrace.model.streams import SSP, SystemStream
from headrace.model.tasks import PartitionGroup, SspGroup, TaskName

by_partition = GROUPERS["GroupByPartition"]
by_ssp = GROUPERS["GroupBySystemStreamPartition"]

inputs = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 12), max_size=4).map(
    lambda counts: [SSP("k", stream, partition) for stream, count in counts.items() for partition in range(count)]
)
broadcasts = st.frozensets(st.sampled_from("abcd").map(lambda stream: SystemStream("k", stream)))
every_grouper = pytest.mark.parametrize("grouper", [by_partition, by_ssp], ids=list(GROUPERS))


def each_owned_once(tasks: tuple[TaskModel, ...], ssps: list[SSP]) -> bool:
    return sorted(ssp for task in tasks for ssp in task.ssps) == sorted(ssps)


@given(inputs)
def test_a_partition_number_is_a_task(ssps: list[SSP]) -> None:
    tasks = by_partition(ssps)
    assert each_owned_once(tasks, ssps)
    assert [task.name for task in tasks] == [
        TaskName(PartitionGroup(number)) for number in sorted({ssp.partition for ssp in ssps})
    ]
    for task in tasks:
        assert {ssp.partition for ssp in task.ssps} == {task.name.group.partition}  # type: ignore[union-attr]


@given(inputs)
def test_an_ssp_is_a_task(ssps: list[SSP]) -> None:
    tasks = by_ssp(ssps, "later")
    assert each_owned_once(tasks, ssps)
    assert [task.name for task in tasks] == [
        TaskName(SspGroup("k", ssp.stream, ssp.partition), "later") for ssp in sorted(ssps)
    ]


@every_grouper
@given(ssps=inputs, broadcast=broadcasts, seed=st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_means_nothing(
    grouper: Grouper, ssps: list[SSP], broadcast: frozenset[SystemStream], seed: Random
) -> None:
    shuffled = list(ssps) + ssps[:3]
    seed.shuffle(shuffled)
    assert grouper(shuffled, "s", broadcast) == grouper(ssps, "s", broadcast)


@every_grouper
@given(ssps=inputs, broadcast=broadcasts)
def test_every_task_reads_all_of_a_broadcast_stream(
    grouper: Grouper, ssps: list[SSP], broadcast: frozenset[SystemStream]
) -> None:
    to_all = [ssp for ssp in ssps if ssp.system_stream in broadcast]
    others = [ssp for ssp in ssps if ssp.system_stream not in broadcast]
    tasks = grouper(ssps, None, broadcast)
    assert all(set(to_all) <= set(task.ssps) for task in tasks)
    if others:  # the broadcast streams make no tasks of their own
        assert [task.name for task in tasks] == [task.name for task in grouper(others)]
        assert sorted(ssp for task in tasks for ssp in task.ssps if ssp not in to_all) == sorted(others)
    elif to_all:
        assert tasks == (TaskModel(TaskName(PartitionGroup(0)), tuple(sorted(to_all))),)
    else:
        assert tasks == ()


@given(inputs, st.integers(1, 12))
def test_all_ssps_to_every_task(ssps: list[SSP], count: int) -> None:
    tasks = all_ssps_to_every_task(ssps, count, "s")
    assert len(tasks) == (count if ssps else 0)
    assert all(task.ssps == tuple(sorted(ssps)) for task in tasks)
    assert [str(task.name) for task in tasks] == [f"s/AllSsps_{index}" for index in range(len(tasks))]


def test_ten_comes_after_nine() -> None:
    tasks = by_partition([SSP("k", "s", partition) for partition in range(12)])
    assert [str(task.name) for task in tasks[8:]] == ["Partition_8", "Partition_9", "Partition_10", "Partition_11"]


@pytest.mark.parametrize(
    "group", [by_partition, by_ssp, lambda ssps: all_ssps_to_every_task(ssps, 1)], ids=["partition", "ssp", "all"]
)
def test_a_bucket_is_refused(group: Callable[[list[SSP]], object]) -> None:
    with pytest.raises(AssertionError):
        group([SSP("k", "s", 0, 1)])
