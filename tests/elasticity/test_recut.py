"""What is stored of a job, said in the tasks of another elasticity factor: nothing is lost, nothing is invented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elasticity.recut import Recut, Stored, positions_to_reach, recut, recut_of
from headrace.core.keys import heads
from headrace.core.keys.key_layout import slots_of
from headrace.core.rewind.consistent_cuts import ConsistentCut
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.state_history import StateVersion
from headrace.errors import IncompatibleChangeError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.job_model import ContainerModel, LeftPosition, SubTopologyModel, TaskModel
from headrace.model.startpoint import (
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointStatus,
)
from headrace.model.streams import SSP
from headrace.model.tasks import KeyBucket, PartitionGroup, TaskName

FACTORS = (1, 2, 4, 8)
IN, OUT_NOW, WIDE = (lambda p: SSP("log", "in", p)), SSP("log", "gone", 0), SSP("log", "wide", 0)


def name(partition: int, index: int = 0, factor: int = 1, sub: str | None = None) -> TaskName:
    return TaskName(PartitionGroup(partition), sub, KeyBucket(index, factor) if factor > 1 else None)


def model_of(factor: int, partitions: int = 2, wide: bool = False, sub: str | None = None) -> SubTopologyModel:
    more, to_all = ((WIDE,), frozenset({WIDE.stream})) if wide else ((), frozenset[str]())
    tasks = [
        TaskModel(name(p, i, factor, sub), (IN(p), *more), to_all if factor > 1 else frozenset())
        for p in range(partitions)
        for i in range(factor)
    ]
    return SubTopologyModel(sub, (ContainerModel(0, tuple(tasks)),), factor)


def checkpoint_of(task: TaskName, position: int, **changed: Any) -> Checkpoint:
    group = task.group
    assert isinstance(group, PartitionGroup)
    made = Checkpoint(task, RoundId(3, task.sub_topology, 7), 5, {IN(group.partition): position})
    return replace(made, **changed)


def stored_of(checkpoints: Mapping[TaskName, Checkpoint], **parts: Any) -> Stored:
    empty: dict[str, Any] = {"versions": {}, "cuts": (), "startpoints": {}, "rewinds": (), "left": ()}
    return Stored(checkpoints, **(empty | parts))


def cut_by(model: SubTopologyModel, factor: int, **kept: Any) -> Recut:
    return recut_of(model, factor, kept.get("broadcast", frozenset()), kept.get("whole", frozenset()))


def after(stored: Stored, factor_before: int, factor: int, partitions: int = 2) -> Stored:
    return recut(stored, [cut_by(model_of(factor_before, partitions), factor)])[0]


times = st.none() | st.integers(0, 50)
marks = st.fixed_dictionaries(
    {
        "event_timer_us": times,
        "wall_timer_us": times,
        "expiry_us": times,
        "closed_us": times,
        "punctuations": st.dictionaries(st.sampled_from(["event", "wall"]), st.tuples(st.integers(0, 9), st.integers(9, 20))),
    },
    optional={},
)


@st.composite
def aligned(draw: st.DrawFn) -> tuple[int, dict[TaskName, Checkpoint]]:
    factor = draw(st.sampled_from(FACTORS))
    found = {}
    for partition in range(2):
        position = draw(st.integers(0, 100))
        for index in range(factor):
            task = name(partition, index, factor)
            watermarks = {} if (time_us := draw(times)) is None else {IN(partition): time_us}
            found[task] = checkpoint_of(task, position, watermarks=watermarks, **draw(marks))
    return factor, found


def low_bits(task: TaskName) -> tuple[int, set[int]]:
    """The partition of a task and, of all ten low bits of hashes, those that are its keys'. Written down by itself."""
    bucket = task.bucket
    assert isinstance(task.group, PartitionGroup)
    return task.group.partition, {low for low in range(64) if bucket is None or low % bucket.factor == bucket.index}


@given(aligned(), st.sampled_from(FACTORS))
def test_every_key_has_one_task_that_inherits_from_the_tasks_of_the_key(
    before: tuple[int, dict[TaskName, Checkpoint]], factor: int
) -> None:
    now = after(stored_of(before[1]), before[0], factor).checkpoints
    for partition in range(2):
        for low in range(64):
            (was,) = (c for task, c in before[1].items() if low_bits(task)[0] == partition and low in low_bits(task)[1])
            (new,) = (c for task, c in now.items() if low_bits(task)[0] == partition and low in low_bits(task)[1])
            assert new.positions == was.positions
            for field in ("event_timer_us", "wall_timer_us", "expiry_us"):
                there, is_now = getattr(was, field), getattr(new, field)
                assert there is None or is_now <= there, field  # an earlier look costs little, a later one is a loss
            for clock, punctuations in was.punctuations.items():
                assert new.punctuations[clock] <= punctuations
            assert was.closed_us is None or (new.closed_us is not None and new.closed_us >= was.closed_us)
            for ssp, time_us in was.watermarks.items():
                assert new.watermarks[ssp] >= time_us
    assert len(now) == 2 * factor


@given(aligned(), st.sampled_from(FACTORS), st.sampled_from(FACTORS))
def test_two_changes_without_a_commit_are_one(
    before: tuple[int, dict[TaskName, Checkpoint]], between: int, factor: int
) -> None:
    first, checkpoints = before
    there = after(stored_of(checkpoints), first, between)
    if between >= min(first, factor):  # else what differed among siblings is joined in between
        assert after(there, between, factor) == after(stored_of(checkpoints), first, factor)
    assert after(after(stored_of(checkpoints), first, first * 4), first * 4, first).checkpoints == checkpoints


def test_siblings_that_are_apart_are_to_reach_the_furthest() -> None:
    places = {name(0, 0, 4): 10, name(0, 1, 4): 30, name(0, 2, 4): 10, name(0, 3, 4): 20}
    places |= {name(1, index, 4): 7 for index in range(4)}
    there = {task: checkpoint_of(task, position) for task, position in places.items()}
    assert positions_to_reach(cut_by(model_of(4), 2), there) == {IN(0): 30}  # 1 and 3 become one, and are at 30 and 20
    assert positions_to_reach(cut_by(model_of(4), 8), there) == {}  # a split inherits, wherever tasks are
    level = there | {name(0, 3, 4): checkpoint_of(name(0, 3, 4), 30)}
    assert positions_to_reach(cut_by(model_of(4), 2), level) == {}  # 0 and 2 at 10, 1 and 3 at 30: they stay apart
    assert positions_to_reach(cut_by(model_of(4), 1), level) == {IN(0): 30}
    merged = recut(stored_of(level), [cut_by(model_of(4), 2)])[0].checkpoints
    assert {task: one.positions for task, one in merged.items()} == {
        name(0, 0, 2): {IN(0): 10},
        name(0, 1, 2): {IN(0): 30},
        name(1, 0, 2): {IN(1): 7},
        name(1, 1, 2): {IN(1): 7},
    }


def test_a_task_without_keys_stays_whole_and_what_is_broadcast_is_by_whole_partition() -> None:
    keyless = TaskModel(name(5), (WIDE,))
    tasks = (TaskModel(name(0), (IN(0), WIDE)), keyless)
    model = SubTopologyModel(None, (ContainerModel(0, tasks),), 1)
    found = {
        name(0): replace(checkpoint_of(name(0), 4), positions={IN(0): 4, WIDE: 9}),
        name(5): replace(checkpoint_of(name(5), 4), positions={WIDE: 9}),
    }
    by = recut_of(model, 2, frozenset({"wide"}), frozenset())
    now = recut(stored_of(found), [by])[0].checkpoints
    assert now.keys() == {name(0, 0, 2), name(0, 1, 2), name(5)}
    assert now[name(0, 1, 2)].broadcast == {"wide"} and now[name(5)] == found[name(5)]


def test_other_sub_topologies_stay_as_they_are() -> None:
    other = checkpoint_of(name(0, sub="by-day"), 3)
    version = StateVersion(other, 40)
    kept = {"versions": {other.task: (version,)}, "left": (LeftPosition(other.task, OUT_NOW, 3, "id"),)}
    stored = stored_of({other.task: other, name(0): checkpoint_of(name(0), 1)}, **kept)
    now = recut(stored, [cut_by(model_of(1, 1), 4)])[0]
    assert now.checkpoints[other.task] == other and now.versions[other.task] == (version,) and now.left == kept["left"]


# --- kept versions and cuts -------------------------------------------------------------------------------------------


def version(task: TaskName, number: int, position: int, kept_us: int = 0, abandoned: RoundId | None = None) -> StateVersion:
    return StateVersion(checkpoint_of(task, position, round_id=RoundId(2, None, number)), kept_us, abandoned)


def test_versions_are_split_and_those_of_one_position_are_joined() -> None:
    whole = name(0)
    stored = stored_of({whole: checkpoint_of(whole, 90)}, versions={whole: (version(whole, 1, 10), version(whole, 4, 50))})
    split = after(stored, 1, 2, 1)
    assert {task: [one.checkpoint.positions[IN(0)] for one in kept] for task, kept in split.versions.items()} == {
        name(0, 0, 2): [10, 50],
        name(0, 1, 2): [10, 50],
    }
    assert after(split, 2, 1, 1).versions == stored.versions

    left, right = name(0, 0, 2), name(0, 1, 2)
    own = {
        left: (version(left, 1, 10, 1), version(left, 3, 40, 3), version(left, 5, 60, 5)),
        right: (version(right, 1, 10, 2), version(right, 3, 30, 3), version(right, 4, 60, 6), version(right, 6, 60, 7)),
    }
    apart = stored_of({left: checkpoint_of(left, 90), right: checkpoint_of(right, 90)}, versions=own)
    joined, notes = recut(apart, [cut_by(model_of(2, 1), 1)])
    found = [(one.order, one.checkpoint.positions[IN(0)], one.kept_us) for one in joined.versions[whole]]
    assert found == [((2, 1), 10, 2), ((2, 6), 60, 7)]
    assert notes == ("3 kept versions of the state were made while tasks that are one now were apart: deleted",)


def test_what_was_left_by_going_back_cannot_be_undone_any_more() -> None:
    whole = name(0)
    kept = (version(whole, 1, 10), version(whole, 4, 50), version(whole, 6, 80, abandoned=RoundId(2, None, 1)))
    rewind = Rewind(100, {whole: RoundId(3, None, 7)}, {IN(0): (10, 20)})
    stored = stored_of({whole: checkpoint_of(whole, 12)}, versions={whole: kept}, rewinds=(rewind,))
    now = after(stored, 1, 2, 1)
    assert [one.order for one in now.versions[name(0, 0, 2)]] == [(2, 1)]
    assert now.rewinds == (replace(rewind, rounds={}),)  # what is skipped is skipped still


def test_cuts_name_the_tasks_that_there_are() -> None:
    left, right = name(0, 0, 2), name(0, 1, 2)
    own = {
        left: (version(left, 1, 10), version(left, 3, 40)),
        right: (version(right, 1, 10), version(right, 3, 30), version(right, 4, 40)),
    }
    cuts = tuple(
        ConsistentCut(None, number, {left: RoundId(2, None, a), right: RoundId(2, None, b)}, {})
        for number, a, b in ((1, 1, 1), (2, 3, 3), (3, 3, 4))
    )
    stored = stored_of({left: checkpoint_of(left, 90), right: checkpoint_of(right, 90)}, versions=own, cuts=cuts)
    now = after(stored, 2, 1, 1)
    assert {cut.kept_us: cut.rounds for cut in now.cuts} == {
        1: {name(0): RoundId(2, None, 1)},
        3: {name(0): RoundId(2, None, 4)},
    }
    kept = {one.checkpoint.round_id for one in now.versions[name(0)]}
    assert all(set(cut.rounds.values()) <= kept for cut in now.cuts)
    wider = after(now, 1, 4, 1)
    assert [set(cut.rounds) for cut in wider.cuts] == [{name(0, index, 4) for index in range(4)}] * 2


# --- startpoints, inputs that are not read now ----------------------------------------------------------------------------


def record(id_: str, resolutions: list[Resolution], status: StartpointStatus, replay: int | None = None) -> StartpointRecord:
    entry = StartpointEntry(id_, StartpointKey(IN(0)), Startpoint(PositionType.EARLIEST), "me", 5)
    return StartpointRecord(entry, tuple(resolutions), 6, status, 6, replay)


def test_a_pending_startpoint_stays_pending_for_all_tasks_that_it_is_for() -> None:
    whole = name(0)
    pending = record("a", [Resolution(whole, IN(0), 0, 50, 7)], StartpointStatus.PENDING, 1)
    stored = stored_of({whole: checkpoint_of(whole, 0)}, startpoints={"a": pending})
    split = after(stored, 1, 2, 1)
    assert split.startpoints["a"].status is StartpointStatus.PENDING
    assert split.startpoints["a"].resolutions == tuple(
        Resolution(name(0, index, 2), IN(0), 0, 50, 7) for index in range(2)
    )
    assert after(split, 2, 1, 1).startpoints["a"] == pending


@pytest.mark.parametrize("others", [[], [Resolution(name(0, 1, 2), IN(0), 0, 30)]])
def test_a_startpoint_whose_tasks_came_from_different_places_cannot_be_deleted_behind_a_merge(others: list[Resolution]) -> None:
    left, right = name(0, 0, 2), name(0, 1, 2)
    pending = record("a", [Resolution(left, IN(0), 0, 50), *others], StartpointStatus.PENDING, 1)
    stored = stored_of({left: checkpoint_of(left, 0), right: checkpoint_of(right, 0)}, startpoints={"a": pending})
    merged = after(stored, 2, 1, 1).startpoints["a"]
    assert merged.status is StartpointStatus.APPLIED
    assert merged.resolutions == (Resolution(name(0), IN(0), 0, 50),)  # a replay to where the furthest was


def test_positions_of_inputs_that_are_out_follow_and_refuse_a_merge_where_they_differ() -> None:
    whole, left, right = name(0), name(0, 0, 2), name(0, 1, 2)
    stored = stored_of({whole: checkpoint_of(whole, 1)}, left=(LeftPosition(whole, OUT_NOW, 9, "id"),))
    split = after(stored, 1, 2, 1)
    assert split.left == tuple(LeftPosition(task, OUT_NOW, 9, "id") for task in (left, right))
    assert after(split, 2, 1, 1).left == stored.left
    apart = replace(split, left=(split.left[0], replace(split.left[1], position=12)))
    with pytest.raises(IncompatibleChangeError, match=r"stream 'gone'.*Partition_0-0-2 at 9.*Partition_0-1-2 at 12"):
        after(apart, 2, 1, 1)


@given(st.sampled_from(FACTORS), st.sampled_from(FACTORS), st.integers(0, 7), st.integers(0, 7), st.booleans())
def test_tasks_share_keys_where_their_low_bits_meet(a: int, b: int, i: int, j: int, is_other_partition: bool) -> None:
    one, other = name(0, i % a, a), name(int(is_other_partition), j % b, b)
    expected = low_bits(one)[0] == low_bits(other)[0] and bool(low_bits(one)[1] & low_bits(other)[1])
    assert one.shares_keys_with(other) == other.shares_keys_with(one) == expected


def test_a_merge_whose_state_is_in_too_many_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "FILES_MAX", 5)
    found = {}
    for index in range(4):
        task = name(0, index, 4)
        slots = slots_of(task.bucket)
        files = [StateFile(f"f{index}-{n}", StateFileKind.DELTA, 9, 1, "c", n, covers=slots) for n in range(2)]
        found[task] = checkpoint_of(task, 7, head=Head(2, tuple(files), slots))
    halves = after(stored_of(found), 4, 2, 1)
    assert {len(one.head.files) for one in halves.checkpoints.values() if one.head} == {4}
    with pytest.raises(IncompatibleChangeError, match=r"Partition_0 would be in more than .* of the 4 tasks that it is of"):
        after(stored_of(found), 4, 1, 1)
