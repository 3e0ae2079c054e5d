"""The numbers of replays: they rise, each is given once, however many startpoints come and are forgotten."""

from __future__ import annotations

import pytest

from core.planned_startpoints import Stored, entry
from headrace.core.job_plan import apply_startpoints
from headrace.core.rewind.replays import Replay
from headrace.model.startpoint import PositionType
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

X, Y = SSP("k", "x", 0), SSP("k", "x", 1)
A, B = TaskName.parse("Partition_0"), TaskName.parse("Partition_1")


@pytest.fixture
def stored() -> Stored:
    return Stored({X: [A], Y: [B]}, {X: 100, Y: 100}, 50)


def test_each_plan_that_takes_a_position_back_begins_a_replay_of_the_next_number(stored: Stored) -> None:
    stored.ask(entry("a", X, 10), entry("b", Y, 20))
    stored.plan()
    assert (stored.record("a").replay, stored.record("b").replay) == (1, 1)
    assert stored.running.replays == {(A, X): Replay(1, 50), (B, Y): Replay(1, 50)}
    stored.commit(A, {X: 5})
    stored.ask(entry("c", X, PositionType.EARLIEST, written_at_us=1))
    stored.plan()
    assert stored.record("c").replay == 2
    assert stored.running.replays == {(A, X): Replay(2, 50), (B, Y): Replay(1, 50)}


def test_what_goes_forward_or_nowhere_is_no_replay(stored: Stored) -> None:
    stored.ask(entry("a", X, 60), entry("b", Y, 50))
    stored.plan()
    assert (stored.record("a").replay, stored.record("b").replay) == (None, None)
    assert stored.running.replays == {}


def test_a_startpoint_that_takes_the_place_of_one_that_moved_nothing_counts_from_where_the_position_was(stored: Stored) -> None:
    stored.ask(entry("a", X, 10))
    stored.plan()
    stored.ask(entry("b", X, 30, written_at_us=1))
    stored.plan()
    assert stored.positions[A, X] == 30
    assert stored.running.replays == {(A, X): Replay(2, 50)}


def test_a_deletion_ends_the_replay_that_had_not_begun(stored: Stored) -> None:
    stored.ask(entry("a", X, 10))
    stored.plan()
    stored.ask(delete=["a"])
    stored.plan()
    assert stored.running.replays == {}


def test_no_number_is_given_twice_when_old_startpoints_are_forgotten(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_startpoints, "FINISHED_MAX", 1)
    stored.ask(entry("back", X, 10))
    stored.plan()
    stored.commit(A, {X: 1})
    for number in range(5):  # they go forward, and push what is older out
        stored.ask(entry(f"on-{number}", X, 60 + number, written_at_us=1 + number))
        stored.plan()
        stored.commit(A, {X: 1})
    stored.ask(entry("again", X, 10, written_at_us=10))
    stored.plan()
    assert stored.record("again").replay == 2
