"""Schedules that the model checker found (`tests/commit_model`), run against Kafka's stores on a real broker."""

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
from headrace.errors import FencedError, RoundFailedError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import DriverLease
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.testing import KafkaServer
from support.world import waited

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

    rounds = system.processor_store(application)
    rounds.begin(epoch, model)
    monkeypatch.setattr(rounds._checkpoints, "refresh", after_its_first_call(rounds._checkpoints.refresh, late_attempt))
    recovered = rounds.recover(epoch, None)
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
    rounds = system.processor_store(application)
    rounds.begin(epoch, model)
    assert rounds.recover(epoch, None) == {TASK: base}
    found = committed_positions(system.client, position.group, [(position.topic, 0)])
    assert found == {(position.topic, 0): (3, position.note)}


def test_a_driver_that_takes_its_id_again_after_another_took_over_writes_nothing(
    system: Any, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks whether the application is still its own, sleeps, and the other comes between that and its init."""
    first, second = system.job_store(application), system.job_store(application)
    epoch = first.acquire(FIRST, 0)
    first._job.coordinator.close()  # as after a commit whose answer was lost
    taken: list[int] = []
    still_ours = after_its_first_call(first._job.still_ours, lambda: taken.append(second.acquire(SECOND, STALE_US)))
    monkeypatch.setattr(first._job.coordinator, "_still_ours", still_ours)
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

    monkeypatch.setattr(first._job.coordinator, "transact", after_its_first_call(first._job.coordinator.transact, successor))
    with pytest.raises(FencedError, match="another driver has taken over"):
        first.commit_job_model(epoch, model, [Checkpoint(TASK, RoundId(epoch, None, 0), 1, {ssp: 0})])
    assert second.job_model() == replace(model, version=2)


def test_a_lost_position_is_set_by_who_took_the_lane_last(
    system: Any, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt takes the lane, and commits, after the lost position was read and before it is set again."""
    store, rounds = system.job_store(application), system.processor_store(application)
    epoch = store.acquire(FIRST, 0)
    ssp = SSP(system.name, f"{application}-input", 0)
    containers = (ContainerModel(0, (TaskModel(TASK, (ssp,)),)),)
    model = JobModel(application, 1, (SubTopologyModel(None, containers),), {ssp.stream: 1}, stream_ids={ssp.stream: "id"})
    base = Checkpoint(TASK, RoundId(epoch, None, 0), 1, {ssp: 3})
    made = Checkpoint(TASK, RoundId(epoch, None, 1), 1, {ssp: 7})
    store.commit_job_model(epoch, model, [base])
    rounds.begin(epoch, model)
    (position,), (after,) = positions_of(application, model, [base]), positions_of(application, model, [made])
    admin = AdminClient(system.client)
    (deleted,) = admin.delete_consumer_groups([position.group], request_timeout=20).values()
    deleted.result(20)

    def attempt() -> None:
        transaction = LaneTransaction(Lane(application, "source", 0, epoch, str(made.round_id), system.client, 60_000))
        transaction._producer = rounds._fencing.take("source", 0)
        transaction.begin()
        transaction.commit([after], [(str(TASK).encode(), encode(made))], checkpoint_topic(application))

    set_positions, tries = rounds._fencing.set_positions, list[bool]()

    def set_too_late(*arguments: Any) -> bool:
        if not tries:
            attempt()
        tries.append(set_positions(*arguments))
        return tries[-1]

    monkeypatch.setattr(rounds._fencing, "set_positions", set_too_late)
    assert rounds.recover(epoch, None) == {TASK: made}
    assert tries == [False]
    found = committed_positions(system.client, position.group, [(position.topic, 0)])
    assert found == {(position.topic, 0): (7, after.note)}


def test_only_the_lanes_that_are_named_are_fenced(system: Any, application: str) -> None:
    """A leader fences what it moves: what others have open goes on, and is committed."""
    store = system.job_store(application)
    epoch = store.acquire(FIRST, 0)
    ssp = SSP(system.name, f"{application}-input", 0)
    containers = (ContainerModel(0, (TaskModel(TASK, (ssp,)),)),)
    model = JobModel(application, 1, (SubTopologyModel(None, containers),), {ssp.stream: 1}, stream_ids={ssp.stream: "id"})
    store.commit_job_model(epoch, model, [Checkpoint(TASK, RoundId(epoch, None, 0), 1, {ssp: 0})])
    open_ones = []
    for lane in range(2):
        transaction = LaneTransaction(Lane(application, "source", lane, epoch, f"{epoch}:source:1", system.client, 60_000))
        assert transaction.check([]) in Verdict
        transaction.begin()
        transaction.produce(f"{application}-input", [(b"%d" % lane, None, 0, 1, None)])
        open_ones.append(transaction)
    store.fence(epoch, {"source": [0]})
    with pytest.raises(RoundFailedError):
        open_ones[0].commit([], [], checkpoint_topic(application))
    open_ones[1].commit([], [], checkpoint_topic(application))
    # a commit returns before its records can be read
    waited(lambda: [record.value for record in system.consume(f"{application}-input")] == [b"1"])
