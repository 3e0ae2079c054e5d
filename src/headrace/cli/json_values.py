"""How values look as JSON on the command line, and how they are read from it. Bytes are their UTF-8 text, or `{"base64": ...}`
where they are none; windowed keys are `{"key", "start", "end"}`; times are ISO 8601 in UTC."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from headrace.errors import HeadraceError, SerdeError
from headrace.model.durations import time_text, time_us
from headrace.model.serde import Serde
from headrace.record import Record
from headrace.serdes.plain_values import bytes_of, exact_json, keeps_digits, value_of_json
from headrace.serdes.scalars import Bytes
from headrace.serdes.windowed import TIMES_BYTES, Windowed, WindowedKey

_FIELDS = frozenset({"key", "value", "timestamp", "headers", "partition", "offset"})
_SCALARS = (str, int, float, bool, type(None))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors begin a file with it
_YEAR_2200_US = 7_258_118_400_000_000
_KINDS = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
_TOO_DEEP = "it is nested too deeply"
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def plain(value: Any) -> Any:
    """`value` as what JSON has: msgspec would write bytes as base64, and times in the zone that they have."""
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
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):  # a datetime is one
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


def looks_windowed(key: Any) -> bool:
    """Whether a key that was read as bytes or text ends as one of a window does: start and end between 1970 and 2200.

    >>> key = Windowed(Bytes()).encode(WindowedKey(b"UA", "2013-01-01T00:00:00Z", "2013-01-01T01:00:00Z"))
    >>> looks_windowed(key), looks_windowed(b"an ordinary key of some length")
    (True, False)
    """
    data = key.encode() if isinstance(key, str) else key
    if not isinstance(data, bytes) or len(data) < TIMES_BYTES:
        return False
    window = Windowed(Bytes()).decode(data)
    return 0 <= window.start_us <= window.end_us and 0 < window.end_us < _YEAR_2200_US  # a session may be of one record


def line_of_record(record: Record) -> bytes:
    """A consumed record as one line of JSON. `headers` are an object, or pairs where a name comes twice."""
    pairs = [(name, None if data is None else text_of_bytes(data)) for name, data in record.headers]
    headers = dict(pairs)
    time = None if record.timestamp_us is None else time_text(record.timestamp_us)
    fields = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": time if time is None or time.endswith("Z") else record.timestamp_us,  # µs where no calendar reaches
        "headers": headers if len(headers) == len(pairs) else pairs,
    }
    try:
        return msgspec.json.encode({"key": plain(record.key), "value": plain(record.value), **fields})
    except RecursionError:
        raise SerdeError(
            f"offset {record.offset} of {record.stream!r} partition {record.partition}: {_TOO_DEEP} to be printed as JSON",
            "read it as bytes, without --key and --value",
        ) from None


def record_of_line(line: bytes, number: int, key: Serde, value: Serde, partitions: int) -> Record:
    """A line of JSON as an encoded record for a stream of so many partitions; `SerdeError` names the line and what it lacks."""
    try:
        text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        fields = _fields_of(text)
        return Record(
            key=_encoded("key", _exact("key", fields, text, key), key),
            value=_encoded("value", _exact("value", fields, text, value), value),
            timestamp_us=_time(fields.get("timestamp")),
            headers=_headers(fields.get("headers")),
            partition=_partition(fields.get("partition"), partitions),
        )
    except HeadraceError as error:
        raise SerdeError(
            f"line {number}: {error.message}",
            'a line is {"key": ..., "value": ...}, with "timestamp", "headers" and "partition" where they are wanted',
        ) from None


def _fields_of(line: bytes) -> dict[str, Any]:
    try:
        line.decode()  # first: what msgspec says of other bytes depends on their place
        fields = msgspec.json.decode(line)
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is 0x{line[error.start]:02x}"
        raise SerdeError(f'it is no UTF-8: {found}; bytes that are no text are written {{"base64": ...}}') from None
    except msgspec.DecodeError as error:
        raise SerdeError(f"it is no JSON: {error}", "write one JSON value, such as \"tea\" or 12") from None
    except RecursionError:
        raise SerdeError(_TOO_DEEP) from None
    if not isinstance(fields, dict):
        raise SerdeError(f"expected an object, found {_KINDS.get(type(fields), 'a number')}")
    if unknown := sorted(set(fields) - _FIELDS):
        raise SerdeError(f"there is no field {unknown[0]!r} in a record; expected {', '.join(sorted(_FIELDS))}")
    return fields


def _exact(side: str, fields: dict[str, Any], line: bytes, serde: Serde) -> Any:
    """A field with all digits of its numbers, where its serde keeps them."""
    if fields.get(side) is None or not keeps_digits(serde):
        return fields.get(side)
    return exact_json(bytes(_RAW.decode(line)[side]), serde)


def _encoded(side: str, value: Any, serde: Serde) -> bytes | None:
    if value is None:
        return None
    try:
        return serde.encode(value_of_json(value, serde))
    except HeadraceError as error:
        raise SerdeError(f"{side}: {error.message}") from None
    except RecursionError:
        raise SerdeError(f"{side}: {_TOO_DEEP}") from None
    except Exception as error:  # a serde of the user's: anything may come
        raise SerdeError(f"{side}: {type(error).__name__}: {error}") from None


def _time(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise SerdeError(f"timestamp: expected ISO 8601 text or µs since 1970, found {value!r:.60}")
    return time_us(value, "timestamp")


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(value.items()) if isinstance(value, dict) else [] if value is None else value
    if not isinstance(pairs, list) or any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pairs):
        raise SerdeError(f"headers: expected an object, or a list of pairs, found {value!r:.60}")
    found: list[tuple[str, bytes | None]] = []
    for name, data in pairs:
        if not isinstance(name, str):
            raise SerdeError(f"headers: expected a text as name, found {name!r:.60}")
        try:
            found.append((name, None if data is None else bytes_of(data)))
        except HeadraceError as error:
            raise SerdeError(f"header {name!r}: {error.message}") from None
    return tuple(found)


def _partition(value: Any, partitions: int) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < partitions):
        return value
    raise SerdeError(f"partition: expected a whole number from 0 to {partitions - 1}, found {value!r:.60}")
