"""Owns `KTable`: the last value of each key, as an aggregation or a table source keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.description import text_of
from headrace.core.picture import picture_of
from headrace.core.sub_topologies import ancestors_of
from headrace.dsl import flow as flows
from headrace.dsl.builder import operator_text
from headrace.dsl.flow import Flow, Side, checked_function, result_side, with_sides
from headrace.dsl.returns import returned
from headrace.dsl.schema_text import schema_text
from headrace.errors import NotSupportedError, TopologyError
from headrace.model.serde import Serde
from headrace.model.topology import MapValues, Node, TableFilter, ToStream

if TYPE_CHECKING:
    from headrace.dsl.app import App
    from headrace.dsl.kstream import KStream


class KTable:
    """A table of keys and values, kept in a store. It is a value: a method leaves it as it is and gives a new one."""

    def __init__(self, app: App, flow: Flow) -> None:
        self.app = app
        self.flow = flow

    def filter(self, predicate: Any, *, name: str | None = None) -> KTable:
        """Keep the keys for whose value `predicate` holds; one that no longer does is deleted further on."""
        return self._filter("filter", predicate, name, negate=False)

    def filter_not(self, predicate: Any, *, name: str | None = None) -> KTable:
        """Keep the keys that `filter` would drop."""
        return self._filter("filter_not", predicate, name, negate=True)

    def _filter(self, kind: str, predicate: Any, name: str | None, negate: bool) -> KTable:
        function = checked_function(kind, predicate, flows.WORKER, self.flow)
        own = self.app.builder.name_of(kind, self.flow.node, name)
        node = TableFilter(name=own, parents=(self.flow.node,), predicate=function, negate=negate)
        return self._added(kind, node, name, None)

    def map_values(self, function: Any, *, value: Serde | None = None, name: str | None = None) -> KTable:
        """Give each key the value that `function` returns for its record."""
        given = checked_function("map_values", function, flows.WORKER, self.flow)
        own = self.app.builder.name_of("map_values", self.flow.node, name)
        side = result_side(given, value, returned(given), operator_text("map_values", own), self.flow)
        node = MapValues(name=own, parents=(self.flow.node,), function=given, value=side.serde, of_table=True)
        return self._added("map_values", node, name, side)

    def to_stream(self, *, emit: str = "round", name: str | None = None) -> KStream:
        """The updates as a stream: the last value of each changed key, once per round."""
        from headrace.dsl.kstream import KStream  # a stream gives tables, and a table streams

        if emit in ("each", "closed"):
            raise NotSupportedError(
                f'to_stream(emit="{emit}") is not there yet', 'emit="round" gives the last value of each changed key'
            )
        if emit != "round":
            raise TopologyError(f'to_stream(emit={emit!r}): expected "round"')
        own = self.app.builder.name_of("to_stream", self.flow.node, name)
        self.app.builder.add("to_stream", ToStream(name=own, parents=(self.flow.node,)))
        return KStream(self.app, self.flow.after(own, operator_text("to_stream", own), given=name))

    def to(self, name: Any, key: Serde | None = None, value: Serde | None = None, headers: Any = None) -> None:
        """Write the updates to the output `name`: `to_stream()` and `to(...)`."""
        with self.app.builder.all_or_nothing():
            self.to_stream().to(name, key=key, value=value, headers=headers)

    def preview(self, n: int = 20) -> Any:
        """The updates that come of the first `n` records of each input, as a small table; nothing is committed."""
        return self.app.wiring().preview(self, n)

    def print_schema(self) -> None:
        """Print what is known of key and value, as `DataFrame.printSchema` would."""
        print(schema_text(self.flow.key, self.flow.value))

    def describe(self) -> str:
        """How this table comes about, as text."""
        return text_of(ancestors_of(self.app.builder.topology(), self.flow.node))

    def _added(self, kind: str, node: Node, given: str | None, value: Side | None) -> KTable:
        self.app.builder.add(kind, node)
        after = self.flow.after(node.name, operator_text(kind, node.name), given=given)
        return KTable(self.app, with_sides(after, None, value, None))

    def _repr_html_(self) -> str:
        return picture_of(ancestors_of(self.app.builder.topology(), self.flow.node))

    def __repr__(self) -> str:
        return f"<KTable {self.flow.node!r} of {self.app.name!r}>"
