"""The serdes of short numbers, truth values, UUIDs, times and decimals, MessagePack, and those of a user's own."""

from __future__ import annotations

import dataclasses
import decimal
import math
import pickle
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from dsl.test_serdes import each_way
from headrace.client.store_form import serde_of_form
from headrace.errors import SchemaError, SerdeError, TopologyError
from headrace.serdes.serdes import fits_spark_type, natural_serde, serde_of_annotation, serde_of_spark_type, serde_of_text
from headrace.testing import Driver

UUID_1 = uuid.UUID("6f1d9a52-0c5b-4f0e-9d3e-2f8f4a1c7b60")
NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)
AMOUNTS = hr.Decimal(10, 2)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    hr.Short(): st.integers(-(2**15), 2**15 - 1),
    hr.Float(): st.floats(allow_nan=False, width=32),
    hr.Boolean(): st.booleans(),
    hr.Timestamp(): st.datetimes(timezones=st.just(UTC)),
    AMOUNTS: st.integers(-(10**10) + 1, 10**10 - 1).map(lambda number: decimal.Decimal(number).scaleb(-2)),
    hr.Decimal(38): st.integers(-(10**38) + 1, 10**38 - 1).map(decimal.Decimal),
}


@pytest.mark.parametrize("serde", VALUES, ids=repr)
@given(data=st.data())
def test_every_way_agrees(serde: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[serde], max_size=8))
    encoded = each_way(serde, values)
    assert [None if one is None else serde.decode(one) for one in encoded] == values


@given(values=st.lists(st.none() | st.uuids(), max_size=8))
def test_uuids_are_strings_in_spark(values: list[uuid.UUID | None]) -> None:
    texts = [None if value is None else str(value) for value in values]
    data, failures = hr.UUID().encode_many(values)
    assert (data.to_pylist(), failures) == ([None if text is None else text.encode() for text in texts], [])
    assert hr.UUID().decode_many(data) == (values, [])
    typed, failures = hr.UUID().decode_arrow(data)
    assert (typed.type, typed.to_pylist(), failures) == (pa.string(), texts, [])
    assert hr.UUID().encode_arrow(pa.array(texts, pa.string()))[0].to_pylist() == data.to_pylist()


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (hr.Short(), -2, b"\xff\xfe"),
        (hr.Float(), 1.0, b"\x3f\x80\0\0"),
        (hr.Boolean(), True, b"\1"),
        (hr.Boolean(), False, b"\0"),
        (hr.UUID(), UUID_1, b"6f1d9a52-0c5b-4f0e-9d3e-2f8f4a1c7b60"),
        (hr.Timestamp(), NEW_YEAR, (1_356_998_400_000_000).to_bytes(8, "big")),
        (AMOUNTS, decimal.Decimal("-1.28"), b"\x80"),
        (AMOUNTS, decimal.Decimal("1.28"), b"\0\x80"),
        (AMOUNTS, decimal.Decimal("0.00"), b"\0"),
    ],
)
def test_bytes_are_those_of_java(serde: Any, value: Any, data: bytes) -> None:
    assert serde.encode(value) == data
    assert serde.decode(data) == value
    assert pickle.loads(pickle.dumps(serde)) == serde and hash(serde) == hash(pickle.loads(pickle.dumps(serde)))


@pytest.mark.parametrize(
    ("serde", "value", "told"),
    [
        (hr.Short(), 2**15, "use Long()"),
        (hr.Float(), 1e39, "beyond the range of a float"),
        (hr.Float(), True, "found bool"),
        (hr.Boolean(), 1, "expected bool, found int 1"),
        (hr.UUID(), str(UUID_1), "make one of it: uuid.UUID(text)"),
        (hr.Timestamp(), NEW_YEAR.replace(tzinfo=None), "one without a time zone"),
        (hr.Timestamp(), 5, "found int 5"),
        (AMOUNTS, decimal.Decimal("1.005"), "does not fit exactly"),
        (AMOUNTS, decimal.Decimal("1e8"), "does not fit exactly"),
        (AMOUNTS, decimal.Decimal("1e-999999999"), "does not fit exactly"),
        (AMOUNTS, decimal.Decimal("1e999999999"), "does not fit exactly"),
        (AMOUNTS, decimal.Decimal("NaN"), "does not fit exactly"),
        (AMOUNTS, 1.5, "make one of it: decimal.Decimal('1.5')"),
        (AMOUNTS, True, "found bool"),
    ],
)
def test_what_does_not_belong_is_refused_and_named(serde: Any, value: Any, told: str) -> None:
    with pytest.raises(SerdeError) as raised:
        serde.encode(value)
    assert told in str(raised.value)
    encoded, failures = serde.encode_many([value, None])
    assert encoded.to_pylist() == [None, None]
    assert [(index, str(error)) for index, error in failures] == [(0, str(raised.value))]


@pytest.mark.parametrize(
    ("serde", "good", "bad"),
    [
        (hr.Short(), b"\0\1", [b"", b"\0", b"\0\0\1"]),
        (hr.Float(), b"\0\0\0\0", [b"", b"\0\0\0"]),
        (hr.Boolean(), b"\1", [b"", b"\2", b"\xff", b"\0\1"]),
        (hr.UUID(), str(UUID_1).upper().encode(), [b"", b"{" + str(UUID_1).encode() + b"}", UUID_1.hex.encode(), b"\xff" * 36]),
        (hr.Timestamp(), bytes(8), [b"", bytes(7), b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)]),
        (AMOUNTS, b"\1", [b"", b"\x7f" * 6, b"\1" * 1000]),
    ],
)
def test_wrong_bytes_fail_alone(serde: Any, good: bytes, bad: list[bytes]) -> None:
    data = pa.array([good, None, *bad, good], pa.binary())
    values, failures = serde.decode_many(data)
    typed, again = serde.decode_arrow(data)
    assert values == [serde.decode(good), None, *(None for _ in bad), serde.decode(good)]
    assert [value is None for value in typed.to_pylist()] == [value is None for value in values]
    assert [index for index, _ in failures] == [index for index, _ in again] == list(range(2, 2 + len(bad)))
    assert [str(error) for _, error in failures] == [str(error) for _, error in again]
    for one in bad:
        with pytest.raises(SerdeError):
            serde.decode(one)


def test_floats_round_and_say_what_is_too_large() -> None:
    assert hr.Float().decode(hr.Float().encode(0.1)) == pytest.approx(0.1, rel=1e-7)
    data, failures = hr.Float().encode_arrow(pa.array([0.1, 1e39, None, math.inf]))
    assert data.to_pylist() == [hr.Float().encode(0.1), None, None, hr.Float().encode(math.inf)]
    assert [index for index, _ in failures] == [1]


def test_times_come_back_in_utc_and_columns_of_other_units_are_taken() -> None:
    eastern = NEW_YEAR.astimezone(timezone(timedelta(hours=-5)))
    assert hr.Timestamp().encode(eastern) == hr.Timestamp().encode(NEW_YEAR)
    assert hr.Timestamp().decode(hr.Timestamp().encode(eastern)).tzinfo is UTC
    column = pa.array([NEW_YEAR], pa.timestamp("ms", "UTC"))
    assert hr.Timestamp().encode_arrow(column)[0].to_pylist() == [hr.Timestamp().encode(NEW_YEAR)]


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_decimals_of_impossible_digits_are_refused(precision: int, scale: int) -> None:
    with pytest.raises(SchemaError, match="expected 1 to 38 digits"):
        hr.Decimal(precision, scale)


@pytest.mark.parametrize("serde", [*VALUES, hr.UUID(), hr.MessagePack()], ids=repr)
def test_forms_and_texts_give_the_serde_back(serde: Any) -> None:
    assert serde_of_form(serde.form) == serde
    assert serde_of_text(serde.form) == serde
    if serde.spark_type not in (None, "string"):
        assert serde_of_spark_type(serde.spark_type) == serde


def test_python_types_name_them() -> None:
    assert (serde_of_annotation(uuid.UUID), serde_of_annotation(datetime)) == (hr.UUID(), hr.Timestamp())
    assert (natural_serde(UUID_1), natural_serde(NEW_YEAR)) == (hr.UUID(), hr.Timestamp())


# --- MessagePack ------------------------------------------------------------------------------------------------------


class Flight(msgspec.Struct):
    carrier: str
    delay: float = 0.0


@dataclasses.dataclass
class Plane:
    seats: int
    flights: list[str] = dataclasses.field(default_factory=list)


def test_messagepack_of_any_value() -> None:
    values = [{"b": 1, "a": [True, None, 2.5]}, "text", b"raw", 7, NEW_YEAR, None]
    data, failures = hr.MessagePack().encode_many(values)
    assert failures == [] and hr.MessagePack().decode_many(data) == (values, [])
    assert hr.MessagePack().encode({"a": 1, "b": 2}) == hr.MessagePack().encode({"b": 2, "a": 1})
    with pytest.raises(SerdeError, match="messagepack"):
        hr.MessagePack().encode(object())
    with pytest.raises(SerdeError, match="trailing"):
        hr.MessagePack().decode(hr.MessagePack().encode(1) + b"\0")
    with pytest.raises(SchemaError, match="name a class"):
        hr.MessagePack().decode_arrow(data)


@pytest.mark.parametrize(("value", "row"), [(Flight("UA", 3.5), {"carrier": "UA", "delay": 3.5}), (Plane(3), None)])
def test_messagepack_of_a_class(value: Any, row: Any) -> None:
    serde: Any = hr.MessagePack(type(value))
    assert serde.decode(serde.encode(value)) == value
    data, failures = serde.encode_many([value, None, {"carrier": 5, "seats": "many"}])
    assert data.to_pylist()[1:] == [None, None] and [index for index, _ in failures] == [2]
    column, failures = serde.decode_arrow(pa.array([serde.encode(value), None, b"\xc1"], pa.binary()))
    assert [index for index, _ in failures] == [2]
    assert column.to_pylist() == [row or {"seats": 3, "flights": []}, None, None]
    assert serde.encode_arrow(column.slice(0, 1))[0].to_pylist() == [serde.encode(value)]
    assert pickle.loads(pickle.dumps(serde)) == serde
    with pytest.raises(SchemaError, match="expected a class"):
        hr.MessagePack("a int")  # type: ignore[call-overload]


# --- a user's own -----------------------------------------------------------------------------------------------------


class Celsius(hr.OwnSerde[float]):
    form = "celsius"
    spark_type = "double"

    def encode(self, value: float) -> bytes:
        return str(round(value * 10)).encode()

    def decode(self, data: bytes) -> float:
        return int(data) / 10


def test_an_own_serde_is_taken_wherever_one_is(tmp_path: Path) -> None:
    """As key, value, in a repartition stream, in stores, of expressions; a record that it does not take is a dead letter."""
    app = hr.App("own", system=f"log:{tmp_path}/log", dead_letter_stream="dead", local_store_dir=f"{tmp_path}/stores")
    given = app.stream("temperatures", key=hr.String(), value=Celsius())
    highest = given.group_by_key().reduce(max, store="highest")
    highest.to_stream().to("highest")
    by_value = given.select_key(lambda record: record.value, key=Celsius())
    by_value.repartition(hr.Repartitioned(name="by-value")).group_by_key().count(store="counts").to_stream().to("counts")
    given.filter(lambda record: record.value > 20.0).to("warm")
    with Driver(app) as driver:
        for key, value in (("a", 20.5), ("b", 19.0), ("a", 18.0)):
            driver.send("temperatures", key, value)
        driver.run()
        found = {stream: [(one.key, one.value) for one in driver.read(stream)] for stream in ("highest", "warm", "counts")}
        driver.send("temperatures", b"a", b"hot", raw=True)
        driver.run()
        assert [one.value for one in driver.read("dead")] == [b"hot"]
        assert driver.store("highest").get("a") == 20.5
    assert found["warm"] == [("a", 20.5)]
    assert sorted(found["highest"]) == [("a", 20.5), ("b", 19.0)]
    assert sorted(found["counts"]) == [(18.0, 1), (19.0, 1), (20.5, 1)]


def test_what_is_no_serde_is_refused_with_the_reason() -> None:
    class Half:
        form = "half"

        def encode(self, value: Any) -> bytes:
            return b""

        def decode(self, data: bytes) -> Any:
            return None

    class Nameless(Celsius):
        form = ""

    class Odd(Celsius):
        form = "a|b"

    class Untyped(Celsius):
        spark_type = "doubel"

    told = [
        (Half(), "it has no encode_many: derive its class from hr.OwnSerde"),
        (Nameless(), "its `form`, the name of its bytes, is not set"),
        (Odd(), "has other characters"),
        (Untyped(), "expected a type"),
        (object(), "it has no encode and no decode"),
    ]
    for serde, why in told:
        with pytest.raises(TopologyError, match="is no serde") as raised:
            hr.App("own").stream("in", key=serde)
        assert why in str(raised.value)
    with pytest.raises(TypeError, match="abstract"):
        hr.OwnSerde()  # type: ignore[abstract]


def test_own_serdes_are_values() -> None:
    class Scaled(hr.OwnSerde[float]):
        form = "scaled"

        def __init__(self, by: int) -> None:
            self.by = by

        def encode(self, value: float) -> bytes:
            return str(value * self.by).encode()

        def decode(self, data: bytes) -> float:
            return float(data) / self.by

    assert Scaled(2) == Scaled(2) != Scaled(3) and hash(Scaled(2)) == hash(Scaled(2))
    assert repr(Scaled(2)) == "Scaled(by=2)"
    each_way(Celsius(), [20.5, None, -3.0])
    data = pa.array([b"205", b"hot"], pa.binary())
    assert [index for index, _ in Celsius().decode_many(data)[1]] == [1]
    with pytest.raises(SchemaError, match="it has no `spark_type`"):
        Scaled(2).decode_arrow(data)


class Untyped(hr.OwnSerde[Any]):
    """Without a Spark type; what it makes of `nothing` is no bytes."""

    form = "untyped"

    def encode(self, value: Any) -> Any:
        return None if value == "nothing" else repr(value).encode()

    def decode(self, data: bytes) -> Any:
        return data.decode()


class Batched(Untyped):
    form = "batched"
    spark_type = "bigint"

    def encode_many(self, values: Any) -> Any:
        made = [None if value == 0 else str(value).encode() for value in values]
        return pa.array(made, pa.binary()), [(1, ValueError("one"))]


def test_an_encode_that_gives_no_bytes_is_refused() -> None:
    with pytest.raises(SerdeError, match="untyped: expected bytes of encode, found NoneType for 'nothing'"):
        Untyped().encode("nothing")
    data, failures = Untyped().encode_many(["a", None, "nothing"])
    assert (data.to_pylist(), [at for at, _ in failures]) == ([b"'a'", None, None], [2])
    _, failures = Batched().encode_many([0, 1, None])
    assert [(at, str(error).splitlines()[0]) for at, error in failures] == [
        (0, "batched: expected bytes of encode_many, found NoneType for 0"),
        (1, "one"),
    ]
    assert [at for at, _ in Batched().encode_arrow(pa.array([0, 1, None]))[1]] == [0, 1]
    app = hr.App("own", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.String()).map_values(lambda record: record.value, value=Untyped()).to("out")
    with Driver(app) as driver:
        driver.send("in", "a", "nothing")
        driver.send("in", "a", "else")
        driver.run()
        assert [record.value for record in driver.read("out")] == ["'else'"]
        (dead,) = driver.read("dead")
        assert dead.value == b"nothing" and b"expected bytes of encode" in dict(dead.headers)["headrace.error-message"]


def test_an_own_serde_takes_columns_of_its_spark_type_alone() -> None:
    assert Celsius().encode_arrow(pa.array([1, None]))[0].to_pylist() == [b"10", None]
    assert Celsius().encode_arrow(pa.nulls(1))[0].to_pylist() == [None]
    with pytest.raises(SerdeError, match="celsius: expected an array of double, found string"):
        Celsius().encode_arrow(pa.array(["1"]))
    assert Untyped().encode_arrow(pa.array(["1"]))[0].to_pylist() == [b"'1'"]  # of a batch function
    fits = [fits_spark_type(serde, "bigint") for serde in (Celsius(), Untyped(), Batched())]
    assert fits == [True, False, True] and not fits_spark_type(Celsius(), "string")

    class Tags(Celsius):
        spark_type = "array<struct<a:string>>"

        def encode(self, value: Any) -> bytes:
            return repr(value).encode()

    column = pa.array([[{"a": "x"}]], pa.large_list(pa.field("item", pa.struct([("a", pa.large_string())]))))
    assert Tags().encode_arrow(column)[0].to_pylist() == [b"[{'a': 'x'}]"]


# --- classes with fields that Spark has no type for ---------------------------------------------------------------------


@dataclasses.dataclass
class Order:
    a: int
    id: uuid.UUID
    price: decimal.Decimal
    tags: set[str]
    pair: tuple[int, int]
    sizes: tuple[float, ...] = ()


@dataclasses.dataclass
class Part:
    n: int
    size: int | str


@dataclasses.dataclass
class Mixed:
    a: int
    either: int | str
    part: Part
    parts: list[Part]
    odd: tuple[int, str]
    anything: Any = None


ORDER = Order(1, UUID_1, decimal.Decimal("1.50"), {"x"}, (1, 2), (0.5,))
ORDER_TYPE = "struct<a:bigint,id:string,price:decimal(38,18),tags:array<string>,pair:array<bigint>,sizes:array<double>>"
MIXED = Mixed(2, "x", Part(1, "s"), [Part(2, 3)], (1, "x"), {"b": 1})


@pytest.mark.parametrize("make", [hr.Json, hr.MessagePack])
def test_fields_of_a_class_have_the_spark_types_that_there_are(make: Any) -> None:
    serde = make(Order)
    assert serde.spark_type == ORDER_TYPE
    data = serde.encode_many([ORDER, None])[0]
    column, failures = serde.decode_arrow(data)
    row = {"a": 1, "id": str(UUID_1), "price": decimal.Decimal("1.5"), "tags": ["x"], "pair": [1, 2], "sizes": [0.5]}
    assert (column.to_pylist(), failures) == ([row, None], [])
    again, failures = serde.encode_arrow(column)
    assert failures == [] and serde.decode(again[0].as_py()) == ORDER
    small = dataclasses.replace(ORDER, price=decimal.Decimal("1.5"))
    assert again.to_pylist() == [serde.encode(small), None]  # no zeros come in
    long = dataclasses.replace(ORDER, price=decimal.Decimal("1e-19"))
    column, failures = serde.decode_arrow(serde.encode_many([ORDER, long])[0])
    assert column.to_pylist() == [row, None] and [at for at, _ in failures] == [1]


@pytest.mark.parametrize("make", [hr.Json, hr.MessagePack])
def test_fields_without_a_spark_type_are_left_out_and_never_lost(make: Any) -> None:
    serde = make(Mixed)
    assert serde.spark_type == "struct<a:bigint,part:struct<n:bigint>,parts:array<struct<n:bigint>>>"
    assert set(serde.untyped_fields) == {"either", "part.size", "parts.size", "odd", "anything"}
    data = serde.encode_many([MIXED])[0]
    assert serde.decode_many(data) == ([MIXED], [])
    column, failures = serde.decode_arrow(data)
    assert (column.to_pylist(), failures) == ([{"a": 2, "part": {"n": 1}, "parts": [{"n": 2}]}], [])
    with pytest.raises(SerdeError, match=r"Spark does not see either \(a union has no one type\)"):
        serde.encode_arrow(column)
    assert not fits_spark_type(serde, serde.spark_type)
    assert pickle.loads(pickle.dumps(serde)).spark_type == serde.spark_type


def test_a_typed_dict_with_a_loose_field_keeps_its_bytes() -> None:
    class Trip(TypedDict):
        to: str
        id: uuid.UUID
        either: int | str

    trip = {"to": "a", "id": UUID_1, "either": 1}
    text = f'{{"either":1,"id":"{UUID_1}","to":"a"}}'
    assert hr.Json(Trip).encode(trip) == text.encode()  # sorted, as before it had a Spark type
    assert hr.Json(Trip).spark_type == "struct<id:string,to:string>"


def test_a_record_function_behind_a_batch_has_instances_and_uuids() -> None:
    @hr.batch
    def kept(rows: pa.RecordBatch) -> pa.Array:
        return pc.is_valid(rows.column("value"))

    app = hr.App("instances")
    app.stream("mixed", key=hr.UUID(), value=hr.Json(Mixed)).filter(kept).map_values(
        lambda record: f"{type(record.key).__name__} {record.value.either}", value=hr.String()
    ).to("out")
    with Driver(app) as driver:
        driver.send("mixed", UUID_1, MIXED)
        driver.run()
        assert [record.value for record in driver.read("out")] == ["UUID x"]
