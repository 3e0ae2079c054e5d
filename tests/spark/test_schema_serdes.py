"""Spark expressions on the fields of Avro, Protobuf and JSON Schema."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import api_pb2

import headrace as hr

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "double"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "sizes", "type": {"type": "map", "values": "long"}, "default": {}},
    ],
}
PRICES = [("ua", 20.0, Decimal("2.50")), ("aa", 5.0, Decimal("1.00")), ("dl", None, Decimal("1.00"))]


def test_expressions_reach_the_fields_of_avro_and_whole_records_go_on(world: Any) -> None:
    serde = hr.Avro(FLIGHT)
    flights = [{"carrier": c, "delay": d, "price": p, "sizes": {"a": 1}} for c, d, p in PRICES]
    world.produce([serde.encode(flight) for flight in flights])
    app = world.app()
    late = app.stream("in", key=hr.String(), value=serde).filter("value.delay > 10 and value.price < 3.00")
    late.to("late")
    late.map_values("upper(value.carrier)").to("carriers")
    world.run(app)
    assert [r.value for r in world.read("late", serde)] == [flights[0]]
    assert world.values("carriers", hr.String()) == ["UA"]


def test_expressions_reach_the_fields_of_messages_and_of_json(world: Any) -> None:
    message = hr.Protobuf(api_pb2.Method)
    checked = hr.JsonSchema({"type": "object", "properties": {"n": {"type": "integer"}, "free": {}}, "required": ["n"]})
    world.system.create_stream("json", 1)
    world.produce([message.encode({"name": name, "syntax": "SYNTAX_PROTO3"}) for name in ("get", "put")])
    world.produce([checked.encode({"n": n, "free": [n]}) for n in (1, 2)], "json")
    app = world.app()
    app.stream("in", key=hr.String(), value=message).filter("value.name = 'put'").map_values("value.syntax").to("syntax")
    big = app.stream("json", key=hr.String(), value=checked).filter("value.n > 1")
    big.map_values("get_json_object(value.free, '$[0]')").to("free")
    world.run(app)
    assert world.values("syntax", hr.String()) == ["SYNTAX_PROTO3"]
    assert world.values("free", hr.String()) == ["2"]
