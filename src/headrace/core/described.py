"""Owns the description of a topology as plain values, which programs read and every other description is made from."""

from __future__ import annotations

from typing import Any

from headrace.core.prefix import runs_in_jvm
from headrace.core.sub_topologies import (
    SubTopology,
    has_state,
    short_name_of,
    stores_of,
    sub_topologies_of,
    upstream_names_of,
)
from headrace.model.serde import Serde
from headrace.model.topology import (
    Aggregate,
    DropDuplicates,
    Filter,
    FlatMap,
    FlatMapValues,
    Function,
    Group,
    Map,
    MapValues,
    Merge,
    NamedAggregate,
    Node,
    Peek,
    Process,
    Repartition,
    SelectKey,
    Sink,
    Source,
    SourceKind,
    Split,
    SplitOutput,
    StoreSpec,
    Table,
    TableFilter,
    Topology,
    ToStream,
    Transform,
)
from headrace.model.windows import Windows

BY_SPARK_TYPE = "by Spark type"
_UNITS = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("ms", 1_000),
    ("µs", 1),
)


def description_of(topology: Topology) -> dict[str, Any]:
    """The topology as dicts, lists, texts, numbers, booleans and None.

    `{"application", "sub_topologies": [{"name", "has_state", "upstream", "reads", "writes", "operators", "stores"}]}`;
    an operator has "name", "kind", "parents", "engine" ("spark" or "worker"), and what its kind has.
    """
    subs = sub_topologies_of(topology)
    upstream = upstream_names_of(subs)
    return {
        "application": topology.application,
        "sub_topologies": [_sub_topology(topology, sub, upstream[sub.name]) for sub in subs],
    }


def duration_text(duration_us: int) -> str:
    """A length of time in words, as `dsl.durations` reads them.

    >>> duration_text(5_400_000_000), duration_text(86_400_000_000), duration_text(1_500)
    ('1 hour 30 minutes', '1 day', '1 ms 500 µs')
    """
    parts: list[str] = []
    rest = duration_us
    for unit, size in _UNITS:
        count, left = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}" if count == 1 or size <= 1_000 else f"{count} {unit}s")
            rest = left
    return " ".join(parts) or "0 seconds"


def operator_of(topology: Topology, node: Node) -> dict[str, Any]:
    """One operator as a dict."""
    described: dict[str, Any] = {
        "name": node.name,
        "kind": _kind(node),
        "parents": list(node.parents),
        "engine": "spark" if runs_in_jvm(node) else "worker",
    }
    described.update(_details(topology, node))
    if stores := stores_of(node):
        described["stores"] = [store.name for store in stores]
    return described


def _sub_topology(topology: Topology, sub: SubTopology, upstream: tuple[str | None, ...]) -> dict[str, Any]:
    outputs = {sink.stream if isinstance(sink.stream, str) else sink.stream.label for sink in sub.sinks}
    return {
        "name": sub.title,
        "has_state": has_state(sub),
        "upstream": [name or "source" for name in upstream],
        "reads": list(sub.reads),
        "writes": sorted(outputs | set(sub.writes)),
        "operators": [operator_of(topology, node) for node in sub.nodes],
        "stores": [_store(store, node) for node in sub.nodes for store in stores_of(node)],
    }


def _store(store: StoreSpec, node: Node) -> dict[str, Any]:
    windows = node.windows if isinstance(node, Aggregate) else None
    if windows is not None:
        kept = f"{duration_text(windows.kept_us)} past the window's end"
    else:
        kept = "for ever" if store.ttl_us is None else duration_text(store.ttl_us)
    return {
        "name": store.name,
        "kind": str(store.kind),
        "operator": node.name,
        "form": store.form,
        "kept": kept,
    }


def _kind(node: Node) -> str:
    match node:
        case Source(kind=SourceKind.REPARTITION):
            return "repartition-source"
        case Source(kind=kind):
            return str(kind)
        case Filter(negate=True) | TableFilter(negate=True):
            return "filter_not"
        case Table():
            return "table-store"
        case Aggregate(kind=kind):
            return {"count": "count", "reduce": "reduce"}.get(str(kind), "aggregate")
        case _:
            return _KINDS[type(node)]


_KINDS: dict[type[Node], str] = {
    Filter: "filter",
    MapValues: "map_values",
    FlatMapValues: "flat_map_values",
    Map: "map",
    FlatMap: "flat_map",
    SelectKey: "select_key",
    Peek: "peek",
    Merge: "merge",
    Split: "split",
    SplitOutput: "split-output",
    Transform: "transform",
    Process: "process",
    DropDuplicates: "drop_duplicates",
    Group: "group",
    TableFilter: "filter",
    ToStream: "to_stream",
    Repartition: "repartition",
    Sink: "to",
}


def _details(topology: Topology, node: Node) -> dict[str, Any]:
    match node:
        case Source():
            return _source(node)
        case Filter(predicate=function) | TableFilter(predicate=function) | Peek(function=function):
            return {"function": function.label}
        case SelectKey():
            return {"function": node.function.label, "key": _form(node.key, node.function)}
        case MapValues() | FlatMapValues():
            return {"function": node.function.label, "value": _form(node.value, node.function)}
        case Map() | FlatMap():
            return {
                "function": node.function.label,
                "key": _form(node.key, node.function),
                "value": _form(node.value, node.function),
            }
        case Split():
            return {"predicates": [predicate.label for predicate in node.predicates]}
        case SplitOutput():
            return {"output": node.index}
        case Transform():
            return {"function": node.label, "key": _form(node.key), "value": _form(node.value)}
        case Process():
            return {"processor": node.processor.__qualname__, "timers": node.timers, "value": _form(node.value)}
        case DropDuplicates():
            by = {} if node.by is None else {"by": node.by.label}
            return {**by, "within": duration_text(node.within_us)}
        case Aggregate():
            return _aggregate(node)
        case Repartition():
            return _repartition(topology, node)
        case Sink(stream=str(stream)):
            return {"stream": stream, "key": _form(node.key), "value": _form(node.value)}
        case Sink(stream=Function(label=label)):
            return {"stream": label, "key": _form(node.key), "value": _form(node.value)}
        case _:
            return {}


def _source(node: Source) -> dict[str, Any]:
    described: dict[str, Any] = {"stream": node.stream, "key": _form(node.key), "value": _form(node.value)}
    if node.kind is not SourceKind.REPARTITION:
        start = node.start if isinstance(node.start, str | int) else f"{node.start.position_type} {node.start.position}"
        described |= {"start": start, "reset_offset": node.reset_offset}
        if node.timestamp is not None:
            described["timestamp"] = node.timestamp.label
    return described


def _aggregate(node: Aggregate) -> dict[str, Any]:
    described: dict[str, Any] = {"key": _form(node.key), "value": _form(node.value)}
    if node.named is not None:
        described["aggregates"] = {name: _named(aggregate) for name, aggregate in node.named.items()}
    if node.label:
        described["function"] = node.label
    if node.windows is not None:
        described["windows"] = _windows(node.windows)
    return described


def _named(aggregate: NamedAggregate) -> str:
    return f"{aggregate.kind}({aggregate.field or ''})"


def _windows(windows: Windows) -> dict[str, Any]:
    return {
        "size": duration_text(windows.size_us),
        "advance": duration_text(windows.advance_us),
        "grace": None if windows.grace_us is None else duration_text(windows.grace_us),
        "kept": duration_text(windows.kept_us),
    }


def _repartition(topology: Topology, node: Repartition) -> dict[str, Any]:
    return {
        "stream": node.stream,
        "sub_topology": short_name_of(topology.application, node.stream),
        "key": _form(node.key),
        "value": _form(node.value),
        "partitions": node.partitions,
        "generated": node.generated,
    }


def _form(serde: Serde | None, function: Function | None = None) -> str | None:
    """A serde by its form. Without one: what Spark's type will say, or None where a function left it open."""
    if serde is not None:
        return serde.form
    return BY_SPARK_TYPE if function is None or function.in_jvm else None
