"""A processor that sleeps in a transaction holds up no other of its group for longer than its leader allows: that leader may
be among those that wait, and it alone fences."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from headrace.adapters.kafka import compacted, stored_checkpoints
from headrace.adapters.kafka.names import checkpoint_topic
from headrace.codec.documents import encode
from headrace.core.group.grants import Grant
from headrace.errors import UnavailableError
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import CoordinatorStore
from kafka.test_grants import ALONE, LONG_AFTER_US, A, B, Group, begun, group, system

__all__ = ["group", "system"]  # fixtures
HELD_BACK = "can be read after"
LATER = {"b": Grant(102, "2"), "c": Grant(103, "3")}


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of these tests end after 60 s; where another bound holds, it is behind that."""
    monkeypatch.setattr(stored_checkpoints, "OTHERS_S", 1.0)
    monkeypatch.setattr(compacted, "READ_S", 1000.0)


def asleep(group: Group, base: Checkpoint) -> Callable[[], Checkpoint]:
    """The processor of `base` sleeps, with its checkpoint written and nothing committed; it commits when that is called."""
    attempt, made = group.attempt(base, 102, 1)
    attempt.begin()
    attempt.produce(checkpoint_topic(group.name), [(encode(made), str(made.task).encode(), 0, 0, None)])
    producer: Any = attempt._producer
    assert producer.flush(10) == 0

    def wakes() -> Checkpoint:
        group.finish(attempt, made)
        return made

    return wakes


def ready(group: Group) -> tuple[CoordinatorStore, dict[TaskName, Checkpoint], Callable[[], JobModel]]:
    """Task A is to go to processor c: the leader's store, the checkpoints, and what commits that plan."""
    store, epoch, bases = begun(group)
    store.write_grants(epoch, {"b": Grant(102, "2")})
    store.fence(epoch, {"source": [0]})
    model, moved = group.model(2, ("c", "b"), (2, 1)), replace(bases[A], job_model_version=2)

    def commit() -> JobModel:
        store.commit_job_model(epoch, model, [moved], stored=bases, grants=LATER)
        return model

    return store, {A: moved, B: bases[B]}, commit


def test_a_plan_is_not_committed_while_a_processor_sleeps(group: Group) -> None:
    store, checkpoints, commit = ready(group)
    wakes = asleep(group, checkpoints[B])
    before = store.job_model()
    with pytest.raises(UnavailableError, match=HELD_BACK):
        commit()
    assert store.job_model() == before and store.grants() == {"b": Grant(102, "2")}
    woken = wakes()
    assert commit() == store.job_model()
    assert store.checkpoints() == {**checkpoints, B: woken}


def test_one_that_falls_asleep_as_a_plan_is_committed_is_not_waited_for(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by the leader nor by who loads that plan: its checkpoints are behind what that one has open."""
    store, checkpoints, commit = ready(group)
    coordinator: Any = store
    real, sleeping = coordinator._job.coordinator.transact, list[Callable[[], Checkpoint]]()

    def transact(*args: Any) -> None:
        if not sleeping:
            sleeping.append(asleep(group, checkpoints[B]))
        real(*args)

    monkeypatch.setattr(coordinator._job.coordinator, "transact", transact)
    with pytest.raises(UnavailableError, match=HELD_BACK):
        commit()
    model = store.job_model()
    assert model is not None and model.version == 2 and store.grants() == LATER
    with pytest.raises(UnavailableError, match=HELD_BACK):
        group.leader().checkpoints()
    woken = sleeping[0]()
    assert store.checkpoints() == group.leader().checkpoints() == {**checkpoints, B: woken}


def test_a_processor_that_recovers_tries_again_while_another_sleeps(group: Group) -> None:
    _, _, bases = begun(group)
    wakes = asleep(group, bases[B])
    rounds = group.system.processor_store(group.name)
    rounds.begin(101, group.model(1, ("a", "b"), (1, 1)), "a")
    with pytest.raises(UnavailableError, match=HELD_BACK):
        rounds.recover(101, None)
    wakes()
    assert rounds.recover(101, None) == {A: bases[A]}


@pytest.fixture
def reading(group: Group) -> Iterator[CoordinatorStore]:
    """A leader's store, while another thread of its process reads checkpoints, and waits for one that sleeps."""
    store, _, bases = begun(group)
    wakes = asleep(group, bases[B])
    topic = group.system.checkpoint_reader(group.name)
    thread = threading.Thread(target=topic.refresh)
    thread.start()
    while not topic._lock.locked():
        pass
    yield store
    wakes()
    thread.join()


def test_a_leader_waits_no_longer_for_another_thread_that_waits(reading: CoordinatorStore) -> None:
    with pytest.raises(UnavailableError, match="another thread reads it"):
        reading.checkpoints()


def test_a_driver_waits_for_who_sleeps_as_none_but_it_is_there(group: Group) -> None:
    """Of one driver the transaction ends in time, and it fences before it reads."""
    _, _, bases = begun(group)
    wakes = asleep(group, bases[B])
    alone = group.leader()
    alone.acquire(ALONE, LONG_AFTER_US)
    waking = threading.Timer(2.0, wakes)
    waking.start()
    assert alone.checkpoints()[A] == bases[A]
    waking.join()
