"""What an Avro schema means here: the Spark type of its values.

Logical types without a type of Spark's are read as what they are stored as (`time-micros` as a number), uuid as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.serdes.ddl import (
    DECIMAL_PRECISION_MAX,
    ArrayType,
    DecimalType,
    MapType,
    ScalarType,
    SparkType,
    StructField,
    StructType,
)

Named = Mapping[str, Any]
UUID_MARK = "headrace.uuid"  # on a text: fastavro keeps what it does not know

_SCALARS = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}


class NoOneTypeError(Exception):
    """Values of this schema have no one Spark type."""


def readable(schema: Any) -> Any:
    """The schema without the logical types that are read as what they are stored as; the bytes are the same.

    >>> readable({"type": "int", "logicalType": "time-millis"})
    {'type': 'int'}
    """
    if isinstance(schema, list):
        return [readable(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    result = dict(schema)
    if not _is_kept(schema):
        result.pop("logicalType", None)
    for part in ("items", "values", "type"):
        if isinstance(result.get(part), (list, Mapping)):
            result[part] = readable(result[part])
    if isinstance(result.get("fields"), list):
        result["fields"] = [readable(field) for field in result["fields"]]
    if "logicalType" not in result and schema.get("logicalType") == "uuid" and schema.get("type") == "string":
        result[UUID_MARK] = True
    return result


def _is_kept(schema: Mapping[str, Any]) -> bool:
    logical = schema.get("logicalType")
    if logical != "decimal":
        return logical in _LOGICAL
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= DECIMAL_PRECISION_MAX


def type_of(schema: Any, named: Named, inside: tuple[str, ...] = ()) -> SparkType:
    """The Spark type of a parsed schema; `NoOneTypeError` for unions of several types, and for types inside themselves."""
    if isinstance(schema, list):
        return _union_type(schema, named, inside)
    if isinstance(schema, str):
        if schema in named:
            return type_of(named[schema], named, inside)
        return _scalar(schema)
    kind = schema["type"]
    if isinstance(kind, (list, Mapping)):
        return type_of(kind, named, inside)
    if kind in ("record", "error"):
        name = schema["name"]
        if name in inside:
            raise NoOneTypeError(f"{name} holds itself")
        fields = [
            StructField(field["name"], type_of(field["type"], named, (*inside, name))) for field in schema["fields"]
        ]
        return StructType(tuple(fields))
    if kind == "array":
        return ArrayType(type_of(schema["items"], named, inside))
    if kind == "map":
        return MapType(ScalarType("string"), type_of(schema["values"], named, inside))
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical is not None:
        return ScalarType(_LOGICAL[logical])
    return type_of(named[kind], named, inside) if kind in named else _scalar(kind)


def _scalar(kind: str) -> SparkType:
    if kind not in _SCALARS:
        raise NoOneTypeError(f"{kind} has no Spark type")
    return ScalarType(_SCALARS[kind])


def _union_type(branches: list[Any], named: Named, inside: tuple[str, ...]) -> SparkType:
    rest = [branch for branch in branches if branch != "null"]
    if len(rest) == 1:
        return type_of(rest[0], named, inside)
    if sorted(map(str, rest)) == ["int", "long"]:
        return ScalarType("bigint")
    raise NoOneTypeError(f"a union of {len(rest)} types")


def decimals_of(schema: Any, named: Named) -> bool:
    """Whether any part is a decimal, whose bytes may hold more digits than it declares."""
    return any(_is_decimal(each) for each in _parts([schema, *named.values()]))


def _is_decimal(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("logicalType") == "decimal"


def _parts(schemas: list[Any]) -> list[Any]:
    found, waiting = [], list(schemas)
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, list):
            waiting += schema
        elif isinstance(schema, Mapping):
            found.append(schema)
            waiting += [schema[part] for part in ("items", "values", "type", "fields") if part in schema]
    return found

