"""How a stream or a table shows itself while the topology is written: as text, as a picture, by some of its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.core.topology.description_text import text_of
from headrace.core.topology.picture import picture_of
from headrace.core.topology.sub_topologies import ancestors_of
from headrace.dsl.stream_cursor import SerdeSlot
from headrace.serdes.ddl import ArrayType, MapType, SparkType, StructType, parse_type, to_ddl

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration
    from headrace.dsl.preview import Preview
    from headrace.dsl.stream_cursor import StreamCursor
    from headrace.model.topology import Topology


class Displayable:
    """What streams and tables have in common: where they are in their application, and how that is looked at."""

    def __init__(self, app: AppDeclaration, flow: StreamCursor) -> None:
        self.app = app
        self.flow = flow

    def preview(self, n: int = 20) -> Preview:
        """The result of the first `n` records of each input (of tables: all), as a table; nothing is committed."""
        return self.app.preview_of(self, n)

    def print_schema(self) -> None:
        """Print what is known of key and value, as `DataFrame.printSchema` would."""
        print("\n".join(["root", *_side("key", self.flow.key), *_side("value", self.flow.value)]))

    def describe(self) -> str:
        """How this stream or table is computed, as text."""
        return text_of(self._topology_here())

    def _topology_here(self) -> Topology:
        return ancestors_of(self.app.builder.topology(), self.flow.node)

    def _repr_html_(self) -> str:
        return picture_of(self._topology_here())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.flow.node!r} of {self.app.name!r}>"


def _side(name: str, side: SerdeSlot) -> Iterator[str]:
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
