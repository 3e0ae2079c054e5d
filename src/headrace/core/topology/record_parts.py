"""Which parts of its records a job looks at: unused parts need not be carried to a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.core.topology.engine_prefix import Endpoint
from headrace.model.topology import Aggregate, AggregateKind, Group, Node, Source, SourceKind

PARTS = frozenset({"key", "value", "headers"})  # the time, the partition and the offset are always there
_KEY = frozenset({"key"})


def parts_used(nodes: Iterable[Node], endpoint: Endpoint) -> frozenset[str]:
    """Those of `PARTS` that the operators behind an endpoint without a chain look at; all of them where that is not known.

    A count looks at the key alone, a sum of `value.amount` at the value too; a record written to another stream takes its
    headers along. A value that may not decode is looked at by the source itself: such a record is rejected in any case.
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
        case Aggregate(kind=AggregateKind.COUNT):
            return _KEY
        case Aggregate(kind=AggregateKind.NAMED, named=named) if named is not None:
            heads = {one.field.partition(".")[0] for one in named.values() if one.field is not None}
            return _KEY | (PARTS & heads)
        case _:
            return PARTS
