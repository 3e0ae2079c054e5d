"""Spark's types as a small tree of values, and the ways in and out of it: DDL text, pyspark's own types, Arrow.

`parse_type` takes `name type, name type` or `struct<name: type, …>`; `NOT NULL` and `COMMENT '…'` are read over, because
any field of a record may be missing. Reading bytes by such a type is not done here, but in `json_serde`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from headrace.errors import SchemaError
from headrace.serdes.deferred import pa

# Every spelling that Spark takes, and the one that its own `simpleString` gives.
_NAMES = "boolean tinyint smallint int bigint float double string binary date timestamp timestamp_ntz"
_SCALARS = {name: name for name in _NAMES.split()}
_SCALARS |= {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_SCALARS |= {"char": "string", "varchar": "string", "timestamp_ltz": "timestamp"}
_DECIMALS = frozenset({"decimal", "dec", "numeric"})
_WITH_LENGTH = frozenset({"char", "varchar"})
_NESTED = frozenset({"array", "map", "struct"})
_KNOWN = "boolean, byte, short, int, long, float, double, decimal, string, binary, date, timestamp, array, map, struct"
DECIMAL_PRECISION_MAX = 38
DEPTH_MAX = 64  # of types inside types


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type without parts, by the name that Spark's `simpleString` has for it, such as `bigint`."""

    name: str


@dataclass(frozen=True, slots=True)
class DecimalType:
    """At most `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: SparkType


@dataclass(frozen=True, slots=True)
class MapType:
    key: SparkType
    value: SparkType


@dataclass(frozen=True, slots=True)
class StructField:
    name: str
    type: SparkType


@dataclass(frozen=True, slots=True)
class StructType:
    """Named fields in declared order; no two names that differ in case only, as Spark could not tell them apart."""

    fields: tuple[StructField, ...]

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for field in self.fields:
            folded = field.name.casefold()
            if folded in seen:
                raise SchemaError(f"fields {seen[folded]!r} and {field.name!r} of one struct: expected different names")
            seen[folded] = field.name


class NoOneTypeError(Exception):
    """Values of a schema, or of a part of it, have no one Spark type: they may be of several, or hold themselves."""


SparkType = ScalarType | DecimalType | ArrayType | MapType | StructType


def parse_type(text: str) -> SparkType:
    """The type that `text` declares, a whole one such as `array<int>`, or the fields of a struct; `SchemaError` names the text,
    the position and what was expected.

    >>> to_ddl(parse_type("map<string, decimal(10, 2)>")), to_ddl(parse_type("a int, b array<string>"))
    ('map<string,decimal(10,2)>', 'struct<a:int,b:array<string>>')
    """
    if not isinstance(text, str):
        raise SchemaError(f"DDL {text!r}: expected a text, found {type(text).__name__}")
    return _parse_cached(text)


@lru_cache(maxsize=1024)
def _parse_cached(text: str) -> SparkType:
    return _Parser(text).parse()


class _Parser:
    """Recursive descent over the tokens that sqlglot's Spark dialect makes of one DDL text.

    Its full parser is not used: it has no position for a field whose type is unknown, takes types that Spark lacks and skips
    commas that are too many, and refuses names such as `select`, empty structs and `it''s` in a comment.
    """

    def __init__(self, text: str) -> None:
        from sqlglot.dialects.spark import Spark  # takes 0.15 s: only who declares a schema pays for it
        from sqlglot.errors import TokenError

        self._text = text
        self._next = 0
        try:
            tokens = Spark().tokenize(text)
        except TokenError:
            raise SchemaError(f"DDL {text!r}: a quotation is never closed", "close it with ` or '") from None
        self._tokens: list[tuple[str, int, str]] = []  # as written, where it begins, without its quotes
        for token in tokens:
            raw = text[token.start : token.end + 1]
            if raw == "<>":  # an empty struct, not "unequal"
                self._tokens += [("<", token.start, "<"), (">", token.start + 1, ">")]
            else:
                self._tokens.append((raw, token.start, token.text))

    def parse(self) -> SparkType:
        if not self._tokens:
            self._fail("a field and its type")
        result = self._type(0) if self._is_whole_type() else self._fields(closing=None, depth=0)
        if self._next < len(self._tokens):
            self._fail("',' or the end")
        return result

    def _is_whole_type(self) -> bool:
        """`array<int>` and `bigint` are types; `array int` and `date date` begin with the name of a field."""
        first, second = self._peek(0).lower(), self._peek(1)
        return first in _NESTED | _DECIMALS | _SCALARS.keys() and second in ("<", "(", "")

    def _peek(self, ahead: int = 0) -> str:
        at = self._next + ahead
        return self._tokens[at][0] if at < len(self._tokens) else ""

    def _take(self, wanted: str) -> None:
        if self._peek().lower() != wanted:
            self._fail(f"{wanted!r}")
        self._next += 1

    def _fail(self, expected: str) -> NoReturn:
        at_end = self._next >= len(self._tokens)
        position = len(self._text) if at_end else self._tokens[self._next][1]
        found = "the end" if at_end else repr(self._peek())
        raise SchemaError(
            f"DDL {self._text!r}: at position {position + 1} expected {expected}, found {found}",
            "write it as for Spark, such as: carrier string, delays array<double>",
        )

    def _fields(self, closing: str | None, depth: int) -> StructType:
        fields: list[StructField] = []
        while self._peek() != closing or fields:
            name = self._name()
            if self._peek() == ":":
                self._next += 1
            fields.append(StructField(name, self._type(depth + 1)))
            self._read_over_constraints()
            if self._peek() != ",":
                break
            self._next += 1
        try:
            return StructType(tuple(fields))
        except SchemaError as error:
            raise SchemaError(f"DDL {self._text!r}: {error.message}") from None

    def _name(self) -> str:
        raw = self._peek()
        quoted = raw.startswith("`") and len(raw) > 2
        if not quoted and not re.fullmatch(r"\w+", raw):
            self._fail("the name of a field (in backquotes if it has other characters than letters, digits and _)")
        name = self._tokens[self._next][2]
        self._next += 1
        return name

    def _type(self, depth: int) -> SparkType:
        if depth > DEPTH_MAX:
            self._fail(f"at most {DEPTH_MAX} types inside each other")
        word = self._peek().lower()
        if word not in _NESTED | _DECIMALS | _SCALARS.keys():
            self._fail(f"a type ({_KNOWN})")
        self._next += 1
        if word in _DECIMALS:
            return self._decimal()
        if word not in _NESTED:
            if word in _WITH_LENGTH:
                self._numbers(most=1)
            return ScalarType(_SCALARS[word])
        self._take("<")
        result: SparkType
        if word == "struct":
            result = self._fields(closing=">", depth=depth)
        elif word == "array":
            result = ArrayType(self._type(depth + 1))
        else:
            key = self._type(depth + 1)
            self._take(",")
            result = MapType(key, self._type(depth + 1))
        self._take(">")
        return result

    def _decimal(self) -> DecimalType:
        begin = self._next
        precision, scale = (*self._numbers(most=2), 10, 0)[:2] if self._peek() == "(" else (10, 0)
        if self._next - begin == 3:  # decimal(12) has no digits after the point
            scale = 0
        if not (1 <= precision <= DECIMAL_PRECISION_MAX and scale <= precision):
            self._next = begin
            self._fail(f"a precision of 1 to {DECIMAL_PRECISION_MAX} and a scale that is not above it")
        return DecimalType(precision, scale)

    def _numbers(self, most: int) -> list[int]:
        if self._peek() != "(":
            return []
        numbers: list[int] = []
        while len(numbers) < most:
            self._next += 1
            if not (self._peek().isascii() and self._peek().isdigit()):
                self._fail("a number")
            numbers.append(int(self._peek()))
            self._next += 1
            if self._peek() != ",":
                break
        self._take(")")
        return numbers

    def _read_over_constraints(self) -> None:
        if self._peek().lower() == "not":
            self._next += 1
            self._take("null")
        if self._peek().lower() == "comment":
            self._next += 1
            if not self._peek().startswith(("'", '"')):
                self._fail("the comment in quotes")
            while self._peek().startswith(("'", '"')):  # the tokens of 'it''s' are two
                self._next += 1


def to_ddl(spark_type: SparkType) -> str:
    """The type as Spark's `simpleString` writes it; names that need backquotes have them, so that it parses back."""
    match spark_type:
        case ScalarType(name):
            return name
        case DecimalType(precision, scale):
            return f"decimal({precision},{scale})"
        case ArrayType(element):
            return f"array<{to_ddl(element)}>"
        case MapType(key, value):
            return f"map<{to_ddl(key)},{to_ddl(value)}>"
        case StructType(fields):
            return f"struct<{','.join(f'{_quoted(field.name)}:{to_ddl(field.type)}' for field in fields)}>"


def fields_ddl(struct: StructType) -> str:
    """The fields as a user writes them.

    >>> fields_ddl(parse_type("struct<a:int,b:array<long>>"))
    'a int, b array<bigint>'
    """
    return ", ".join(f"{_quoted(field.name)} {to_ddl(field.type)}" for field in struct.fields)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name.replace('`', '``')}`"


def type_of_spark_json(tree: Any) -> SparkType:
    """The type that `jsonValue()` of a pyspark type gives (names need no quotes there, unlike in `simpleString`)."""
    match tree:
        case str():
            return parse_type({"timestamp_ltz": "timestamp"}.get(tree, tree))
        case {"type": "struct", "fields": fields}:
            return StructType(tuple(StructField(field["name"], type_of_spark_json(field["type"])) for field in fields))
        case {"type": "array", "elementType": element}:
            return ArrayType(type_of_spark_json(element))
        case {"type": "map", "keyType": key, "valueType": value}:
            return MapType(type_of_spark_json(key), type_of_spark_json(value))
    found = tree.get("type") if isinstance(tree, Mapping) else tree
    raise SchemaError(f"Spark type {found!r}: expected one of {_KNOWN}")


def to_arrow_type(spark_type: SparkType) -> Any:
    """The pyarrow type that Spark gives for it: `int` is int32, `timestamp` is timestamp[us, UTC], and so on."""
    match spark_type:
        case ScalarType(name):
            return _arrow_scalars()[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element):
            return pa.list_(pa.field("element", to_arrow_type(element)))
        case MapType(key, value):
            return pa.map_(to_arrow_type(key), to_arrow_type(value))
        case StructType(fields):
            return pa.struct([pa.field(field.name, to_arrow_type(field.type)) for field in fields])


def from_arrow_type(arrow_type: Any) -> SparkType:
    """The Spark type of a pyarrow type; `SchemaError` for one that Spark has none for."""
    at = pa.types
    if at.is_struct(arrow_type):
        return StructType(tuple(StructField(field.name, from_arrow_type(field.type)) for field in arrow_type))
    if at.is_list(arrow_type) or at.is_large_list(arrow_type):
        return ArrayType(from_arrow_type(arrow_type.value_type))
    if at.is_map(arrow_type):
        return MapType(from_arrow_type(arrow_type.key_type), from_arrow_type(arrow_type.item_type))
    if at.is_decimal128(arrow_type):
        return DecimalType(arrow_type.precision, arrow_type.scale)
    if at.is_timestamp(arrow_type):
        return ScalarType("timestamp" if arrow_type.tz else "timestamp_ntz")
    alike = {pa.large_string(): "string", pa.large_binary(): "binary", pa.null(): "string", pa.date64(): "date"}
    names = {arrow: name for name, arrow in _arrow_scalars().items()} | alike
    if arrow_type in names:
        return ScalarType(names[arrow_type])
    raise SchemaError(f"Arrow type {arrow_type}: expected one that Spark has: {_KNOWN}")


@lru_cache(maxsize=1)
def _arrow_scalars() -> dict[str, Any]:
    scalars = {"boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32()}
    scalars |= {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
    scalars |= {"float": pa.float32(), "double": pa.float64()}
    return scalars | {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}
