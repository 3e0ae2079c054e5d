"""Schedules that the model checker found (`tests/commit_model`), run against Kafka's job store on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from headrace.adapters.kafka.container_transaction import Lane, LaneTransaction, Verdict
from headrace.adapters.kafka.names import checkpoint_topic, coordinator_group, metadata_topic
from headrace.adapters.kafka.positions import committed_positions, positions_of
from headrace.adapters.kafka.system import open_system
from headrace.codec.documents import encode
from headrace.errors import FencedError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.ports import DriverLease
from headrace.testing import KafkaServer

FIRST = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)
SECOND = replace(FIRST, run_id="run-2", pid=18)
STALE_US = 11_000_000
TASK = TaskName(PartitionGroup(0))


@pytest.fixture
def system(kafka_server: KafkaServer) -> Iterator[Any]:
    with open_system(f"kafka://{kafka_server.bootstrap}") as opened:
        yield opened


@pytest.fixture
def application(system: Any) -> str:
    name = f"schedules-{uuid.uuid4().hex[:8]}"
    system.create_stream(f"{name}-input", 1)
    return name


def after_its_first_call(function: Callable[..., Any], then: Callable[[], object]) -> Callable[..., Any]:
    """`function`, which its caller is put to sleep after, the first time: `then` is what others do meanwhile."""
    waiting = [then]

    def called(*arguments: Any, **options: Any) -> Any:
        answer = function(*arguments, **options)
        while waiting:
            waiting.pop()()
        return answer

    return called


def test_what_an_attempt_commits_while_its_driver_recovers_is_not_overwritten(
    system: Any, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fence does not reach an attempt that has not taken its lane yet: it commits between the reads of `recover`."""
    store = system.job_store(application)
    epoch = store.acquire(FIRST, 0)
    ssp = SSP(system.name, f"{application}-input", 0)
    containers = (ContainerModel(0, (TaskModel(TASK, (ssp,)),)),)
    model = JobModel(application, 1, (SubTopologyModel(None, containers),), {ssp.stream: 1}, stream_ids={ssp.stream: "id"})
    base = Checkpoint(TASK, RoundId(epoch, None, 0), 1, {ssp: 0})
    made = Checkpoint(TASK, RoundId(epoch, None, 1), 1, {ssp: 7})
    store.commit_job_model(epoch, model, [base])
    (before,), (after,) = positions_of(application, model, [base]), positions_of(application, model, [made])

    def late_attempt() -> None:
        lane = Lane(application, "source", 0, epoch, str(made.round_id), system.client, 60_000)
        transaction = LaneTransaction(lane)
        assert transaction.check([before]) is Verdict.WORK
        transaction.begin()
        transaction.commit([after], [(str(TASK).encode(), encode(made))], checkpoint_topic(application))

    monkeypatch.setattr(store._checkpoints, "refresh", after_its_first_call(store._checkpoints.refresh, late_attempt))
    recovered = store.recover(epoch, None)
    found = committed_positions(system.client, after.group, [(after.topic, 0)])
    assert found == {(after.topic, 0): (7, after.note)}
    assert recovered == store.checkpoints() == {TASK: made}


def test_a_position_that_expired_is_seeded_from_the_topic(system: Any, application: str) -> None:
    store = system.job_store(application)
    epoch = store.acquire(FIRST, 0)
    ssp = SSP(system.name, f"{application}-input", 0)
    containers = (ContainerModel(0, (TaskModel(TASK, (ssp,)),)),)
    model = JobModel(application, 1, (SubTopologyModel(None, containers),), {ssp.stream: 1}, stream_ids={ssp.stream: "id"})
    base = Checkpoint(TASK, RoundId(epoch, None, 0), 1, {ssp: 3})
    store.commit_job_model(epoch, model, [base])
    (position,) = positions_of(application, model, [base])
    admin = AdminClient(system.client)
    (deleted,) = admin.delete_consumer_groups([position.group], request_timeout=20).values()
    deleted.result(20)  # as its retention would
    assert committed_positions(system.client, position.group, [(position.topic, 0)]) == {}
    assert store.recover(epoch, None) == {TASK: base}
    found = committed_positions(system.client, position.group, [(position.topic, 0)])
    assert found == {(position.topic, 0): (3, position.note)}


def test_a_driver_that_takes_its_id_again_after_another_took_over_writes_nothing(
    system: Any, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks whether the application is still its own, sleeps, and the other comes between that and its init."""
    first, second = system.job_store(application), system.job_store(application)
    epoch = first.acquire(FIRST, 0)
    first._coordinator.close()  # as after a commit whose answer was lost
    taken: list[int] = []
    still_ours = after_its_first_call(first._still_ours, lambda: taken.append(second.acquire(SECOND, STALE_US)))
    monkeypatch.setattr(first._coordinator, "_still_ours", still_ours)
    for _ in range(2):  # nor does it the next time
        with pytest.raises(FencedError):
            first.heartbeat(epoch, STALE_US)
    place = (metadata_topic(application), 0)
    assert taken == [epoch + 1]
    assert committed_positions(system.client, coordinator_group(application), [place])[place][0] == epoch + 1
    holder = second.holder()
    assert holder is not None and holder.run_id == "run-2"


def test_a_driver_that_was_replaced_right_behind_its_model_is_fenced(
    system: Any, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps between its transaction and the reading back; its successor plans anew and commits in between."""
    first, second = system.job_store(application), system.job_store(application)
    epoch = first.acquire(FIRST, 0)
    ssp = SSP(system.name, f"{application}-input", 0)
    containers = (ContainerModel(0, (TaskModel(TASK, (ssp,)),)),)
    model = JobModel(application, 1, (SubTopologyModel(None, containers),), {ssp.stream: 1}, stream_ids={ssp.stream: "id"})

    def successor() -> None:
        then = second.acquire(SECOND, STALE_US)
        second.commit_job_model(then, replace(model, version=2), [Checkpoint(TASK, RoundId(then, None, 0), 2, {ssp: 3})])

    monkeypatch.setattr(first._coordinator, "transact", after_its_first_call(first._coordinator.transact, successor))
    with pytest.raises(FencedError, match="another driver has taken over"):
        first.commit_job_model(epoch, model, [Checkpoint(TASK, RoundId(epoch, None, 0), 1, {ssp: 0})])
    assert second.job_model() == replace(model, version=2)
