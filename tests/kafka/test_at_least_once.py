"""`processing_guarantee` = at_least_once on Kafka: outputs, then checkpoints, then positions, and no transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import headrace as hr
from headrace import wiring
from headrace.adapters.kafka import container_transaction
from headrace.adapters.kafka.container_transaction import FlushedLane
from headrace.errors import RoundFailedError
from headrace.testing import KafkaServer
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine


class World:
    def __init__(self, server: KafkaServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.url, self.name = f"kafka://{server.bootstrap}", f"alo-{uuid.uuid4().hex[:8]}"
        self.system = hr.open_system(self.url)
        self.system.create_stream(f"{self.name}-in", 2)

    def send(self, count: int) -> None:
        rows = [(b"k%d" % (i % 5), b"v") for i in range(count)]
        self.system.produce(f"{self.name}-in", rows)

    def run(self, guarantee: str = "at_least_once") -> dict[str, Any]:
        stores = str(self.folder / "stores")
        app = hr.App(self.name, self.url, local_store_dir=stores, processing_guarantee=guarantee, containers=2)
        rows = app.stream(f"{self.name}-in", key=hr.String())
        rows.to(f"{self.name}-copy")
        rows.group_by_key().count(store="counts").to_stream().to(f"{self.name}-counts", value=hr.Long())
        job = wiring.start(app, "caught-up", engine=InlineEngine(run_container))
        job.wait(60)
        found: dict[str, Any] = job.status()["sub_topologies"]["source"]
        return found

    def copies(self) -> int:
        return sum(1 for _ in self.system.consume(f"{self.name}-copy"))

    def counts(self) -> dict[str, int]:
        return {r.key: r.value for r in self.system.consume(f"{self.name}-counts", key=hr.String(), value=hr.Long())}

    def group(self) -> int:
        """The sum of the positions that lag tools see."""
        settings = {**self.server.client_settings(), "group.id": f"{self.name}.source"}
        consumer = Consumer(settings)
        try:
            return sum(p.offset for p in consumer.committed([TopicPartition(f"{self.name}-in", n) for n in range(2)], 30))
        finally:
            consumer.close()


@pytest.fixture
def world(kafka_server: KafkaServer, tmp_path: Path) -> Iterator[World]:
    made = World(kafka_server, tmp_path)
    yield made
    made.system.close()


def test_without_a_failure_nothing_is_doubled_and_no_transaction_is_made(world: World) -> None:
    world.send(50)
    world.run()
    assert world.copies() == 50
    assert world.counts() == {f"k{i}": 10 for i in range(5)}
    ends = world.system.end_offsets(f"{world.name}-copy")
    assert sum(ends.values()) == 50  # a transaction would have left its marker behind them
    assert world.group() == sum(world.system.end_offsets(f"{world.name}-in").values())
    world.send(5)
    assert world.run("exactly_once")["records"] > 0  # the other way goes on from there
    assert world.copies() == 55
    assert world.counts() == {f"k{i}": 11 for i in range(5)}


@pytest.mark.parametrize("step", ["its checkpoints", "its positions"])
def test_what_ends_between_outputs_and_positions_is_worked_off_again_with_state_exact(
    world: World, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(50)
    failed: list[str] = []
    flush, call = FlushedLane._flush, FlushedLane._call

    def break_once(self: Any, what: str) -> None:
        flush(self, what)
        if what == "its outputs" and step == "its checkpoints" and not failed:
            failed.append(what)
            raise RoundFailedError("the machine went down between outputs and checkpoints")

    def break_before_positions(self: Any, *arguments: Any) -> Any:
        if step == "its positions" and not failed:
            failed.append(step)
            raise RoundFailedError("the machine went down between checkpoints and positions")
        return call(self, *arguments)

    monkeypatch.setattr(FlushedLane, "_flush", break_once)
    monkeypatch.setattr(FlushedLane, "_call", break_before_positions)
    world.run()
    assert failed
    assert world.counts() == {f"k{i}": 10 for i in range(5)}
    if step == "its checkpoints":
        assert 50 < world.copies() <= 100
    else:
        assert world.copies() == 50  # the checkpoint counted: the record, and the group was put right from it
    assert world.group() == sum(world.system.end_offsets(f"{world.name}-in").values())


def test_an_attempt_of_an_older_epoch_writes_no_checkpoint(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It slept between its outputs and its checkpoint, while another driver took over."""
    world.send(10)
    epoch_of = container_transaction.committed_epoch
    calls: list[int] = []

    def taken_over(client: Any, application: str) -> int:
        calls.append(epoch_of(client, application))
        return calls[-1] + (len(calls) == 2)

    monkeypatch.setattr(container_transaction, "committed_epoch", taken_over)
    flushed: list[str] = []
    flush = FlushedLane._flush
    monkeypatch.setattr(FlushedLane, "_flush", lambda self, what: (flushed.append(what), flush(self, what))[1])
    world.run()
    assert flushed[0] == "its outputs"
    assert flushed[1] == "its outputs"  # the first attempt never came to its checkpoints
    assert world.counts() == {f"k{i}": 2 for i in range(5)}
