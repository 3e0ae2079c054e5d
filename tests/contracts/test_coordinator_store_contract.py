"""What every implementation of `headrace.ports.coordinator_store.CoordinatorStore` must do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contracts.plans import ELSEWHERE, SECOND, S, apart, checkpoint, model, task
from headrace.errors import FencedError, JobHeldError, OffsetOutOfRangeError
from headrace.record import Record


class TestHolding:
    def test_nobody_holds_a_new_application(self, job_store: Any) -> None:
        assert (job_store.holder(), job_store.job_model(), job_store.checkpoints()) == (None, None, {})

    def test_the_first_takes_it(self, job_store: Any) -> None:
        assert job_store.acquire(ELSEWHERE, 5 * S) == 1
        assert job_store.holder() == replace(ELSEWHERE, heartbeat_us=5 * S)

    def test_a_second_is_refused_while_the_first_is_heard_of(self, job_store: Any) -> None:
        epoch = job_store.acquire(ELSEWHERE, 0)
        job_store.heartbeat(epoch, 5 * S)
        with pytest.raises(
            JobHeldError, match=r"process 17 on host another-host since 1970-01-01 00:00:00 UTC.* 10.0 s"
        ):
            job_store.acquire(SECOND, 15 * S)
        assert job_store.holder() == replace(ELSEWHERE, heartbeat_us=5 * S)
        job_store.heartbeat(epoch, 16 * S)

    def test_a_silent_one_is_taken_over_and_fenced(self, job_store: Any) -> None:
        first = job_store.acquire(ELSEWHERE, 0)
        second = job_store.acquire(SECOND, 10 * S + 1)
        assert second > first
        for use in (lambda: job_store.heartbeat(first, 11 * S), lambda: job_store.check_epoch(first)):
            with pytest.raises(FencedError):
                use()
        job_store.check_epoch(second)
        job_store.release(first)  # no error, and no effect
        assert job_store.holder() == replace(SECOND, heartbeat_us=10 * S + 1)

    def test_a_released_one_is_free_at_once(self, job_store: Any) -> None:
        first = job_store.acquire(ELSEWHERE, 0)
        job_store.release(first)
        assert job_store.holder() is None
        assert job_store.acquire(SECOND, 1) > first

    def test_the_same_run_takes_it_again_with_a_new_epoch(self, job_store: Any) -> None:
        first = job_store.acquire(ELSEWHERE, 0)
        assert job_store.acquire(ELSEWHERE, 1) > first
        with pytest.raises(FencedError):
            job_store.commit_job_model(first, model(), ())

    def test_one_that_was_replaced_does_not_come_back(self, system: Any, job_store: Any) -> None:
        first = job_store.acquire(ELSEWHERE, 0)
        successor = system.job_store(job_store.application)
        second = successor.acquire(SECOND, 10 * S + 1)
        for now_us in (10 * S + 2, 60 * S):
            with pytest.raises(FencedError):
                job_store.acquire(ELSEWHERE, now_us)
            assert job_store.holder() == replace(SECOND, heartbeat_us=10 * S + 1)
        successor.check_epoch(second)
        successor.release(second)
        with pytest.raises(FencedError):
            job_store.acquire(ELSEWHERE, 61 * S)
        job_store.release(first)  # no error, and no effect
        assert system.job_store(job_store.application).acquire(ELSEWHERE, 62 * S) > second

    def test_one_that_was_replaced_and_steps_down_may_take_it_again(self, system: Any, job_store: Any) -> None:
        first = job_store.acquire(ELSEWHERE, 0)
        successor = system.job_store(job_store.application)
        second = successor.acquire(SECOND, 10 * S + 1)
        with pytest.raises(FencedError):
            job_store.heartbeat(first, 11 * S)
        job_store.step_down(first)
        assert job_store.holder() == replace(SECOND, heartbeat_us=10 * S + 1), "nothing is written of it"
        successor.check_epoch(second)
        with pytest.raises(JobHeldError):
            job_store.acquire(ELSEWHERE, 12 * S)
        third = job_store.acquire(ELSEWHERE, 21 * S)
        assert third > second
        job_store.check_epoch(third)
        with pytest.raises(FencedError):
            successor.heartbeat(second, 22 * S)
        job_store.heartbeat(third, 23 * S)

    def test_applications_are_apart(self, system: Any, job_store: Any) -> None:
        job_store.acquire(ELSEWHERE, 0)
        other = system.job_store("other")
        other.acquire(SECOND, 0)
        assert other.holder().run_id == "run-2"
        assert job_store.holder().run_id == "run-1"


class TestPlan:
    def test_model_and_starts_are_read_back(self, job_store: Any, flights: None) -> None:
        epoch = job_store.acquire(ELSEWHERE, 0)
        starts = [checkpoint(1, epoch, 0, 7), checkpoint(0, epoch, 0, 3)]
        job_store.commit_job_model(epoch, model(), starts)
        assert job_store.job_model() == model()
        assert job_store.checkpoints() == {task(0): starts[1], task(1): starts[0]}

    def test_a_new_model_keeps_the_checkpoints_of_its_tasks_only(self, job_store: Any, flights: None) -> None:
        epoch = job_store.acquire(ELSEWHERE, 0)
        job_store.commit_job_model(epoch, model(3), [checkpoint(n, epoch, 0, n) for n in range(3)])
        new = [checkpoint(n, epoch, 0, n + 8, version=2) for n in range(2)]
        job_store.commit_job_model(epoch, model(2, version=2), new)
        assert job_store.job_model() == model(2, version=2)
        assert job_store.checkpoints() == {task(0): new[0], task(1): new[1]}

    def test_what_is_on_record_of_the_streams_comes_with_the_model_or_not_at_all(
        self, system: Any, job_store: Any, flights: None
    ) -> None:
        stored = system.metadata_store("delays")
        old = job_store.acquire(ELSEWHERE, 0)
        starts = [checkpoint(n, old, 0, 0) for n in range(2)]
        job_store.commit_job_model(old, model(), starts, {"a": {"x": b"1", "y": b"2"}, "b": {"x": b"3"}})
        assert (stored.all("a"), stored.all("b")) == ({"x": b"1", "y": b"2"}, {"x": b"3"})
        job_store.commit_job_model(old, model(), starts, {"a": {"x": None, "z": b"4"}})
        assert (stored.all("a"), stored.all("b")) == ({"y": b"2", "z": b"4"}, {"x": b"3"})
        job_store.acquire(ELSEWHERE, 1)
        with pytest.raises(FencedError):
            job_store.commit_job_model(old, model(1, 2), [checkpoint(0, old, 0, 5)], {"a": {"y": None}})
        assert stored.all("a") == {"y": b"2", "z": b"4"}

    def test_a_task_without_a_checkpoint_in_the_plan_keeps_its_own(self, job_store: Any, flights: None) -> None:
        """As a processor is restarted: the plan is of its containers, and the others keep working."""
        epoch = job_store.acquire(ELSEWHERE, 0)
        job_store.commit_job_model(epoch, apart(), [checkpoint(n, epoch, 0, n) for n in range(2)])
        job_store.commit_job_model(epoch, apart(), [checkpoint(1, epoch, 0, 9)])
        assert job_store.checkpoints() == {task(0): checkpoint(0, epoch, 0, 0), task(1): checkpoint(1, epoch, 0, 9)}

    def test_an_old_epoch_changes_nothing(self, job_store: Any, flights: None) -> None:
        old = job_store.acquire(ELSEWHERE, 0)
        epoch = job_store.acquire(ELSEWHERE, 1)
        job_store.commit_job_model(epoch, model(), [checkpoint(n, epoch, 0, 0) for n in range(2)])
        with pytest.raises(FencedError, match="epoch is 1, the current one is 2"):
            job_store.commit_job_model(old, model(1, 2), [checkpoint(0, old, 0, 5)])
        assert job_store.job_model() == model()
        assert job_store.checkpoints()[task(0)].round_id.epoch == epoch

    def test_a_former_driver_changes_nothing(self, system: Any, job_store: Any, flights: None) -> None:
        """As in life, where each driver has a store of its own."""
        old = job_store.acquire(ELSEWHERE, 0)
        successor = system.job_store("delays")
        epoch = successor.acquire(SECOND, 10 * S + 1)
        starts = [checkpoint(n, epoch, 0, 3) for n in range(2)]
        successor.commit_job_model(epoch, model(), starts)
        for use in (
            lambda: job_store.commit_job_model(old, model(1, 2), [checkpoint(0, old, 0, 5)]),
            lambda: job_store.check_epoch(old),
            lambda: job_store.heartbeat(old, 11 * S),
            lambda: job_store.write_metadata(old, "a", {"k": b"v"}),
        ):
            with pytest.raises(FencedError):
                use()
        job_store.release(old)
        assert successor.job_model() == model()
        assert successor.checkpoints() == {task(0): starts[0], task(1): starts[1]}
        assert successor.holder() == replace(SECOND, heartbeat_us=10 * S + 1)
        successor.check_epoch(epoch)


class TestFencing:
    def test_lanes_are_on_record_before_they_are_used(self, job_store: Any, flights: None) -> None:
        """But where the epoch fences all of them."""
        epoch = job_store.acquire(ELSEWHERE, 0)
        assert job_store.lanes_used() == {}
        job_store.commit_job_model(epoch, apart(), [checkpoint(n, epoch, 0, 0) for n in range(2)])
        job_store.commit_job_model(epoch, model(2, version=2), [checkpoint(n, epoch, 0, 0, 2) for n in range(2)])
        assert job_store.lanes_used() in ({}, {"source": 2})
        job_store.fence(epoch, {"source": range(2)})
        job_store.fence(epoch, {})
        job_store.check_epoch(epoch)


class TestPurge:
    def test_what_is_read_is_forgotten_and_only_by_the_driver(self, system: Any, job_store: Any) -> None:
        system.create_stream("by-carrier", 2, internal_of="delays")
        system.produce("by-carrier", [Record(b"k", b"%d" % n, partition=n % 2) for n in range(10)])
        epoch = job_store.acquire(ELSEWHERE, 0)
        job_store.purge(epoch, "by-carrier", {0: 3})
        job_store.purge(epoch, "by-carrier", {0: 1})
        assert system.beginning_offsets("by-carrier") == {0: 3, 1: 0}
        ends = system.end_offsets("by-carrier")
        with pytest.raises(OffsetOutOfRangeError):
            job_store.purge(epoch, "by-carrier", {1: ends[1] + 1})
        job_store.acquire(ELSEWHERE, 1)
        with pytest.raises(FencedError):
            job_store.purge(epoch, "by-carrier", {1: 5})
        assert system.beginning_offsets("by-carrier") == {0: 3, 1: 0}
        assert system.end_offsets("by-carrier") == ends
