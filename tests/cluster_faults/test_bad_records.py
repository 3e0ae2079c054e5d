"""Bad records of several inputs behind Spark expressions, on three machines whose executors die: each is dead-lettered once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import headrace as hr
from cluster.application import Sent, matched_of, streaks_of, windows_of
from cluster.conftest import Driver
from cluster.machines import until
from cluster_faults.conftest import MACHINES
from cluster_faults.machines import FaultyCluster
from cluster_faults.world import FIRST_MS, WAIT_S, source_of
from headrace.serdes.windowed import Windowed
from support.fixtures import only_on
from support.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300, func_only=True)]
Keys = Callable[..., dict[str, Any]]


def sent_of(draw: random.Random, count: int, field: str, first: int) -> Sent:
    """Records of which one in ten is no JSON, and one in ten has 0 in `field`."""
    found: Sent = []
    for number in range(first, first + count):
        value = b"no json" if draw.random() < 0.1 else {"id": number, field: draw.randrange(10)}
        found.append((f"k{draw.randrange(3_000)}", value, FIRST_MS + draw.randrange(60_000)))
    return found


class Mixed(World):
    """Two inputs with bad records among them."""

    def begin(self) -> None:
        for stream in ("orders", "payments", "windows", "matched", "streaks", "dead"):
            self.system.create_stream(self.stream(stream), 6)

    def send(self, stream: str, sent: Sent) -> None:
        values = [(key, value if isinstance(value, bytes) else json.dumps(value).encode(), at) for key, value, at in sent]
        self.produce_to(stream, [hr.Record(key, value, at * 1_000) for key, value, at in values], value=hr.Bytes())

    def dead_letters(self) -> Counter[tuple[bytes, ...]]:
        found: Counter[tuple[bytes, ...]] = Counter()
        for letter in self.read("dead", hr.Bytes()):
            headers = dict(letter.headers)
            assert letter.value == b"no json"
            found[tuple(headers[f"headrace.{part}"] for part in ("stream", "partition", "offset"))] += 1
        return found


WORLD, place = Mixed, only_on("kafka")


def explained(driver: Driver, world: Mixed, least: int) -> str:
    return f"{world.dead_letters().total()} of {least} dead letters: {driver.ask(status=True)}"


@pytest.mark.soak
def test_each_bad_record_is_dead_lettered_once(cluster: FaultyCluster, driver: Driver, world: Mixed, job_keys: Keys) -> None:
    """In small rounds and in large ones, whose rows cross machines; what Spark runs elsewhere declines."""
    draw = random.Random(26)
    orders: Sent = []
    payments: Sent = []
    world.begin()
    keys = job_keys(world.name, dead_letter_stream=world.stream("dead"), processor_return_wait_s=600.0)
    driver.ask(start="expressions", until=None, **keys)
    try:
        for count, victim in ((300, None), (12_000, MACHINES[1]), (300, MACHINES[2])):
            new = sent_of(draw, count, "amount", len(orders)), sent_of(draw, count, "paid", len(payments))
            world.send("orders", new[0])
            world.send("payments", new[1])
            orders, payments = orders + new[0], payments + new[1]
            if victim is not None:
                cluster.kill_executor(victim)
            bad = sum(value == b"no json" for _, value, _ in orders + payments)
            how = partial(explained, driver, world, bad)
            until(lambda least=bad: world.dead_letters().total() >= least, WAIT_S, how)
            if victim is None:
                until(lambda all_=bad: source_of(driver.ask(status=True))["counters"]["dead_letters"] == all_, WAIT_S, how)
        until(lambda: source_of(driver.ask(status=True))["lag"] == 0, WAIT_S)
    finally:
        status = driver.ask(stop=True)
    letters = world.dead_letters()
    assert len(letters) == letters.total() == bad
    # A container whose answer was lost after its commit is run once more, and finds that it has committed: it counts nothing.
    assert source_of(status)["counters"]["dead_letters"] <= bad
    windows = world.read("windows", hr.Long(), Windowed(hr.String()))
    assert {(one.key.key, one.key.start_us // 1_000): one.value for one in windows} == windows_of(orders)
    matched = [(one.key, one.value["order"], one.value["payment"]) for one in world.read("matched", hr.Json())]
    assert sorted(matched) == matched_of(orders, payments)
    assert sorted((one.key, one.value["count"]) for one in world.read("streaks", hr.Json())) == streaks_of(orders)
    assert status["job_model"] == 1
