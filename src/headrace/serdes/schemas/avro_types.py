"""What an Avro schema means here: the Spark type of its values, and the check of a value before it is written.

Logical types without a type of Spark's are read as what they are stored as (`time-micros` as a number), uuid as text. fastavro
writes 1.5 as the int 1, 2**31 as a long and a time without a zone as local time, without a word; so every value is checked
first, and brought into the form that is written as it was meant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from headrace.errors import SerdeError
from headrace.serdes.ddl import (
    DECIMAL_PRECISION_MAX,
    ArrayType,
    DecimalType,
    MapType,
    NoOneTypeError,
    ScalarType,
    SparkType,
    StructField,
    StructType,
)
from headrace.serdes.scalars import shown

Named = Mapping[str, Any]
Check = Callable[[Any], Any]
UUID_MARK = "headrace.uuid"  # on a text: fastavro keeps what it does not know

_SCALARS = {kind: kind for kind in ("boolean", "int", "float", "double", "string")}
_SCALARS |= {"long": "bigint", "bytes": "binary", "fixed": "binary", "enum": "string"}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}


def readable(schema: Any) -> Any:
    """The schema without the logical types that are read as what they are stored as; the bytes are the same.

    >>> readable({"type": "int", "logicalType": "time-millis"})
    {'type': 'int'}
    """
    if isinstance(schema, list):
        return [readable(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    parts = ("items", "values", "type", "fields")
    result = {key: readable(value) if key in parts else value for key, value in schema.items()}
    if not _is_kept(schema):
        result.pop("logicalType", None)
    if schema.get("logicalType") == "uuid" and schema.get("type") == "string":
        result[UUID_MARK] = True
    return result


def _is_kept(schema: Mapping[str, Any]) -> bool:
    logical = schema.get("logicalType")
    if logical != "decimal":
        return logical in _LOGICAL
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= DECIMAL_PRECISION_MAX


def _resolved(schema: Any, named: Named) -> Mapping[str, Any]:
    """A schema out of references, and of types that only hold another one; of a union its `branches`."""
    while not isinstance(schema, list):
        if isinstance(schema, str):
            if schema not in named:
                return {"type": schema}
            schema = named[schema]
        elif isinstance(schema["type"], (list, Mapping)) or schema["type"] in named:
            schema = schema["type"]
        else:
            found: Mapping[str, Any] = schema
            return found
    return {"type": "union", "branches": schema}


def type_of(schema: Any, named: Named, inside: tuple[str, ...] = ()) -> SparkType:
    """The Spark type of a parsed schema; `NoOneTypeError` for unions of several types, and for types inside themselves."""
    match _resolved(schema, named):
        case {"type": "union", "branches": branches}:
            rest = [branch for branch in branches if branch != "null"]
            if len(rest) == 1:
                return type_of(rest[0], named, inside)
            if sorted(map(str, rest)) == ["int", "long"]:
                return ScalarType("bigint")
            raise NoOneTypeError(f"a union of {len(rest)} types")
        case {"type": "record" | "error", "name": name, "fields": fields}:
            if name in inside:
                raise NoOneTypeError(f"{name} holds itself")
            around = (*inside, name)
            return StructType(tuple(StructField(each["name"], type_of(each["type"], named, around)) for each in fields))
        case {"type": "array", "items": items}:
            return ArrayType(type_of(items, named, inside))
        case {"type": "map", "values": values}:
            return MapType(ScalarType("string"), type_of(values, named, inside))
        case {"logicalType": "decimal", "precision": precision, **rest_of}:
            return DecimalType(precision, rest_of.get("scale", 0))
        case {"logicalType": logical}:
            return ScalarType(_LOGICAL[logical])
        case {"type": kind} if kind in _SCALARS:
            return ScalarType(_SCALARS[kind])
    raise NoOneTypeError(f"{schema} has no Spark type")


_NUMBERS_BITS = {"int": 32, "long": 64}


def check_of(schema: Any, named: Named, known: dict[str, Check] | None = None) -> Check:
    """What brings a value into the form that fastavro writes as it was meant, or raises `SerdeError`. `known` has a check per
    named type, so that a type may hold itself."""
    made: dict[str, Check] = {} if known is None else known
    match _resolved(schema, named):
        case {"type": "union", "branches": branches}:
            rest = [check_of(branch, named, made) for branch in branches if branch != "null"]
            return _union_check(rest, optional=len(rest) < len(branches))
        case {"type": "record" | "error", "name": name, "fields": fields}:
            if name not in made:
                made[name] = lambda value: made[name](value)  # noqa: PLW0108 - for those in it: it is not made yet
                checks = {each["name"]: (check_of(each["type"], named, made), "default" in each) for each in fields}
                made[name] = _record_check(name, checks)
            return made[name]
        case {"type": "array", "items": items}:
            return _array_check(check_of(items, named, made))
        case {"type": "map", "values": values}:
            return _map_check(check_of(values, named, made))
        case scalar:
            return _scalar_check(scalar["type"], scalar)


def _union_check(checks: list[Check], *, optional: bool) -> Check:
    if len(checks) == 1:
        inner = checks[0]
        return (lambda value: None if value is None else inner(value)) if optional else inner

    def check(value: Any) -> Any:
        if value is None and optional:
            return None
        for one in checks:
            try:
                return one(value)
            except SerdeError:
                continue
        raise SerdeError(
            f"{shown(value)} is of none of the {len(checks)} types of a union",
            "give a value of one of the types, or add its type to the union",
        )

    return check


def _record_check(name: str, fields: Mapping[str, tuple[Check, bool]]) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise SerdeError(f"expected a dict for {name}, found {type(value).__name__} {shown(value)}")
        result = {}
        for field, (inner, has_default) in fields.items():
            if field not in value and has_default:
                continue
            try:
                result[field] = inner(value.get(field))
            except SerdeError as error:
                raise SerdeError(f"field {field}: {error.message}", error.hint) from None
        if len(result) < len(value) and (unknown := [key for key in value if key not in fields]):
            raise SerdeError(f"{name} has no field {unknown[0]!r}", f"the fields are: {', '.join(fields)}")
        return result

    return check


def _array_check(inner: Check) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
            raise SerdeError(f"expected a list, found {type(value).__name__} {shown(value)}")
        return [inner(each) for each in value]

    return check


def _map_check(inner: Check) -> Check:
    """In the order of the keys, so that equal maps are equal bytes; Arrow gives maps as pairs."""

    def check(value: Any) -> Any:
        try:
            entries = dict(value)
            return {key: inner(entries[key]) for key in sorted(entries)}
        except (TypeError, ValueError):
            raise SerdeError(f"expected a dict with texts as keys, found {type(value).__name__} {shown(value)}") from None

    return check


def _scalar_check(kind: str, schema: Mapping[str, Any]) -> Check:
    logical = schema.get("logicalType")
    if logical == "decimal":
        return _decimal_check(schema)
    if logical == "date":
        return lambda value: value if type(value) is date else _wrong("a date", value)
    if logical is not None:
        return _time_check(logical)
    if bits := _NUMBERS_BITS.get(kind):
        return _whole_check(kind, bits)
    if kind == "string" and schema.get(UUID_MARK):
        return _uuid
    if kind == "float":
        return _float32
    if kind == "enum":
        symbols = frozenset(schema["symbols"])
        return lambda value: value if value in symbols else _wrong(f"one of {', '.join(sorted(symbols))}", value)
    if kind == "fixed":
        size = schema["size"]
        return lambda value: bytes(value) if _is_bytes(value) and len(value) == size else _wrong(f"{size} bytes", value)
    return _OTHERS[kind]


def _wrong(expected: str, value: Any, hint: str | None = None) -> Any:
    raise SerdeError(f"expected {expected}, found {type(value).__name__} {shown(value)}", hint)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray, memoryview))


def _whole_check(kind: str, bits: int) -> Check:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value <= most:
            _wrong(f"{kind} of {bits} bits", value)
        return int(value)

    return check


def _number(value: Any) -> float:
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        _wrong("a number", value)
    return float(value)


def _float32(value: Any) -> float:
    number = _number(value)
    try:
        struct.pack("<f", number)
    except OverflowError:
        _wrong("a float of 32 bits", value)
    return number


def _uuid(value: Any) -> str:
    try:
        return str(value if isinstance(value, UUID) else UUID(value))
    except (ValueError, TypeError, AttributeError):
        return str(_wrong("a UUID", value))


def _time_check(logical: str) -> Check:
    local, in_millis = logical.startswith("local-"), logical.endswith("millis")

    def check(value: Any) -> Any:
        if not isinstance(value, datetime):
            _wrong("a datetime", value)
        if (value.tzinfo is None) is not local:
            kind = "without a zone" if local else "with a zone"
            _wrong(f"a datetime {kind}", value, None if local else "give aware datetimes, such as datetime.now(UTC)")
        if in_millis and value.microsecond % 1000:
            _wrong("whole milliseconds", value, "nothing is rounded here: use timestamp-micros, or truncate it before")
        return value

    return check


def _decimal_check(schema: Mapping[str, Any]) -> Check:
    precision, scale = schema["precision"], schema.get("scale", 0)
    text = f"a decimal({precision},{scale})"

    def check(value: Any) -> Any:
        number = Decimal(value) if type(value) is int else value
        if not isinstance(number, Decimal) or not number.is_finite():
            _wrong(text, value)
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        if -exponent > scale or (number and len(digits) + exponent > precision - scale):
            _wrong(text, value, "nothing is rounded here")
        return number

    return check


_OTHERS: Mapping[str, Check] = {
    "null": lambda value: None if value is None else _wrong("None", value),
    "boolean": lambda value: bool(value) if type(value).__name__ in ("bool", "bool_") else _wrong("a bool", value),
    "double": _number,
    "bytes": lambda value: bytes(value) if _is_bytes(value) else _wrong("bytes", value),
    "string": lambda value: value if isinstance(value, str) else _wrong("a text", value),
}
