"""Owns how values look as JSON on the command line, and how they are read from it.

Bytes are their UTF-8 text, or `{"base64": ...}` where they are none; windowed keys are `{"key", "start", "end"}`; times
are ISO 8601 in UTC.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from headrace.dsl.durations import time_text, time_us
from headrace.dsl.scalars import Bytes
from headrace.dsl.windowed import Windowed, WindowedKey
from headrace.errors import HeadraceError, SerdeError
from headrace.model.serde import Serde
from headrace.record import Record

_FIELDS = frozenset({"key", "value", "timestamp", "headers", "partition", "offset"})
_SCALARS = (str, int, float, bool, type(None))


def plain(value: Any) -> Any:
    """`value` as what JSON has."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return text_of_bytes(bytes(value))
    if isinstance(value, WindowedKey):
        return {"key": plain(value.key), "start": time_text(value.start_us), "end": time_text(value.end_us)}
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(plain(key)): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        zoned = value if value.tzinfo is None else value.astimezone(UTC)
        return zoned.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return plain(msgspec.to_builtins(value, builtin_types=(bytes, datetime, date, Decimal)))


def text_of_bytes(data: bytes) -> Any:
    """
    >>> text_of_bytes(b"abc"), text_of_bytes(bytes([255]))
    ('abc', {'base64': '/w=='})
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def line_of_record(record: Record) -> bytes:
    """A consumed record as one line of JSON. `headers` are an object, or pairs where a name comes twice."""
    headers: Any = {name: None if data is None else text_of_bytes(data) for name, data in record.headers}
    if len(headers) < len(record.headers):
        headers = [[name, None if data is None else text_of_bytes(data)] for name, data in record.headers]
    return msgspec.json.encode(
        {
            "key": plain(record.key),
            "value": plain(record.value),
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": None if record.timestamp_us is None else time_text(record.timestamp_us),
            "headers": headers,
        }
    )


def record_of_line(line: bytes, number: int, key: Serde, value: Serde) -> Record:
    """A line of JSON as a record with encoded key and value; `SerdeError` names the line and says what it lacks."""
    try:
        fields = msgspec.json.decode(line)
        if not isinstance(fields, dict):
            raise SerdeError(f"expected an object, found {type(fields).__name__}")
        if unknown := sorted(set(fields) - _FIELDS):
            raise SerdeError(f"there is no field {unknown[0]!r} in a record; expected {', '.join(sorted(_FIELDS))}")
        return Record(
            key=_encoded("key", fields.get("key"), key),
            value=_encoded("value", fields.get("value"), value),
            timestamp_us=_time(fields.get("timestamp")),
            headers=_headers(fields.get("headers")),
            partition=_partition(fields.get("partition")),
        )
    except (msgspec.DecodeError, HeadraceError) as error:
        message = error.message if isinstance(error, HeadraceError) else f"it is no JSON: {error}"
        raise SerdeError(
            f"line {number}: {message}",
            'a line is {"key": ..., "value": ...}, with "timestamp", "headers" and "partition" where they are wanted',
        ) from None


def _encoded(side: str, value: Any, serde: Serde) -> bytes | None:
    if value is None:
        return None
    try:
        return serde.encode(_native(value, serde))
    except HeadraceError as error:
        raise SerdeError(f"{side}: {error.message}") from None
    except Exception as error:  # a serde of the user's: anything may come
        raise SerdeError(f"{side}: {type(error).__name__}: {error}") from None


def _native(value: Any, serde: Serde) -> Any:
    """What the serde takes, of what JSON has."""
    if isinstance(serde, Bytes):
        return bytes_of(value)
    if isinstance(serde, Windowed):
        if not isinstance(value, dict) or set(value) != {"key", "start", "end"}:
            raise SerdeError(f'expected {{"key", "start", "end"}}, found {value!r:.60}')
        return WindowedKey(_native(value["key"], serde.inner), time_us(value["start"]), time_us(value["end"]))
    if serde.form == "double" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def bytes_of(value: Any) -> bytes:
    """
    >>> bytes_of("abc"), bytes_of({"base64": "/w=="})
    (b'abc', b'\\xff')
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise SerdeError(f"base64 {value['base64']!r:.60}: {error}") from None
    raise SerdeError(f'expected a text or {{"base64": ...}}, found {value!r:.60}', "name another serde, such as json")


def _time(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise SerdeError(f"timestamp: expected ISO 8601 text or µs since 1970, found {value!r:.60}")
    return time_us(value, "timestamp")


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or any(not isinstance(p, (list, tuple)) or len(p) != 2 for p in pairs):
        raise SerdeError(f"headers: expected an object, or a list of pairs, found {value!r:.60}")
    if bad := next((name for name, _ in pairs if not isinstance(name, str)), None):
        raise SerdeError(f"headers: expected a text as name, found {bad!r:.60}")
    return tuple((name, None if data is None else bytes_of(data)) for name, data in pairs)


def _partition(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise SerdeError(f"partition: expected a whole number, found {value!r:.60}")
