"""Which part of a sub-topology runs inside Spark's engine, before any row reaches Python.

The stateless prefix is the tree of operators given as Spark expressions or DataFrame functions that hangs on a source.
Each path through it that ends in the worker is an `Endpoint`: one selection of rows that the engine hands over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.core.topology.sub_topologies import SubTopology
from headrace.model.stream_operators import SetHeaders
from headrace.model.topology import (
    Aggregate,
    AggregateKind,
    Filter,
    FunctionKind,
    Group,
    MapValues,
    Node,
    SelectKey,
    Source,
    SourceKind,
    Topology,
    Transform,
)
from headrace.model.windows import skips_null_values

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
        case SetHeaders(function=function):
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
    return own + [endpoint for child in in_jvm for endpoint in _endpoints(topology, source, child.name, (*chain, child))]


# --- which parts of its records a job looks at: unused parts need not be carried to a worker ---------------------------

PARTS = frozenset({"key", "value", "headers"})  # the time, the partition and the offset are always there
PRESENCE = "presence"  # of a value: whether there is one
_KEY = frozenset({"key"})


def parts_used(nodes: Iterable[Node], endpoint: Endpoint) -> frozenset[str]:
    """Those of `PARTS` and `PRESENCE` that the operators behind an endpoint without a chain look at; all of them where that is
    not known.

    A count looks at the key, and whether there is a value; a sum of `value.amount` at the value too; a record written to
    another stream takes its headers along. A value that may not decode is looked at by the source itself: such a record is
    rejected in any case.
    """
    by_name = {node.name: node for node in nodes}
    children: dict[str, list[Node]] = {}
    for node in by_name.values():
        for parent in node.parents:
            children.setdefault(parent, []).append(node)
    source = by_name[endpoint.source]
    assert isinstance(source, Source)
    if source.kind not in (SourceKind.STREAM, SourceKind.REPARTITION) or source.timestamp is not None:
        return PARTS
    used = frozenset[str]().union(*(_used_by(by_name[name], children) for name in endpoint.children))
    always_decodes = source.kind is SourceKind.REPARTITION or (source.value is not None and source.value.form == "bytes")
    return used if always_decodes else used | {"value"}


def _used_by(node: Node, children: Mapping[str, list[Node]]) -> frozenset[str]:
    match node:
        case Group():
            return _KEY.union(*(_used_by(child, children) for child in children.get(node.name, ())))
        case Aggregate(kind=AggregateKind.COUNT, windows=windows):
            return _KEY | ({PRESENCE} if skips_null_values(windows) else set())
        case Aggregate(kind=AggregateKind.NAMED, named=named, windows=windows) if named is not None:
            heads = {one.field.partition(".")[0] for one in named.values() if one.field is not None}
            return _KEY | (PARTS & heads) | ({PRESENCE} if skips_null_values(windows) else set())
        case _:
            return PARTS
