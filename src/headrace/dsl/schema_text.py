"""The picture of a stream's key and value types that `print_schema` prints, in the style of Spark's."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.dsl.stream_cursor import Side
from headrace.serdes.ddl import ArrayType, MapType, SparkType, StructType, parse_type, to_ddl


def schema_text(key: Side, value: Side) -> str:
    """`root` and one line per field, with key and value as the two fields of a record."""
    return "\n".join(["root", *_side("key", key), *_side("value", value)])


def _side(name: str, side: Side) -> Iterator[str]:
    if side.open_at is not None:
        yield f" |-- {name}: not known: {side.open_at} does not say it"
    elif side.serde is None:
        yield f" |-- {name}: by its Spark type, known when the job starts"
    elif side.serde.spark_type is None:
        yield f" |-- {name}: {side.serde.form}"
    else:
        yield from _lines(name, parse_type(side.serde.spark_type), 0)


def _lines(name: str, spark_type: SparkType, depth: int) -> Iterator[str]:
    margin = " |   " * depth
    match spark_type:
        case StructType(fields):
            yield f"{margin} |-- {name}: struct"
            for field in fields:
                yield from _lines(field.name, field.type, depth + 1)
        case ArrayType(element):
            yield f"{margin} |-- {name}: array"
            yield from _lines("element", element, depth + 1)
        case MapType(key, value):
            yield f"{margin} |-- {name}: map"
            yield from _lines("key", key, depth + 1)
            yield from _lines("value", value, depth + 1)
        case _:
            yield f"{margin} |-- {name}: {to_ddl(spark_type)}"
