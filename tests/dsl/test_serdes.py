"""The serdes of values without parts and of windowed keys: Kafka's bytes, one by one and in arrays alike."""

from __future__ import annotations

import dataclasses
import math
import pickle
import struct
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError, SchemaError, SerdeError
from headrace.model.serde import Serde
from headrace.serdes.json_serde import Json
from headrace.serdes.scalars import Bytes, Double, Int, Long, String
from headrace.serdes.serdes import natural_serde, serde_of_annotation, serde_of_spark_type, serde_of_text
from headrace.serdes.windowed import Windowed, WindowedKey

SCALARS = [Bytes(), String(), Long(), Int(), Double()]
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
    "long": LONGS,
    "int": INTS,
    "double": st.floats(allow_nan=False),
}


def each_way(serde: Any, values: list[Any]) -> list[bytes | None]:
    """The bytes of `values`, after asserting that every way to them and back agrees."""
    single = [None if value is None else serde.encode(value) for value in values]
    many, failures = serde.encode_many(values)
    assert (many.type, many.to_pylist(), failures) == (pa.binary(), single, [])
    padded = pa.array([b"before", *single, None], pa.binary())[1:-1]  # a slice: its memory begins elsewhere
    assert serde.decode_many(padded) == (values, [])
    typed, failures = serde.decode_arrow(padded)
    typed.validate(full=True)
    assert (typed.to_pylist(), failures) == (values, [])
    back, failures = serde.encode_arrow(typed)
    back.validate(full=True)
    assert (back.to_pylist(), failures) == (single, [])
    return single


@pytest.mark.parametrize("serde", SCALARS, ids=repr)
@given(data=st.data())
def test_every_way_agrees(serde: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[serde.form], max_size=8))
    encoded = each_way(serde, values)
    assert [None if one is None else serde.decode(one) for one in encoded] == values


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (Bytes(), b"\x00\xff", b"\x00\xff"),
        (String(), "Zürich", b"Z\xc3\xbcrich"),
        (String(), "", b""),
        (Long(), 1, b"\0\0\0\0\0\0\0\x01"),
        (Long(), -2, b"\xff\xff\xff\xff\xff\xff\xff\xfe"),
        (Int(), 258, b"\0\0\x01\x02"),
        (Double(), 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
    ],
)
def test_bytes_are_those_of_kafka(serde: Any, value: Any, data: bytes) -> None:
    assert (serde.encode(value), serde.decode(data)) == (data, value)
    assert each_way(serde, [value, None]) == [data, None]


@pytest.mark.parametrize("serde", SCALARS, ids=repr)
def test_a_serde_is_a_value(serde: Any) -> None:
    assert isinstance(serde, Serde)
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert hash(again) == hash(serde)
    assert repr(serde) == f"{type(serde).__name__}()"
    assert [other for other in SCALARS if other == serde] == [serde]


def test_nan_and_infinity_stay_what_they_are() -> None:
    each_way(Double(), [math.inf, -math.inf])
    assert math.isnan(Double().decode(Double().encode(math.nan)))
    assert math.isnan(Double().decode_many(Double().encode_many([math.nan])[0])[0][0])
    assert str(Double().decode_many(Double().encode_many([-0.0])[0])[0][0]) == "-0.0"


@pytest.mark.parametrize(
    ("serde", "value", "told"),
    [
        (Bytes(), "text", "use String()"),
        (Bytes(), 5, "expected bytes, found int 5"),
        (String(), b"raw", "use Bytes()"),
        (String(), 5, "use Long()"),
        (String(), "\ud800", "has no UTF-8"),
        (Long(), True, "found bool True"),
        (Long(), 1.0, "use Double()"),
        (Long(), "1", "expected int, found str"),
        (Long(), 2**63, "does not fit into 64 bits"),
        (Int(), 2**31, "use Long()"),
        (Int(), -(2**31) - 1, "does not fit into 32 bits"),
        (Double(), True, "found bool"),
        (Double(), "1.0", "found str"),
        (Double(), 10**400, "beyond the range"),
    ],
)
def test_what_does_not_belong_is_refused_and_named(serde: Any, value: Any, told: str) -> None:
    with pytest.raises(SerdeError) as raised:
        serde.encode(value)
    assert told in str(raised.value)
    right = {"bytes": b"a", "string": "a", "long": 1, "int": 1, "double": 1.5}[serde.form]
    encoded, failures = serde.encode_many([right, value, None])
    assert encoded.to_pylist() == [serde.encode(right), None, None]
    assert [(index, str(error)) for index, error in failures] == [(1, str(raised.value))]


@pytest.mark.parametrize("serde", [Long(), Int()], ids=repr)
def test_integers_of_numpy_are_integers(serde: Any) -> None:
    assert serde.encode(np.int64(7)) == serde.encode(7)
    assert serde.encode_many([np.int32(7), 7])[0].to_pylist() == [serde.encode(7)] * 2


def test_double_takes_whole_numbers() -> None:
    assert Double().encode(5) == Double().encode(5.0)
    large = 2**53 + 1
    assert Double().encode_many([large, 1.5])[0].to_pylist() == [Double().encode(float(large)), Double().encode(1.5)]


@pytest.mark.parametrize(("serde", "width"), [(Long(), 8), (Int(), 4), (Double(), 8)])
def test_a_wrong_length_fails_alone(serde: Any, width: int) -> None:
    good = serde.encode(3)
    data = pa.array([good, b"", None, b"12345", good, good + b"\0"], pa.binary())
    values, failures = serde.decode_many(data)
    assert values == [3, None, None, None, 3, None]
    assert [index for index, _ in failures] == [1, 3, 5]
    assert f"expected {width} bytes, found 5" in str(failures[1][1])
    assert "use String()" in str(failures[1][1])
    typed, again = serde.decode_arrow(data)
    assert typed.to_pylist() == values
    assert [index for index, _ in again] == [1, 3, 5]
    with pytest.raises(SerdeError, match=f"expected {width} bytes, found 0"):
        serde.decode(b"")


def test_bytes_that_are_no_text_fail_alone() -> None:
    data = pa.array([b"ok", b"\xff", None, b"\xed\xa0\x80", b""], pa.binary())
    values, failures = String().decode_many(data)
    assert values == ["ok", None, None, None, ""]
    assert [index for index, _ in failures] == [1, 3]
    assert all(isinstance(error, SerdeError) for _, error in failures)
    with pytest.raises(SerdeError, match="expected UTF-8"):
        String().decode(b"\xff")


def test_arrays_of_another_type_are_refused() -> None:
    assert Long().encode_arrow(pa.array([1], pa.int32()))[0].to_pylist() == [Long().encode(1)]
    assert Double().encode_arrow(pa.array([1.5], pa.float32()))[0].to_pylist() == [Double().encode(1.5)]
    with pytest.raises(SerdeError, match="cast the expression to bigint"):
        Long().encode_arrow(pa.array(["1"]))


def test_of_an_array_only_the_numbers_that_do_not_fit_fail() -> None:
    data, failures = Int().encode_arrow(pa.array([1, 2**40, None]))
    assert data.to_pylist() == [Int().encode(1), None, None]
    assert [(index, type(error)) for index, error in failures] == [(1, SerdeError)]


# --- windowed keys --------------------------------------------------------------------------------------------------

MIDNIGHT = datetime(2013, 1, 1, tzinfo=UTC)
MIDNIGHT_US = 1_356_998_400_000_000
HOUR_US = 3_600_000_000
TIMES = st.integers(-(2**63), 2**63 - 1)


def test_windowed_key_is_a_value() -> None:
    key = WindowedKey("UA", MIDNIGHT, MIDNIGHT + timedelta(hours=1))
    same = WindowedKey("UA", MIDNIGHT_US, MIDNIGHT_US + HOUR_US)
    assert key == same
    assert hash(key) == hash(same)
    assert (key.start, key.end_us - key.start_us, key.end.tzinfo) == (MIDNIGHT, HOUR_US, UTC)
    assert repr(key) == "WindowedKey('UA', '2013-01-01T00:00:00Z', '2013-01-01T01:00:00Z')"
    assert eval(repr(key)) == key  # noqa: S307 - its own repr
    assert pickle.loads(pickle.dumps(key)) == key
    assert key != ("UA", MIDNIGHT_US, MIDNIGHT_US + HOUR_US)
    elsewhere = MIDNIGHT.astimezone(timezone(timedelta(hours=-5)))
    assert WindowedKey("UA", elsewhere, MIDNIGHT_US + HOUR_US) == key
    with pytest.raises(AttributeError):
        key.key = "AA"
    with pytest.raises(ConfigError, match="without"):
        WindowedKey("UA", datetime(2013, 1, 1), MIDNIGHT)  # noqa: DTZ001 - what is refused


@given(st.lists(st.tuples(st.text(max_size=2), st.integers(-3, 3), st.integers(-3, 3))))
def test_windowed_keys_have_the_order_of_their_parts(parts: list[tuple[str, int, int]]) -> None:
    ordered = sorted(WindowedKey(*part) for part in parts)
    assert [(key.key, key.start_us, key.end_us) for key in ordered] == sorted(parts)


def test_windowed_bytes() -> None:
    key = WindowedKey("UA", MIDNIGHT_US, MIDNIGHT_US + HOUR_US)
    data = b"UA" + struct.pack(">qq", MIDNIGHT_US, MIDNIGHT_US + HOUR_US)
    serde = Windowed(String())
    assert (serde.encode(key), serde.decode(data), serde.inner_of(data)) == (data, key, b"UA")
    assert serde.form == "windowed<string>"
    assert serde.spark_type == "struct<key:string,start:timestamp,end:timestamp>"
    assert Windowed(Json()).spark_type is None
    assert serde == pickle.loads(pickle.dumps(serde)) != Windowed(Bytes())
    assert (repr(serde), isinstance(serde, Serde)) == ("Windowed(String())", True)


@given(st.lists(st.none() | st.builds(WindowedKey, st.text(max_size=5), TIMES, TIMES), max_size=6))
def test_windowed_every_way_agrees(keys: list[WindowedKey | None]) -> None:
    serde = Windowed(String())
    single = [None if key is None else serde.encode(key) for key in keys]
    assert serde.encode_many(keys)[0].to_pylist() == single
    data = pa.array([b"x", *single], pa.binary())[1:]
    assert serde.decode_many(data) == (keys, [])
    assert serde.inner_many(data).to_pylist() == [None if key is None else key.key.encode() for key in keys]
    starts = np.array([0 if key is None else key.start_us for key in keys], dtype=np.int64)
    ends = np.array([0 if key is None else key.end_us for key in keys], dtype=np.int64)
    assert serde.encode_parts(serde.inner_many(data), starts, ends).to_pylist() == single
    typed, failures = serde.decode_arrow(data)
    typed.validate(full=True)
    assert failures == []
    assert typed.field("start").cast(pa.int64()).to_pylist() == starts.tolist()
    assert serde.encode_arrow(typed)[0].to_pylist() == single


def test_windowed_failures_stay_alone() -> None:
    serde = Windowed(Long())
    good = serde.encode(WindowedKey(1, 0, 10))
    data = pa.array([good, b"short", None, b"x" + good[8:], good])
    values, failures = serde.decode_many(data)
    assert values == [WindowedKey(1, 0, 10), None, None, None, WindowedKey(1, 0, 10)]
    assert [index for index, _ in failures] == [1, 3]
    assert "expected the key and 16 bytes of times, found 5 bytes" in str(failures[0][1])
    typed, again = serde.decode_arrow(data)
    assert typed.is_null().to_pylist() == [False, True, True, True, False]
    assert [index for index, _ in again] == [1, 3]
    encoded, failures = serde.encode_many([WindowedKey(1, 0, 10), WindowedKey("no", 0, 1), "plain", None])
    assert encoded.to_pylist() == [good, None, None, None]
    assert [index for index, _ in failures] == [1, 2]
    with pytest.raises(SerdeError, match="plain keys, not windowed ones"):
        serde.inner_many(data)
    with pytest.raises(SerdeError, match="do not fit into 64 bits"):
        serde.encode(WindowedKey(1, 2**63, 0))
    with pytest.raises(SerdeError, match="Windowed: expected the serde"):
        Windowed(String)  # type: ignore[arg-type]


# --- which serde belongs to what ------------------------------------------------------------------------------------


class Flight(msgspec.Struct):
    carrier: str
    delay: float | None = None


@dataclasses.dataclass
class Plane:
    seats: int


class Airport(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("annotation", "serde"),
    [
        (str, String()),
        (int, Long()),
        (float, Double()),
        (bytes, Bytes()),
        (bool, Json()),
        (dict, Json()),
        (dict[str, Any], Json()),
        (list[int], Json()),
        (int | None, Long()),
        (Annotated[str, "a name"], String()),
        (Flight, Json(Flight)),
        (Flight | None, Json(Flight)),
        (Plane, Json(Plane)),
        (Airport, Json(Airport)),
        (Any, None),
        (int | str, None),
        (complex, None),
        ("int", None),
    ],
)
def test_serde_of_annotation(annotation: Any, serde: Any) -> None:
    assert serde_of_annotation(annotation) == serde


@pytest.mark.parametrize(
    ("text", "serde"),
    [
        ("int", Int()),
        ("bigint", Long()),
        ("double", Double()),
        ("string", String()),
        ("binary", Bytes()),
        ("struct<a:int>", Json("a int")),
        ("array<string>", Json("array<string>")),
        ("map<string,int>", Json("map<string, int>")),
        ("date", None),
        ("tinyint", None),
    ],
)
def test_serde_of_spark_type(text: str, serde: Any) -> None:
    assert serde_of_spark_type(text) == serde
    if serde is not None:
        assert serde.spark_type == text


@pytest.mark.parametrize(
    ("value", "serde"),
    [
        ("a", String()),
        (True, Json()),
        (5, Long()),
        (5.0, Double()),
        (b"a", Bytes()),
        ({}, Json()),
        ([1], Json()),
        (Flight("UA"), Json(Flight)),
        (WindowedKey("UA", 0, 1), Windowed(String())),
    ],
)
def test_natural_serde(value: Any, serde: Any) -> None:
    assert natural_serde(value) == serde
    assert natural_serde(value).decode(natural_serde(value).encode(value)) == value


def test_natural_serde_refuses_what_has_none() -> None:
    for value in (None, object()):
        with pytest.raises(SerdeError, match="no serde belongs to"):
            natural_serde(value)


@pytest.mark.parametrize(
    ("text", "serde"),
    [
        ("string", String()),
        ("LONG", Long()),
        ("int", Int()),
        ("double", Double()),
        ("bytes", Bytes()),
        ("json", Json()),
        ("json:a int, b string", Json("a int, b string")),
        ("windowed:string", Windowed(String())),
        ("windowed:json:a int", Windowed(Json("a int"))),
    ],
)
def test_serde_of_text(text: str, serde: Any) -> None:
    assert serde_of_text(text) == serde


@pytest.mark.parametrize("text", ["", "avro", "string:x", "windowed", "windowed:", "json:a foo"])
def test_serde_of_text_refuses(text: str) -> None:
    with pytest.raises(SchemaError):
        serde_of_text(text)
