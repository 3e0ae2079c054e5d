"""Which operators give every update of a table, and which make one per round of them (`to_stream(emit=...)`).

A table gives the last value of each changed key once per round, which is far less work than every update. Where one
stream asks for every update, its table gives all of them to all operators behind it, and the streams that did not ask take
the last of each key again. A join of tables can give no more than it is given: both sides give every update then, those
that come by a repartition stream too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model import topology as t
from headrace.model.table_operators import ForeignKeyResults, GroupTable, LimitUpdates, SendByForeignKey, TransformValues


@dataclass(frozen=True, slots=True)
class Emission:
    """Names of operators. `each`: tables that give every update; `last`: streams that take the last of each key in a round
    of them, to the operator that makes these."""

    each: frozenset[str] = frozenset()
    last: Mapping[str, str] = field(default_factory=dict)


def emission_of(nodes: Sequence[t.Node]) -> Emission:
    """Who gives what in a topology; `nodes` are all of it, parents first."""
    by_name = {node.name: node for node in nodes}
    each = _giving_each(nodes, by_name)
    behind: set[str] = set()  # operators that are given every update though they need not be
    last: dict[str, str] = {}
    for node in nodes:
        if node.name in each:
            behind.add(node.name)
        elif behind.intersection(node.parents):
            if isinstance(node, t.ToStream) and node.emit is t.Emit.ROUND:
                last[node.name] = _table_of(by_name, by_name[node.parents[0]]).name
            elif _is_view(node):
                behind.add(node.name)
    return Emission(each, last)


def _giving_each(nodes: Sequence[t.Node], by_name: Mapping[str, t.Node]) -> frozenset[str]:
    """The tables of which every update is requested, and those whose updates these are made of."""
    writers = {node.stream: node for node in nodes if isinstance(node, t.Repartition)}
    left = [node.parents[0] for node in nodes if _requests_each(node)]
    found: set[str] = set()
    while left:
        match _table_of(by_name, by_name[left.pop()]):
            case t.Aggregate(name=name, of_changes=of_changes, parents=parents):
                left.extend(parents if of_changes and name not in found else ())
                found.add(name)
            case (
                t.Table(name=name, parents=parents)
                | ForeignKeyResults(name=name, parents=parents)
                | t.Join(sides=t.JoinSides.TABLE_TABLE | t.JoinSides.FOREIGN_KEY, name=name, parents=parents)
            ):
                left.extend(() if name in found else parents)
                found.add(name)
            case t.Source(of_table=True, stream=stream) if stream in writers:
                left.extend(writers[stream].parents)
            case _:  # a stream; or windows that have closed, of which there is one update each
                pass
    return frozenset(found)


def _requests_each(node: t.Node) -> bool:
    """Also what makes its own choice of them, by time, or makes something of each: it would depend on where rounds are cut."""
    return isinstance(node, LimitUpdates | TransformValues) or (isinstance(node, t.ToStream) and node.emit is t.Emit.EACH)


def _table_of(by_name: Mapping[str, t.Node], node: t.Node) -> t.Node:
    """The operator that makes the updates of which `node` is a view: itself, or the nearest that is no map and no filter."""
    while _is_view(node):
        node = by_name[node.parents[0]]
    return node


def _is_view(node: t.Node) -> bool:
    """A table whose updates are made one by one of another's. So are the changes of a table's groups, on both sides of
    their repartition stream."""
    is_map = isinstance(node, t.MapValues) and node.of_table
    return is_map or isinstance(node, t.TableFilter | TransformValues | GroupTable | SendByForeignKey | t.Group)
