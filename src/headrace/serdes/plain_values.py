"""The one place that makes keys and values of what people write: of JSON (`value_of_json`), and of a text on a command line or
in a URL (`value_of_text`). What each serde takes is in the tables at the end.

Bytes are a text, or `{"base64": ...}` where they are none; so may a value of one's own serde be written. Times are ISO 8601
with a zone, or µs since 1970. A decimal is a text or a number, of which no digit is lost: `exact_json` keeps them.
"""

from __future__ import annotations

import base64
import decimal
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from headrace.errors import HeadraceError, SerdeError
from headrace.model.durations import datetime_of, time_us
from headrace.model.serde import Serde
from headrace.serdes.json_serde import Json
from headrace.serdes.logical import UUID, Decimal, Timestamp
from headrace.serdes.own import OwnSerde
from headrace.serdes.scalars import Boolean, Bytes, Double, Float, Int, Long, Short, String, shown
from headrace.serdes.windowed import Windowed, WindowedKey

_BASE64 = "base64"
_AS_BASE64 = 'write its bytes: {"base64": "..."}'
_EXACT = msgspec.json.Decoder(float_hook=decimal.Decimal)


def value_of_json(value: Any, serde: Serde) -> Any:
    """What a serde encodes, of a value that JSON has; `SerdeError` where it is known to be none. Of serdes that are not in the
    table it is the value itself.

    >>> value_of_json("0.10", Decimal(5, 2)), value_of_json({"base64": "/w=="}, Bytes())
    (Decimal('0.10'), b'\\xff')
    """
    make = _OF_JSON.get(type(serde))
    if make is not None:
        return make(value, serde)
    if isinstance(serde, OwnSerde) and is_base64(value):
        return serde.decode(bytes_of(value))
    return value


def value_of_text(text: str, serde: Serde) -> Any:
    """What a serde encodes, of a text; `SerdeError` says how it is written where it is none.

    >>> value_of_text("7", Long()), value_of_text("7", String()), value_of_text("true", Boolean())
    (7, '7', True)
    """
    make = _OF_TEXT.get(type(serde))
    try:
        if make is not None:
            return make(text, serde)
        return _own_of_text(text, serde) if isinstance(serde, OwnSerde) else value_of_json(exact_json(text, serde), serde)
    except (ValueError, msgspec.MsgspecError) as error:
        raise SerdeError(f"expected `{serde.form}`, found {shown(text)}: {error}") from None


def exact_json(text: str | bytes, serde: Serde) -> Any:
    """JSON for a serde: that of a decimal, also within the key of a window, with all digits of its numbers.

    >>> exact_json("12345678901234567890.5", Decimal(38, 1)), exact_json("0.50", Double())
    (Decimal('12345678901234567890.5'), 0.5)
    """
    return _EXACT.decode(text) if keeps_digits(serde) else msgspec.json.decode(text)


def keeps_digits(serde: Serde) -> bool:
    """Whether the numbers of its JSON may have more digits than a float has."""
    return isinstance(getattr(serde, "inner", serde), Decimal)


def is_base64(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {_BASE64} and isinstance(value[_BASE64], str)


def bytes_of(value: Any) -> bytes:
    """
    >>> bytes_of("abc"), bytes_of({"base64": "/w=="})
    (b'abc', b'\\xff')
    """
    if isinstance(value, str):
        return value.encode()
    if is_base64(value):
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except ValueError as error:  # binascii.Error is one; another is text that is not even ASCII
            raise SerdeError(f"base64 {value[_BASE64]!r:.60}: {error}") from None
    raise SerdeError(f'expected a text or {{"base64": ...}}, found {value!r:.60}', "name another serde, such as json")


def _windowed(value: Any, serde: Any) -> WindowedKey:
    if not isinstance(value, dict) or set(value) != {"key", "start", "end"}:
        raise SerdeError(f'expected {{"key", "start", "end"}}, found {value!r:.60}')
    return WindowedKey(value_of_json(value["key"], serde.inner), time_us(value["start"]), time_us(value["end"]))


def _uuid(value: Any, serde: Any) -> uuid.UUID:
    if not isinstance(value, str):
        raise SerdeError(f"uuid: expected its text, found {shown(value)}")
    found: uuid.UUID = serde.decode(value.strip().encode())
    return found


def _timestamp(value: Any, serde: Any) -> datetime:
    try:
        return datetime_of(time_us(value, "timestamp"))
    except (OverflowError, ValueError):
        raise SerdeError(f"timestamp: {shown(value)} is not in the years 1 to 9999") from None


def _decimal(value: Any, serde: Any) -> decimal.Decimal:
    is_number = isinstance(value, (str, int, float, decimal.Decimal)) and not isinstance(value, bool)
    try:
        if is_number:
            return decimal.Decimal(repr(value) if isinstance(value, float) else value)
    except decimal.InvalidOperation:
        pass
    raise SerdeError(f"{serde.form}: expected a number, as one or as its text, found {shown(value)}")


def _double(value: Any, serde: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _boolean(text: str, serde: Any) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise SerdeError(f"boolean: expected true or false, found {shown(text)}")
    return found


def _time_of_text(text: str, serde: Any) -> datetime:
    return _timestamp(int(text) if text.strip().lstrip("-").isdecimal() else text, serde)


def _bytes_of_text(text: str, serde: Any) -> bytes:
    found = _json_or_none(text) if text.lstrip().startswith("{") else None
    return bytes_of(found if is_base64(found) else text)


def _own_of_text(text: str, serde: Any) -> Any:
    """Of one's own serde: the text, or the JSON in it, whichever comes back from its bytes as it went in; or its bytes."""
    found = _json_or_none(text)
    if is_base64(found):
        return _tried(lambda: serde.decode(bytes_of(found)), text, serde)
    for value in (text, found):
        try:
            if value is not None and serde.decode(serde.encode(value)) == value:
                return value
        except Exception:  # the user's code, which was not made for this value
            continue
    raise SerdeError(f"{serde.form}: neither the text nor the JSON {shown(text)} is a value of {serde!r}", _AS_BASE64)


def _tried(make: Callable[[], Any], text: str, serde: Any) -> Any:
    try:
        return make()
    except HeadraceError:
        raise
    except Exception as error:  # the user's own code: anything may come
        raise SerdeError(f"{serde.form}: {type(error).__name__}: {error}; found {shown(text)}") from None


def _json_or_none(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


Make = Callable[[Any, Any], Any]
_OF_JSON: dict[type, Make] = {
    Bytes: lambda value, serde: bytes_of(value),
    Windowed: _windowed,
    UUID: _uuid,
    Timestamp: _timestamp,
    Decimal: _decimal,
    Double: _double,
    Float: _double,
}
_OF_TEXT: dict[type, Make] = {
    Bytes: _bytes_of_text,
    String: lambda text, serde: text,
    **dict.fromkeys((Long, Int, Short), lambda text, serde: int(text)),
    **dict.fromkeys((Double, Float), lambda text, serde: float(text)),
    Boolean: _boolean,
    UUID: _uuid,
    Timestamp: _time_of_text,
    Decimal: _decimal,
    Json: lambda text, serde: serde.decode(text.encode()),
}
