"""What a Protobuf message means here: its Spark type, and the way between messages and dicts.

A message is a dict of all its fields: None where a field that can be absent is, the default where it cannot. Enums are
their names (the number as text where it has none), uint64 is a decimal, a Timestamp a time, a wrapper its value, and
`Struct`, `Value` and `ListValue` are JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from headrace.errors import SerdeError
from headrace.serdes.ddl import ArrayType, DecimalType, MapType, NoOneTypeError, ScalarType, SparkType, StructField, StructType
from headrace.serdes.scalars import shown

_WELL_KNOWN = "google.protobuf."
_JSON = frozenset({_WELL_KNOWN + name for name in ("Struct", "Value", "ListValue")})
_WRAPPERS = frozenset(
    _WELL_KNOWN + kind + "Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP = _WELL_KNOWN + "Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# FieldDescriptor.cpp_type, the same in every file
_INT32, _INT64, _UINT32, _UINT64, _DOUBLE, _FLOAT, _BOOL, _ENUM, _STRING, _MESSAGE = range(1, 11)
_BYTES_TYPE = 12
_SPARK: Mapping[int, SparkType] = {
    _INT32: ScalarType("int"),
    _INT64: ScalarType("bigint"),
    _UINT32: ScalarType("bigint"),
    _UINT64: DecimalType(20, 0),
    _DOUBLE: ScalarType("double"),
    _FLOAT: ScalarType("float"),
    _BOOL: ScalarType("boolean"),
    _ENUM: ScalarType("string"),
    _STRING: ScalarType("string"),
}


def type_of(descriptor: Any, inside: tuple[str, ...] = ()) -> SparkType:
    """The Spark type of a message type."""
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return ScalarType("timestamp")
    if name in _JSON:
        return ScalarType("string")
    if name in _WRAPPERS:
        return _type_of_one(descriptor.fields_by_name["value"], inside)
    if name in inside:
        raise NoOneTypeError(f"{name} holds itself")
    return StructType(tuple(StructField(field.name, _field_type(field, (*inside, name))) for field in descriptor.fields))


def _field_type(field: Any, inside: tuple[str, ...]) -> SparkType:
    if (entry := _entry_of(field)) is not None:
        return MapType(*(_type_of_one(each, inside) for each in entry))
    one = _type_of_one(field, inside)
    return ArrayType(one) if field.is_repeated else one


def _type_of_one(field: Any, inside: tuple[str, ...]) -> SparkType:
    if field.cpp_type == _MESSAGE:
        return type_of(field.message_type, inside)
    return ScalarType("binary") if field.type == _BYTES_TYPE else _SPARK[field.cpp_type]


def _entry_of(field: Any) -> tuple[Any, Any] | None:
    """The fields of a map's keys and values; None of a field that is no map."""
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        return None
    fields = field.message_type.fields_by_name
    return fields["key"], fields["value"]


def value_of(message: Any) -> Any:
    """A message as Python has it here."""
    descriptor = message.DESCRIPTOR
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return _time(message)
    if name in _JSON:
        return _json_text(message)
    if name in _WRAPPERS:
        return _scalar(descriptor.fields_by_name["value"], message.value)
    return {field.name: _field_value(message, field) for field in descriptor.fields}


def _field_value(message: Any, field: Any) -> Any:
    if field.is_repeated:
        values = getattr(message, field.name)
        if (entry := _entry_of(field)) is not None:
            key, value = entry
            return {_scalar(key, each): _scalar(value, values[each]) for each in sorted(values)}
        return [_scalar(field, each) for each in values]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _scalar(field, getattr(message, field.name))


def _scalar(field: Any, value: Any) -> Any:
    kind = field.cpp_type
    if kind == _MESSAGE:
        return value_of(value)
    if kind == _ENUM:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    return Decimal(value) if kind == _UINT64 else value


def _time(message: Any) -> datetime:
    """Nanoseconds below a microsecond are cut off: neither Python nor Spark has them."""
    if not 0 <= message.nanos < 1_000_000_000:
        raise SerdeError(f"a Timestamp of {message.nanos} nanoseconds: expected 0 to 999999999")
    try:
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        raise SerdeError(
            f"a Timestamp of {message.seconds} s lies outside the years 1 to 9999",
            "the writer gave another unit, or another time: read it as bytes to see it",
        ) from None


def _json_text(message: Any) -> str:
    from google.protobuf.json_format import MessageToDict

    return json.dumps(MessageToDict(message), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def fill(message: Any, value: Any) -> None:
    """Set the fields of an empty message; `SerdeError` names the field that does not fit."""
    descriptor = message.DESCRIPTOR
    name = descriptor.full_name
    if name == _TIMESTAMP:
        _fill_time(message, value)
    elif name in _JSON:
        from google.protobuf.json_format import ParseDict

        ParseDict(json.loads(value) if isinstance(value, str) else value, message)
    elif name in _WRAPPERS:
        message.value = _number_of(descriptor.fields_by_name["value"], value)
        message.SetInParent()
    elif isinstance(value, Mapping):
        _fill_fields(message, descriptor, value)
    elif getattr(value, "DESCRIPTOR", None) is not None and value.DESCRIPTOR.full_name == name:
        message.MergeFromString(value.SerializePartialToString())
        message.SetInParent()
    else:
        raise SerdeError(f"expected a dict for {name}, found {type(value).__name__} {shown(value)}")


def _fill_fields(message: Any, descriptor: Any, value: Mapping[str, Any]) -> None:
    message.SetInParent()
    fields = descriptor.fields_by_name
    chosen: dict[str, str] = {}
    for key, each in value.items():
        if key not in fields:
            raise SerdeError(f"{descriptor.full_name} has no field {key!r}", f"the fields are: {', '.join(fields)}")
        if each is None:
            continue
        field = fields[key]
        oneof = field.containing_oneof
        if oneof is not None and chosen.setdefault(oneof.name, key) != key:
            raise SerdeError(f"fields {chosen[oneof.name]} and {key} of oneof {oneof.name}: expected one of them at most")
        try:
            _fill_field(message, field, each)
        except SerdeError as error:
            raise SerdeError(f"field {key}: {error.message}", error.hint) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise SerdeError(f"field {key}: {error}") from None


def _fill_field(message: Any, field: Any, value: Any) -> None:
    if (entry := _entry_of(field)) is not None:
        target, (key_field, value_field) = getattr(message, field.name), entry
        for key, each in dict(value).items():  # Arrow gives maps as pairs
            typed = _number_of(key_field, key)
            if value_field.cpp_type == _MESSAGE:
                fill(target[typed], each)
            else:
                target[typed] = _number_of(value_field, each)
    elif field.is_repeated:
        target = getattr(message, field.name)
        for each in _elements(value):
            if field.cpp_type == _MESSAGE:
                fill(target.add(), each)
            else:
                target.append(_number_of(field, each))
    elif field.cpp_type == _MESSAGE:
        fill(getattr(message, field.name), value)
    else:
        setattr(message, field.name, _number_of(field, value))


def _elements(value: Any) -> Iterable[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise SerdeError(f"expected a list, found {type(value).__name__} {shown(value)}")
    elements: Iterable[Any] = value
    return elements


def _fill_time(message: Any, value: Any) -> None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        hint = "give aware datetimes, such as datetime.now(UTC)" if isinstance(value, datetime) else None
        raise SerdeError(f"expected a datetime with a zone, found {type(value).__name__} {shown(value)}", hint)
    micros = (value - _EPOCH) // _MICROSECOND
    message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    message.SetInParent()


def _number_of(field: Any, value: Any) -> Any:
    """What the library takes for the field; it checks ranges and texts itself, but takes True for 1 and the reverse."""
    kind = field.cpp_type
    if value is None:
        raise SerdeError("a null in a list or map, which Protobuf does not have", "filter nulls out before")
    if kind == _ENUM:
        return _enum_number(field.enum_type, value)
    if (kind == _BOOL) is not isinstance(value, bool):
        raise SerdeError(f"expected {_EXPECTED.get(kind, 'another type')}, found {type(value).__name__} {shown(value)}")
    if kind == _UINT64 and isinstance(value, Decimal):
        if value != value.to_integral_value():
            raise SerdeError(f"expected a whole number, found {value}")
        return int(value)
    if kind in (_DOUBLE, _FLOAT) and isinstance(value, Decimal):
        return float(value)
    if field.type == _BYTES_TYPE and isinstance(value, str):
        raise SerdeError(f"expected bytes, found str {shown(value)}")
    return value


_EXPECTED: Mapping[int, str] = {_BOOL: "a bool", _STRING: "a text"} | dict.fromkeys(
    (_INT32, _INT64, _UINT32, _UINT64, _DOUBLE, _FLOAT), "a number"
)


def _enum_number(enum: Any, value: Any) -> int:
    if isinstance(value, str):
        found = enum.values_by_name.get(value)
        if found is not None:
            return int(found.number)
        if value.removeprefix("-").isdecimal():
            return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise SerdeError(f"expected one of {', '.join(enum.values_by_name)}, found {shown(value)}")
