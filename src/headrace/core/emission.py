"""Owns which operators give every update of a table, and which make one per round of them (`to_stream(emit=...)`).

A table gives the last value of each changed key once per round, which is far less work than every update. Where one
stream asks for every update, its table gives all of them to whatever is behind it, and the streams that did not ask take
the last of each key again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.model.topology import Aggregate, Emit, MapValues, Node, Suppress, Table, TableFilter, ToStream


@dataclass(frozen=True, slots=True)
class Emission:
    """Names of operators. `each`: tables that give every update; `last`: streams that take the last of each key in a round
    of them, to the operator that makes these."""

    each: frozenset[str] = frozenset()
    last: Mapping[str, str] = field(default_factory=dict)


def emission_of(nodes: Sequence[Node]) -> Emission:
    """Who gives what in a sub-topology; `nodes` parents first."""
    by_name = {node.name: node for node in nodes}
    asking = [node for node in nodes if isinstance(node, ToStream) and node.emit is Emit.EACH]
    each = {table for node in asking for table in _tables_above(by_name, node)}
    behind: set[str] = set()  # operators that are given every update though they need not be
    last: dict[str, str] = {}
    for node in nodes:
        if node.name in each:
            behind.add(node.name)
        elif behind.intersection(node.parents) and not isinstance(node, Aggregate | Table | Suppress):
            if not isinstance(node, ToStream):
                behind.add(node.name)
            elif node.emit is Emit.ROUND:
                last[node.name] = table_of(by_name, node).name
    return Emission(frozenset(each), last)


def _tables_above(by_name: dict[str, Node], node: Node) -> list[str]:
    """The tables whose updates come to `node`: the nearest, and where that one keeps another's updates, that one too."""
    found = []
    while isinstance(node := table_of(by_name, node), Aggregate | Table):
        found.append(node.name)
        if isinstance(node, Aggregate):
            break
        node = by_name[node.parents[0]]
    return found


def table_of(by_name: dict[str, Node], node: Node) -> Node:
    """The operator that makes the updates of which `node` is a view: the nearest above that is no map and no filter."""
    while isinstance(node, ToStream | TableFilter) or (isinstance(node, MapValues) and node.of_table):
        node = by_name[node.parents[0]]
    return node
