"""`Json`: strict, the same one by one, in lists and in columns, and never a null or default for what is wrong."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Serde
from headrace.serdes.ddl import (
    ArrayType,
    DecimalType,
    MapType,
    ScalarType,
    SparkType,
    StructType,
    parse_type,
    to_arrow_type,
)
from headrace.serdes.json_serde import Json

FLIGHT = "carrier string, origin string, dep_delay double"
EVERYTHING = (
    "b boolean, t tinyint, s smallint, i int, l bigint, f float, d double, n decimal(10,2), x string, y binary, "
    "day date, at timestamp, wall timestamp_ntz, `odd name` struct<z:array<struct<q:int>>, class:string>, "
    "m map<string,timestamp>, c map<int,array<decimal(4,1)>>"
)


def one_by_one(serde: Json, data: list[bytes | None]) -> tuple[list[Any], list[int]]:
    """What single decodes give, and the places at which they fail."""
    values, failed = [], []
    for index, one in enumerate(data):
        try:
            values.append(None if one is None else serde.decode(one))
        except SerdeError:
            values.append(None)
            failed.append(index)
    return values, failed


def agreed(serde: Json, data: list[bytes | None]) -> tuple[list[Any], list[int]]:
    """The values and failures of `data`, after asserting that every way to read them agrees."""
    values, failed = one_by_one(serde, data)
    array = pa.array([b"{", *data], pa.binary())[1:]
    many, failures = serde.decode_many(array)
    assert many == values
    assert [index for index, _ in failures] == failed
    assert all(isinstance(error, SerdeError) for _, error in failures)
    if serde.schema is not None:
        column, failures = serde.decode_arrow(array)
        column.validate(full=True)
        assert column.type.equals(to_arrow_type(serde.schema))
        assert [index for index, _ in failures] == failed
        if all(isinstance(value, dict | None) for value in values):
            assert column.to_pylist(maps_as_pydicts="strict") == values
    return values, failed


# --- values of a schema ---------------------------------------------------------------------------------------------

_INTS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=4),
    "binary": st.binary(max_size=4),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
} | {name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in _INTS.items()}


def values_of(spark_type: SparkType) -> st.SearchStrategy[Any]:
    match spark_type:
        case ScalarType(name):
            return _SCALARS[name]
        case DecimalType(precision, scale):
            bound = 10**precision - 1
            return st.integers(-bound, bound).map(lambda digits: Decimal(digits).scaleb(-scale))
        case ArrayType(element):
            return st.lists(st.none() | values_of(element), max_size=2)
        case MapType(key, item):
            return st.dictionaries(values_of(key), st.none() | values_of(item), max_size=2)
        case StructType(fields):
            return st.fixed_dictionaries({field.name: st.none() | values_of(field.type) for field in fields})


@given(st.lists(st.none() | values_of(parse_type(f"struct<{EVERYTHING}>")), max_size=3))
def test_there_and_back_in_every_way(values: list[Any]) -> None:
    serde = Json(EVERYTHING)
    single = [None if value is None else serde.encode(value) for value in values]
    many, failures = serde.encode_many(values)
    assert (many.to_pylist(), failures) == (single, [])
    assert agreed(serde, single) == (values, [])
    column, _ = serde.decode_arrow(many)
    encoded, failures = serde.encode_arrow(column)
    assert (encoded.to_pylist(), failures) == (single, [])
    free, _ = Json().encode_arrow(column)  # types as the array has them, fields sorted
    assert [each and json.loads(each) for each in free.to_pylist()] == [each and json.loads(each) for each in single]
    assert all(each is None or list(json.loads(each)) == sorted(json.loads(each)) for each in free.to_pylist())
    padded = pa.concat_arrays([column[:1], column])[len(column[:1]) :]
    assert serde.encode_arrow(padded)[0].to_pylist() == single
    for one in single:
        if one is not None:
            assert list(json.loads(one)) == [field.name for field in parse_type(f"struct<{EVERYTHING}>").fields]  # type: ignore[union-attr]


def test_missing_and_null_are_none_and_unknown_fields_are_dropped() -> None:
    serde = Json("a int, n struct<b:int,c:string>")
    data = [b"{}", b'{"a":null,"z":[1]}', b'{"n":{}}', b' {"n":{"c":"x","a":1}} ', b'{"a":1,"a":2}', None]
    none = {"a": None, "n": None}
    inner = [{"a": None, "n": {"b": None, "c": None}}, {"a": None, "n": {"b": None, "c": "x"}}]
    assert agreed(serde, data) == ([none, none, *inner, {"a": 2, "n": None}, None], [])


@pytest.mark.parametrize(
    ("ddl", "bad"),
    [
        ("a tinyint", ["128", "-129", "1.0", '"1"', "true"]),
        ("a int", ["2147483648", "1e3", "[]"]),
        ("a bigint", ["9223372036854775808", "-9223372036854775809"]),
        ("a double", ['"1"', "true", "1e999", "NaN"]),
        ("a float", ["1e39"]),
        ("a string", ["1", "{}", '"\\ud800"']),
        ("a boolean", ["0", '"true"']),
        ("a binary", ['"?"', "1"]),
        ("a date", ['"2013-02-30"', '"2013-01-01T00:00:00Z"', "15706"]),
        ("a timestamp", ['"2013-01-01"', "1356998400", '"0001-01-01T00:00:00+05:00"']),
        ("a timestamp_ntz", ['"2013-01-01T00:00:00Z"']),
        ("a decimal(4,2)", ["100", "1.234", '"NaN"', '"x"', "true"]),
        ("a array<int>", ["[1.5]", "{}", "1"]),
        ("a map<int,string>", ['{"x":"y"}', "[]"]),
        ("a struct<b:int>", ["[]", '{"b":"x"}', "5"]),
    ],
)
def test_values_of_another_type_fail_alone(ddl: str, bad: list[str]) -> None:
    for text in bad:
        values, failed = agreed(Json(ddl), [b'{"a":null}', b'{"a":%s}' % text.encode(), None, b"{}"])
        assert (values, failed) == ([{"a": None}, None, None, {"a": None}], [1]), text


@pytest.mark.parametrize(
    ("ddl", "text", "value"),
    [
        ("a double", "5", 5.0),
        ("a decimal(4,2)", "1.5", Decimal("1.50")),
        ("a decimal(4,2)", '"-12.3"', Decimal("-12.30")),
        ("a timestamp", '"2013-01-01 05:00:00"', datetime(2013, 1, 1, 5, tzinfo=UTC)),
        ("a timestamp", '"2013-01-01T05:00:00.5+02:00"', datetime(2013, 1, 1, 3, 0, 0, 500_000, tzinfo=UTC)),
        ("a date", '"2013-01-01"', date(2013, 1, 1)),
        ("a binary", '"AAE="', b"\x00\x01"),
        ("a map<int,int>", '{"3":null}', {3: None}),
        ("a float", "0.1", 0.10000000149011612),
    ],
)
def test_readings(ddl: str, text: str, value: Any) -> None:
    values, failed = agreed(Json(ddl), [b'{"a":%s}' % text.encode()])
    assert (values, failed) == ([{"a": value}], [])
    assert type(values[0]["a"]) is type(value)


# --- strictness -----------------------------------------------------------------------------------------------------

NOT_JSON = [
    b"",
    b" ",
    b"{}x",
    b"{}{}",
    b"{} {}",
    b"{}\n{}",
    b"{",
    b'{"a":',
    b"}",
    b'{"carrier":"\xff"}',
    b'{"unknown":"\xff"}',
    b'{"\xff":1}',
    b"\xef\xbb\xbf{}",
    b"{'carrier':1}",
    b'{"carrier":"a",}',
    b'{"unknown":01}',
    b'{"unknown":NaN}',
    b'{"unknown":"\x01"}',
    b"nul",
    b'{"unknown":' + b"[" * 100_000,
]


@pytest.mark.parametrize("serde", [Json(), Json(FLIGHT)], ids=repr)
def test_what_is_no_json_fails_alone(serde: Json) -> None:
    good = b'{"carrier":"UA"}'
    for bad in NOT_JSON:
        values, failed = agreed(serde, [good, bad, good])
        assert failed == [1], bad[:40]
        assert values[0] == values[2] is not None


PIECES = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b"{}",
        b"[]",
        b'"',
        b",",
        b":",
        b'"a"',
        b'{"a":',
        b"1",
        b" ",
        b"\n",
        b"\\",
        b'{"a":{}',
        b"[{}",
    ]
)


def is_json_object(data: bytes) -> bool:
    """Judged by another reader: one object, nothing after it."""
    try:
        return isinstance(json.loads(data.decode()), dict)
    except ValueError:
        return False


@given(st.lists(st.lists(PIECES, max_size=5).map(b"".join), min_size=1, max_size=5))
def test_pieces_of_values_never_make_up_for_each_other(data: list[bytes]) -> None:
    _, failed = agreed(Json("z int"), [*data])
    assert failed == [index for index, one in enumerate(data) if not is_json_object(one)]


@pytest.mark.parametrize(
    "data",
    [
        [b'{"a":', b"1}", b'{"a":1}{"a":2}'],  # as many values as lines, and yet no line is right
        [b'{"z":[{},', b"{}]}", b"{}{}"],
        [b"[", b"]", b"[][]"],
        [b'{"a":1', b',"z":2}', b"{} {}"],
        [b"", b"{}\n{}"],
    ],
)
def test_lines_that_fit_together_are_still_wrong(data: list[bytes]) -> None:
    for serde in (Json("a int"), Json()):
        assert agreed(serde, [*data])[1] == list(range(len(data)))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(ANY.filter(lambda value: value is not None))
def test_without_a_schema_any_value_comes_back(value: Any) -> None:
    encoded = Json().encode(value)
    assert Json().decode(encoded) == value == json.loads(encoded)
    assert Json().encode_many([value, None])[0].to_pylist() == [encoded, None]
    assert agreed(Json(), [encoded, None, encoded]) == ([value, None, value], [])


# --- writing --------------------------------------------------------------------------------------------------------


def test_writes_in_declared_order_with_every_field() -> None:
    serde = Json(FLIGHT)
    assert serde.encode({"dep_delay": 5, "carrier": "UA"}) == b'{"carrier":"UA","origin":null,"dep_delay":5.0}'


@dataclasses.dataclass
class Measured:
    a: float | None
    n: dict[str, float] | None = None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused_and_never_become_null(value: float) -> None:
    """Found wherever they stand, also beside nulls, and the values beside them are written."""
    typed = "a double, n map<string,double>"
    for serde, made in ((Json(), dict), (Json(typed), dict), (Json(Measured), Measured)):
        good = [made(a=None, n=None), made(a=1.5, n={"null": 2.0})]
        for bad in (made(a=value, n=None), made(a=None, n={"x": value})):
            with pytest.raises(SerdeError, match="no NaN and no infinity in JSON"):
                serde.encode(bad)
            written, failures = serde.encode_many([good[0], bad, None, good[1]])
            assert [index for index, _ in failures] == [1]
            assert written.to_pylist() == [serde.encode(good[0]), None, None, serde.encode(good[1])]
    column = pa.array([{"a": 1.0}, {"a": value}, {"a": None}, None], pa.struct([("a", pa.float64())]))
    for serde in (Json(), Json("a double")):
        written, failures = serde.encode_arrow(column)
        assert written.to_pylist() == [b'{"a":1.0}', None, b'{"a":null}', None]
        assert [index for index, _ in failures] == [1]
    with pytest.raises(SerdeError, match="no NaN"):
        Json().encode([None, (1.0, np.float64(value))])


@given(st.dictionaries(st.text(max_size=3), ANY, max_size=4), st.randoms())
def test_equal_values_are_equal_bytes(value: dict[str, Any], random: Any) -> None:
    """Without a schema, so that a key is the same bytes in whatever order its fields were put in."""

    def shuffled(given: Any) -> Any:
        if isinstance(given, list):
            return [shuffled(item) for item in given]
        if not isinstance(given, dict):
            return given
        items = list(given.items())
        random.shuffle(items)
        return {name: shuffled(item) for name, item in items}

    other = shuffled(value)
    data = Json().encode(value)
    assert Json().encode(other) == data
    assert Json().encode_many([other, value])[0].to_pylist() == [data, data]


def test_a_key_is_the_same_bytes_however_it_was_made() -> None:
    class Place(TypedDict):
        seat: int
        by_row: dict[int, str]

    seats = {10: "a", 9: "b"}
    for serde in (Json(Place), Json("seat bigint, by_row map<bigint,string>")):
        expected = serde.encode({"seat": 1, "by_row": seats})
        assert json.loads(expected) == {"seat": 1, "by_row": {"9": "b", "10": "a"}}
        assert serde.encode({"by_row": dict(reversed(seats.items())), "seat": 1}) == expected
        assert serde.encode_many([{"by_row": dict(reversed(seats.items())), "seat": 1}])[0].to_pylist() == [expected]
    struct = pa.array([{"b": 1, "a": {"d": 1, "c": 2}}])
    assert struct.type.field(0).name == "b"
    assert Json().encode_arrow(struct)[0].to_pylist() == [Json().encode({"a": {"c": 2, "d": 1}, "b": 1})]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"carier": "UA"}, "unknown field `carier`"),
        ({"carier": "UA"}, "the fields are: carrier string, at timestamp"),
        ({"carrier": 5}, "at `$.carrier`"),
        ({"carrier": b"x"}, "at `$.carrier`"),
        ({"carrier": "\ud800"}, "no UTF-8"),
        ({"at": datetime(2013, 1, 1)}, "give aware datetimes"),  # noqa: DTZ001 - what is refused
        ("UA", "Expected `object`"),
        (object(), "json: "),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, told: str) -> None:
    serde = Json("carrier string, at timestamp")
    with pytest.raises(SerdeError) as raised:
        serde.encode(value)
    assert told in str(raised.value)
    encoded, failures = serde.encode_many([{}, value, None])
    assert encoded.to_pylist() == [b'{"carrier":null,"at":null}', None, None]
    assert [(index, str(error)) for index, error in failures] == [(1, str(raised.value))]


def test_decimals_and_floats_are_checked_when_written() -> None:
    assert Json("a decimal(4,2)").encode({"a": Decimal("1.5")}) == b'{"a":"1.50"}'
    with pytest.raises(SerdeError, match="more digits"):
        Json("a decimal(4,2)").encode({"a": Decimal("1.555")})
    with pytest.raises(SerdeError, match="declare the field as double"):
        Json("a float").encode({"a": 1e300})


def test_numbers_of_numpy_and_objects_are_taken() -> None:
    assert Json("a int, b double").encode({"a": np.int64(5), "b": np.float32(0.5)}) == b'{"a":5,"b":0.5}'
    assert Json().encode({"a": np.arange(2), "b": np.bool_(True)}) == b'{"a":[0,1],"b":true}'
    assert Json("carrier string, delay double").encode(Flight("UA", 1.5)) == b'{"carrier":"UA","delay":1.5}'
    with pytest.raises(SerdeError, match="complex"):
        Json().encode({"a": 1j})


def test_times_are_written_in_utc() -> None:
    value = datetime(2013, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    assert Json("at timestamp").encode({"at": value}) == b'{"at":"2013-01-01T00:00:00Z"}'


def test_times_that_no_calendar_has_fail_alone() -> None:
    at = pa.array([0, 2**62, None], pa.timestamp("us", "UTC"))
    encoded, failures = Json("at timestamp").encode_arrow(pa.StructArray.from_arrays([at], ["at"]))
    assert encoded.to_pylist() == [b'{"at":"1970-01-01T00:00:00Z"}', None, b'{"at":null}']
    assert [index for index, _ in failures] == [1]


def test_arrays_are_cast_to_the_schema_or_refused() -> None:
    narrow = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    assert Json("a bigint").encode_arrow(narrow)[0].to_pylist() == [b'{"a":1}']
    assert Json("a bigint").encode_arrow(pa.chunked_array([narrow, narrow]))[0].to_pylist() == [b'{"a":1}'] * 2
    with pytest.raises(SerdeError, match="expected an array of"):
        Json("a int").encode_arrow(pa.array([1]))


# --- columns of some fields -----------------------------------------------------------------------------------------


def test_decode_fields_gives_what_decode_arrow_gives() -> None:
    serde = Json("a int, `odd name` struct<b:double,c:struct<d:string>>, e string")
    data = pa.array(
        [
            b'{"a":1,"odd name":{"b":2,"c":{"d":"x"}}}',
            None,
            b'{"odd name":{}}',
            b'{"a":1,"e":5}',
            b'{"e":"\xff"}',
            b"{}",
        ]
    )
    found = serde.decode_fields(data, ["a", "odd name.b", "odd name.c.d", "odd name.c"])
    assert found is not None
    columns, failures = found
    assert [index for index, _ in failures] == [3, 4]  # also where the field that is wrong was not asked for
    assert columns["a"].to_pylist() == [1, None, None, None, None, None]
    assert columns["odd name.b"].to_pylist() == [2.0, None, None, None, None, None]
    assert columns["odd name.c.d"].to_pylist() == ["x", None, None, None, None, None]
    assert columns["odd name.c"].to_pylist() == [{"d": "x"}, None, None, None, None, None]
    assert (columns["a"].type, columns["odd name.b"].type) == (pa.int32(), pa.float64())


def test_decode_fields_of_what_is_not_declared() -> None:
    with pytest.raises(SchemaError, match="the fields are: carrier, origin, dep_delay"):
        Json(FLIGHT).decode_fields(pa.array([b"{}"]), ["delay"])
    with pytest.raises(SchemaError, match="'x'"):
        Json(FLIGHT).decode_fields(pa.array([b"{}"]), ["carrier.x"])
    assert Json().decode_fields(pa.array([b"{}"]), ["a"]) is None


# --- classes --------------------------------------------------------------------------------------------------------


class Flight(msgspec.Struct):
    carrier: str
    delay: float | None = None


class Renamed(msgspec.Struct, rename="camel"):
    dep_delay: float = 0.0


@dataclasses.dataclass
class Plane:
    seats: int
    kinds: list[Literal["a", "b"]] = dataclasses.field(default_factory=list)
    flight: Flight | None = None


class Airport(TypedDict):
    name: str
    runways: NotRequired[dict[str, int]]


class Inner(TypedDict):
    x: int
    y: int


class Outer(TypedDict):
    a: int
    b: NotRequired[Inner]


class Tagged(msgspec.Struct, tag=True):
    a: int


class Open(msgspec.Struct):
    a: Any


class Loop(msgspec.Struct):
    next: Loop | None = None


@pytest.mark.parametrize(
    ("given", "spark_type", "form"),
    [
        (Flight, "struct<carrier:string,delay:double>", "json<carrier string, delay double>"),
        (Renamed, "struct<depDelay:double>", "json<depDelay double>"),
        (
            Plane,
            "struct<seats:bigint,kinds:array<string>,flight:struct<carrier:string,delay:double>>",
            "json<seats bigint, kinds array<string>, flight struct<carrier:string,delay:double>>",
        ),
        (Airport, "struct<name:string,runways:map<string,bigint>>", "json<name string, runways map<string,bigint>>"),
        (Tagged, None, "json<Tagged>"),
        (Open, None, "json<Open>"),
        (Loop, None, "json<Loop>"),
    ],
)
def test_types_of_classes(given: Any, spark_type: str | None, form: str) -> None:
    serde = Json(given)
    assert (serde.spark_type, serde.form, repr(serde)) == (spark_type, form, f"Json({given.__name__})")
    assert isinstance(serde, Serde)


@pytest.mark.parametrize(
    "value",
    [
        Flight("UA", 1.5),
        Flight("UA"),
        Renamed(2.0),
        Plane(5, ["a"], Flight("UA", None)),
        {"name": "JFK", "runways": {"4L": 3}},
    ],
)
def test_instances_come_back_in_every_way(value: Any) -> None:
    serde = Json(Airport if isinstance(value, dict) else type(value))
    encoded = serde.encode(value)
    assert serde.decode(encoded) == value
    assert serde.encode_many([value, None])[0].to_pylist() == [encoded, None]
    assert agreed(serde, [encoded, None, encoded])[0] == [value, None, value]
    column, failures = serde.decode_arrow(pa.array([encoded, None]))
    assert failures == []
    assert serde.encode_arrow(column)[0].to_pylist() == [encoded, None]


def test_classes_keep_their_own_rules() -> None:
    values, failed = agreed(
        Json(Flight), [b'{"carrier":"UA","x":1}', b"{}", b'{"carrier":null}', b'{"carrier":"\xff"}']
    )
    assert (values[0], failed) == (Flight("UA"), [1, 2, 3])
    assert Json(Flight).encode({"carrier": "UA"}) == b'{"carrier":"UA","delay":null}'
    with pytest.raises(SerdeError, match="carrier"):
        Json(Flight).encode({"delay": 1.0})
    assert Json(Renamed).decode_arrow(pa.array([b"{}"]))[0].to_pylist() == [{"depDelay": 0.0}]
    huge, failures = Json(Plane).decode_arrow(pa.array([b'{"seats":1}', b'{"seats":%d}' % 2**70]))
    assert (huge.field("seats").to_pylist(), [index for index, _ in failures]) == ([1, None], [1])


def test_equal_typed_dicts_are_equal_bytes() -> None:
    both = [{"b": {"y": 1, "x": 2}, "a": 3}, {"a": 3, "b": {"x": 2, "y": 1}}]
    assert Json(Outer).encode_many(both)[0].to_pylist() == [b'{"a":3,"b":{"x":2,"y":1}}'] * 2
    assert Json(Outer).encode(both[0]) == Json(Outer).encode(both[1])
    assert Json(Outer).encode({"a": 3}) == b'{"a":3}'


def test_columns_of_classes_without_a_type_are_refused() -> None:
    for serde in (Json(), Json(Open)):
        with pytest.raises(SchemaError, match="no one Spark type"):
            serde.decode_arrow(pa.array([b"{}"]))


# --- the serde as a value -------------------------------------------------------------------------------------------


class StructTypeOfSpark:
    """What pyspark's StructType has of interest."""

    def jsonValue(self) -> Any:  # noqa: N802 - its name there
        return {"type": "struct", "fields": [{"name": "a", "type": "integer"}]}


def test_schemas_are_compared_by_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    serde = Json("a int, b array<double>")
    assert serde == Json(" struct< a : INTEGER, b: array<double> > ")
    assert hash(serde) == hash(Json("a int, b array<double>"))
    assert serde != Json("b array<double>, a int")
    assert (serde.form, serde.spark_type) == ("json<a int, b array<double>>", "struct<a:int,b:array<double>>")
    assert (repr(serde), repr(Json())) == ("Json('a int, b array<double>')", "Json()")
    assert (Json().form, Json().spark_type) == ("json", None)
    monkeypatch.setattr(StructTypeOfSpark, "__module__", "pyspark.sql.types")
    assert Json(StructTypeOfSpark()) == Json("a int")


@pytest.mark.parametrize("serde", [Json(), Json("a int, `b c` string"), Json("array<int>"), Json(Flight)], ids=repr)
def test_pickling(serde: Json) -> None:
    again = pickle.loads(pickle.dumps(serde))
    assert (again, again.form) == (serde, serde.form)


def test_values_that_are_no_structs() -> None:
    assert agreed(Json("array<int>"), [b"[1,null]", b"{}", b"1", None])[0] == [[1, None], None, None, None]
    assert agreed(Json("map<string,int>"), [b'{"a":1}', b"[]"])[0] == [{"a": 1}, None]
    assert Json("bigint").encode_many([1, "x"])[0].to_pylist() == [b"1", None]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("a foo", "expected a type"),
        ("a map<double,int>", "expected string or integers"),
        (5, "give a DDL string"),
        (object, "give a DDL string"),
    ],
)
def test_what_is_no_schema_is_refused(given: Any, told: str) -> None:
    with pytest.raises(SchemaError) as raised:
        Json(given)
    assert told in str(raised.value)
