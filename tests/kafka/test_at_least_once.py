"""`processing_guarantee` = at_least_once on Kafka: outputs, then checkpoints, then positions, and no transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import headrace as hr
from headrace.adapters.kafka import container_transaction
from headrace.adapters.kafka.container_transaction import FlushedLane
from headrace.core.group.grants import InForce
from headrace.errors import RoundFailedError
from support import broker
from support.fixtures import only_on
from support.world import World, source_of


class Counting(World):
    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {"containers": 2}

    def send(self, count: int) -> None:
        self.system.produce(self.stream("in"), [(b"k%d" % (i % 5), b"v") for i in range(count)])

    def run(self, guarantee: str = "at_least_once") -> dict[str, Any]:
        app = self.app(processing_guarantee=guarantee)
        rows = app.stream(self.stream("in"), key=hr.String())
        rows.to(self.stream("copy"))
        rows.group_by_key().count(store="counts").to_stream().to(self.stream("counts"), value=hr.Long())
        return source_of(super().run(app))

    def copies(self) -> int:
        return len(self.read("copy", hr.Bytes()))

    def counts(self) -> dict[str, int]:
        return {r.key: r.value for r in self.read("counts")}

    def group(self) -> int:
        """The sum of the positions that lag tools see."""
        settings = {**self.settings, "group.id": f"{self.name}.source"}
        consumer = Consumer(settings)
        try:
            return sum(p.offset for p in consumer.committed([TopicPartition(f"{self.name}-in", n) for n in range(2)], 30))
        finally:
            consumer.close()


WORLD, place = Counting, only_on("kafka")


def test_without_a_failure_nothing_is_doubled_and_no_transaction_is_made(world: Counting) -> None:
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
    world: Counting, step: str, monkeypatch: pytest.MonkeyPatch
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


def test_state_is_exact_through_changes_of_the_factor_whose_first_rounds_end_halfway(
    world: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing: list[str] = []
    flush = FlushedLane._flush

    def break_once(self: Any, what: str) -> None:
        flush(self, what)
        if what == "its outputs" and failing:
            raise RoundFailedError(failing.pop())

    monkeypatch.setattr(FlushedLane, "_flush", break_once)
    for number, factor in enumerate((1, 8, 2, 1), start=1):
        if number > 1:
            with hr.elasticity(world.name, world.url) as scales:
                scales.set(factor)
        world.send(50)
        failing.append("the machine went down between outputs and checkpoints")
        world.run()
        assert not failing
        assert world.counts() == {f"k{i}": 10 * number for i in range(5)}
        assert 50 * number < world.copies()
        names = {task.rpartition("/")[2] for task in world.checkpoints()}
        assert {int(parts[2]) if len(parts := name.split("-")) == 3 else 1 for name in names} == {factor}


def test_an_attempt_of_an_older_epoch_writes_no_checkpoint(world: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """It slept between its outputs and its checkpoint, while another driver took over."""
    world.send(10)
    epoch_of = container_transaction.committed_in_force
    calls: list[InForce] = []

    def taken_over(client: Any, application: str) -> InForce:
        calls.append(epoch_of(client, application))
        return replace(calls[-1], epoch=calls[-1].epoch + (len(calls) == 2))

    monkeypatch.setattr(container_transaction, "committed_in_force", taken_over)
    flushed: list[str] = []
    flush = FlushedLane._flush
    monkeypatch.setattr(FlushedLane, "_flush", lambda self, what: (flushed.append(what), flush(self, what))[1])
    world.run()
    assert flushed[0] == "its outputs"
    assert flushed[1] == "its outputs"  # the first attempt never came to its checkpoints
    assert world.counts() == {f"k{i}": 2 for i in range(5)}


def test_what_an_attempt_of_an_older_plan_writes_late_takes_no_checkpoints_place(world: Counting) -> None:
    """It sleeps between its look at the epoch and its checkpoints, while plans follow that have its task again."""
    world.send(20)
    world.run()
    before = [row for row in broker.read_topic(world.settings, f"{world.name}-checkpoints") if row["value"] is not None]
    for factor in (2, 1):
        with hr.elasticity(world.name, world.url) as scales:
            scales.set(factor)
        world.run()
        world.send(20)
    world.run()
    producer = Producer(world.settings)
    for row in before:
        producer.produce(f"{world.name}-checkpoints", key=row["key"], value=row["value"], partition=0)
    assert producer.flush(30) == 0
    world.send(20)
    world.run()
    assert world.counts() == {f"k{i}": 16 for i in range(5)}
