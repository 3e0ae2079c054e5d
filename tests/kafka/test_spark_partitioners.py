"""Partitioners behind Spark expressions, in Spark's own workers, on both systems."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.core.keys.hashing import partition_of
from support.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ORDER = hr.Json("shop string, amount bigint")
ORDERS = [{"shop": f"s{i % 5}", "amount": i - 3} for i in range(50)]


def by_amount(record: hr.Record, partitions: int) -> int | list[int] | None:
    if record.value["amount"] % 4 == 0:
        return None if record.value["amount"] % 8 == 0 else []
    return [0, 1, 0] if record.value["amount"] % 7 == 0 else record.value["amount"] % partitions


@hr.batch
def of_shop(batch: pa.RecordBatch, partitions: int) -> pa.Array:
    """The number in the name of the shop, which is the key by then; shop s4 goes by its key."""
    number = pc.cast(pc.utf8_slice_codeunits(batch.column("key"), 1), pa.int64())
    return pc.if_else(pc.equal(number, 4), None, pc.subtract(number, pc.multiply(pc.divide(number, partitions), partitions)))


def test_records_that_come_out_of_sparks_engine(world: World, spark: Any) -> None:
    name, system = world.name, world.system
    app = world.app(spark=spark, containers=1, trigger_interval_ms=20)
    paid = app.stream(f"{name}-in", key=hr.String(), value=ORDER).filter("value.amount > 0")
    again = paid.repartition("value.shop", hr.Repartitioned(name="again", number_of_partitions=3, partitioner=by_amount))
    again.map_values(lambda r: [r.partition, r.value["amount"]], value=hr.Json()).to(f"{name}-again")
    grouped = paid.group_by("value.shop", hr.Repartitioned(number_of_partitions=3, partitioner=of_shop))
    grouped.aggregate(n=hr.count(), place=hr.max("partition"), store="n").to(f"{name}-n")
    system.create_stream(f"{name}-in", 2)
    system.produce(f"{name}-in", [(order["shop"].encode(), json.dumps(order).encode()) for order in ORDERS])
    app.start(until="caught-up").wait(200)
    found = [(r.key, *r.value) for r in system.consume(f"{name}-again", key=hr.String(), value=hr.Json())]
    counts = {r.key: r.value for r in system.consume(f"{name}-n", key=hr.String(), value=hr.Json())}
    assert Counter(found) == Counter(
        (order["shop"], p, order["amount"]) for order in ORDERS if order["amount"] > 0 for p in chosen(order)
    )
    shops = Counter(order["shop"] for order in ORDERS if order["amount"] > 0)
    places = [0, 1, 2, 0, partition_of(key_of("s4"), 3)]
    assert counts == {f"s{i}": {"n": shops[f"s{i}"], "place": places[i]} for i in range(5)}


def chosen(order: dict[str, Any]) -> set[int]:
    given = by_amount(hr.Record(value=order), 3)
    if given is None:
        return {partition_of(key_of(order["shop"]), 3)}
    return {given} if isinstance(given, int) else set(given)


def key_of(shop: str) -> bytes:
    """The bytes of a key that is a Spark string."""
    return shop.encode()
