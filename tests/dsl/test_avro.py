"""`Avro` against fastavro itself: values, bytes, types, what is refused, and a job."""

from __future__ import annotations

import io
import json
import pickle
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SchemaError, SerdeError, SetupError
from headrace.testing import Driver

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "weight", "type": "double"},
        {"name": "ratio", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "was", "type": ["null", "Kind"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}},
    ],
}
SERDE = hr.Avro(ORDER)
TYPE = (
    "struct<id:bigint,count:int,weight:double,ratio:float,paid:boolean,raw:binary,note:string,at:timestamp,day:date,"
    "price:decimal(9,2),kind:string,was:string,tags:array<string>,sizes:map<string,bigint>,inner:struct<x:int>>"
)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KINDS = st.sampled_from(["NEW", "OLD"])
ORDERS = st.fixed_dictionaries(
    {
        "id": LONGS,
        "count": INTS,
        "weight": st.floats(allow_nan=False),
        "ratio": st.floats(width=32, allow_nan=False),
        "paid": st.booleans(),
        "raw": st.binary(max_size=8),
        "note": st.none() | TEXTS,
        "at": st.datetimes(timezones=st.just(UTC)),
        "day": st.none() | st.dates(),
        "price": st.decimals(-9999999, 9999999, places=2),
        "kind": KINDS,
        "was": st.none() | KINDS,
        "tags": st.lists(TEXTS, max_size=3),
        "sizes": st.dictionaries(TEXTS, st.none() | LONGS, max_size=3),
        "inner": st.fixed_dictionaries({"x": INTS}),
    }
)
ONE = {
    "id": 1, "count": 2, "weight": 0.5, "ratio": 0.25, "paid": True, "raw": b"x", "note": None,
    "at": datetime(2026, 2, 3, tzinfo=UTC), "day": date(2026, 2, 3), "price": Decimal("1.50"), "kind": "NEW", "was": None,
    "tags": ["a"], "sizes": {"a": 1}, "inner": {"x": 3},
}  # fmt: skip


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


# --- values ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(ORDERS, min_size=1, max_size=3))
def test_bytes_and_values_are_those_of_the_library(orders: list[dict[str, Any]]) -> None:
    sorted_maps = [order | {"sizes": dict(sorted(order["sizes"].items()))} for order in orders]
    expected = [written(ORDER, order) for order in sorted_maps]
    encoded, failures = SERDE.encode_many([*orders, None])
    assert (encoded.to_pylist(), failures) == ([*expected, None], [])
    assert SERDE.decode_many(encoded) == ([*orders, None], [])
    typed, failures = SERDE.decode_arrow(encoded)
    assert failures == []
    assert SERDE.encode_arrow(typed)[0].to_pylist() == [*expected, None]


def test_it_says_its_type_and_its_form() -> None:
    assert SERDE.spark_type == TYPE
    assert SERDE.form.startswith("avro<shop.Order#")
    assert repr(SERDE) == "Avro('shop.Order')"
    with_doc = ORDER | {"doc": "said in other words"}
    other = ORDER | {"fields": ORDER["fields"][:-1]}
    assert hr.Avro(with_doc).form == SERDE.form != hr.Avro(other).form
    assert fastavro is not None
    assert hr.Avro("string").spark_type == "string"


def test_a_schema_is_a_dict_a_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    assert hr.Avro(file) == hr.Avro(str(file)) == hr.Avro(json.dumps(ORDER)) == SERDE
    with pytest.raises(SchemaError, match=r"gone\.avsc.* cannot be read"):
        hr.Avro(tmp_path / "gone.avsc")
    with pytest.raises(SchemaError, match="strin"):
        hr.Avro(record({"name": "a", "type": "strin"}))
    with pytest.raises(SchemaError, match="neither a schema nor"):
        hr.Avro()


def test_it_travels() -> None:
    there = pickle.loads(pickle.dumps(SERDE))
    assert there == SERDE
    assert there.decode(SERDE.encode(ONE)) == ONE


def test_equal_maps_are_equal_bytes() -> None:
    serde = hr.Avro({"type": "map", "values": "int"})
    assert serde.encode({"a": 1, "b": 2}) == serde.encode({"b": 2, "a": 1})


def test_logical_types_that_spark_lacks_are_what_they_are_stored_as() -> None:
    fields = [
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "l", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "d", "type": {"type": "fixed", "name": "Wide", "size": 20, "logicalType": "decimal", "precision": 45}},
    ]
    serde = hr.Avro(record(*fields))
    assert serde.spark_type == "struct<u:string,t:bigint,l:timestamp_ntz,d:binary>"
    local = datetime(2026, 1, 2, 3)  # noqa: DTZ001 - of no zone
    value = {"u": "00000000-0000-0000-0000-000000000001", "t": 5, "l": local, "d": bytes(20)}
    data = serde.encode(value | {"u": UUID(int=1)})
    assert serde.decode(data) == value
    assert serde.decode_arrow(pa.array([data]))[0].to_pylist() == [value]


def test_what_has_no_one_type_is_for_python_only() -> None:
    union = hr.Avro(record({"name": "v", "type": ["null", "string", "long"]}))
    tree = hr.Avro(record({"name": "next", "type": ["null", "Tree"]}, name="Tree"))
    assert (union.spark_type, tree.spark_type) == (None, None)
    for value in ({"v": "a"}, {"v": 1}, {"v": None}):
        assert union.decode(union.encode(value)) == value
    assert tree.decode(tree.encode({"next": {"next": None}})) == {"next": {"next": None}}
    with pytest.raises(SchemaError, match="no one Spark type"):
        union.decode_arrow(pa.array([b"\0"]))


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"count": 2**31}, "field count: expected int of 32 bits"),
        ({"count": 1.5}, "field count"),
        ({"count": True}, "field count"),
        ({"id": 2**63}, "field id"),
        ({"ratio": 1e300}, "field ratio: expected a float of 32 bits"),
        ({"paid": 1}, "field paid: expected a bool"),
        ({"at": datetime(2026, 1, 1)}, "field at: expected a datetime with a zone"),  # noqa: DTZ001
        ({"price": Decimal("1.005")}, r"field price: expected a decimal\(9,2\)"),
        ({"price": Decimal(10**8)}, "field price"),
        ({"kind": "LOST"}, "field kind: expected one of NEW, OLD"),
        ({"note": 3}, "field note: expected a text"),
        ({"id": None}, "field id"),
        ({"inner": {"x": "1"}}, "field inner: field x"),
        ({"extra": 1}, "has no field 'extra'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SerdeError, match=said):
        SERDE.encode(ONE | change)
    encoded, failures = SERDE.encode_many([ONE, ONE | change, None])
    assert encoded.is_valid().to_pylist() == [True, False, False]
    assert [index for index, _ in failures] == [1]


def test_bytes_that_are_no_such_value_are_failures_of_their_own() -> None:
    good = SERDE.encode(ONE)
    data = pa.array([good, b"", good[:-1], None, good + b"!", b"\xff" * 40])
    for decode in (SERDE.decode_many, SERDE.decode_arrow):
        values, failures = decode(data)
        assert [index for index, _ in failures] == [1, 2, 4, 5]
        assert all(isinstance(error, SerdeError) and "avro shop.Order" in str(error) for _, error in failures)
        assert len(values) == 6


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_serde_error(data: bytes) -> None:
    try:
        value = SERDE.decode(data)
    except SerdeError:
        return
    SERDE.encode(value)


def test_a_decimal_of_more_digits_than_declared_is_a_failure() -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    narrow = hr.Avro(wide | {"precision": 4})
    with pytest.raises(SerdeError, match=r"decimal\(4,2\)"):
        narrow.decode(hr.Avro(wide).encode(Decimal("123456.78")))


def test_a_time_out_of_range_in_a_column_fails_its_own_record() -> None:
    serde = hr.Avro(record({"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}))
    times = pa.array([0, 2**62, 1], pa.timestamp("us", "UTC"))  # the last one has microseconds
    encoded, failures = serde.encode_arrow(pa.StructArray.from_arrays([times], ["at"]))
    assert [index for index, _ in failures] == [1, 2]
    assert encoded.to_pylist()[0] == b"\0"


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SetupError, match=r"needs the package fastavro[\s\S]*headrace\[avro\]"):
        hr.Avro(record({"name": "not_seen_before", "type": "int"}))


# --- a job ----------------------------------------------------------------------------------------------------------


def test_a_job_reads_avro_keeps_it_as_state_and_writes_it() -> None:
    amount = record({"name": "item", "type": "string"}, {"name": "amount", "type": "long"}, name="Amount")
    total = record({"name": "total", "type": "long"}, name="Total")
    app = hr.App("shop")
    orders = app.stream("orders", key=hr.String(), value=hr.Avro(amount))
    sums = orders.group_by_key().aggregate(total=hr.sum("value.amount"), store="sums")
    sums.to_stream().map_values(lambda r: {"total": r.value["total"]}, value=hr.Avro(total)).to("totals")
    orders.to_table(store="last")
    with Driver(app) as d:
        for number in (3, 4):
            d.send("orders", "tea", {"item": "tea", "amount": number})
        d.run()
        assert d.read("totals")[-1].value == {"total": 7}
        assert d.read("totals", value=hr.Bytes(), from_start=True)[-1].value == b"\x0e"
        assert d.store("last").get("tea") == {"item": "tea", "amount": 4}


def test_bad_bytes_go_to_the_dead_letter_stream() -> None:
    app = hr.App("shop", dead_letter_stream="dead")
    app.stream("orders", key=hr.String(), value=hr.Avro(record({"name": "s", "type": "string"}))).map_values(
        lambda r: r.value["s"], value=hr.String()
    ).to("out")
    with Driver(app) as d:
        d.send("orders", b"k", b"\x10too short", raw=True)
        d.send("orders", "k", {"s": "good"})
        d.run()
        assert [r.value for r in d.read("out")] == ["good"]
        (dead,) = d.read("dead")
    assert dead.value == b"\x10too short"
    assert b"avro R" in dict(dead.headers)["headrace.error-message"]
