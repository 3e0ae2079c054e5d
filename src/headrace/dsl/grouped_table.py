"""`KGroupedTable`: a table whose rows are grouped by another key, and what can be aggregated from them.

A table's rows change: an aggregate takes a row's old value out of its group, and puts the new one into the group that it is in
now. What may be in tasks of their own goes there by a repartition stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.core.retractable import KINDS
from headrace.core.topology.sub_topologies import REPARTITION_SUFFIX
from headrace.dsl import stream_cursor as flows
from headrace.dsl.functions import checked_arguments, label_of, returned
from headrace.dsl.grouped import (
    ABSENT,
    Groups,
    aggregate_form,
    checked_fields,
    folding,
    general_serde,
    result_serde_of,
)
from headrace.dsl.ktable import KTable
from headrace.dsl.rekeying import Grouping, with_repartition
from headrace.dsl.repartitioned import Repartitioned
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_function, checked_serde, needed, result_side
from headrace.errors import TopologyError
from headrace.model.serde import Serde
from headrace.model.table_operators import GroupTable
from headrace.model.topology import Aggregate, AggregateKind, Function, Group, NamedAggregate, StoreKind, StoreSpec
from headrace.model.windows import AnyWindows
from headrace.serdes.row_changes import Placements, RowChanges
from headrace.serdes.scalars import Long
from headrace.serdes.windowed import Windowed


class KGroupedTable(Groups):
    """A table grouped by another key than its own. A row whose group is None is in none."""

    grouping: TableGrouping

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        """How many rows each group has, as a long. A group that was there and has none any more has 0."""
        make = partial(Aggregate, kind=AggregateKind.COUNT, of_changes=True)
        return self.aggregated("count", make, Long(), store, name, "table-count")

    def reduce(
        self,
        adder: Any,
        subtractor: Any,
        *,
        value: Serde | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """Fold the values of each group's rows: `adder(state, value)` puts one in, `subtractor(state, value)` takes one out.

        The first value is taken as it is. A state of None deletes the group; nothing is taken out of that. Of a row that
        changes, the old value is taken out before the new one is put in, as one step.
        """
        given = folding("reduce adder", adder, "state", "value")
        takes = folding("reduce subtractor", subtractor, "state", "value")
        serde = needed(self.grouping.flow.value, "value", "reduce()", value, "value=...").serde
        make = partial(
            Aggregate,
            kind=AggregateKind.REDUCE,
            of_changes=True,
            function=given.body,
            subtractor=takes.body,
            label=f"{given.label}, {takes.label}",
        )
        return self.aggregated("reduce", make, serde, store, name, "table-reduce")

    def aggregate(
        self,
        *,
        initial: Any = ABSENT,
        adder: Any = None,
        subtractor: Any = None,
        value: Serde | None = None,
        store: str | None = None,
        name: str | None = None,
        **named: NamedAggregate,
    ) -> KTable:
        """Aggregate the rows of each group: by names, or by functions of your own.

        `aggregate(orders=hr.count(), total=hr.sum("value.price"))` gives a dict with those names, of `count`, `sum` and
        `mean`: no other result follows from itself and the row that is taken out. They are exact, floats too.
        `aggregate(initial=0, adder=lambda state, record: ..., subtractor=lambda state, record: ..., value=hr.Long())` folds
        as `reduce` does; the key of the `record` is the group's, its value that of the row. `initial` is a value, or a
        function without arguments that makes it.
        """
        functions = (adder, subtractor)
        if named and (functions != (None, None) or initial is not ABSENT):
            raise TopologyError(f"aggregate: named aggregates ({', '.join(named)}) and functions", "give the one or the other")
        if named:
            return self._named(named, value, store, name)
        if initial is ABSENT or None in functions:
            raise TopologyError(
                "aggregate() of a table: expected named aggregates, or all of initial=, adder= and subtractor=",
                'e.g. aggregate(orders=hr.count(), total=hr.sum("value.price")); the subtractor undoes what the adder did',
            )
        adds = folding("aggregate adder", adder, "state", "record")
        takes = folding("aggregate subtractor", subtractor, "state", "record")
        if callable(initial):
            checked_arguments(f"aggregate(initial={label_of(initial)})", initial, ())
        serde = general_serde(adds, initial, value)
        make = partial(
            Aggregate,
            kind=AggregateKind.GENERAL,
            of_changes=True,
            function=adds.body,
            subtractor=takes.body,
            initial=initial,
            label=f"{adds.label}, {takes.label}",
        )
        return self.aggregated("aggregate", make, serde, store, name, "table-aggregate")

    def _named(self, named: Mapping[str, NamedAggregate], value: Serde | None, store: str | None, name: str | None) -> KTable:
        types = checked_fields(named, self.grouping.flow)
        for each, aggregate in named.items():
            _check_retractable(f"aggregate({each}=hr.{aggregate.kind}({aggregate.field!r})) of a table", aggregate)
        serde = result_serde_of(named, types) if value is None else checked_serde("aggregate", value)
        forms = (f"{each}={aggregate_form(aggregate, types[each])}" for each, aggregate in named.items())
        make = partial(Aggregate, kind=AggregateKind.NAMED, of_changes=True, named=dict(named))
        return self.aggregated("aggregate", make, serde, store, name, f"table-named {','.join(forms)}")


def _check_retractable(text: str, aggregate: NamedAggregate) -> None:
    if aggregate.kind not in KINDS:
        raise TopologyError(
            f"{text}: a row that goes cannot be taken out of a {aggregate.kind}; expected one of {', '.join(KINDS)}",
            "fold by aggregate(initial=, adder=, subtractor=), with a state that knows the other rows as well",
        )
    if aggregate.field is not None and aggregate.field.partition(".")[0] not in ("key", "value"):
        raise TopologyError(
            f"{text}: a row of a table has no {aggregate.field} of its own", "name key, value or value.<field>"
        )


def grouped_table(
    table: KTable, selector: Any, repartitioned: Repartitioned, key: Serde | None, name: str | None
) -> KGroupedTable:
    """`table.group_by(...)`."""
    function = checked_function("group_by", selector, flows.WORKER, table.flow)
    text = f"group_by ({function.label})"
    keys = result_side(function, key, returned(function), text, table.flow)
    return KGroupedTable(table.app, TableGrouping(table.flow, function, keys, repartitioned, table.windows, name))


class TableGrouping(Grouping):
    """A table's rows by groups: made when the first aggregation asks for it, as a `Grouping` is."""

    def __init__(
        self,
        flow: StreamCursor,
        function: Function,
        key: SerdeSlot,
        options: Repartitioned,
        windows: AnyWindows | None,
        name: str | None,
    ) -> None:
        self._options, self._function, self._windows, self._name = options, function, windows, name
        self._table, self._grouped = flow, None
        keys, values = (None if serde is None else SerdeSlot(serde) for serde in (options.key_serde, options.value_serde))
        anchor = flow.anchor if options.name is None else options.name.removesuffix(REPARTITION_SUFFIX)
        self.flow = replace(flow, anchor=anchor).with_sides(keys or key, values)

    def grouped(self, name: str, operator: str) -> StreamCursor:
        if self._grouped is None:
            self._grouped = self._sent(name, operator)
        return self._grouped

    def _sent(self, name: str, operator: str) -> StreamCursor:
        flow, builder = self._table, self._table.builder
        short = self._options.name or name
        own = flow.name_of("group_by", self._name)
        text = f"group_by ({self._function.label})"
        key = needed(self.flow.key, "key", text, None, "key=...")
        value = needed(self.flow.value, "value", text, None)
        by_inner = not flow.is_by_key and isinstance(flow.key.serde, Windowed)
        placed = None if key.serde is None or value.serde is None else Placements(key.serde, value.serde)
        what = "grouped-windows" if by_inner else "grouped"
        store = builder.checked_store("group_by", f"{short.removesuffix(REPARTITION_SUFFIX)}-rows")
        spec = StoreSpec(
            store,
            StoreKind.WINDOW if by_inner else StoreKind.KEY_VALUE,
            f"{what} key={flow.key.form} value={SerdeSlot(placed).form}",
            placed,
        )
        node = GroupTable(
            name=own,
            parents=(flow.node,),
            store=spec,
            function=self._function,
            key=key.serde,
            value=value.serde,
            windows=self._windows if by_inner else None,
            by_inner_key=by_inner,
        )
        changes = SerdeSlot(None if value.serde is None else RowChanges(value.serde))
        sent = flow.put("group_by", node, own, key=key, value=changes, rekeyed=True)
        options = replace(self._options, key_serde=None, value_serde=None)  # they are those of the rows
        read = with_repartition(sent, name, options, for_operator=operator, of_table=True)
        return read.put("group", Group(name=read.name_of("group", None), parents=(read.node,)))
