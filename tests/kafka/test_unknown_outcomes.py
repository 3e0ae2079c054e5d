"""Transactions of the coordinator whose outcome is not known: the answer was lost, or it has lost its id. What has committed is
not written again, what has not is, and nothing is put in force that was taken back (protocol.md 6, 7 and 12)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.adapters.kafka import coordinator
from headrace.adapters.kafka.clients import new_producer, take_id
from headrace.adapters.kafka.coordinator import TIMEOUT_MS
from headrace.adapters.kafka.names import coordinator_id, dead_letters_id, metadata_topic
from headrace.adapters.kafka.system import PUT_BACK_MS, open_system
from headrace.core.group.grants import Grant
from headrace.errors import FencedError, JobHeldError, UnavailableError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.testing import KafkaServer
from kafka.test_grants import ALONE, FIRST, LONG_AFTER_US, NEXT, A, B, Group, begun
from kafka.test_job_store_schedules import after_its_first_call

B_ALONE = {"b": Grant(102, "2")}
B_AND_C = {**B_ALONE, "c": Grant(103, "3")}
Bases = dict[TaskName, Checkpoint]


@pytest.fixture
def group(kafka_server: KafkaServer) -> Iterator[Group]:
    with open_system(f"kafka://{kafka_server.bootstrap}") as system:
        yield Group(system)


@contextmanager
def failing(store: Any, times: int, *, committed: bool, then: Callable[[], object] = lambda: None) -> Iterator[list[object]]:
    """So many of the next transactions fail, and whether they are committed the store does not hear. `then`: what others do
    behind each. Gives those that were handed over."""
    right, given = store._job.coordinator.transact, list[object]()

    def transact(*arguments: Any) -> None:
        given.append(arguments)
        lost = len(given) <= times
        if committed or not lost:
            right(*arguments)
        if lost:
            then()
            raise UnavailableError("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._job.coordinator, "transact", transact)
        yield given
    assert len(given) >= times, "as many have failed"


def moved_to_c(group: Group, bases: Bases) -> tuple[JobModel, Checkpoint]:
    """The plan that gives task A to processor c, and the checkpoint that it writes."""
    return group.model(2, ("c", "b"), (2, 1)), replace(bases[A], job_model_version=2)


def give_a_to_c(group: Group, store: CoordinatorStore, epoch: int, bases: Bases) -> JobModel:
    model, moved = moved_to_c(group, bases)
    store.commit_job_model(epoch, model, [moved], stored=bases, grants=B_AND_C)
    return model


def without_a(group: Group) -> tuple[CoordinatorStore, int, Bases]:
    """As `begun`; then the grant of A's processor is taken back."""
    store, epoch, bases = begun(group)
    store.write_grants(epoch, B_ALONE)
    store.fence(epoch, {"source": [0]})
    return store, epoch, bases


def test_a_plan_that_was_committed_is_not_written_again_over_what_a_processor_has_begun(group: Group) -> None:
    """Task A goes to processor b, which works on: it begins under its new grant as soon as it sees the plan."""
    store, epoch, bases = without_a(group)
    (container,) = group.model(2, ("b", "b"), (1, 1)).sub_topologies[0].containers[1:]
    both = replace(container, tasks=tuple(TaskModel(task, (group.ssps[task],)) for task in (A, B)))
    model = replace(group.model(2, ("b", "b"), (1, 1)), sub_topologies=(SubTopologyModel(None, (both,)),))
    moved, grants = replace(bases[A], head=None), {"b": Grant(103, "2", former=102)}
    made: list[Checkpoint] = []

    def begin() -> None:
        processor = group.system.processor_store(group.name)
        processor.begin(103, model, "b")
        made.append(group.commit(processor.recover(103, None)[A], 103, 1))

    with failing(store, 1, committed=True, then=begin):
        store.commit_job_model(epoch, model, [moved], stored=bases, grants=grants)
    assert store.checkpoints()[A] == made[0]
    group.commit(made[0], 103, 2)
    assert store.grants() == grants


def test_what_could_not_be_looked_for_is_looked_for_again(group: Group) -> None:
    """The broker goes away once more, between the taking of the id and the reading of what was committed."""
    store: Any = group.leader()
    epoch = store.acquire(FIRST, 0)
    model = group.model(1, ("a", "b"), (1, 1))
    checkpoints = [group.checkpoint(task, RoundId(epoch, None, 0), 1, 0) for task in (A, B)]
    read = store._job.metadata.refresh

    def once_away(**_: Any) -> None:
        store._job.metadata.refresh = read
        raise UnavailableError("no answer")

    def then() -> None:
        store._job.metadata.refresh = once_away

    with failing(store, 1, committed=True, then=then) as written:
        store.commit_job_model(epoch, model, checkpoints)
    assert store._job.metadata.refresh is read and store.job_model() == model
    assert len(written) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_plan_that_was_not_committed_is_written_again(group: Group, times: int) -> None:
    """What is stored tells nothing: the same job model is committed, with other checkpoints."""
    store, epoch, bases = begun(group)
    first = store.job_model()
    assert first is not None
    rewound = {task: replace(base, positions={group.ssps[task]: 3}) for task, base in bases.items()}
    with failing(store, times, committed=False):
        store.commit_job_model(epoch, first, list(rewound.values()), stored=bases)
    assert store.checkpoints() == rewound
    group.commit(rewound[A], 101, 1)


def test_a_grant_of_a_plan_whose_outcome_was_not_known_comes_into_force(group: Group) -> None:
    store, epoch, bases = without_a(group)
    with failing(store, 1, committed=True), lasting(), pytest.raises(UnavailableError):
        give_a_to_c(group, store, epoch, bases)
    store.heartbeat(epoch, 1)
    assert store.grants() == B_AND_C
    rounds = group.system.processor_store(group.name)
    rounds.begin(103, moved_to_c(group, bases)[0], "c")
    rounds.check_epoch(103)


@contextmanager
def lasting() -> Iterator[None]:
    """No transaction is tried again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "START_TRIES", 1)
        yield


@pytest.mark.parametrize("committed", [True, False])
def test_checkpoints_are_those_of_the_plan_in_force(group: Group, committed: bool) -> None:
    store, epoch, bases = without_a(group)
    model, moved = moved_to_c(group, bases)
    before = store.job_model()
    with failing(store, 1, committed=committed), lasting(), pytest.raises(UnavailableError):
        give_a_to_c(group, store, epoch, bases)
    assert store.checkpoints() == {A: moved if committed else bases[A], B: bases[B]}
    assert store.job_model() == (model if committed else before)


@pytest.mark.parametrize("committed", [True, False])
def test_a_heartbeat_carries_the_grants_that_are_stored(group: Group, committed: bool) -> None:
    store, epoch, _ = begun(group)
    with failing(store, 1, committed=committed), lasting(), pytest.raises(UnavailableError):
        store.write_grants(epoch, B_ALONE)
    store.heartbeat(epoch, 1)
    rounds = group.system.processor_store(group.name)
    rounds.begin(101, group.model(1, ("a", "b"), (1, 1)), "a")
    if committed:
        assert store.grants() == B_ALONE
        with pytest.raises(FencedError, match="grant 101 of this processor is not in force"):
            rounds.check_epoch(101)
    else:
        assert store.grants() == {**B_ALONE, "a": Grant(101, "1")}
        rounds.check_epoch(101)


@pytest.mark.parametrize("committed", [True, False])
def test_a_number_that_was_given_with_an_unknown_outcome_is_not_given_again(group: Group, committed: bool) -> None:
    store, epoch, bases = without_a(group)
    with failing(store, 1, committed=committed), lasting(), pytest.raises(UnavailableError):
        give_a_to_c(group, store, epoch, bases)
    assert store.numbers_used() == 103
    store.write_grants(epoch, B_ALONE)
    assert store.numbers_used() == 103
    assert group.leader().acquire(NEXT, 1, for_group=True) == 104


@pytest.mark.parametrize("committed", [True, False])
def test_an_epoch_whose_answer_was_lost_is_followed_by_one_of_the_same_driver(group: Group, committed: bool) -> None:
    begun(group)
    successor: Any = group.leader()
    with failing(successor, 1, committed=committed):
        epoch = successor.acquire(NEXT, 1, for_group=True)
    successor.heartbeat(epoch, 2)
    assert successor.grants() == {**B_ALONE, "a": Grant(101, "1")}
    assert successor.numbers_used() == epoch


def test_one_that_lost_its_id_to_no_other_driver_continues(group: Group) -> None:
    """A broker that ends a transaction at its timeout shuts its producer out; so does a driver that is killed as it starts."""
    store, epoch, bases = without_a(group)
    take_id(new_producer(group.system.client, coordinator_id(group.name), TIMEOUT_MS), 30.0)
    with pytest.raises(UnavailableError, match="a broker has ended the coordinator's transaction"):
        store.heartbeat(epoch, 1)
    store.heartbeat(epoch, 2)
    take_id(new_producer(group.system.client, coordinator_id(group.name), TIMEOUT_MS), 30.0)
    model = give_a_to_c(group, store, epoch, bases)
    assert store.job_model() == model and store.grants() == B_AND_C


@pytest.mark.parametrize(
    ("asleep", "refusal", "words"),
    [
        pytest.param("numbers_used", FencedError, "another driver has taken over", id="it has counted the epochs"),
        pytest.param("settle", JobHeldError, "is run by process 19 on host host-3", id="it comes to the higher epoch"),
    ],
)
def test_of_two_that_start_at_once_the_first_to_write_its_epoch_stays(
    group: Group, asleep: str, refusal: type[Exception], words: str
) -> None:
    """One has the coordinator's id, and sleeps; the other takes it, and starts meanwhile."""
    late: Any = group.leader()
    other, taken = group.leader(), list[int]()
    start = after_its_first_call(getattr(late._job, asleep), lambda: taken.append(other.acquire(ALONE, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late._job, asleep, start)
        with pytest.raises(refusal, match=words):
            late.acquire(FIRST, 1)
    other.heartbeat(taken[0], 2)
    holder = other.holder()
    assert holder is not None and holder.run_id == ALONE.run_id


def test_a_leader_that_could_not_start_beside_another_driver_leads_once_that_has_ended(group: Group) -> None:
    leader: Any = group.leader()
    other, taken = group.leader(), list[int]()

    def start_other() -> None:
        taken.append(other.acquire(ALONE, 1))

    with failing(leader, 1, committed=False, then=start_other), pytest.raises(JobHeldError):
        leader.acquire(FIRST, 1, for_group=True)
    with pytest.raises(JobHeldError):
        leader.acquire(FIRST, 2, for_group=True)
    other.release(other.acquire(ALONE, 3))  # it has planned again, and ends
    assert leader.acquire(FIRST, 4, for_group=True) > taken[0]


def test_a_driver_lives_though_one_who_put_back_dead_letters_was_killed(group: Group) -> None:
    """The transaction of the killed one is open, and the driver's heartbeats are behind it."""
    store = group.leader()
    epoch = store.acquire(FIRST, 0)
    killed = putting_back(group)
    store.heartbeat(epoch, LONG_AFTER_US)
    other = group.leader()
    assert other.holder() == replace(FIRST, heartbeat_us=LONG_AFTER_US)
    with pytest.raises(JobHeldError):
        other.check_not_leased(ALONE, LONG_AFTER_US + 1)
    with pytest.raises(JobHeldError):
        other.acquire(ALONE, LONG_AFTER_US + 1)
    store.heartbeat(epoch, LONG_AFTER_US + 2)
    killed.abort_transaction(10)


def test_the_next_leader_has_the_grants_that_were_committed_behind_an_open_transaction(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader is killed right behind its plan, which gives A to processor b, while one puts dead letters back."""
    store: Any
    store, epoch, bases = without_a(group)
    moved, grants = replace(bases[A], job_model_version=2), {"b": Grant(103, "2", former=102)}
    coordinator, opened = store._job.coordinator, list[Producer]()
    transact = coordinator.transact

    def behind_a_put_back(*given: Any) -> None:
        opened.append(putting_back(group))
        transact(*given)
        raise KeyboardInterrupt  # as it is killed

    monkeypatch.setattr(coordinator, "transact", behind_a_put_back)
    with pytest.raises(KeyboardInterrupt):
        store.commit_job_model(epoch, group.model(2, ("b", "b"), (2, 1)), [moved], stored=bases, grants=grants)
    threading.Timer(2.0, opened[0].abort_transaction, [10]).start()
    successor = group.leader()
    successor.acquire(ALONE, LONG_AFTER_US, for_group=True)
    assert successor.grants() == grants
    model = successor.job_model()
    assert model is not None and model.version == 2


def putting_back(group: Group) -> Producer:
    """One who puts dead letters back, and was killed: its transaction is open."""
    killed = new_producer(group.system.client, dead_letters_id(group.name), PUT_BACK_MS)
    take_id(killed, 30.0)
    killed.begin_transaction()
    killed.produce(metadata_topic(group.name), key=b"dead-letters/x", value=b"1", partition=0)
    assert killed.flush(10) == 0
    return killed


def test_a_driver_that_takes_its_id_again_sees_an_epoch_behind_an_open_transaction(group: Group) -> None:
    first: Any = group.leader()
    epoch = first.acquire(FIRST, 0)
    first._job.coordinator.close()  # as after a commit whose answer was lost
    second: Any = group.leader()
    open_, read = list[Producer](), first._job.metadata.refresh

    def ended(*, wait: bool = True, **options: Any) -> dict[bytes, bytes]:
        if wait:  # as it ends at its timeout, for who waits
            open_.pop().abort_transaction(30)
        found: dict[bytes, bytes] = read(wait=wait, **options)
        return found

    number = after_its_first_call(second._job.numbers_used, lambda: open_.append(putting_back(group)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(second._job, "numbers_used", number)
        patch.setattr(second._job, "read_back", lambda: None)  # it waits, as well
        patch.setattr(first._job.metadata, "refresh", ended)
        later = second.acquire(ALONE, LONG_AFTER_US)
        with pytest.raises(FencedError, match="another driver has taken over"):
            first.heartbeat(epoch, LONG_AFTER_US)
    assert open_ == []
    second.heartbeat(later, LONG_AFTER_US)  # it has its id still
