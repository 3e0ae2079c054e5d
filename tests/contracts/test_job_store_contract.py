"""What every implementation of `headrace.ports.JobStore` must do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import FencedError, JobHeldError, OffsetOutOfRangeError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.ports import ContainerCommit, DriverLease, RoundCommit
from headrace.record import Record

S = 1_000_000
ELSEWHERE = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)
SECOND = replace(ELSEWHERE, run_id="run-2", pid=18)


def task(number: int) -> TaskName:
    return TaskName(PartitionGroup(number))


def model(tasks: int = 2, version: int = 1) -> JobModel:
    tasks_ = tuple(TaskModel(task(n), (SSP("log", "flights", n),)) for n in range(tasks))
    subs = (SubTopologyModel(None, (ContainerModel(0, tasks_),)),)
    return JobModel("delays", version, subs, {"flights": tasks}, stream_ids={"flights": "id-1"})


def checkpoint(number: int, epoch: int, round_: int, position: int, version: int = 1) -> Checkpoint:
    return Checkpoint(task(number), RoundId(epoch, None, round_), version, {SSP("log", "flights", number): position})


def round_of(*made: Checkpoint) -> RoundCommit:
    return RoundCommit(made[0].round_id, (ContainerCommit(0, made),))


@pytest.fixture
def flights(system: Any) -> None:
    """What the models here read: some systems keep positions of streams that exist only."""
    system.create_stream("flights", 3)


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


class TestRounds:
    """What a round builds on is what stands; `kind.commit` goes the way that containers and driver go."""

    @pytest.fixture
    def epoch(self, job_store: Any, flights: None) -> int:
        epoch: int = job_store.acquire(ELSEWHERE, 0)
        job_store.commit_job_model(epoch, model(), [checkpoint(n, epoch, 0, 0) for n in range(2)])
        return epoch

    def test_a_round_replaces_the_checkpoints_that_it_names(self, kind: Any, job_store: Any, epoch: int) -> None:
        head = Head(1, (StateFile("f-1", StateFileKind.DELTA, 10, 2, "00ff"),))
        made = replace(checkpoint(0, epoch, 1, 10), head=head, watermarks={SSP("log", "flights", 0): 5})
        kind.commit(job_store, round_of(made), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints() == {task(0): made, task(1): checkpoint(1, epoch, 0, 0)}

    def test_rounds_follow_each_other(self, kind: Any, job_store: Any, epoch: int) -> None:
        for number in range(1, 4):
            bases = {task(n): checkpoint(n, epoch, number - 1, 10 * (number - 1)) for n in range(2)}
            kind.commit(job_store, round_of(*(checkpoint(n, epoch, number, 10 * number) for n in range(2))), bases)
        assert job_store.checkpoints() == {task(n): checkpoint(n, epoch, 3, 30) for n in range(2)}

    def test_an_old_epoch_is_fenced(self, kind: Any, system: Any, job_store: Any, epoch: int) -> None:
        system.job_store("delays").acquire(ELSEWHERE, 1)
        before = job_store.checkpoints()
        with pytest.raises(kind.refused):
            kind.commit(job_store, round_of(checkpoint(0, epoch, 1, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints() == before

    def test_another_base_is_fenced(self, kind: Any, job_store: Any, epoch: int) -> None:
        first, second = checkpoint(0, epoch, 1, 10), checkpoint(0, epoch, 2, 20)
        kind.commit(job_store, round_of(first), {task(0): checkpoint(0, epoch, 0, 0)})
        before = job_store.checkpoints()
        for base in (checkpoint(0, epoch, 0, 0), checkpoint(0, epoch, 0, 10), checkpoint(0, epoch + 1, 1, 10)):
            with pytest.raises(kind.refused, match=r"Partition_0|flights-0"):
                kind.commit(job_store, round_of(second), {task(0): base})
        assert job_store.checkpoints() == before
        kind.commit(job_store, round_of(second), {task(0): first})

    def test_another_job_model_is_fenced(self, kind: Any, job_store: Any, epoch: int) -> None:
        job_store.commit_job_model(epoch, model(2, version=2), [checkpoint(n, epoch, 0, 0, 2) for n in range(2)])
        before = job_store.checkpoints()
        with pytest.raises(kind.refused):
            kind.commit(job_store, round_of(checkpoint(0, epoch, 1, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints() == before


class TestRecovery:
    @pytest.fixture
    def epoch(self, job_store: Any, flights: None) -> int:
        epoch: int = job_store.acquire(ELSEWHERE, 0)
        start = Checkpoint(TaskName(PartitionGroup(0), "by-carrier"), RoundId(epoch, "by-carrier", 0), 1, {})
        tasks = SubTopologyModel("by-carrier", (ContainerModel(0, (TaskModel(start.task, ()),)),))
        both = replace(model(), sub_topologies=(*model().sub_topologies, tasks))
        job_store.commit_job_model(epoch, both, [*(checkpoint(n, epoch, 0, 0) for n in range(2)), start])
        return epoch

    def test_a_round_that_failed_is_told_what_its_tasks_have_committed(
        self, kind: Any, job_store: Any, epoch: int
    ) -> None:
        kind.commit(job_store, round_of(checkpoint(0, epoch, 1, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.recover(epoch, None) == {task(0): checkpoint(0, epoch, 1, 10), task(1): checkpoint(1, epoch, 0, 0)}
        assert [str(name) for name in job_store.recover(epoch, "by-carrier")] == ["by-carrier/Partition_0"]

    def test_rounds_go_on_after_it(self, kind: Any, job_store: Any, epoch: int) -> None:
        job_store.recover(epoch, None)
        kind.commit(job_store, round_of(checkpoint(0, epoch, 2, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints()[task(0)] == checkpoint(0, epoch, 2, 10)

    def test_a_former_driver_is_told_so(self, system: Any, job_store: Any, epoch: int) -> None:
        system.job_store("delays").acquire(ELSEWHERE, 1)
        with pytest.raises(FencedError):
            job_store.recover(epoch, None)


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


def test_status_is_kept_by_sub_topology(job_store: Any) -> None:
    """It may be lost; but a heartbeat later it is there."""
    assert job_store.status() == {}
    epoch = job_store.acquire(ELSEWHERE, 0)
    job_store.publish_status(None, {"round": 1})
    job_store.publish_status("by-carrier", {"lag": {"a": [1, None]}})
    job_store.publish_status(None, {"round": 2})
    job_store.heartbeat(epoch, 1)
    assert job_store.status() == {"source": {"round": 2}, "by-carrier": {"lag": {"a": [1, None]}}}
