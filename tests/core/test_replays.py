"""Replays: which number what a task writes carries, and up to where, whatever startpoints came after each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rewind.replays import Replay, counting_again, numbers_of, replays_of, unfinished, within_replays
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.startpoint import (
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointStatus,
    StatePolicy,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASK, OTHER = TaskName.parse("Partition_0"), TaskName.parse("Partition_1")
A, B = SSP("log", "in", 0), SSP("log", "in", 1)


def record(
    id_: str,
    replay: int | None,
    *resolutions: Resolution,
    status: StartpointStatus = StartpointStatus.APPLIED,
    at_us: int = 1,
    state: StatePolicy = StatePolicy.KEEP,
) -> StartpointRecord:
    entry = StartpointEntry(id_, StartpointKey(A), Startpoint(PositionType.EARLIEST), "me", at_us, state)
    return StartpointRecord(entry, resolutions, at_us, status, at_us, replay)


def back(offset: int, before: int, task: TaskName = TASK, ssp: SSP = A) -> Resolution:
    return Resolution(task, ssp, offset, before)


def at(task: TaskName, **positions: int) -> Checkpoint:
    return Checkpoint(task, RoundId(1, None, 1), 1, {{"a": A, "b": B}[name]: position for name, position in positions.items()})


def test_a_replay_goes_up_to_where_the_position_was() -> None:
    replays = replays_of([record("x", 1, back(10, 100))])
    assert replays == {(TASK, A): Replay(1, 100)}
    assert unfinished(replays, {TASK: at(TASK, a=99)}) == replays
    assert unfinished(replays, {TASK: at(TASK, a=100)}) == {}
    assert unfinished(replays, {OTHER: at(OTHER, a=0)}) == {}, "another task is in none"


def test_of_a_startpoint_for_several_places_those_that_go_forward_are_no_replay() -> None:
    records = [record("x", 1, back(10, 100), back(100, 10, OTHER))]
    assert replays_of(records) == {(TASK, A): Replay(1, 100)}


def test_a_replay_within_another_goes_on_over_all_that_was_read() -> None:
    records = [record("x", 1, back(0, 100)), record("y", 2, back(20, 50), at_us=2)]
    assert replays_of(records) == {(TASK, A): Replay(2, 100)}


def test_a_state_that_stays_counts_again_until_it_goes_back_itself() -> None:
    kept, further = record("x", 1, back(10, 100)), record("y", 2, back(0, 50), at_us=2)
    assert counting_again([further, kept]) == {(TASK, A): Replay(2, 100)}
    gone_back = record("z", 3, back(5, 120), at_us=3, state=StatePolicy.REWIND)
    assert counting_again([gone_back, further, kept]) == {}
    assert counting_again([record("a", 4, back(3, 130), at_us=4), gone_back]) == {(TASK, A): Replay(4, 130)}


def test_what_moved_nothing_is_no_replay() -> None:
    superseded = record("x", 1, back(0, 100), status=StartpointStatus.SUPERSEDED)
    deleted = record("y", 2, back(0, 100), status=StartpointStatus.DELETED)
    assert replays_of([superseded, deleted]) == {}


def test_no_round_reads_beyond_the_end_of_a_replay() -> None:
    replays = {(TASK, A): Replay(1, 100), (OTHER, A): Replay(1, 70)}
    assert within_replays({A: 500, B: 500}, replays) == {A: 70, B: 500}
    assert within_replays({A: 50}, replays) == {A: 50}


def test_a_task_of_several_partitions_has_the_highest_number() -> None:
    assert numbers_of({(TASK, A): Replay(1, 100), (TASK, B): Replay(3, 10), (OTHER, A): Replay(2, 5)}) == {TASK: 3, OTHER: 2}


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 40)), max_size=6))
def test_whatever_is_read_again_has_the_number_of_the_last_replay(moves: list[tuple[int, int]]) -> None:
    """Record by record, beside a plain memory of what was read: some are read on, then the position jumps, back or on."""
    position, read, records, last = 0, set(), [], None
    for number, (on, target) in enumerate(moves, 1):
        for _ in range(on):
            mine = unfinished(replays_of(records), {TASK: at(TASK, a=position)}).get((TASK, A))
            again = position in read
            assert mine is not None or not again, f"{position} is read again, and not marked"
            assert mine is None or mine.number == last, f"{position} is marked with {mine}, the last replay is {last}"
            assert mine is None or position <= max(read), f"{position} is marked, nothing behind it was ever read"
            read.add(position)
            position += 1
        last = number if target < position else last
        records.append(record(f"s{number}", number if target < position else None, back(target, position), at_us=number))
        position = target
