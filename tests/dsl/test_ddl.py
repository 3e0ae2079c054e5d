"""DDL text to types and back, to Arrow and back, and where a text goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.serdes.ddl import (
    ArrayType,
    DecimalType,
    MapType,
    ScalarType,
    SparkType,
    StructField,
    StructType,
    fields_ddl,
    from_arrow_type,
    parse_type,
    to_arrow_type,
    to_ddl,
    type_of_spark_json,
)


def parse_ddl(text: str) -> StructType:
    struct = parse_type(text)
    assert isinstance(struct, StructType)
    return struct


SCALARS = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"]
NAMES = st.from_regex(r"[a-z_`:, é<>'-][a-z0-9_` .]{0,6}", fullmatch=True)


def structs(inner: st.SearchStrategy[SparkType]) -> st.SearchStrategy[SparkType]:
    fields = st.lists(st.builds(StructField, NAMES, inner), max_size=4, unique_by=lambda field: field.name.casefold())
    return fields.map(lambda found: StructType(tuple(found)))


TYPES: st.SearchStrategy[SparkType] = st.recursive(
    st.sampled_from([*SCALARS, "timestamp", "timestamp_ntz"]).map(ScalarType)
    | st.integers(1, 38).flatmap(lambda digits: st.builds(DecimalType, st.just(digits), st.integers(0, digits))),
    lambda inner: st.builds(ArrayType, inner) | st.builds(MapType, inner, inner) | structs(inner),
    max_leaves=8,
)


@given(TYPES)
def test_every_type_parses_back(spark_type: SparkType) -> None:
    assert parse_type(to_ddl(spark_type)) == spark_type


@given(structs(TYPES))
def test_fields_parse_back(struct: Any) -> None:
    if struct.fields:
        assert parse_ddl(fields_ddl(struct)) == struct


@given(TYPES)
def test_arrow_and_back(spark_type: SparkType) -> None:
    assert from_arrow_type(to_arrow_type(spark_type)) == spark_type


@pytest.mark.parametrize(
    "text",
    [
        "a int, b struct<c: array<double>>",
        "  a   INTEGER ,\n b STRUCT < c : ARRAY< double > >",
        "struct<a:int,b:struct<c:array<double>>>",
        "a: int not null, b struct<c array<double> comment 'why, not' > NOT NULL COMMENT \"it's\"",
        "`a` int, -- a remark\n b struct<c: array<double> comment 'it''s'>",
    ],
)
def test_spellings_of_one_schema(text: str) -> None:
    assert to_ddl(parse_ddl(text)) == "struct<a:int,b:struct<c:array<double>>>"


def test_names_that_are_words_of_the_language() -> None:
    text = "date date, timestamp timestamp, struct struct<map:int>, `not` int, comment string, 1st long, `a``b` byte"
    struct = parse_ddl(text)
    assert [field.name for field in struct.fields] == [
        "date", "timestamp", "struct", "not", "comment", "1st", "a`b",
    ]  # fmt: skip
    assert parse_ddl(fields_ddl(struct)) == struct


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a decimal", "decimal(10,0)"),
        ("a dec(12)", "decimal(12,0)"),
        ("a numeric( 38 , 38 )", "decimal(38,38)"),
        ("a varchar(10)", "string"),
        ("a byte", "tinyint"),
        ("a real", "float"),
        ("a timestamp_ltz", "timestamp"),
        ("a struct<>", "struct<>"),
    ],
)
def test_types(text: str, canonical: str) -> None:
    assert to_ddl(parse_ddl(text).fields[0].type) == canonical


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("a foo", 3, "expected a type"),
        ("a int,, b int", 7, "the name of a field"),
        ("a int b int", 7, "',' or the end"),
        ("a", 2, "expected a type"),
        ("", 1, "a field and its type"),
        ("a array<int", 12, "'>'"),
        ("a array int", 9, "'<'"),
        ("a map<string>", 13, "','"),
        ("a decimal(39)", 10, "a precision of 1 to 38"),
        ("a decimal(2, 3)", 10, "a scale that is not above it"),
        ("a decimal(x)", 11, "a number"),
        ("a.b int", 2, "expected a type"),
        ("a int not missing", 11, "'null'"),
        ("a int comment why", 15, "in quotes"),
        ("a int, b stirng", 10, "found 'stirng'"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, position: int, expected: str) -> None:
    with pytest.raises(SchemaError) as raised:
        parse_ddl(text)
    message = str(raised.value)
    assert f"DDL {text!r}: at position {position} expected" in message
    assert expected in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a int, A string", "fields 'a' and 'A'"),
        ("a int, a int", "expected different names"),
        ("a `int", "never closed"),
        ("a " + "array<" * 100 + "int" + ">" * 100, "at most 64"),
    ],
)
def test_other_refusals(text: str, told: str) -> None:
    with pytest.raises(SchemaError) as raised:
        parse_ddl(text)
    assert told in str(raised.value)


def test_pyspark_types_by_their_json() -> None:
    tree = {
        "type": "struct",
        "fields": [
            {"name": "a b", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "l", "type": {"type": "array", "elementType": "long", "containsNull": True}},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "decimal(10,2)"}},
        ],
    }
    assert to_ddl(type_of_spark_json(tree)) == "struct<`a b`:int,l:array<bigint>,m:map<string,decimal(10,2)>>"
    with pytest.raises(SchemaError, match="udt"):
        type_of_spark_json({"type": "udt"})
    with pytest.raises(SchemaError, match="interval"):
        type_of_spark_json("interval")


def test_arrow_types_are_those_of_spark() -> None:
    arrow = to_arrow_type(parse_ddl("i int, l long, t timestamp, n timestamp_ntz, d date, m map<string, byte>"))
    assert str(arrow) == (
        "struct<i: int32, l: int64, t: timestamp[us, tz=UTC], n: timestamp[us], d: date32[day], m: map<string, int8>>"
    )
