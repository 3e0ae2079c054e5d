"""Which serde belongs to what: to an annotation, a Spark type, a value, a text. The serdes are in modules of their
own: `scalars`, `logical`, `json_serde`, `messagepack`, `windowed`, `schemas`."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
import uuid
from datetime import datetime
from typing import Any

import msgspec

from headrace.errors import SchemaError, SerdeError
from headrace.model.serde import Serde
from headrace.serdes.ddl import parse_type, to_arrow_type
from headrace.serdes.deferred import pa
from headrace.serdes.json_serde import Json
from headrace.serdes.logical import UUID, Decimal, Timestamp
from headrace.serdes.messagepack import MessagePack
from headrace.serdes.own import OwnSerde
from headrace.serdes.scalars import Boolean, Bytes, Double, Float, Int, Long, Short, String
from headrace.serdes.windowed import Windowed, WindowedKey

# Those without arguments, by what their forms are, which are their names on a command line, too.
_PLAIN = (Bytes(), String(), Long(), Int(), Short(), Double(), Float(), Boolean(), UUID(), Timestamp(), Json(), MessagePack())
BY_FORM: dict[str, Serde] = {serde.form: serde for serde in _PLAIN}
_BY_CLASS: dict[Any, Serde] = {str: String(), int: Long(), float: Double(), bytes: Bytes(), bool: Json()}
_BY_CLASS |= {uuid.UUID: UUID(), datetime: Timestamp()}
_OF_SPARK = (String(), Long(), Int(), Short(), Double(), Float(), Boolean(), Timestamp(), Bytes())
_BY_SPARK_TYPE: dict[str, Serde] = {serde.spark_type: serde for serde in _OF_SPARK}
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")


def decimal_of(text: str) -> Serde | None:
    """
    >>> decimal_of("decimal(10,2)"), decimal_of("decimal")
    (Decimal(10, 2), None)
    """
    found = _DECIMAL.fullmatch(text)
    return None if found is None else Decimal(int(found[1]), int(found[2]))


def serde_of_annotation(annotation: Any) -> Serde | None:
    """The serde of values annotated so, None where the annotation does not say one (`Any`, a union, an unknown class).

    >>> serde_of_annotation(int | None), serde_of_annotation(dict[str, int])
    (Long(), Json())
    """
    annotation = not_none(annotation)
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return serde_of_annotation(typing.get_args(annotation)[0])
    if (origin or annotation) in (dict, list):
        return Json()
    if annotation in _BY_CLASS:
        return _BY_CLASS[annotation]
    return Json(annotation) if _is_record_class(annotation) else None


def not_none(annotation: Any) -> Any:
    """`X` for `X | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [each for each in typing.get_args(annotation) if each is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return annotation


def _is_record_class(annotation: Any) -> bool:
    if not isinstance(annotation, type):
        return False
    is_struct = issubclass(annotation, msgspec.Struct)
    return is_struct or typing.is_typeddict(annotation) or dataclasses.is_dataclass(annotation)


def serde_of_spark_type(text: str) -> Serde | None:
    """The serde of an expression of that Spark type, None for one that has none (`date`, `tinyint`, …).

    >>> serde_of_spark_type("bigint"), serde_of_spark_type("struct<a:int>")
    (Long(), Json('a int'))
    """
    spark_type = text.strip()
    if spark_type.partition("<")[0].lower() in ("struct", "array", "map"):
        return Json(spark_type)
    return _BY_SPARK_TYPE.get(spark_type.lower()) or decimal_of(spark_type.lower())


def type_in_spark(serde: Serde | None) -> str:
    """The type of a column with the values of a serde, in DDL. Without a Spark type it has their bytes, of JSON the text.

    >>> type_in_spark(Long()), type_in_spark(Json()), type_in_spark(MessagePack()), type_in_spark(None)
    ('bigint', 'string', 'binary', 'binary')
    """
    if serde is None or serde.spark_type is None:
        return "string" if isinstance(serde, Json) else "binary"
    return serde.spark_type


def has_arrows_values(serde: Serde | None) -> bool:
    """Whether the values of a serde are those that an Arrow column of its Spark type gives: not so instances of classes, UUIDs
    (texts there), keys of windows, and what one's own serde makes.

    >>> has_arrows_values(Long()), has_arrows_values(Json("a int")), has_arrows_values(UUID())
    (True, True, False)
    """
    has_class = isinstance(serde, Json) and serde.is_of_class
    return not (has_class or isinstance(serde, (UUID, MessagePack, Windowed, OwnSerde)))


def fits_spark_type(serde: Serde, text: str) -> bool:
    """Whether `serde` writes columns of a Spark type; asked of the serde itself, with no values.

    >>> fits_spark_type(Long(), "int"), fits_spark_type(Long(), "string")
    (True, False)
    """
    if isinstance(serde, OwnSerde) and serde.spark_type is None:
        return False  # whatever type it is
    try:
        arrow_type = pa.null() if text.strip().lower() == "void" else to_arrow_type(parse_type(text))
        serde.encode_arrow(pa.array([], arrow_type))
    except (SerdeError, SchemaError):
        return False
    return True


def natural_serde(value: Any) -> Serde:
    """The serde that a value would be given without being asked; `SerdeError` for None and for what has none.

    >>> natural_serde(3), natural_serde({"a": 1})
    (Long(), Json())
    """
    if isinstance(value, WindowedKey):
        return Windowed(natural_serde(value.key))
    for cls in type(value).__mro__[:-1]:
        if cls in _BY_CLASS:
            return _BY_CLASS[cls]
    if isinstance(value, (dict, list, tuple)):
        return Json()
    if _is_record_class(type(value)):
        return Json(type(value))
    raise SerdeError(f"{value!r:.60}: no serde belongs to {type(value).__name__}", "name one, for example key=hr.String()")


def serde_of_text(text: str) -> Serde:
    """The serde that a command line names: `string`, `long`, `json`, `json:DDL`, `windowed:string`, ….

    Raises `SchemaError` for anything else.

    >>> serde_of_text("windowed:json:a int")
    Windowed(Json('a int'))
    """
    name, colon, rest = text.strip().partition(":")
    name = name.lower()
    if name == "windowed" and colon:
        return Windowed(serde_of_text(rest))
    if name == "json" and colon:
        return Json(rest)
    found = None if colon else BY_FORM.get(name) or decimal_of(name)
    if found is None:
        raise SchemaError(
            f"serde {text!r}: expected one of {', '.join(BY_FORM)}, decimal(DIGITS,DIGITS), json:DDL or windowed:SERDE",
            "for example: string, json:'carrier string, delay double', windowed:string",
        )
    return found
