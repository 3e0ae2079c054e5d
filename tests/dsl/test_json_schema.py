"""`JsonSchema`: its types, what it refuses, open parts as text, and a job."""

from __future__ import annotations

import json
import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SchemaError, SerdeError, SetupError
from headrace.testing import Driver

ORDER: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["new", "old"]},
        "at": {"type": "string", "format": "date-time"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
        "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
        "inner": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
        "free": {},
    },
    "required": ["id", "price"],
    "additionalProperties": False,
    "$defs": {
        "Tag": {"type": "string", "minLength": 1},
        "Inner": {"type": "object", "properties": {"x": {"type": "boolean"}}},
    },
}
SERDE = hr.JsonSchema(ORDER)
TYPE = (
    "struct<id:bigint,kind:string,at:timestamp,price:double,tags:array<string>,sizes:map<string,bigint>,"
    "inner:struct<x:boolean>,free:string>"
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**63 - 1),
        "kind": st.sampled_from([None, "new", "old"]),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.none() | st.lists(TEXTS.filter(bool), max_size=3),
        "sizes": st.none() | st.dictionaries(TEXTS, st.integers(-(2**63), 2**63 - 1), max_size=3),
        "inner": st.none() | st.fixed_dictionaries({"x": st.none() | st.booleans()}),
        "free": st.sampled_from([None, "1", '"a"', '{"a":[1,null],"b":{}}']),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ORDERS, min_size=1, max_size=3))
def test_values_come_back_and_their_json_is_valid(orders: list[dict[str, Any]]) -> None:
    encoded, failures = SERDE.encode_many([*orders, None])
    assert failures == []
    for data in encoded.to_pylist()[:-1]:
        jsonschema.validate(json.loads(data), ORDER)
    assert SERDE.decode_many(encoded) == ([*orders, None], [])
    typed, failures = SERDE.decode_arrow(encoded)
    assert failures == []
    assert SERDE.encode_arrow(typed)[0].to_pylist() == encoded.to_pylist()


def test_it_says_its_type_and_form(tmp_path: Path) -> None:
    assert SERDE.spark_type == TYPE
    assert SERDE.form.startswith("json-schema<Order#")
    assert repr(SERDE) == "JsonSchema('Order')"
    assert pickle.loads(pickle.dumps(SERDE)) == SERDE
    file = tmp_path / "order.json"
    file.write_text(json.dumps(ORDER))
    assert hr.JsonSchema(file) == hr.JsonSchema(str(file)) == SERDE
    assert hr.JsonSchema(ORDER | {"required": []}).form != SERDE.form


def test_absent_and_null_are_kept_apart_as_the_schema_has_them() -> None:
    """`price` is required and may be null; `at` may be absent and never null."""
    assert SERDE.encode({"id": 1}) == b'{"id":1,"price":null,"inner":null}'
    assert SERDE.decode(b'{"id":1,"price":null}')["at"] is None
    with pytest.raises(SerdeError, match=r"\$\.at"):
        SERDE.decode(b'{"id":1,"price":null,"at":null}')


def test_an_open_part_takes_any_value_and_gives_text() -> None:
    data = SERDE.encode({"id": 1, "free": {"b": 1, "a": [True]}})
    assert json.loads(data)["free"] == {"a": [True], "b": 1}
    assert SERDE.decode(data)["free"] == '{"a":[true],"b":1}'
    assert SERDE.encode(SERDE.decode(data)) == data
    with pytest.raises(SerdeError, match="takes JSON text"):
        SERDE.encode({"id": 1, "free": "no json"})


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "patternProperties": {"^x": {}}},
    ],
)
def test_what_is_open_as_a_whole_is_text(schema: Any) -> None:
    serde = hr.JsonSchema(schema)
    assert serde.spark_type == "string"
    value = "{}" if isinstance(schema, dict) and "type" in schema else '"a"'
    assert serde.decode(serde.encode(value)) == value


def test_a_type_that_holds_itself_is_text_inside() -> None:
    tree = hr.JsonSchema({"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}})
    assert tree.spark_type == "struct<n:bigint,next:string>"
    assert tree.decode(tree.encode({"n": 1, "next": {"n": 2}})) == {"n": 1, "next": '{"n":2}'}
    with pytest.raises(SerdeError, match=r"\$\.next\.n"):
        tree.encode({"next": {"n": "x"}})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "json-schema Order"),
        (b"\xff", "utf-8"),
        (b"{}", "'id' is a required property"),
        (b'{"id":-1,"price":1}', r"\$\.id: -1 is less than"),
        (b'{"id":1,"price":1,"tags":["a",""]}', r"\$\.tags\[1\]"),
        (b'{"id":1,"price":1,"more":1}', "more"),
        (b'{"id":1,"price":1,"at":"soon"}', "at"),
        (b'{"id":1,"price":1} 2', "json-schema Order"),
    ],
)
def test_bytes_that_the_schema_refuses_are_failures_of_their_own(data: bytes, said: str) -> None:
    good = SERDE.encode({"id": 1})
    for decode in (SERDE.decode_many, SERDE.decode_arrow):
        values, failures = decode(pa.array([good, data, None]))
        assert [index for index, _ in failures] == [1]
        assert len(values) == 3
        with pytest.raises(SerdeError, match=said):
            raise failures[0][1]


def test_values_that_the_schema_refuses_are_not_written() -> None:
    values = [{"id": 1}, {"id": -1}, {"id": 1, "kind": "lost"}, {"id": 1, "more": 2}, {"id": "1"}, 5]
    encoded, failures = SERDE.encode_many(values)
    assert [index for index, _ in failures] == [1, 2, 3, 4, 5]
    assert all(isinstance(error, SerdeError) for _, error in failures)
    assert encoded.is_valid().to_pylist() == [True] + [False] * 5


def test_nothing_is_fetched_from_elsewhere() -> None:
    serde = hr.JsonSchema({"$ref": "http://127.0.0.1:9/other.json"})
    with pytest.raises(SerdeError, match="which is not in it"):
        serde.decode(b"1")


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "#/gone"}, "{", "no-such-file.json", 3])
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="json-schema"):
        hr.JsonSchema(schema)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(SetupError, match=r"needs the package jsonschema[\s\S]*headrace\[jsonschema\]"):
        hr.JsonSchema({"title": "not seen before"})


def test_a_job_reads_and_writes_it() -> None:
    app = hr.App("shop")
    orders = app.stream("orders", key=hr.String(), value=SERDE)
    orders.map_values(lambda r: r.value | {"kind": "old"}, value=SERDE).to("out")
    with Driver(app) as d:
        d.send("orders", "k", {"id": 1, "at": datetime(2026, 2, 3, tzinfo=UTC)})
        d.run()
        (out,) = d.read("out", value=hr.Bytes())
    assert out.value == b'{"id":1,"kind":"old","at":"2026-02-03T00:00:00Z","price":null,"inner":null}'
