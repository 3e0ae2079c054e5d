"""Taking up startpoints when a job is planned: by example."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.planned_startpoints import Stored, entry
from headrace.core.job_plan import apply_startpoints
from headrace.errors import OffsetOutOfRangeError
from headrace.model.startpoint import PositionType, StartpointEntry, StartpointStatus
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

A, B, C = (TaskName.parse(f"Partition_{number}") for number in range(3))
X, Y = SSP("k", "x", 0), SSP("k", "y", 0)
ENDS = {X: 100, Y: 100}


@pytest.fixture
def one() -> Stored:
    """A task that reads X and Y, at 50 in both."""
    return Stored({X: [A], Y: [A]}, ENDS, 50)


@pytest.fixture
def several() -> Stored:
    """X is read by both tasks, Y by the second."""
    return Stored({X: [A, B], Y: [B]}, ENDS, 50)


class TestTakingUp:
    def test_each_type_is_resolved_once(self, one: Stored) -> None:
        one.ask(entry("a", X, PositionType.LATEST), entry("b", Y, PositionType.EARLIEST))
        one.plan()
        assert one.positions == {(A, X): 100, (A, Y): 0}
        one.consumer.ends[X] = 200
        one.plan()
        one.plan({X: [A], Y: [A]})
        assert one.positions == {(A, X): 100, (A, Y): 0}
        assert one.status == {"a": StartpointStatus.PENDING, "b": StartpointStatus.PENDING}

    def test_a_commit_that_moves_the_ssp_spends_it_and_it_alone(self, one: Stored) -> None:
        one.ask(entry("a", X, 10), entry("b", Y, 20))
        one.plan()
        one.commit(A, {X: 0})
        one.settle()
        assert one.status == {"a": StartpointStatus.PENDING, "b": StartpointStatus.PENDING}
        one.commit(A, {Y: 1})
        one.settle()
        assert one.status == {"a": StartpointStatus.PENDING, "b": StartpointStatus.APPLIED}
        one.plan()
        assert one.positions == {(A, X): 10, (A, Y): 21}

    def test_one_that_the_driver_did_not_settle_is_applied_at_the_next_plan(self, one: Stored) -> None:
        one.ask(entry("a", X, 10))
        one.plan()
        one.commit(A, {X: 5})
        one.plan()
        assert (one.positions[A, X], one.status) == (15, {"a": StartpointStatus.APPLIED})

    def test_what_the_job_does_not_read_waits(self, one: Stored) -> None:
        later = SSP("k", "x", 1)
        one.ask(entry("a", later, 7), entry("b", X, 10))
        taken = one.plan()
        assert (taken.waiting, list(one.requests)) == ({"00001"}, ["00001"])
        assert one.status == {"b": StartpointStatus.PENDING}
        one.commit(A, {X: 1})
        one.consumer.ends[later] = 50
        one.checkpoints[A] = replace(one.checkpoints[A], positions={**one.checkpoints[A].positions, later: 0})
        one.plan()
        assert one.positions == {(A, X): 11, (A, Y): 50, (A, later): 7}
        assert not one.requests

    def test_one_that_cannot_be_resolved_is_named_and_changes_nothing(self, one: Stored) -> None:
        one.ask(entry("a", Y, 7), entry("bad", X, 101))
        said = r"startpoint bad of k\.x\.0, written by ann@desk.*holds 0 to 99"
        with pytest.raises(OffsetOutOfRangeError, match=said) as raised:
            one.plan()
        assert "startpoint delete bad" in str(raised.value)
        assert (one.positions, one.records, len(one.requests)) == ({(A, X): 50, (A, Y): 50}, {}, 1)
        one.ask(delete=["bad"])
        one.plan()
        assert one.positions == {(A, X): 50, (A, Y): 7}
        assert one.status == {"a": StartpointStatus.PENDING, "bad": StartpointStatus.DELETED}

    def test_where_the_position_is_set_at_every_start_it_is_spent_when_it_is_read(self, one: Stored) -> None:
        one.ask(entry("a", X, 10), entry("b", Y, 20))
        one.plan(read_from_start={"x"})
        assert one.status == {"a": StartpointStatus.APPLIED, "b": StartpointStatus.PENDING}
        assert not one.running.pending_of(A).keys() & {X}

    def test_bootstrap_has_the_end_as_it_was(self, one: Stored) -> None:
        one.ask(entry("a", X, PositionType.BOOTSTRAP))
        one.plan()
        one.consumer.ends[X] = 300
        one.plan()
        assert one.running.bootstraps == {(A, X): 100}


class TestPrecedence:
    def test_the_later_wins_and_at_a_tie_the_tasks_own(self, several: Stored) -> None:
        several.ask(entry("all", X, 10, written_at_us=5), entry("own", X, 20, B, written_at_us=5))
        several.plan()
        assert several.positions == {(A, X): 10, (B, X): 20, (B, Y): 50}
        several.ask(entry("later", X, 30, written_at_us=6))
        several.plan()
        assert several.positions == {(A, X): 30, (B, X): 30, (B, Y): 50}
        assert several.status == {
            "all": StartpointStatus.SUPERSEDED,
            "own": StartpointStatus.SUPERSEDED,
            "later": StartpointStatus.PENDING,
        }

    def test_one_that_was_written_before_a_pending_one_comes_too_late(self, one: Stored) -> None:
        one.ask(entry("second", X, 20, written_at_us=2))
        one.plan()
        one.ask(entry("first", X, 10, written_at_us=1))
        one.plan()
        assert (one.positions[A, X], one.status) == (
            20,
            {"second": StartpointStatus.PENDING, "first": StartpointStatus.SUPERSEDED},
        )

    def test_one_of_a_task_that_is_gone_is_for_all_that_read(self, several: Stored) -> None:
        several.ask(entry("a", X, 10, C))
        several.plan()
        assert several.positions == {(A, X): 10, (B, X): 10, (B, Y): 50}

    def test_a_pending_one_goes_with_its_ssp_to_another_task(self, one: Stored) -> None:
        one.ask(entry("a", X, 10, A))
        one.plan()
        one.plan({X: [B], Y: [C]})
        assert one.positions == {(B, X): 10, (C, Y): 50}
        assert one.running.pending_of(B) == {X: ("a", 10)}
        one.commit(B, {X: 1})
        one.settle()
        assert one.status == {"a": StartpointStatus.APPLIED}

    def test_a_clock_that_goes_back_does_not_bring_an_older_one_back(self, one: Stored) -> None:
        one.ask(entry("first", X, 10))
        one.plan(now_us=9_000)
        one.commit(A, {X: 1})
        one.ask(entry("second", X, PositionType.BOOTSTRAP, written_at_us=1))
        one.plan(now_us=5_000)  # the next driver, on another machine
        assert one.status == {"first": StartpointStatus.APPLIED, "second": StartpointStatus.PENDING}
        assert one.running.pending_of(A) == {X: ("second", 0)}
        assert one.running.bootstraps == {(A, X): 100}


class TestDeleting:
    def test_one_that_waits_is_never_taken_up(self, one: Stored) -> None:
        one.ask(entry("a", X, 10))
        one.ask(delete=["a"])
        one.plan()
        assert (one.positions[A, X], one.status, one.requests) == (50, {"a": StartpointStatus.DELETED}, {})

    def test_of_a_pending_one_the_position_before_comes_back(self, one: Stored) -> None:
        checkpoint = one.checkpoints[A]
        one.checkpoints[A] = replace(checkpoint, watermarks={X: 77})
        one.ask(entry("a", X, 10))
        one.plan()
        assert one.checkpoints[A].watermarks == {}
        one.ask(delete=["a"])
        one.plan()
        assert (one.positions[A, X], one.checkpoints[A].watermarks) == (50, {X: 77})
        assert one.status == {"a": StartpointStatus.DELETED}

    def test_of_a_spent_one_nothing_is_undone(self, one: Stored) -> None:
        one.ask(entry("a", X, 10))
        one.plan()
        one.commit(A, {X: 1})
        one.ask(delete=["a"])
        one.plan()
        assert (one.positions[A, X], one.status, one.requests) == (11, {"a": StartpointStatus.APPLIED}, {})

    def test_where_a_later_one_has_the_same_offset_that_one_stays(self, several: Stored) -> None:
        several.ask(entry("all", X, 10))
        several.plan()
        several.ask(entry("own", X, 10, B, written_at_us=1))
        several.plan()
        several.ask(delete=["all"])
        several.plan()
        assert several.positions == {(A, X): 50, (B, X): 10, (B, Y): 50}
        assert several.status == {"all": StartpointStatus.DELETED, "own": StartpointStatus.PENDING}

    def test_where_an_earlier_one_is_pending_still_that_one_counts_again(self, several: Stored) -> None:
        several.ask(entry("all", X, 10))
        several.plan()
        several.ask(entry("own", X, 20, B, written_at_us=1))
        several.plan()
        several.ask(delete=["own"])
        several.plan()
        assert several.positions == {(A, X): 10, (B, X): 10, (B, Y): 50}
        several.plan()
        assert several.status == {"all": StartpointStatus.PENDING, "own": StartpointStatus.DELETED}
        several.ask(delete=["all"])
        several.plan()
        assert several.positions == {(A, X): 50, (B, X): 50, (B, Y): 50}

    def test_where_that_one_went_back_what_it_reads_again_is_not_late(self, several: Stored) -> None:
        several.checkpoints[B] = replace(several.checkpoints[B], watermarks={X: 77})
        several.ask(entry("all", X, 10))
        several.plan()
        several.ask(entry("own", X, 90, B, written_at_us=1))
        several.plan()
        several.ask(delete=["own"])
        several.plan()
        assert (several.positions[B, X], several.checkpoints[B].watermarks) == (10, {})
        several.ask(delete=["all"])
        several.plan()
        assert (several.positions[B, X], several.checkpoints[B].watermarks) == (50, {X: 77})

    def test_both_at_once_leave_the_position_as_it_was(self, several: Stored) -> None:
        for order in (["all", "own"], ["own", "all"]):
            several.records.clear()
            several.ask(entry("all", X, 10))
            several.plan()
            several.ask(entry("own", X, 20, B, written_at_us=1))
            several.plan()
            several.ask(delete=order)
            several.plan()
            assert several.positions == {(A, X): 50, (B, X): 50, (B, Y): 50}


class TestRequestsSeenTwice:
    def test_after_a_crash_before_their_removal_nothing_changes(self, one: Stored) -> None:
        one.ask(entry("a", X, 10))
        one.plan(removes=False)
        one.commit(A, {X: 5})
        assert one.requests
        one.plan()
        assert (one.positions[A, X], one.status, one.requests) == (15, {"a": StartpointStatus.APPLIED}, {})

    def test_what_is_done_is_not_forgotten_while_its_request_stands(self, one: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_startpoints, "FINISHED_MAX", 2)
        many: list[StartpointEntry] = [entry(f"e{number}", X, number, written_at_us=number) for number in range(10)]
        one.ask(*many)
        one.plan(removes=False)
        assert one.positions[A, X] == 9
        one.commit(A, {X: 1})
        for _ in range(3):
            one.plan(removes=False)
            assert one.positions[A, X] == 10
        one.plan()
        one.plan()
        assert (one.positions[A, X], len(one.records), one.requests) == (10, 3, {})

    def test_a_deletion_is_not_forgotten_while_what_it_names_waits(self, one: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_startpoints, "FINISHED_MAX", 0)
        later = SSP("k", "x", 1)
        one.ask(entry("a", later, 7), entry("b", later, 8))
        one.ask(delete=["b"])
        one.plan()
        one.plan()
        one.consumer.ends[later] = 50
        one.checkpoints[A] = replace(one.checkpoints[A], positions={**one.checkpoints[A].positions, later: 0})
        one.plan()
        assert one.positions[A, later] == 7
