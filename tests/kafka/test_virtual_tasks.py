"""Virtual tasks on Spark, on both systems: behind expressions that change keys, beside plain readers, over restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, TopicPartition

import headrace as hr
from headrace.driver.rounds import round_planner
from kafka.clients import QUIET, WAIT_S
from support import broker
from support.world import Place, World, caught_up_on_spark, waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
KEYS = [f"k{number}" for number in range(12)]


class Elastic(World):
    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {"trigger_interval_ms": 20, "elasticity_factor": 4, "dead_letter_stream": "dead"}

    def __init__(self, folder: Path, place: Place, spark: Any) -> None:
        super().__init__(folder, place)
        self.spark, self.sent = spark, 0

    def application(self) -> hr.App:
        app = self.app(self.name, self.spark, dead_letter_stream=self.stream("dead"))
        rows = app.stream(self.stream("in"), key=hr.String(), value=hr.Json("n int"))
        even = rows.filter("value.n % 2 = 0").select_key("concat('g', value.n % 7)")
        even.to(self.stream("even"))
        even.group_by_key().count(store="groups").to_stream().to(self.stream("groups"), value=hr.Long())
        rows.filter("value.n % 2 = 1").map_values("value.n * 10").to(self.stream("odd"))
        rows.group_by_key().count(store="counts").to_stream().to(self.stream("counts"), value=hr.Long())
        return app

    def send(self, count: int) -> None:
        records = []
        for number in range(self.sent, self.sent + count):
            value = b"{no json" if number % 20 == 13 else json.dumps({"n": number}).encode()
            records.append((KEYS[number % len(KEYS)].encode() if number % 25 else None, value))
        self.sent += count
        self.system.produce(self.stream("in"), records)

    def rows(self, part: str, value: Any = None) -> list[tuple[Any, Any]]:
        if self.place.servers:
            waited(lambda: not broker.is_in_transaction(self.settings, [self.stream(part)]))
        return [(r.key, r.value) for r in self.system.consume(self.stream(part), key=hr.String(), value=value or hr.Json())]


@pytest.fixture(params=["log", "kafka"])
def world(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Iterator[Elastic]:
    place = request.getfixturevalue("on_kafka") if request.param == "kafka" else Place()
    with Elastic(tmp_path, place, spark) as made:
        yield made


@pytest.mark.parametrize("is_by_spark", [True, False])
def test_every_record_is_worked_by_one_virtual_task(world: Elastic, is_by_spark: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_by_spark:
        monkeypatch.setattr(round_planner, "is_small_round", lambda records, few: False)
    for _ in range(2):
        world.send(200)
        caught_up_on_spark(world.application())
    sent = [number for number in range(world.sent) if number % 20 != 13]
    even, keyed = [n for n in sent if n % 2 == 0], [n for n in sent if n % 25]
    found = [(key, value["n"]) for key, value in world.rows("even")]
    assert Counter(found) == Counter((f"g{n % 7}", n) for n in even)
    assert Counter(value for _, value in world.rows("odd", hr.Int())) == Counter(n * 10 for n in sent if n % 2)
    assert dict(world.rows("groups", hr.Long())) == Counter(f"g{n % 7}" for n in even)
    assert dict(world.rows("counts", hr.Long())) == Counter(KEYS[n % len(KEYS)] for n in keyed)
    assert len(world.rows("dead", hr.Bytes())) == world.sent // 20
    if world.place.servers:
        stored = broker.checkpoints_of(world.settings, world.name)
        mine = {task: set(one["positions"]) for task, one in stored.items() if task.startswith("Partition")}
        stream = world.stream("in")
        assert mine == {f"Partition_{p}-{b}-4": {f"kafka.{stream}.{p}/{b}"} for p in range(2) for b in range(4)}
        ends = [one.offset for one in committed(world, "source")]
        assert ends == [stored[f"Partition_{p}-0-4"]["positions"][f"kafka.{stream}.{p}/0"] for p in range(2)]
        assert all(one.offset < 0 for task in mine for one in committed(world, f"source.{task}")), "a group per virtual task"


def committed(world: Elastic, group: str) -> list[TopicPartition]:
    consumer = Consumer({**world.settings, **QUIET, "group.id": f"{world.name}.{group}"})
    try:
        wanted = [TopicPartition(world.stream("in"), partition) for partition in range(2)]
        found: list[TopicPartition] = consumer.committed(wanted, timeout=WAIT_S)
        return found
    finally:
        consumer.close()
