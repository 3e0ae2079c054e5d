"""Which task reads which partitions: at the first run, and when streams have grown, come and gone since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.job_plan.groupers import (
    AllSspsToEveryTask,
    GroupByPartition,
    GroupByPartitionFixedTaskNum,
    GroupBySystemStreamPartition,
    GroupBySystemStreamPartitionFixedTaskNum,
    SystemStreamPartitionGrouper,
    under_state,
)
from headrace.errors import ConfigError, StateError
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, SspGroup, TaskName

BY_PARTITION = (GroupByPartition(), GroupByPartitionFixedTaskNum())
BY_SSP = (GroupBySystemStreamPartition(), GroupBySystemStreamPartitionFixedTaskNum())
EXCLUSIVE = BY_PARTITION + BY_SSP
FIXED = (BY_PARTITION[1], BY_SSP[1])

Groups = Mapping[TaskName, frozenset[SSP]]


def ssps_of(counts: Mapping[str, int]) -> list[SSP]:
    return [SSP("k", stream, partition) for stream, count in counts.items() for partition in range(count)]


def owners_of(groups: Groups) -> dict[SSP, TaskName]:
    return {ssp: name for name, ssps in groups.items() for ssp in ssps}


def by_text(groups: Groups) -> dict[str, list[str]]:
    return {str(name): [f"{ssp.stream}{ssp.partition}" for ssp in sorted(ssps)] for name, ssps in groups.items()}


def chained(grouper: SystemStreamPartitionGrouper, *counts: Mapping[str, int]) -> list[Groups]:
    """What comes of these streams one after the other, each grouped with the assignment before it."""
    previous: dict[SSP, TaskName] = {}
    found = []
    for each in counts:
        found.append(grouper.group(previous, ssps_of(each)))
        previous = owners_of(found[-1])
    return found


inputs = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 12), max_size=4).map(ssps_of)
by_name = pytest.mark.parametrize("grouper", EXCLUSIVE, ids=str)


def each_owned_once(groups: Groups, ssps: Iterable[SSP]) -> bool:
    return sorted(ssp for members in groups.values() for ssp in members) == sorted(ssps)


# --- the first run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouper", BY_PARTITION, ids=str)
@given(ssps=inputs)
def test_a_partition_number_is_a_task(grouper: SystemStreamPartitionGrouper, ssps: list[SSP]) -> None:
    groups = grouper.group({}, ssps)
    assert each_owned_once(groups, ssps)
    assert list(groups) == [TaskName(PartitionGroup(number)) for number in sorted({ssp.partition for ssp in ssps})]
    assert all({ssp.partition for ssp in groups[name]} == {name.group.partition} for name in groups)  # type: ignore[union-attr]


@pytest.mark.parametrize("grouper", BY_SSP, ids=str)
@given(ssps=inputs)
def test_an_ssp_is_a_task(grouper: SystemStreamPartitionGrouper, ssps: list[SSP]) -> None:
    groups = grouper.group({}, ssps)
    assert each_owned_once(groups, ssps)
    assert list(groups) == [TaskName(SspGroup("k", ssp.stream, ssp.partition)) for ssp in sorted(ssps)]


@by_name
@given(ssps=inputs, seed=st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_means_nothing(
    grouper: SystemStreamPartitionGrouper, ssps: list[SSP], seed: Random
) -> None:
    shuffled = list(ssps) + ssps[:3]
    seed.shuffle(shuffled)
    assert list(grouper.group({}, shuffled).items()) == list(grouper.group({}, ssps).items())


@given(inputs, st.integers(1, 12))
def test_all_ssps_to_every_task(ssps: list[SSP], count: int) -> None:
    groups = AllSspsToEveryTask(count).group({}, ssps)
    assert [str(name) for name in groups] == [f"AllSsps_{index}" for index in range(count if ssps else 0)]
    assert all(members == frozenset(ssps) for members in groups.values())


@pytest.mark.parametrize("tasks", [0, -1, 10_001, 10**9, 1.0, True, "2"])
def test_tasks_without_a_bound_are_refused(tasks: Any) -> None:
    with pytest.raises(ConfigError, match="expected a whole number, 1 to 10,000"):
        AllSspsToEveryTask(tasks)


def test_ten_comes_after_nine() -> None:
    names = [str(name) for name in GroupByPartition().group({}, ssps_of({"s": 12}))]
    assert names[8:] == ["Partition_8", "Partition_9", "Partition_10", "Partition_11"]


@pytest.mark.parametrize("grouper", [*EXCLUSIVE, AllSspsToEveryTask(1)], ids=str)
def test_a_bucket_is_refused(grouper: SystemStreamPartitionGrouper) -> None:
    with pytest.raises(AssertionError):
        grouper.group({}, [SSP("k", "s", 0, 1)])


@by_name
@given(ssps=inputs)
def test_the_older_call_gives_what_a_first_run_gives_and_says_what_to_call(
    grouper: SystemStreamPartitionGrouper, ssps: list[SSP]
) -> None:
    with pytest.warns(DeprecationWarning, match=r"group\(ssps\) is deprecated: call group\(previous_assignment, ssps\)"):
        older = grouper.group(ssps)  # type: ignore[arg-type,call-arg]
    assert older == grouper.group({}, ssps)


@pytest.mark.filterwarnings("error")
@by_name
def test_the_call_of_now_warns_of_nothing(grouper: SystemStreamPartitionGrouper) -> None:
    assert grouper.group({}, []) == {}


# --- streams that have grown ----------------------------------------------------------------------------------------------


def test_new_partitions_come_to_the_tasks_that_have_their_keys() -> None:
    _, grown = chained(GroupByPartitionFixedTaskNum(), {"a": 2, "b": 3}, {"a": 4, "b": 3})
    assert by_text(grown) == {"Partition_0": ["a0", "a2", "b0"], "Partition_1": ["a1", "a3", "b1"], "Partition_2": ["b2"]}
    _, grown = chained(GroupBySystemStreamPartitionFixedTaskNum(), {"a": 1, "b": 1}, {"a": 2, "b": 1})
    assert by_text(grown) == {
        "SystemStreamPartition_[k,a,0]": ["a0", "a1"],
        "SystemStreamPartition_[k,b,0]": ["b0"],
    }


def test_a_chain_of_expansions_comes_to_the_first_owners() -> None:
    first, *_, last = chained(GroupByPartitionFixedTaskNum(), {"a": 4}, {"a": 8}, {"a": 16}, {"a": 48})
    assert list(last) == list(first)
    assert all(owner.group == PartitionGroup(ssp.partition % 4) for ssp, owner in owners_of(last).items())


def test_owners_are_looked_up_and_not_made_of_numbers() -> None:
    """Partition 1 is with task 0, as a grouper of a user may have put it: so its keys' new partition 3 goes there too."""
    zero = TaskName(PartitionGroup(0))
    grown = GroupByPartitionFixedTaskNum().group(dict.fromkeys(ssps_of({"a": 2}), zero), ssps_of({"a": 4}))
    assert by_text(grown) == {"Partition_0": ["a0", "a1", "a2", "a3"]}


@pytest.mark.parametrize("grouper", FIXED, ids=str)
def test_a_stream_that_is_new_is_grouped_as_at_the_first_run(grouper: SystemStreamPartitionGrouper) -> None:
    _, both = chained(grouper, {"a": 2}, {"a": 4, "b": 3})
    alone = owners_of(grouper.group({}, ssps_of({"b": 3})))
    assert {ssp: name for ssp, name in owners_of(both).items() if ssp.stream == "b"} == alone


@pytest.mark.parametrize("grouper", FIXED, ids=str)
def test_a_stream_that_is_gone_gives_nothing_and_one_that_grew_meanwhile_finds_its_tasks(
    grouper: SystemStreamPartitionGrouper,
) -> None:
    before = owners_of(grouper.group({}, ssps_of({"a": 2, "b": 2})))
    without = grouper.group(before, ssps_of({"a": 2}))
    assert {ssp.stream for ssp in owners_of(without)} == {"a"}
    again = owners_of(grouper.group(before, ssps_of({"a": 2, "b": 6})))
    assert all(again[SSP("k", "b", p)] == before[SSP("k", "b", p % 2)] for p in range(6))


@pytest.mark.parametrize("grouper", FIXED, ids=str)
def test_streams_of_one_name_on_two_systems_are_two(grouper: SystemStreamPartitionGrouper) -> None:
    before = owners_of(grouper.group({}, [SSP("k", "a", 0), SSP("l", "a", 0), SSP("l", "a", 1)]))
    grown = owners_of(grouper.group(before, [SSP(system, "a", p) for system in "kl" for p in range(2)]))
    assert grown[SSP("k", "a", 1)] == before[SSP("k", "a", 0)]
    assert grown[SSP("l", "a", 1)] == before[SSP("l", "a", 1)]


@pytest.mark.parametrize(("before", "now"), [BY_PARTITION[::-1], BY_SSP[::-1]], ids=["partition", "ssp"])
@given(ssps=inputs)
def test_where_nothing_grew_the_fixed_one_is_as_the_plain_one(
    before: SystemStreamPartitionGrouper, now: SystemStreamPartitionGrouper, ssps: list[SSP]
) -> None:
    plain = now.group({}, ssps)
    assert before.group({}, ssps) == plain
    assert before.group(owners_of(plain), ssps) == plain


@pytest.mark.parametrize(("grouper", "other"), [FIXED, FIXED[::-1]], ids=["ssp to partition", "partition to ssp"])
def test_what_another_kind_of_grouper_shared_out_is_grouped_anew(
    grouper: SystemStreamPartitionGrouper, other: SystemStreamPartitionGrouper
) -> None:
    ssps = ssps_of({"a": 2, "b": 3})
    assert grouper.group(owners_of(other.group({}, ssps)), ssps) == grouper.group({}, ssps)


def formatted(previous: Mapping[SSP, TaskName], ssp: SSP) -> TaskName:
    """The seed's own formula: the number of the partition modulo how many tasks read the stream."""
    tasks = {name for each, name in previous.items() if (each.system, each.stream) == (ssp.system, ssp.stream)}
    return TaskName(PartitionGroup(ssp.partition % len(tasks) if tasks else ssp.partition))


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4)))
def test_the_seeds_formula_names_the_same_tasks(factors: dict[str, list[int]]) -> None:
    """Each stream begins with its first number of partitions, and then grows by each of the others."""
    previous: dict[SSP, TaskName] = {}
    for step in range(max(map(len, factors.values()), default=0)):
        counts = dict.fromkeys(factors, 1)
        for stream, each in factors.items():
            for factor in each[: step + 1]:
                counts[stream] *= factor
        ssps = ssps_of(counts)
        found = owners_of(GroupByPartitionFixedTaskNum().group(previous, ssps))
        assert found == {ssp: formatted(previous, ssp) for ssp in ssps}
        previous = found


@pytest.mark.parametrize("grouper", FIXED, ids=str)
def test_a_previous_assignment_with_a_gap_is_refused(grouper: SystemStreamPartitionGrouper) -> None:
    zero = TaskName(PartitionGroup(0))
    with pytest.raises(StateError, match=r"2 partitions of stream 'a', and among them partition 2: expected 0 to 1"):
        grouper.group({SSP("k", "a", 0): zero, SSP("k", "a", 2): zero}, ssps_of({"a": 4}))


def test_under_state_the_plain_ones_are_the_fixed_ones_and_those_of_users_are_left_alone() -> None:
    class Mine(GroupByPartition):
        pass

    assert [type(under_state(grouper)) for grouper in (*BY_PARTITION, *BY_SSP)] == [
        GroupByPartitionFixedTaskNum,
        GroupByPartitionFixedTaskNum,
        GroupBySystemStreamPartitionFixedTaskNum,
        GroupBySystemStreamPartitionFixedTaskNum,
    ]
    mine = Mine()
    assert under_state(mine) is mine
