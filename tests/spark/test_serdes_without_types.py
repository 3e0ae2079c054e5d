"""Spark expressions beside values of which Spark sees a part, or only the bytes."""

from __future__ import annotations

import dataclasses
import decimal
import uuid
from typing import Any

import pytest

import headrace as hr
from headrace.errors import TopologyError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
UUID_1 = uuid.UUID("6f1d9a52-0c5b-4f0e-9d3e-2f8f4a1c7b60")


@dataclasses.dataclass
class Order:
    a: int
    id: uuid.UUID
    price: decimal.Decimal
    either: int | str
    tags: frozenset[str] = frozenset()


@dataclasses.dataclass
class Odd:
    either: int | str


class Hidden(hr.OwnSerde[str]):
    """Bytes that are no UTF-8, and no Spark type."""

    form = "hidden"

    def encode(self, value: str) -> bytes:
        return b"\xff" + value.encode()

    def decode(self, data: bytes) -> str:
        return data[1:].decode()


ORDERS = [Order(n, UUID_1, decimal.Decimal(f"{n}.50"), "x" * n, frozenset({"t"})) for n in range(4)]


@pytest.mark.parametrize("make", [hr.Json, hr.MessagePack])
def test_expressions_see_the_fields_that_have_types_and_whole_values_go_on(world: Any, make: Any) -> None:
    serde = make(Order)
    world.produce([serde.encode(order) for order in ORDERS])
    app = world.app()
    some = app.stream("in", key=hr.String(), value=serde).filter(
        f"value.a > 0 and value.price < 3.00 and value.id = '{UUID_1}' and array_contains(value.tags, 't')"
    )
    some.to("some")
    some.map_values("value.price * 2").to("prices")
    some.map_values(lambda record: record.value.either, value=hr.String()).to("texts")
    world.run(app)
    assert sorted((record.value for record in world.read("some", serde)), key=lambda order: order.a) == ORDERS[1:3]
    assert sorted(world.values("texts", hr.String())) == ["x", "xx"]


def refused(world: Any, serde: Any, declare: Any) -> str:
    app = world.app()
    declare(app.stream("in", key=hr.String(), value=serde)).to("out")
    with pytest.raises(TopologyError) as raised:
        world.run(app)
    return str(raised.value)


def test_what_spark_does_not_see_is_named(world: Any) -> None:
    world.produce([hr.Json(Order).encode(ORDERS[0])])
    text = refused(world, hr.Json(Order), lambda orders: orders.filter("value.either > 1"))
    assert "'either' of Json(Order) is not seen by Spark: a union has no one type; use a function" in text
    text = refused(world, hr.Json(Order), lambda orders: orders.map_values("value", value=hr.Json(Order)))
    assert "use a function: Spark does not see its either" in text
    text = refused(world, hr.Json(Odd), lambda stream: stream.filter("value.either > 1"))
    assert "no field of Json(Odd) is seen by Spark: either: a union has no one type" in text
    text = refused(world, hr.Json(), lambda stream: stream.filter("value.a > 1"))
    assert "this value is JSON without a schema" in text
    text = refused(world, Hidden(), lambda stream: stream.filter("value.a > 1"))
    assert "the values of Hidden() have no one Spark type" in text


def test_an_own_serde_without_a_type_is_seen_as_bytes_and_not_written_by_expressions(world: Any) -> None:
    world.produce([Hidden().encode("a"), Hidden().encode("bcd")])
    text = refused(world, Hidden(), lambda stream: stream.map_values("value", value=Hidden()))
    assert "the serde that it declares, Hidden(), does not take that type" in text
    assert "use a function: it has no Spark type (`spark_type`)" in text
    app = world.app()
    hidden = app.stream("in", key=hr.String(), value=Hidden()).filter("length(value) > 2")
    hidden.to("kept")
    hidden.map_values("length(value)").to("lengths")
    world.run(app)
    assert world.values("kept", Hidden()) == ["bcd"]
    assert world.values("lengths", hr.Int()) == [4]
