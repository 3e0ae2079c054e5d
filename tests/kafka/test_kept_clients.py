"""How many Kafka clients a process makes and keeps: each is several threads and a broker's connections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

import headrace as hr
from headrace.adapters.kafka import container_transaction
from headrace.adapters.kafka.application_topics import ApplicationTopics
from headrace.adapters.kafka.clients import process_token
from headrace.adapters.kafka.container_transaction import FlushedLane, Lane, LaneTransaction
from headrace.errors import RoundFailedError
from headrace.model.checkpoint import RoundId
from kafka.test_grants import A, Group, begun, group, system
from support.fixtures import only_on
from support.world import World, drop_kept_clients, waited

__all__ = ["group", "system"]  # fixtures
pytestmark = pytest.mark.kafka
WORLD, place = World, only_on("kafka")
ROUNDS = 5


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What is left to the garbage stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def clients() -> int:
    """The librdkafka clients of this process, by the names of their threads."""
    threads = Path("/proc/self/task")
    names = []
    for thread in threads.iterdir():
        try:
            names.append((thread / "comm").read_text().strip())
        except OSError:
            continue  # it has just ended
    return names.count("rdk:main")


def counting(app: hr.App, world: World) -> hr.App:
    rows = app.stream(world.stream("in"), key=hr.String(), value=hr.Long())
    rows.group_by_key().count(store="counts").to_stream().to(world.stream("out"))
    return app


def filled(world: World) -> None:
    world.system.create_stream(world.stream("in"), 2)
    world.system.create_stream(world.stream("out"), 1)
    world.produce_to("in", [(f"k{number}", number) for number in range(20 * ROUNDS)])


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(("guarantee", "producers"), [("exactly_once", 2), ("at_least_once", 1)])
def test_producers_are_kept_from_one_round_to_the_next(
    world: World, guarantee: str, producers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a container its own one, for its transactions; without them they share the one of their process."""
    made = []
    make = container_transaction.new_producer

    def noted(*arguments: Any) -> Any:
        made.append(arguments)
        return make(*arguments)

    monkeypatch.setattr(container_transaction, "new_producer", noted)
    filled(world)
    job = world.run(counting(world.app(processing_guarantee=guarantee, max_records_per_round=20), world))
    assert job.status()["sub_topologies"]["source"]["round"] >= ROUNDS
    assert len(made) == producers


@pytest.mark.usefixtures("uncollected")
def test_a_job_that_has_ended_leaves_no_client_but_those_that_its_workers_keep(world: World) -> None:
    filled(world)
    before = clients()
    world.run(counting(world.app(), world))
    drop_kept_clients()
    waited(lambda: clients() <= before, wait_s=10, otherwise=f"{clients()} clients, {before} before")


@pytest.mark.usefixtures("uncollected")
def test_what_looks_at_a_job_leaves_no_client(world: World) -> None:
    filled(world)
    world.run(counting(world.app(), world))
    before = clients()
    for _ in range(2):
        with hr.elasticity(world.name, world.url) as scales:
            scales.set(2)
            scales.scales()
        with hr.startpoints(world.name, world.url) as points:
            assert points.list() == ()
    waited(lambda: clients() <= before, wait_s=10, otherwise=f"{clients()} clients, {before} before")


@pytest.mark.usefixtures("uncollected")
def test_requests_are_written_by_one_producer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(world)
    world.run(counting(world.app(), world))
    made = []
    make = ApplicationTopics._new_producer
    monkeypatch.setattr(ApplicationTopics, "_new_producer", lambda own: made.append(1) or make(own))
    with hr.elasticity(world.name, world.url) as scales:
        for factor in (2, 4, 8):
            scales.set(factor)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("kind", "refused"),
    [(LaneTransaction, nullcontext()), (FlushedLane, pytest.raises(RoundFailedError, match="in the midst of"))],
)
def test_a_kept_producer_that_has_failed_is_dropped_by_the_transaction_that_it_fails_in(
    kind: Any, refused: Any, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the one that it was made for, which has ended: librdkafka reports an error once."""
    drop_kept_clients()
    reports: list[list[KafkaError]] = []
    make = container_transaction.new_producer

    def noted(client: Any, id_: str | None, timeout_ms: int, errors: list[KafkaError]) -> Any:
        reports.append(errors)
        return make(client, id_, timeout_ms, errors)

    monkeypatch.setattr(container_transaction, "new_producer", noted)
    base = begun(group)[2][A]
    for number, is_kept in ((1, True), (2, True), (3, False)):
        made = group.checkpoint(A, RoundId(101, None, number), 1, number)
        lane = Lane(group.name, "source", 0, 101, str(made.round_id), group.system.client, 60_000, process_token())
        transaction = kind(lane)
        transaction.check(group._positions(base))
        transaction.begin()
        if is_kept:
            group.finish(transaction, made)
        else:
            reports[0].append(KafkaError(KafkaError._FATAL, "as it says of itself in the midst of a transaction"))
            with refused:
                group.finish(transaction, made)
        base = made
        assert (len(reports), bool(container_transaction._producers._clients)) == (1, is_kept)
