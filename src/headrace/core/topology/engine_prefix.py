"""Which part of a sub-topology runs inside Spark's engine, before any row reaches Python.

The stateless prefix is the tree of operators given as Spark expressions or DataFrame functions that hangs on a source.
Each path through it that ends in the worker is an `Endpoint`: one selection of rows that the engine hands over.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.topology.sub_topologies import SubTopology
from headrace.model.topology import Filter, FunctionKind, MapValues, Node, SelectKey, Topology, Transform

ALL = "true"  # the predicate of a filter that keeps everything


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """Rows of `source` that went through `chain` (its operators in order) and are passed to the operators `children`.

    `entry` is the name of the last operator of the chain, of the source where the chain is empty: unique in a topology.
    """

    source: str
    chain: tuple[Node, ...]
    entry: str
    children: tuple[str, ...]


def runs_in_jvm(node: Node) -> bool:
    """Whether an operator is one that Spark's engine runs."""
    match node:
        case Filter(predicate=function) | MapValues(function=function) | SelectKey(function=function):
            return function.in_jvm
        case Transform():
            return True
        case _:
            return False


def passes_all(node: Node) -> bool:
    """Whether an operator of the prefix gives every row as it is: one that was put in so that rows go through Spark."""
    return isinstance(node, Filter) and node.predicate.kind is FunctionKind.SQL and node.predicate.body == ALL


def endpoints_of(sub: SubTopology, topology: Topology) -> tuple[Endpoint, ...]:
    """The endpoints of a sub-topology, source after source, shorter chains first where one is the beginning of another.

    An operator of the prefix whose rows go nowhere gives no endpoint, unless its source would have none at all.
    """
    found: list[Endpoint] = []
    for source in sub.sources:
        every = _endpoints(topology, source.name, source.name, ())
        useful = [endpoint for endpoint in every if endpoint.children]
        found.extend(useful or every[:1])
    return tuple(found)


def _endpoints(topology: Topology, source: str, entry: str, chain: tuple[Node, ...]) -> list[Endpoint]:
    children = topology.children(entry)
    in_worker = tuple(child.name for child in children if not runs_in_jvm(child))
    in_jvm = [child for child in children if runs_in_jvm(child)]
    own = [Endpoint(source, chain, entry, in_worker)] if in_worker or not in_jvm else []
    return own + [
        endpoint for child in in_jvm for endpoint in _endpoints(topology, source, child.name, (*chain, child))
    ]
