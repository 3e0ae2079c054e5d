"""What named aggregates say: whether their fields exist, the type of their results, the form of their state."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.topology import NamedAggregate
from headrace.serdes.ddl import (
    ArrayType,
    MapType,
    ScalarType,
    SparkType,
    StructField,
    StructType,
    fields_ddl,
    parse_type,
    to_ddl,
)
from headrace.serdes.json_serde import Json

_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_REAL = frozenset({"float", "double"})
_PLAIN = _WHOLE | _REAL | {"string", "boolean"}  # what JSON gives back as it was
_COUNTS = frozenset({"count", "count_distinct"})
_BIGINT, _DOUBLE = ScalarType("bigint"), ScalarType("double")


def checked_fields(named: Mapping[str, NamedAggregate], value: Serde | None, key: Serde | None = None) -> None:
    """Raise `TopologyError` where an aggregate is none, or reads what the keys and values cannot have, or cannot do."""
    for name, aggregate in named.items():
        if not isinstance(aggregate, NamedAggregate):
            raise TopologyError(
                f"aggregate({name}={aggregate!r}): expected a named aggregate", f"e.g. {name}=hr.count()"
            )
        text = f"aggregate({name}=hr.{aggregate.kind}({aggregate.field!r}))"
        found = _field_type(aggregate, value, text)
        if aggregate.field == "key" and key is not None and key.spark_type is not None:
            found = parse_type(key.spark_type)
        if aggregate.kind != "count" and isinstance(found, StructType | ArrayType | MapType):
            raise TopologyError(
                f"{text}: expected a field with one plain value, found {to_ddl(found)}", _instead(aggregate, found)
            )
        if aggregate.kind in ("sum", "mean") and isinstance(found, ScalarType) and found.name not in _WHOLE | _REAL:
            raise TopologyError(
                f"{text}: expected a field of numbers, found {found.name}",
                "aggregate another field, or turn it into a number by map_values before",
            )


def _instead(aggregate: NamedAggregate, found: SparkType) -> str:
    whole = {"first": "lambda old, new: old", "last": "lambda old, new: new"}.get(aggregate.kind)
    if whole is not None and aggregate.field == "value":
        return f"reduce({whole}) keeps the whole value"
    if isinstance(found, StructType):
        return f"name one of its fields, such as {f'{aggregate.field}.{found.fields[0].name}'!r}"
    return "take one plain value out of it by map_values before"


def result_serde_of(named: Mapping[str, NamedAggregate], value: Serde | None) -> Serde:
    """JSON with one field per aggregate; with their types where all of them are known."""
    types = {name: _result_type(aggregate, value) for name, aggregate in named.items()}
    fields = tuple(StructField(name, found) for name, found in types.items() if found is not None)
    return Json(fields_ddl(StructType(fields))) if len(fields) == len(types) else Json()


def named_form(named: Mapping[str, NamedAggregate], value: Serde | None) -> str:
    """What the bytes of their state depend on: names, kinds, fields, and the types of these where they are known."""
    return ",".join(f"{name}={_aggregate_form(aggregate, value)}" for name, aggregate in named.items())


def _aggregate_form(aggregate: NamedAggregate, value: Serde | None) -> str:
    if aggregate.field is None:
        return aggregate.kind
    found = _field_type(aggregate, value, "")
    return f"{aggregate.kind}({aggregate.field}{'' if found is None else ':' + to_ddl(found)})"


def _result_type(aggregate: NamedAggregate, value: Serde | None) -> SparkType | None:
    found = _field_type(aggregate, value, "")
    plain = found if isinstance(found, ScalarType) and found.name in _PLAIN else None
    match aggregate.kind:
        case kind if kind in _COUNTS:
            return _BIGINT
        case "mean":
            return _DOUBLE
        case "sum" if plain is not None:
            return _BIGINT if plain.name in _WHOLE else _DOUBLE
        case _:
            return plain


def _field_type(aggregate: NamedAggregate, value: Serde | None, operator: str) -> SparkType | None:
    """The type of the field that is aggregated; None where it is not known, or is no field of the value."""
    if aggregate.field is None or value is None or value.spark_type is None:
        return None
    head, *path = aggregate.field.split(".")
    if head != "value":
        return None
    here: SparkType | None = parse_type(value.spark_type)
    for depth, part in enumerate(path):
        if not isinstance(here, StructType):
            raise TopologyError(
                f"{operator}: {'.'.join([head, *path[:depth]])} is {'nothing' if here is None else to_ddl(here)}, "
                f"it has no field {part!r}",
                "name a field that the value serde declares",
            )
        names = [field.name for field in here.fields]
        if part not in names:
            near = difflib.get_close_matches(part, names, 1)
            raise TopologyError(
                f"{operator}: the values have no field {part!r}",
                f"did you mean {near[0]!r}?" if near else f"they have: {', '.join(names)}",
            )
        here = next(field.type for field in here.fields if field.name == part)
    return here
