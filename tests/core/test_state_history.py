"""Which states of a task are kept, and which of them it goes back to: decided by rounds, positions and times alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.codec.documents import decode, encode
from headrace.core.rewind.state_history import (
    RetentionPolicy,
    StateVersion,
    abandoned_version,
    before_rewind,
    by_task,
    is_due,
    new_versions,
    no_version,
    on_the_line,
    rewound,
    thinned,
    undo_rewind,
    usable,
    version_for,
)
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName

A, B, BORN = SSP("log", "a", 0), SSP("log", "b", 0), SSP("log", "a", 2)
TASK = TaskName(PartitionGroup(0))
MINUTE_US, DAY_US = 60_000_000, 86_400_000_000


def checkpoint(number: int, position: int, epoch: int = 1, **more: int) -> Checkpoint:
    head = Head(number, (StateFile(f"app/t/{number}.arrow", StateFileKind.DELTA, 9, 1, "c", number),)) if number else None
    positions = {A: position, B: 2 * position}
    return Checkpoint(TASK, RoundId(epoch, None, number), epoch, positions, head, {A: position * 100}, **more)


def version(number: int, position: int, abandoned_for: int | None = None, kept_us: int | None = None) -> StateVersion:
    left = None if abandoned_for is None else RoundId(1, None, abandoned_for)
    return StateVersion(checkpoint(number, position), number * MINUTE_US if kept_us is None else kept_us, left)


def rounds(versions: tuple[StateVersion, ...]) -> list[int]:
    return [one.checkpoint.round_id.number for one in versions]


class TestTheLine:
    def test_what_was_left_by_going_back_is_off_it(self) -> None:
        kept = [version(7, 10), version(9, 40), version(12, 70), version(15, 90, abandoned_for=9), version(20, 60)]
        assert rounds(on_the_line(kept)) == [7, 9, 20]

    def test_going_back_twice_leaves_what_either_left(self) -> None:
        abandoned = [version(15, 90, abandoned_for=9), version(22, 80, abandoned_for=7)]
        kept = [version(7, 10), version(9, 40), abandoned[0], version(20, 60), abandoned[1]]
        assert rounds(on_the_line(kept)) == [7]

    def test_rounds_of_a_later_epoch_are_later(self) -> None:
        old, new = version(9, 40), StateVersion(checkpoint(1, 50, epoch=2), 0)
        assert by_task([new, old]) == {TASK: (old, new)}

    def test_it_is_what_a_dumb_history_says(self) -> None:
        """Commits, versions and ways back in every order of a few steps: the line is the list that each step edits."""

        def walk(steps: int, number: int, kept: list[StateVersion], line: list[StateVersion]) -> None:
            assert list(on_the_line(kept)) == line
            if not steps:
                return
            made = version(number, number)
            walk(steps - 1, number + 1, [*kept, made], [*line, made])
            for index, target in enumerate(line):
                left = replace(made, abandoned_for=target.checkpoint.round_id)
                walk(steps - 1, number + 1, [*kept, left], line[: index + 1])

        walk(6, 1, [], [])


class TestWhatIsKept:
    def test_a_version_is_due_after_the_interval_or_when_the_clock_was_set_back(self) -> None:
        keeping = RetentionPolicy(3, None, MINUTE_US)
        assert is_due(None, 5, keeping)
        assert not is_due(5, 5 + MINUTE_US - 1, keeping)
        assert is_due(5, 5 + MINUTE_US, keeping)
        assert is_due(10 * MINUTE_US, 5, keeping)
        assert not is_due(None, 5, replace(keeping, most=0))

    def test_tasks_that_have_come_to_nothing_else_have_their_version_already(self) -> None:
        other = replace(checkpoint(4, 8), task=TaskName(PartitionGroup(1)))
        kept = {TASK: [version(2, 3), version(3, 5)]}
        idle = replace(checkpoint(3, 5), round_id=RoundId(1, None, 9))
        assert new_versions(kept, [idle, other], 99) == (StateVersion(other, 99),)
        back = replace(idle, positions=checkpoint(2, 3).positions)
        assert new_versions(kept, [back], 99) == (StateVersion(back, 99),)

    def test_a_task_that_went_back_has_its_version_already(self) -> None:
        kept, now = [version(2, 3), version(3, 5)], checkpoint(4, 8)
        left = abandoned_version(kept, now, kept[0], 77)
        assert new_versions({TASK: [*kept, left]}, [rewound(now, kept[0])], 99) == ()

    def test_the_newest_ones_stay_without_a_span(self) -> None:
        kept = [version(number, number) for number in range(1, 7)]
        assert rounds(thinned(kept, DAY_US * 100, RetentionPolicy(2, None, 0))) == [5, 6]
        assert thinned(kept, 0, RetentionPolicy(0, None, 0)) == ()

    @pytest.mark.parametrize(("after", "ages"), [(60, [59, 16, 2, 0]), (1_000, [999, 86, 2, 0])])
    def test_over_a_span_they_are_the_further_apart_the_older(self, after: int, ages: list[int]) -> None:
        kept: tuple[StateVersion, ...] = ()
        for number in range(1, after + 1):
            kept = thinned([*kept, version(number, number)], number * MINUTE_US, RetentionPolicy(4, DAY_US, 0))
        assert [after - number for number in rounds(kept)] == ages

    @given(st.lists(st.integers(0, 3 * 1440), max_size=60), st.integers(1, 6))
    def test_never_too_many_never_too_old_and_the_newest_stays(self, minutes: list[int], most: int) -> None:
        kept: tuple[StateVersion, ...] = ()
        for number, minute in enumerate(sorted(minutes), 1):
            now_us = minute * MINUTE_US
            kept = thinned([*kept, version(number, number, kept_us=now_us)], now_us, RetentionPolicy(most, DAY_US, 0))
            assert len(kept) <= most
            assert rounds(kept)[-1] == number
            assert all(now_us - one.kept_us <= DAY_US for one in kept)

    def test_what_was_left_stays_until_there_is_something_newer(self) -> None:
        kept = [version(7, 10), version(9, 40), version(12, 70), version(15, 90, abandoned_for=9)]
        keeping = RetentionPolicy(2, None, 0)
        assert rounds(thinned(kept, 0, keeping)) == [7, 9, 12, 15]
        assert rounds(thinned([*kept, version(20, 60)], 0, keeping)) == [9, 20]
        assert thinned(kept, 0, replace(keeping, most=0)) == ()


class TestGoingBack:
    def test_to_the_newest_that_is_not_after_what_is_asked(self) -> None:
        kept = usable([version(7, 10), version(9, 40), version(12, 70)], checkpoint(15, 90), {A: 0, B: 0})
        assert version_for(kept, {A: 69}) == version(9, 40)
        assert version_for(kept, {A: 70}) == version(12, 70)
        assert version_for(kept, {A: 70, B: 79}) == version(7, 10)

    @given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 60))
    def test_it_is_the_best_of_all_that_fit(self, steps: list[int], target: int) -> None:
        positions = [sum(steps[: number + 1]) for number in range(len(steps))]
        kept = [version(number, position) for number, position in enumerate(positions, 1)]
        found = version_for(kept, {A: target})
        fitting = [position for position in positions if position <= target]
        assert (None if found is None else found.checkpoint.positions[A]) == (max(fitting) if fitting else None)

    def test_the_empty_state_is_the_oldest_of_all(self) -> None:
        kept = usable([version(7, 10)], checkpoint(15, 90), {A: 0, B: 0})
        found = version_for(kept, {A: 9})
        assert found is not None
        back = rewound(checkpoint(15, 90, event_timer_us=7), found)
        assert (back.head, back.positions, back.watermarks, back.event_timer_us) == (None, {A: 0, B: 0}, {}, None)

    def test_there_is_no_empty_state_where_some_of_the_records_are_gone(self) -> None:
        assert usable([], checkpoint(15, 90), {A: 5, B: 0}) == ()
        kept = usable([version(7, 10)], checkpoint(15, 90), {A: 3, B: 0})
        assert version_for(kept, {A: 9}) is None, "what was read of records 0 to 2 could not be read again"
        assert version_for(kept, {A: 10}) == version(7, 10)

    def test_not_to_where_the_records_that_follow_are_gone(self) -> None:
        kept = usable([version(7, 10), version(9, 40)], checkpoint(15, 90), {A: 0, B: 21})
        assert kept == (version(9, 40),)

    def test_a_partition_that_was_born_since_is_read_from_its_beginning(self) -> None:
        now = replace(checkpoint(15, 90), positions={A: 90, B: 180, BORN: 30})
        beginnings = {A: 0, B: 0, BORN: 2}
        found = version_for(usable([version(9, 40)], now, beginnings, born={BORN}), {A: 50})
        assert found is not None and found.checkpoint.positions == {A: 40, B: 80, BORN: 2}
        assert version_for(usable([version(9, 40)], now, beginnings, born={BORN}), {BORN: 1}) is None
        put_in_by_an_edit = usable([version(9, 40)], now, {A: 0, B: 0, BORN: 0})
        assert [one.checkpoint.head for one in put_in_by_an_edit] == [None]

    def test_a_version_with_an_input_that_is_not_read_any_more_is_of_no_use(self) -> None:
        now = replace(checkpoint(15, 90), positions={A: 90})
        assert [one.checkpoint.head for one in usable([version(9, 40)], now, {A: 0})] == [None]

    def test_the_checkpoint_stays_that_of_its_round_and_model(self) -> None:
        times = {"wall_timer_us": 5, "expiry_us": 6, "closed_us": 7, "punctuations": {"wall": (1, 10)}}
        now, past = checkpoint(15, 90, epoch=3, closed_us=8), replace(version(9, 40), checkpoint=checkpoint(9, 40, **times))
        assert rewound(now, past) == replace(checkpoint(9, 40, **times), round_id=now.round_id, job_model_version=3)

    def test_the_way_back_is_open_until_something_is_committed(self) -> None:
        kept, now = [version(7, 10), version(9, 40)], checkpoint(15, 90)
        left = abandoned_version(kept, now, kept[1], 77)
        assert left == StateVersion(now, 77, RoundId(1, None, 9))
        there = rewound(now, kept[1])
        assert before_rewind([*kept, left], there) == left
        assert rewound(there, left) == now
        assert before_rewind([*kept, left], checkpoint(16, 45)) is None
        assert before_rewind(kept, now) is None

    def test_what_takes_the_place_of_going_back_begins_from_where_the_task_was(self) -> None:
        kept, now = [version(7, 10), version(9, 40), version(12, 70)], checkpoint(15, 90)
        left = abandoned_version(kept, now, kept[0], 77)
        versions, there = undo_rewind([*kept, left], rewound(now, kept[0]))
        assert there == now
        assert versions == (*kept, StateVersion(now, 77)) == on_the_line(versions)
        assert version_for(usable(versions, there, {A: 0, B: 0}), {A: 75}) == kept[2]
        assert undo_rewind([*kept, left], checkpoint(16, 15)) == ((*kept, left), checkpoint(16, 15))

    def test_who_goes_back_twice_at_once_comes_from_where_it_was_first(self) -> None:
        kept, now = [version(7, 10), version(9, 40)], checkpoint(15, 90)
        left = abandoned_version(kept, now, kept[1], 77)
        again = abandoned_version([*kept, left], rewound(now, kept[1]), kept[0], 88)
        assert again == replace(left, abandoned_for=RoundId(1, None, 7))
        assert again.key == left.key, "one takes the other's place"

    def test_the_error_names_what_is_there(self) -> None:
        error = no_version(TASK, [version(9, 40, kept_us=1_700_000_000_000_000)], {A: 12})
        assert error.message == (
            "task Partition_0: no kept version of its state is at or before log.a.0 12; "
            "the oldest is of 2023-11-14 22:13:20 UTC, at log.a.0 40, log.b.0 80"
        )
        assert "--state keep" in str(error.hint)
        assert "no kept version of its state can be used for log.a.0 12" in no_version(TASK, [], {A: 12}).message


def test_a_version_is_stored_as_it_is() -> None:
    for one in (version(9, 40), version(15, 90, abandoned_for=9), StateVersion(checkpoint(0, 0), 0)):
        assert decode(StateVersion, encode(one), "version") == one
        assert b'"wire":' in encode(one)
