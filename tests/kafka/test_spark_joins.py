"""A global table in Spark's own workers, on both systems: every container has all of it, whatever Spark task it runs in."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from support.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ORDER = hr.Json("shop string, amount bigint")
SHOPS = {f"s{number}": number * 10 for number in range(5)}


def total(order: dict[str, Any], rate: int | None) -> int:
    return -1 if rate is None else order["amount"] * rate


def test_every_container_has_a_global_table_whole(world: World, spark: Any) -> None:
    name, system = world.name, world.system
    app = world.app(spark=spark, containers=3, trigger_interval_ms=20)
    orders = app.stream(f"{name}-orders", key=hr.String(), value=ORDER).filter("value.amount > 0")
    rates = app.global_table(f"{name}-rates", key=hr.String(), value=hr.Long(), store="rates")
    orders.left_join(rates, total, key=lambda r: r.value["shop"], value=hr.Long()).to(f"{name}-out")
    system.create_stream(f"{name}-orders", 4)
    system.create_stream(f"{name}-rates", 2)
    system.produce(f"{name}-rates", [hr.Record(s, r, 1_000) for s, r in SHOPS.items()], key=hr.String(), value=hr.Long())
    sent = [{"shop": f"s{number % 6}", "amount": number} for number in range(60)]
    records = [hr.Record(str(order["amount"]).encode(), json.dumps(order).encode(), 2_000) for order in sent]
    system.produce(f"{name}-orders", records)
    app.start(until="caught-up").wait(200)
    found = {r.key: r.value for r in system.consume(f"{name}-out", key=hr.String(), value=hr.Long())}
    written = sum(1 for _ in system.consume(f"{name}-out"))
    assert found == {str(o["amount"]): total(o, SHOPS.get(o["shop"])) for o in sent if o["amount"] > 0}
    assert written == 59
    assert {entry.value for entry in app.state("rates").entries("s3")} == {30}
