"""Which Spark type a Python class or annotation stands for, by the names that its JSON has."""

from __future__ import annotations

import enum
from typing import Any

import msgspec
from msgspec import inspect

from headrace.errors import SchemaError
from headrace.serdes.ddl import ArrayType, MapType, NoOneTypeError, ScalarType, SparkType, StructField, StructType

_SCALARS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "bigint",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "binary",
    inspect.DateType: "date",
}


def type_of_class(given: Any) -> SparkType | None:
    """The Spark type of a msgspec.Struct, dataclass or TypedDict; None where its values have no one type. `SchemaError` if
    msgspec cannot read JSON as it.

    >>> import dataclasses
    >>> Flight = dataclasses.make_dataclass("Flight", [("carrier", str), ("delay", float)])
    >>> type_of_class(Flight).fields[1]
    StructField(name='delay', type=ScalarType(name='double'))
    """
    try:
        msgspec.json.Decoder(given)
        info = inspect.type_info(given)
        problem = "values of this class have no JSON" if isinstance(info, inspect.CustomType) else None
    except (TypeError, NameError) as error:
        problem = str(error)
    if problem is not None:
        raise SchemaError(
            f"Json({getattr(given, '__qualname__', repr(given))}): {problem}",
            "give a DDL string, a StructType, a msgspec.Struct, a dataclass, a TypedDict, or nothing",
        )
    try:
        return _type_of(info, frozenset())
    except (NoOneTypeError, SchemaError):  # a class may be good JSON and still be nothing for Spark
        return None


def name_of_class(given: Any) -> str:
    """What a class, or an annotation made of classes, is called."""
    return str(getattr(given, "__qualname__", None) or given)


def _type_of(info: inspect.Type, inside: frozenset[Any]) -> SparkType:
    if type(info) in _SCALARS:
        return ScalarType(_SCALARS[type(info)])
    match info:
        case inspect.DateTimeType(tz=tz):
            return ScalarType("timestamp_ntz" if tz is False else "timestamp")
        case inspect.ListType(item_type=item):
            return ArrayType(_type_of(item, inside))
        case inspect.DictType(key_type=key_info, value_type=value):
            if (key := _type_of(key_info, frozenset())) in (ScalarType("string"), ScalarType("bigint")):
                return MapType(key, _type_of(value, inside))
        case inspect.Metadata(type=inner):
            return _type_of(inner, inside)
        case inspect.LiteralType(values=values):
            return _type_of_values(list(values))
        case inspect.EnumType(cls=cls):
            return _type_of_values([member.value for member in cls])
        case inspect.UnionType(types=types):  # `T | None` is T; of others there is no one type
            rest = [each for each in types if not isinstance(each, inspect.NoneType)]
            if len(rest) == 1:
                return _type_of(rest[0], inside)
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            return _type_of_fields(info, inside)
    raise NoOneTypeError


def _type_of_values(values: list[object]) -> SparkType:
    kinds = {str if isinstance(value, (str, enum.Enum)) else type(value) for value in values if value is not None}
    names = {str: "string", int: "bigint"}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind not in names:
        raise NoOneTypeError
    return ScalarType(names[kind])


def _type_of_fields(info: Any, inside: frozenset[Any]) -> SparkType:
    if isinstance(info, inspect.StructType) and (info.array_like or info.tag is not None):
        raise NoOneTypeError  # its JSON is an array, or has a field that the class lacks
    if info.cls in inside:
        raise NoOneTypeError  # a class that contains itself has no Spark type
    inner = inside | {info.cls}
    fields = [StructField(field.encode_name, _type_of(field.type, inner)) for field in info.fields]
    return StructType(tuple(fields))


def ordered(value: Any, spark_type: SparkType) -> Any:
    """`value` with the fields of its dicts in declared order and the keys of its maps sorted, so that equal TypedDicts are
    equal bytes; absent stay absent."""
    match spark_type, value:
        case StructType(fields), dict():
            return {field.name: ordered(value[field.name], field.type) for field in fields if field.name in value}
        case ArrayType(element), list():
            return [ordered(item, element) for item in value]
        case MapType(_, item_type), dict():
            return {key: ordered(value[key], item_type) for key in sorted(value)}
        case _:
            return value
