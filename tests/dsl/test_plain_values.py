"""Keys and values as people write them, on a command line and as JSON, for every serde."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.cli.json_values import plain, record_of_line
from headrace.cli.states import key_of_text
from headrace.errors import ConfigError, SerdeError
from headrace.serdes.plain_values import value_of_json
from headrace.serdes.serdes import BY_FORM

UUID_1 = uuid.UUID("6f1d9a52-0c5b-4f0e-9d3e-2f8f4a1c7b60")
NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Seat:
    flight: str
    price: Decimal
    at: datetime


SEAT = Seat("UA1", Decimal("1.50"), NEW_YEAR)
SEAT_TEXT = '{"flight": "UA1", "price": "1.50", "at": "2013-01-01T00:00:00Z"}'


class Celsius(hr.OwnSerde[float]):
    form = "celsius"

    def encode(self, value: float) -> bytes:
        return str(round(value * 10)).encode()

    def decode(self, data: bytes) -> float:
        return int(data) / 10


class Upper(hr.OwnSerde[str]):
    form = "upper"

    def encode(self, value: str) -> bytes:
        return value.upper().encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


TEXTS: list[tuple[Any, str, Any]] = [
    (hr.Bytes(), "abc", b"abc"),
    (hr.Bytes(), '{"base64": "/w=="}', b"\xff"),
    (hr.Bytes(), '{"base64": 1}', b'{"base64": 1}'),
    (hr.String(), "7", "7"),
    (hr.Long(), "-7", -7),
    (hr.Int(), "7", 7),
    (hr.Short(), "3", 3),
    (hr.Double(), "1.5", 1.5),
    (hr.Float(), "0.5", 0.5),
    (hr.Boolean(), "true", True),
    (hr.Boolean(), "False", False),
    (hr.UUID(), str(UUID_1), UUID_1),
    (hr.Timestamp(), "2013-01-01T01:00:00+01:00", NEW_YEAR),
    (hr.Timestamp(), "1356998400000000", NEW_YEAR),
    (hr.Decimal(38, 2), "123456789012345678901234567890.50", Decimal("123456789012345678901234567890.50")),
    (hr.Json(), '{"b": 1, "a": [2]}', {"a": [2], "b": 1}),
    (hr.Json("a int"), '{"a": 1}', {"a": 1}),
    (hr.Json(Seat), SEAT_TEXT, SEAT),
    (hr.MessagePack(), '"UA"', "UA"),
    (hr.MessagePack(Seat), SEAT_TEXT, SEAT),
    (Celsius(), "21.5", 21.5),
    (Celsius(), '{"base64": "MjE1"}', 21.5),
    (Upper(), "UA", "UA"),
    (Upper(), "7", "7"),
    (
        hr.Windowed(hr.Decimal(38, 2)),
        '{"key": 123456789012345678901234567890.50, "start": "2013-01-01T00:00:00Z", "end": 1356998400000001}',
        hr.WindowedKey(Decimal("123456789012345678901234567890.50"), NEW_YEAR, 1356998400000001),
    ),
]


@pytest.mark.parametrize(("serde", "text", "value"), TEXTS, ids=repr)
def test_a_key_of_text_is_that_of_its_serde(serde: Any, text: str, value: Any) -> None:
    found = key_of_text(text, serde)
    assert serde.encode(found) == serde.encode(value)
    assert serde.decode(serde.encode(found)) == value


def test_every_serde_of_the_command_line_has_a_text() -> None:
    assert {serde.form.partition("<")[0] for serde, *_ in TEXTS} >= set(BY_FORM)


@pytest.mark.parametrize(
    ("serde", "text", "told"),
    [
        (hr.Short(), "x", "expected `short`"),
        (hr.Short(), "40000", "does not fit into 16 bits"),
        (hr.Boolean(), "1", "expected true or false"),
        (hr.UUID(), "6f1d", "expected a text such as 6f1d9a52"),
        (hr.Timestamp(), "2013-01-01T00:00:00", "expected a time with its zone"),
        (hr.Timestamp(), "9" * 18, "is not in the years 1 to 9999"),
        (hr.Decimal(5, 2), "1.005", "does not fit exactly"),
        (hr.Decimal(5, 2), "much", "expected a number"),
        (hr.MessagePack(), "UA", "expected `messagepack`"),
        (hr.MessagePack(Seat), '{"flight": 1}', "messagepack<Seat>"),
        (hr.Json(), "UA", "json"),
        (hr.Json(), "[" * 100_000, "nested too deep"),
        (Celsius(), "21.55", 'write its bytes: {"base64": "..."}'),
        (Celsius(), "warm", "neither the text nor the JSON 'warm' is a value of Celsius()"),
        (Celsius(), '{"base64": "eA=="}', "invalid literal for int"),
        (Celsius(), '{"base64": "?"}', "base64 '?'"),
        (hr.Windowed(hr.String()), "UA", "expected `windowed<string>`"),
    ],
    ids=repr,
)
def test_a_text_that_is_no_key_says_how_to_write_one(serde: Any, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        key_of_text(text, serde)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("serde", "json", "value"),
    [
        (hr.UUID(), f'"{UUID_1}"', UUID_1),
        (hr.Timestamp(), '"2013-01-01T00:00:00Z"', NEW_YEAR),
        (hr.Timestamp(), "1356998400000000", NEW_YEAR),
        (hr.Decimal(38, 2), "123456789012345678901234567890.50", Decimal("123456789012345678901234567890.50")),
        (hr.Decimal(38, 2), '"0.10"', Decimal("0.10")),
        (hr.Decimal(38), "12345678901234567890123456789012345678", Decimal(12345678901234567890123456789012345678)),
        (hr.Boolean(), "false", False),
        (hr.Float(), "1", 1.0),
        (hr.MessagePack(Seat), SEAT_TEXT, SEAT),
        (hr.Windowed(hr.UUID()), f'{{"key": "{UUID_1}", "start": 0, "end": 1}}', hr.WindowedKey(UUID_1, 0, 1)),
    ],
    ids=repr,
)
def test_a_line_of_json_becomes_a_record_of_its_serdes(serde: Any, json: str, value: Any) -> None:
    record = record_of_line(f'{{"key": {json}, "value": {json}, "headers": {{"n": "1"}}}}'.encode(), 1, serde, serde, 1)
    assert (record.key, record.value) == (serde.encode(value), serde.encode(value))
    assert serde.encode(value_of_json(plain(serde.decode(record.key)), serde)) == record.key  # as `consume` prints it


@pytest.mark.parametrize(
    ("serde", "json", "told"),
    [
        (hr.UUID(), "7", "uuid: expected its text, found 7"),
        (hr.Timestamp(), "true", "expected a time, found bool"),
        (hr.Decimal(5, 2), "true", "expected a number"),
        (hr.Decimal(5, 2), "1.005", "does not fit exactly"),
        (hr.Decimal(5, 2), '"NaN"', "does not fit exactly"),
    ],
)
def test_json_that_does_not_fit_names_the_side(serde: Any, json: str, told: str) -> None:
    with pytest.raises(SerdeError, match="line 3: key: ") as raised:
        record_of_line(f'{{"key": {json}}}'.encode(), 3, serde, hr.Json(), 1)
    assert told in str(raised.value)
