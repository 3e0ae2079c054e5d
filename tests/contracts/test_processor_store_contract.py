"""What every implementation of `headrace.ports.processor_store.ProcessorStore` must do."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from contracts.plans import ELSEWHERE, S, checkpoint, model, round_of, task
from headrace.errors import FencedError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.job_model import ContainerModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName


class TestRounds:
    """What a round builds on is what stands; `kind.commit` goes the way that containers and driver go."""

    @pytest.fixture
    def epoch(self, job_store: Any, processor_store: Any, flights: None) -> int:
        epoch: int = job_store.acquire(ELSEWHERE, 0)
        job_store.commit_job_model(epoch, model(), [checkpoint(n, epoch, 0, 0) for n in range(2)])
        processor_store.begin(epoch, model())
        return epoch

    def test_a_round_replaces_the_checkpoints_that_it_names(
        self, kind: Any, job_store: Any, processor_store: Any, epoch: int
    ) -> None:
        head = Head(1, (StateFile("f-1", StateFileKind.DELTA, 10, 2, "00ff"),))
        made = replace(checkpoint(0, epoch, 1, 10), head=head, watermarks={SSP("log", "flights", 0): 5})
        kind.commit(processor_store, round_of(made), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints() == {task(0): made, task(1): checkpoint(1, epoch, 0, 0)}

    def test_rounds_follow_each_other(self, kind: Any, job_store: Any, processor_store: Any, epoch: int) -> None:
        for number in range(1, 4):
            bases = {task(n): checkpoint(n, epoch, number - 1, 10 * (number - 1)) for n in range(2)}
            kind.commit(processor_store, round_of(*(checkpoint(n, epoch, number, 10 * number) for n in range(2))), bases)
        assert job_store.checkpoints() == {task(n): checkpoint(n, epoch, 3, 30) for n in range(2)}

    def test_an_old_epoch_is_fenced(self, kind: Any, system: Any, job_store: Any, processor_store: Any, epoch: int) -> None:
        system.job_store("delays").acquire(ELSEWHERE, 1)
        before = job_store.checkpoints()
        with pytest.raises(kind.refused):
            kind.commit(processor_store, round_of(checkpoint(0, epoch, 1, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints() == before

    def test_another_base_is_fenced(self, kind: Any, job_store: Any, processor_store: Any, epoch: int) -> None:
        first, second = checkpoint(0, epoch, 1, 10), checkpoint(0, epoch, 2, 20)
        kind.commit(processor_store, round_of(first), {task(0): checkpoint(0, epoch, 0, 0)})
        before = job_store.checkpoints()
        for base in (checkpoint(0, epoch, 0, 0), checkpoint(0, epoch, 0, 10), checkpoint(0, epoch + 1, 1, 10)):
            with pytest.raises(kind.refused, match=r"Partition_0|flights-0"):
                kind.commit(processor_store, round_of(second), {task(0): base})
        assert job_store.checkpoints() == before
        kind.commit(processor_store, round_of(second), {task(0): first})

    def test_another_job_model_is_fenced(self, kind: Any, job_store: Any, processor_store: Any, epoch: int) -> None:
        job_store.commit_job_model(epoch, model(2, version=2), [checkpoint(n, epoch, 0, 0, 2) for n in range(2)])
        before = job_store.checkpoints()
        with pytest.raises(kind.refused):
            kind.commit(processor_store, round_of(checkpoint(0, epoch, 1, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints() == before


class TestRecovery:
    @pytest.fixture
    def epoch(self, job_store: Any, processor_store: Any, flights: None) -> int:
        epoch: int = job_store.acquire(ELSEWHERE, 0)
        start = Checkpoint(TaskName(PartitionGroup(0), "by-carrier"), RoundId(epoch, "by-carrier", 0), 1, {})
        tasks = SubTopologyModel("by-carrier", (ContainerModel(0, (TaskModel(start.task, ()),)),))
        both = replace(model(), sub_topologies=(*model().sub_topologies, tasks))
        job_store.commit_job_model(epoch, both, [*(checkpoint(n, epoch, 0, 0) for n in range(2)), start])
        processor_store.begin(epoch, both)
        return epoch

    def test_a_round_that_failed_is_told_what_its_tasks_have_committed(
        self, kind: Any, job_store: Any, processor_store: Any, epoch: int
    ) -> None:
        kind.commit(processor_store, round_of(checkpoint(0, epoch, 1, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        found = processor_store.recover(epoch, None)
        assert found == {task(0): checkpoint(0, epoch, 1, 10), task(1): checkpoint(1, epoch, 0, 0)}
        assert [str(name) for name in processor_store.recover(epoch, "by-carrier")] == ["by-carrier/Partition_0"]

    def test_rounds_go_on_after_it(self, kind: Any, job_store: Any, processor_store: Any, epoch: int) -> None:
        processor_store.recover(epoch, None)
        kind.commit(processor_store, round_of(checkpoint(0, epoch, 2, 10)), {task(0): checkpoint(0, epoch, 0, 0)})
        assert job_store.checkpoints()[task(0)] == checkpoint(0, epoch, 2, 10)

    def test_a_former_driver_is_told_so(self, system: Any, processor_store: Any, epoch: int) -> None:
        system.job_store("delays").acquire(ELSEWHERE, 1)
        with pytest.raises(FencedError):
            processor_store.recover(epoch, None)

    def test_another_epoch_is_noticed(self, system: Any, processor_store: Any, epoch: int) -> None:
        processor_store.check_epoch(epoch)
        system.job_store("delays").acquire(ELSEWHERE, 1)
        with pytest.raises(FencedError):
            processor_store.check_epoch(epoch)


class TestBesideTheCoordinator:
    def test_whatever_it_does_the_coordinator_keeps_the_application(
        self, system: Any, job_store: Any, processor_store: Any, flights: None
    ) -> None:
        """A processor that publishes its status or recovers a round must not take the coordinator's place."""
        epoch = job_store.acquire(ELSEWHERE, 0)
        job_store.commit_job_model(epoch, model(), [checkpoint(n, epoch, 0, 0) for n in range(2)])
        processor_store.begin(epoch, model())
        processor_store.publish_status(None, {"round": 1})
        processor_store.recover(epoch, None)
        processor_store.check_epoch(epoch)
        processor_store.lanes_to_renew(None, 0)
        job_store.heartbeat(epoch, 1 * S)
        job_store.write_metadata(epoch, "a", {"k": b"v"})
        job_store.check_epoch(epoch)
        assert system.metadata_store("delays").all("a") == {"k": b"v"}

    def test_status_is_kept_by_sub_topology(self, job_store: Any, processor_store: Any) -> None:
        """It may be lost; but where nothing fails it is there a moment later."""
        assert job_store.status() == {}
        job_store.acquire(ELSEWHERE, 0)
        processor_store.publish_status(None, {"round": 1})
        processor_store.publish_status("by-carrier", {"lag": {"a": [1, None]}})
        processor_store.publish_status(None, {"round": 2})
        expected = {"source": {"round": 2}, "by-carrier": {"lag": {"a": [1, None]}}}
        deadline_s = time.monotonic() + 10
        while job_store.status() != expected:
            assert time.monotonic() < deadline_s, job_store.status()
            time.sleep(0.01)
