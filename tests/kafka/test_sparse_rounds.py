"""Rounds in which containers have something of some streams and nothing of others, with and without expressions, in random
shapes: each record comes out of each of its operators once, and each bad one is a dead letter once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer

import headrace as hr
from headrace.adapters.spark.engine import SparkEngine
from headrace.core.rounds.offset_ranges import spark_tasks_of
from headrace.driver.rounds import round_planner
from kafka.clients import QUIET, WAIT_S
from support.world import Place, World, caught_up_on_spark, waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
VALUE = "n int, s string"
BAD = b"no json"
# How a stream becomes `to`: what is given its rows, and which numbers come through.
CHAINS: dict[str, tuple[Callable[[Any], Any], Callable[[int], bool]]] = {
    "expression": (lambda rows: rows.filter("value.n % 3 != 0"), lambda n: n % 3 != 0),
    "function": (lambda rows: rows.filter(lambda r: r.value["n"] % 3 != 0), lambda n: n % 3 != 0),
    "both": (lambda rows: rows.filter("value.n > 1").filter(lambda r: r.value["n"] % 3 != 0), lambda n: n > 1 and n % 3 != 0),
    "transform": (lambda rows: rows.transform(lambda df: df.where("value.n > 2")), lambda n: n > 2),
    "nothing": (lambda rows: rows.filter("value.n < 0"), lambda n: False),
    "never": (lambda rows: rows.filter("1 = 0"), lambda n: False),
}


class Sparse(World):
    """Streams `a`, `b`, ... of random partitions, each behind one or two chains, and a count of all that is read."""

    KEYS: ClassVar = {"trigger_interval_ms": 5}

    def __init__(self, folder: Path, place: Place, spark: Any, seed: int) -> None:
        super().__init__(folder, place)
        self.spark, self.draw = spark, random.Random(seed)
        draw = self.draw
        self.partitions = {self.stream(name): draw.choice([2, 4]) for name in "abc"[: draw.randint(2, 3)]}
        self.chains = {stream: draw.sample(sorted(CHAINS), draw.randint(1, 2)) for stream in self.partitions}
        self.keys = {"containers": draw.randint(2, 4), "elasticity_factor": draw.choice([1, 1, 2, 4])}
        self.outputs = {f"{stream}-{chain}" for stream, chains in self.chains.items() for chain in chains}
        for stream in self.partitions:
            self.system.create_stream(stream, self.partitions[stream])
        self.expected, self.bad = {output: Counter[str]() for output in self.outputs}, Counter[tuple[str, int]]()

    def send(self, turn: int) -> None:
        """A few records into some partitions of some streams."""
        draw, producer = self.draw, Producer({**self.settings, **QUIET})
        for stream, count in self.partitions.items():
            for partition in draw.sample(range(count), draw.choice([0, 1, 1, count])):
                for _ in range(draw.randint(1, 8)):
                    n, key = draw.randrange(10), f"{turn}-{draw.randrange(1 << 40)}"
                    is_bad = draw.random() < 0.15
                    producer.produce(stream, BAD if is_bad else json.dumps({"n": n, "s": key}).encode(), key, partition)
                    if is_bad:
                        self.bad[key, partition] += 1
                        continue
                    for chain in self.chains[stream]:
                        self.expected[f"{stream}-{chain}"][key] += CHAINS[chain][1](n)
        assert producer.flush(WAIT_S) == 0

    def made(self) -> hr.App:
        app = self.app(self.name, self.spark, dead_letter_stream=self.stream("dead"), **self.keys)
        for stream, chains in self.chains.items():
            rows = app.stream(stream, key=hr.String(), value=hr.Json(VALUE))
            for chain in chains:
                CHAINS[chain][0](rows).to(f"{stream}-{chain}")
        return app

    def found(self, output: str) -> Counter[str]:
        return Counter(record.key for record in self.system.consume(output, key=hr.String()))


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small rounds are several Spark tasks too, and Spark reads them."""
    monkeypatch.setattr(round_planner, "is_small_round", lambda records, few: False)
    monkeypatch.setattr(round_planner, "spark_tasks_of", partial(spark_tasks_of, small_round_records=0))
    monkeypatch.setattr(SparkEngine, "slots", property(lambda engine: 3))


@pytest.fixture
def world(request: pytest.FixtureRequest, on_kafka: Place, spark: Any, tmp_path: Path) -> Iterator[Sparse]:
    with Sparse(tmp_path, on_kafka, spark, request.param) as made:
        yield made


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, *range(2, 60)))]


@pytest.mark.parametrize("world", SEEDS, indirect=True)
def test_each_record_comes_out_of_each_operator_once(world: Sparse, spread: None) -> None:
    for turn in range(4):
        world.send(turn)
        caught_up_on_spark(world.made())
        for output in world.outputs:
            want = +world.expected[output]
            waited(lambda output=output, want=want: world.found(output) == want, wait_s=10.0, otherwise=f"{turn}: {output}")
        dead = world.system.consume(world.stream("dead"), key=hr.String()) if world.bad else []
        assert Counter((r.key, int(dict(r.headers)["headrace.partition"])) for r in dead) == world.bad, turn
