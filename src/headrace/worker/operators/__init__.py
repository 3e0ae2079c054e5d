"""The graph of operators of one task: which class runs which node, and how they are wired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.topology.emission import Emission
from headrace.core.topology.sub_topologies import sharers_of
from headrace.model import topology as t
from headrace.model.stream_operators import SetHeaders
from headrace.model.table_operators import (
    ForeignKeyResults,
    GroupTable,
    LimitUpdates,
    SendByForeignKey,
    TransformValues,
    VersionedTable,
    WaitingJoin,
)
from headrace.model.windows import SessionWindows, SlidingWindows
from headrace.worker.operators import outputs as o
from headrace.worker.operators import stateless as s
from headrace.worker.operators.aggregate import VectorAggregateOperator
from headrace.worker.operators.base import Operator
from headrace.worker.operators.duplicates import DropDuplicatesOperator
from headrace.worker.operators.group_table import GroupTableOperator
from headrace.worker.operators.joining.foreign_keys import (
    ForeignKeyJoin,
    ForeignKeyResultsOperator,
    SendByForeignKeyOperator,
)
from headrace.worker.operators.joining.joins import StreamTableJoin, TableTableJoin
from headrace.worker.operators.joining.stream_joins import StreamStreamJoin
from headrace.worker.operators.keyed import RecordAggregateOperator
from headrace.worker.operators.limited_updates import LimitUpdatesOperator
from headrace.worker.operators.processing.process import ProcessOperator
from headrace.worker.operators.processing.transform_values import TransformValuesOperator
from headrace.worker.operators.sessions import SessionOperator
from headrace.worker.operators.suppress import SuppressOperator
from headrace.worker.operators.table_aggregate import FoldedTableOperator, NamedTableOperator
from headrace.worker.operators.tables import TableFilterOperator, TableOperator, ToStreamOperator
from headrace.worker.operators.versioned_tables import VersionedTableOperator, WaitingTableJoin
from headrace.worker.operators.windowing.sliding import SlidingOperator

_CLASSES: dict[type[t.Node], Callable[[Any, Any], Operator]] = {
    t.Filter: s.FilterOperator,
    t.MapValues: s.MapValuesOperator,
    t.SelectKey: s.SelectKeyOperator,
    t.Map: s.MapOperator,
    t.FlatMap: s.FlatMapOperator,
    t.FlatMapValues: s.FlatMapValuesOperator,
    t.Peek: s.PeekOperator,
    SetHeaders: o.SetHeadersOperator,
    t.Split: s.SplitOperator,
    t.SplitOutput: s.SplitOutputOperator,
    t.Merge: s.MergeOperator,
    t.Group: s.GroupOperator,
    t.Sink: o.SinkOperator,
    t.Repartition: o.RepartitionOperator,
    t.ToStream: ToStreamOperator,
    t.Suppress: SuppressOperator,
    LimitUpdates: LimitUpdatesOperator,
    t.Table: TableOperator,
    VersionedTable: VersionedTableOperator,
    t.TableFilter: TableFilterOperator,
    GroupTable: GroupTableOperator,
    SendByForeignKey: SendByForeignKeyOperator,
    ForeignKeyResults: ForeignKeyResultsOperator,
    t.Process: ProcessOperator,
    TransformValues: TransformValuesOperator,
    t.DropDuplicates: DropDuplicatesOperator,
    t.ForEachRound: Operator,  # nothing is left to do: the driver gave the rows to the function
}

_JOINS: dict[t.JoinSides, Callable[[Any, Any], Operator]] = {
    t.JoinSides.FOREIGN_KEY: ForeignKeyJoin,
    t.JoinSides.STREAM_TABLE: StreamTableJoin,
    t.JoinSides.STREAM_GLOBAL: StreamTableJoin,
    t.JoinSides.TABLE_TABLE: TableTableJoin,
    t.JoinSides.STREAM_STREAM: StreamStreamJoin,
}


def operator_of(node: t.Node, context: Any, watermarks: dict[int, int]) -> Operator:
    if isinstance(node, t.Source):
        return s.SourceOperator(node, context, watermarks)
    if isinstance(node, t.Aggregate):
        if isinstance(node.windows, SessionWindows):
            return SessionOperator(node, context)
        if isinstance(node.windows, SlidingWindows):
            return SlidingOperator(node, context)
        vectorised = node.kind in (t.AggregateKind.COUNT, t.AggregateKind.NAMED)
        if node.of_changes:
            return NamedTableOperator(node, context) if vectorised else FoldedTableOperator(node, context)
        return VectorAggregateOperator(node, context) if vectorised else RecordAggregateOperator(node, context)
    if isinstance(node, WaitingJoin):
        return WaitingTableJoin(node, context)
    if isinstance(node, t.Join):
        return _JOINS[node.sides](node, context)
    return _CLASSES[type(node)](node, context)


class Graph:
    """The operators of one task, parents before children. Rows enter through `entry(endpoint)`: the operators behind the part
    of the endpoint's chain that ran in the JVM."""

    def __init__(
        self, nodes: Sequence[t.Node], endpoints: Sequence[Any], emission: Emission, context: Any, watermarks: dict[int, int]
    ) -> None:
        in_jvm = {node.name for endpoint in endpoints for node in endpoint.chain}
        self.operators: dict[str, Operator] = {
            node.name: operator_of(node, context, watermarks) for node in nodes if node.name not in in_jvm
        }
        for operator in self.operators.values():
            operator.gives_each = operator.node.name in emission.each
            if isinstance(operator, ToStreamOperator) and operator.node.name in emission.last:
                operator.takes_last_of = self.operators[emission.last[operator.node.name]]
        self._entries: list[tuple[s.SourceOperator, list[Operator]]] = []
        for node in nodes:
            if node.name in in_jvm or isinstance(node, t.Source):
                continue
            for parent in dict.fromkeys(node.parents):
                if parent in self.operators and not isinstance(self.operators[parent].node, t.Source):
                    self.operators[parent].children.extend(self._inlets([node.name], parent, self.operators[parent]))
        self._keep_order(list(sharers_of(nodes).values()))
        for endpoint in endpoints:
            source = self.operators[endpoint.source]
            assert isinstance(source, s.SourceOperator)
            self._entries.append((source, self._inlets(endpoint.children, endpoint.entry, source)))

    def _inlets(self, children: Sequence[str], parent: str, operator: Operator) -> list[Operator]:
        found = (self.operators[child].inlet(parent, operator) for child in children)
        return [inlet for inlet in found if inlet is not None]

    def _keep_order(self, sharers: Sequence[Sequence[str]]) -> None:
        """Have rows go one record of a key at a time where several operators follow that share a store."""
        behind: dict[str, set[str]] = {}
        for name, operator in reversed(self.operators.items()) if sharers else ():
            names = {child.node.name for child in operator.children}
            behind[name] = names.union(*(behind.get(child, ()) for child in names))
            operator.gives_key_once = any(len(behind[name].intersection(group)) > 1 for group in sharers)

    def push(self, endpoint: int, rows: Any, *, is_prepared: bool) -> None:
        """Rows of an endpoint, as read, or as they came out of Spark's engine: decoded and timed already."""
        source, children = self._entries[endpoint]
        source.children = children
        if is_prepared:
            source.forward(source.timely(rows))
        else:
            source.push(rows)

    def batch_end(self) -> None:
        for operator in self.operators.values():
            operator.batch_end()
