"""Which Spark type a Python class or annotation stands for, by the names that its JSON has."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import inspect

from headrace.core.decimals import plain_decimal
from headrace.errors import SchemaError, SerdeError
from headrace.serdes.ddl import (
    ArrayType,
    DecimalType,
    MapType,
    NoOneTypeError,
    ScalarType,
    SparkType,
    StructField,
    StructType,
)

_SCALARS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "bigint",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "binary",
    inspect.DateType: "date",
}
_DECIMAL = DecimalType(38, 18)  # a class says nothing of digits: what Spark itself takes then
_ARRAYS = (inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType, inspect.CollectionType)


@dataclass(frozen=True, slots=True)
class ClassType:
    """What Spark sees of a class: `type` is None where that is nothing. `untyped`: the fields that it does not see, by their
    paths, and why; values cannot be made without them. `is_loose`: some field has a type that is not its own: a UUID is a
    text there, a decimal has digits that no one declared, a set or tuple is an array."""

    type: SparkType | None
    untyped: Mapping[str, str] = field(default_factory=dict)
    is_loose: bool = False


class OfClass:
    """What is common to the serdes whose values may be instances of a class."""

    __slots__ = ("_of_class",)
    _of_class: ClassType

    @property
    def untyped_fields(self) -> Mapping[str, str]:
        """The fields of its class that Spark does not see, and why: values cannot be written from expressions then."""
        return self._of_class.untyped

    @property
    def is_loose(self) -> bool:
        """Whether its Spark type is not all that its class says: see `ClassType`."""
        return self._of_class.is_loose


def untyped_fields_of(serde: Any) -> Mapping[str, str]:
    """The fields of a serde's class that Spark does not see, and why; none of a serde without a class."""
    found: Mapping[str, str] = getattr(serde, "untyped_fields", None) or {}
    return found


def lacks_fields(serde: Any) -> SerdeError:
    """Why values of a class cannot be made of Spark's: it does not see all fields of them."""
    names = ", ".join(f"{name} ({why})" for name, why in serde.untyped_fields.items())
    return SerdeError(
        f"{serde!r}: expected values with all its fields, and Spark does not see {names}",
        "use a function, or write what the expression gives with a serde of its own: leave the serde out",
    )


def type_of_class(given: Any) -> ClassType:
    """The Spark type of a msgspec.Struct, dataclass or TypedDict. `SchemaError` if msgspec cannot read JSON as it.

    >>> import dataclasses
    >>> Flight = dataclasses.make_dataclass("Flight", [("carrier", str), ("delay", float), ("seat", int | str)])
    >>> found = type_of_class(Flight)
    >>> found.type.fields[1], found.untyped
    (StructField(name='delay', type=ScalarType(name='double')), {'seat': 'a union has no one type'})
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
    found = _Found()
    try:
        return ClassType(found.type_of(info, frozenset(), ""), found.untyped, found.is_loose or bool(found.untyped))
    except (NoOneTypeError, SchemaError):  # a class may be good JSON and still be nothing for Spark
        return ClassType(None, found.untyped)


def name_of_class(given: Any) -> str:
    """What a class, or an annotation made of classes, is called."""
    return str(getattr(given, "__qualname__", None) or given)


class _Found:
    """A walk through a class: `type_of` raises `NoOneTypeError`, with the reason, for what has no Spark type."""

    def __init__(self) -> None:
        self.untyped: dict[str, str] = {}
        self.is_loose = False

    def type_of(self, info: inspect.Type, inside: frozenset[Any], path: str) -> SparkType:
        if type(info) in _SCALARS:
            return ScalarType(_SCALARS[type(info)])
        match info:
            case inspect.DateTimeType(tz=tz):
                return ScalarType("timestamp_ntz" if tz is False else "timestamp")
            case inspect.ListType(item_type=item):
                return ArrayType(self.type_of(item, inside, path))
            case inspect.DictType(key_type=key_info, value_type=value):
                if (key := self.type_of(key_info, frozenset(), path)) not in (ScalarType("string"), ScalarType("bigint")):
                    raise NoOneTypeError("the keys of a map have to be texts or whole numbers")
                return MapType(key, self.type_of(value, inside, path))
            case inspect.Metadata(type=inner):
                return self.type_of(inner, inside, path)
            case inspect.LiteralType(values=values):
                return _type_of_values(list(values))
            case inspect.EnumType(cls=cls):
                return _type_of_values([member.value for member in cls])
            case inspect.UnionType(types=types):  # `T | None` is T; of others there is no one type
                rest = [each for each in types if not isinstance(each, inspect.NoneType)]
                if len(rest) != 1:
                    raise NoOneTypeError("a union has no one type")
                return self.type_of(rest[0], inside, path)
            case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
                return self._of_fields(info, inside, path)
        found = self._loose_type_of(info, inside, path)
        self.is_loose = True
        return found

    def _loose_type_of(self, info: inspect.Type, inside: frozenset[Any], path: str) -> SparkType:
        """Of what Spark has no type of its own for, but one that holds its values."""
        match info:
            case inspect.UUIDType():
                return ScalarType("string")
            case inspect.DecimalType():
                return _DECIMAL
            case inspect.TupleType(item_types=items):
                types = {self.type_of(item, inside, path) for item in items}
                if len(types) != 1:
                    raise NoOneTypeError("a tuple of several types has none")
                return ArrayType(types.pop())
            case _ if isinstance(info, _ARRAYS):
                return ArrayType(self.type_of(info.item_type, inside, path))
        raise NoOneTypeError(f"Spark has no type for {type(info).__name__.removesuffix('Type').lower()}")

    def _of_fields(self, info: Any, inside: frozenset[Any], path: str) -> SparkType:
        if isinstance(info, inspect.StructType) and (info.array_like or info.tag is not None):
            raise NoOneTypeError("its JSON is an array" if info.array_like else "its JSON has a tag that the class lacks")
        if info.cls in inside:
            raise NoOneTypeError("a class that contains itself has no Spark type")
        inner, fields = inside | {info.cls}, []
        for one in info.fields:
            own = f"{path}.{one.encode_name}".removeprefix(".")
            try:
                fields.append(StructField(one.encode_name, self.type_of(one.type, inner, own)))
            except NoOneTypeError as error:
                self.untyped[own] = str(error)
        if info.fields and not fields:
            raise NoOneTypeError("none of its fields has a Spark type")
        return StructType(tuple(fields))


def _type_of_values(values: list[object]) -> SparkType:
    kinds = {str if isinstance(value, (str, enum.Enum)) else type(value) for value in values if value is not None}
    names = {str: "string", int: "bigint"}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind not in names:
        raise NoOneTypeError("its values are neither all texts nor all whole numbers")
    return ScalarType(names[kind])


def without_zeros(value: Any) -> Any:
    """A value of Spark as a class has it: its decimals without the zeros that fill the digits of their type."""
    match value:
        case Decimal():
            return plain_decimal(value)
        case dict():
            return {name: without_zeros(item) for name, item in value.items()}
        case list():
            return [without_zeros(item) for item in value]
    return value


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
