"""The header of a replay through Spark's own readers and workers, on both systems: behind Column expressions, and behind a
repartition stream of which nobody looks at anything but the keys."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from typing import Any

import pytest

import headrace as hr
from headrace.codec.documents import encode
from headrace.driver.rounds import round_planner
from headrace.model.startpoint import PositionType, Startpoint, StartpointEntry, StartpointKey, StartpointRequest
from headrace.model.streams import SSP
from support.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ORDER = hr.Json("shop string, amount bigint")


def marks(system: Any, stream: str) -> Counter[bytes | None]:
    """How many records of a stream carry which replay's number, and how many none."""
    return Counter(dict(record.headers).get("headrace.replay") for record in system.consume(stream))


def back_to(system: Any, application: str, stream: str, offset: int) -> None:
    at = Startpoint(PositionType.SPECIFIC_OFFSET, offset)
    key = StartpointKey(SSP(system.name, stream, 0))
    entry = StartpointEntry(uuid.uuid4().hex, key, at, "a test", time.time_ns() // 1000)
    system.metadata_store(application).request("startpoints", encode(StartpointRequest((entry,))))


def test_the_passes_of_two_rewinds_are_marked_through_spark(
    world: World, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in rounds of many records: on Kafka Spark reads the repartition stream too, and of it only what is looked at.
    monkeypatch.setattr(round_planner, "SMALL_ROUND_RECORDS", 0)
    monkeypatch.setattr(round_planner, "READER_RECORDS", 0)
    name, system = world.name, world.system
    app = world.app(spark=spark, containers=1, trigger_interval_ms=20)
    paid = app.stream(f"{name}-in", key=hr.String(), value=ORDER).filter("value.amount >= 0")
    paid.to(f"{name}-paid")
    shops = paid.group_by("value.shop", hr.Repartitioned(number_of_partitions=1)).count(store="n")
    shops.to_stream(emit="each").to(f"{name}-n")

    def write(first: int, count: int) -> None:
        orders = [{"shop": f"s{number % 3}", "amount": number} for number in range(first, first + count)]
        system.produce(f"{name}-in", [(order["shop"].encode(), json.dumps(order).encode()) for order in orders])

    def found() -> list[dict[bytes | None, int]]:
        app.start(until="caught-up").wait(200)
        return [dict(marks(system, f"{name}-{part}")) for part in ("paid", "n")]

    system.create_stream(f"{name}-in", 1)
    write(0, 12)
    assert found() == [{None: 12}] * 2
    back_to(system, name, f"{name}-in", 6)
    write(12, 3)
    first = found()
    assert first[0] == {None: 15, b"1": 6}
    # Behind a repartition stream what is new may be read in one round with what was read again, and is marked then.
    assert sum(first[1].values()) == 21
    assert 6 <= first[1][b"1"] <= 9
    back_to(system, name, f"{name}-in", 10)
    second = found()
    assert second[0] == {None: 15, b"1": 6, b"2": 5}
    assert second[1] == {**first[1], b"2": 5}
