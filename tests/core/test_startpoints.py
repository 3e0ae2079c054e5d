"""Which of several startpoints counts, what offset one means, and what BOOTSTRAP holds back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rewind.startpoint_rules import (
    bootstraps_of,
    counting_for,
    held_for_bootstrap,
    newest_by_key,
    offset_of,
    places_of,
    winners,
)
from headrace.errors import OffsetOutOfRangeError
from headrace.model.checkpoint import Checkpoint, RoundId
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
from headrace.model.tasks import TaskName

A, B, GONE = (TaskName.parse(name) for name in ("Partition_0", "Partition_1", "Partition_9"))
X, Y = SSP("k", "x", 0), SSP("k", "y", 0)
EARLIEST = Startpoint(PositionType.EARLIEST)
OWNERS = {X: [A, B], Y: [B]}


def entry(id_: str, ssp: SSP = X, task: TaskName | None = None, at_us: int = 0) -> StartpointEntry:
    return StartpointEntry(id_, StartpointKey(ssp, task), EARLIEST, "ann@desk", at_us)


entries = st.lists(
    st.builds(
        entry,
        st.uuids().map(str),
        st.sampled_from([X, Y, SSP("k", "unread", 0)]),
        st.sampled_from([None, A, B, GONE]),
        st.integers(0, 3),
    ),
    max_size=8,
)


class TestWhichCounts:
    def test_one_for_all_reaches_every_task_that_reads_the_ssp(self) -> None:
        assert places_of(entry("a"), OWNERS) == {(A, X), (B, X)}
        assert places_of(entry("a", Y), OWNERS) == {(B, Y)}
        assert places_of(entry("a", SSP("k", "unread", 0)), OWNERS) == frozenset()

    def test_one_for_a_task_reaches_that_one_and_all_if_it_is_gone(self) -> None:
        assert places_of(entry("a", X, A), OWNERS) == {(A, X)}
        assert places_of(entry("a", X, GONE), OWNERS) == {(A, X), (B, X)}
        assert places_of(entry("a", Y, A), OWNERS) == {(B, Y)}  # it reads something else now

    @given(entries)
    def test_it_is_the_one_that_no_other_beats(self, asked: list[StartpointEntry]) -> None:
        """By the sentence itself: the later wins, at a tie the task's own, then the one that came later."""
        found = winners(asked, OWNERS)
        for place in [(A, X), (B, X), (B, Y)]:
            here = [one for one in asked if place in places_of(one, OWNERS)]
            assert (place in found) == bool(here)
            for nth, one in enumerate(here):
                best, at = found[place], here.index(found[place])
                assert one.written_at_us <= best.written_at_us
                if one.written_at_us == best.written_at_us:
                    assert one.key.task is None or best.key.task is not None
                    assert nth <= at or (one.key.task is None) != (best.key.task is None)
        assert found.keys() <= {(A, X), (B, X), (B, Y)}

    @given(entries)
    def test_what_is_read_for_a_key_is_what_the_task_will_get(self, asked: list[StartpointEntry]) -> None:
        found = winners(asked, OWNERS)
        for (task, ssp), best in found.items():
            assert counting_for(StartpointKey(ssp, task), asked, OWNERS[ssp]) == best
        for ssp, reading in OWNERS.items():
            for_all = [one for one in asked if places_of(one, OWNERS) == {(task, ssp) for task in reading}]
            general = [one for one in for_all if one.key.task not in reading]
            best_of = winners(general, OWNERS).get((reading[0], ssp))
            assert counting_for(StartpointKey(ssp), asked, reading) == best_of

    def test_where_it_is_not_known_who_reads_a_named_task_is_taken_at_its_word(self) -> None:
        asked = [entry("all"), entry("own", X, A, at_us=1)]
        assert counting_for(StartpointKey(X, A), asked, ()) == asked[1]
        assert counting_for(StartpointKey(X, B), asked, ()) == asked[0]
        assert counting_for(StartpointKey(X), asked, ()) == asked[0]
        assert counting_for(StartpointKey(Y), asked, ()) is None

    @given(entries)
    def test_by_key_it_is_the_newest_of_each(self, asked: list[StartpointEntry]) -> None:
        for key, newest in newest_by_key(asked).items():
            same = [one for one in asked if one.key == key]
            latest_us = max(one.written_at_us for one in same)
            assert newest == [one for one in same if one.written_at_us == latest_us][-1]
        assert newest_by_key(asked).keys() == {one.key for one in asked}


class TestOffsets:
    @pytest.mark.parametrize(
        ("startpoint", "expected"),
        [
            (EARLIEST, 5),
            (Startpoint(PositionType.LATEST), 20),
            (Startpoint(PositionType.BOOTSTRAP), 5),
            (Startpoint(PositionType.SPECIFIC_OFFSET, 5), 5),
            (Startpoint(PositionType.SPECIFIC_OFFSET, 20), 20),
            (Startpoint(PositionType.TIMESTAMP, 12), 12),
            (Startpoint(PositionType.TIMESTAMP, -3), 5),  # before all that is retained
            (Startpoint(PositionType.TIMESTAMP, 99), 20),  # past the last record
        ],
    )
    def test_each_type_in_a_partition_that_holds_5_to_19(self, startpoint: Startpoint, expected: int) -> None:
        assert offset_of(startpoint, X, 5, 20, lambda time_us: time_us) == expected

    @pytest.mark.parametrize("offset", [4, 21])
    def test_one_that_is_not_there_is_refused_with_the_range(self, offset: int) -> None:
        with pytest.raises(OffsetOutOfRangeError, match=r"offset \d+ of stream 'x' partition 0 .* 5 to 19"):
            offset_of(Startpoint(PositionType.SPECIFIC_OFFSET, offset), X, 5, 20, int)

    @pytest.mark.parametrize(
        ("position_type", "position"),
        [
            (PositionType.SPECIFIC_OFFSET, None),
            (PositionType.SPECIFIC_OFFSET, -1),
            (PositionType.TIMESTAMP, None),
            (PositionType.EARLIEST, 0),
        ],
    )
    def test_what_is_no_startpoint_cannot_be_made(self, position_type: PositionType, position: int | None) -> None:
        with pytest.raises(ValueError, match="startpoint"):
            Startpoint(position_type, position)


def bootstrapped(*until: tuple[TaskName, SSP, int]) -> list[StartpointRecord]:
    startpoint = Startpoint(PositionType.BOOTSTRAP)
    return [
        StartpointRecord(
            StartpointEntry(str(nth), StartpointKey(ssp), startpoint, "ann@desk", 0),
            (Resolution(task, ssp, 0, 7, None, end),),
            nth,
            StartpointStatus.APPLIED,
            nth,
        )
        for nth, (task, ssp, end) in enumerate(until)
    ]


class TestBootstrap:
    def checkpoints(self, **positions: int) -> Sequence[Checkpoint]:
        return [Checkpoint(A, RoundId(1, None, 0), 1, {X: positions["x"], Y: positions["y"]})]

    def test_no_other_stream_goes_on_before_it_was_read_up_to_its_end_then(self) -> None:
        bootstraps = bootstraps_of(bootstrapped((A, X, 10)))
        ends = {X: 15, Y: 8}
        assert held_for_bootstrap(ends, self.checkpoints(x=0, y=3), bootstraps) == {X: 15, Y: 3}
        assert held_for_bootstrap(ends, self.checkpoints(x=9, y=3), bootstraps) == {X: 15, Y: 3}
        assert held_for_bootstrap(ends, self.checkpoints(x=10, y=3), bootstraps) == ends

    def test_where_a_later_startpoint_has_set_the_position_nothing_is_held(self) -> None:
        later = StartpointRecord(entry("later"), (Resolution(A, X, 2, 0),), 5, StartpointStatus.APPLIED, 5)
        assert bootstraps_of([*bootstrapped((A, X, 10)), later]) == {}

    def test_two_streams_that_bootstrap_do_not_hold_each_other(self) -> None:
        bootstraps = bootstraps_of(bootstrapped((A, X, 10), (A, Y, 10)))
        assert held_for_bootstrap({X: 15, Y: 15}, self.checkpoints(x=0, y=0), bootstraps) == {X: 15, Y: 15}
