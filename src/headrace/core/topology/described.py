"""The description of a topology as plain values, which programs read and every other description is made from."""

from __future__ import annotations

from typing import Any, cast

from headrace.core.topology.description_types import (
    OperatorDescription,
    StoreDescription,
    SubTopologyDescription,
    TopologyDescription,
)
from headrace.core.topology.engine_prefix import runs_in_jvm
from headrace.core.topology.stated_counts import Stated, stated_counts_of
from headrace.core.topology.sub_topologies import (
    SubTopology,
    has_state,
    short_name_of,
    stores_of,
    sub_topologies_of,
    upstream_names_of,
)
from headrace.model.serde import Serde
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.topology import (
    Aggregate,
    DropDuplicates,
    Emit,
    Filter,
    FlatMap,
    FlatMapValues,
    ForEachRound,
    Function,
    Group,
    Join,
    JoinKind,
    JoinSides,
    Map,
    MapValues,
    Merge,
    NamedAggregate,
    Node,
    Partitioning,
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
    Suppress,
    Table,
    TableFilter,
    Topology,
    ToStream,
    Transform,
)
from headrace.model.windows import AnyWindows, SessionWindows

BY_SPARK_TYPE = "by Spark type"
_UNITS = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("ms", 1_000),
    ("µs", 1),
)


def description_of(topology: Topology) -> TopologyDescription:
    """The topology as plain values."""
    subs = sub_topologies_of(topology)
    upstream = upstream_names_of(subs)
    return {
        "application": topology.application,
        "sub_topologies": [_sub_topology(topology, sub, upstream[sub.name]) for sub in subs],
    }


def duration_text(duration_us: int) -> str:
    """A length of time in words, as `model.durations` reads them.

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
        "kind": kind_of(node),
        "parents": list(node.parents),
        "engine": "spark" if runs_in_jvm(node) or isinstance(node, ForEachRound) else "worker",
    }
    described.update(_details(topology, node))
    if stores := stores_of(node):
        described["stores"] = [store.name for store in stores]
    return described


def _sub_topology(topology: Topology, sub: SubTopology, upstream: tuple[str | None, ...]) -> SubTopologyDescription:
    outputs = {sink.stream if isinstance(sink.stream, str) else sink.stream.label for sink in sub.sinks}
    return {
        "name": sub.title,
        "has_state": has_state(sub),
        "upstream": [name or "source" for name in upstream],
        "reads": list(sub.reads),
        "writes": sorted(outputs | set(sub.writes)),
        "operators": [cast(OperatorDescription, operator_of(topology, node)) for node in sub.nodes],
        "stores": [_store(store, node) for node in sub.nodes for store in stores_of(node)],
    }


def _store(store: StoreSpec, node: Node) -> StoreDescription:
    windows = node.windows if isinstance(node, Aggregate) else None
    if isinstance(node, Suppress):
        kept = "until its window closes"
    elif windows is not None:
        past = "the gap after its last record" if isinstance(windows, SessionWindows) else "the window's end"
        kept = f"{duration_text(windows.kept_us)} past {past}"
    else:
        kept = "for ever" if store.ttl_us is None else duration_text(store.ttl_us)
    return {
        "name": store.name,
        "kind": str(store.kind),
        "operator": node.name,
        "form": store.form,
        "kept": kept,
    }


def kind_of(node: Node) -> str:
    """What an operator is, in a word: as its method is named, as a rule."""
    match node:
        case Source(kind=SourceKind.REPARTITION):
            return "repartition-source"
        case Source(kind=kind):
            return str(kind)
        case Filter(negate=True) | TableFilter(negate=True):
            return "filter_not"
        case Table():
            return "table-store"
        case Join(kind=kind):
            return {JoinKind.INNER: "join"}.get(kind, f"{kind}_join")
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
    Suppress: "suppress",
    Repartition: "repartition",
    Sink: "to",
    ForEachRound: "for_each_round",
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
        case ForEachRound():
            return {"function": node.label}
        case Split():
            return {"predicates": [predicate.label for predicate in node.predicates]}
        case SplitOutput():
            return {"output": node.index}
        case Transform():
            return {"function": node.label, "key": _form(node.key), "value": _form(node.value)}
        case Process():
            return {"processor": node.processor.__qualname__, "timers": node.timers, "value": _form(node.value)}
        case Repartition():
            return _repartition(topology, node)
        case Sink(stream=stream):
            return {
                "stream": stream.label if isinstance(stream, Function) else stream,
                "key": _form(node.key),
                "value": _form(node.value),
                "partitioner": _label(node.partitioner),
            }
        case _:
            return _keyed_details(node)


def _keyed_details(node: Node) -> dict[str, Any]:
    """Of what comes behind a grouping."""
    match node:
        case DropDuplicates():
            by = {} if node.by is None else {"by": node.by.label}
            return {**by, "within": duration_text(node.within_us)}
        case Aggregate():
            return _aggregate(node)
        case Join():
            return _join(node)
        case ToStream() if node.emit is not Emit.ROUND:
            return {"emit": str(node.emit)}
        case Suppress():
            return {"key": _form(node.key), "value": _form(node.value), "windows": _windows(node.windows)}
        case _:
            return {}


def _source(node: Source) -> dict[str, Any]:
    described: dict[str, Any] = {"stream": node.stream, "key": _form(node.key), "value": _form(node.value)}
    if node.broadcast:
        described["broadcast"] = True
    if node.kind is not SourceKind.REPARTITION:
        described |= {"start": _start(node.start), "reset_offset": node.reset_offset}
        if node.partitioning is not Partitioning.HASH:
            described["partitioning"] = str(node.partitioning)
        if node.timestamp is not None:
            described["timestamp"] = node.timestamp.label
            if node.timestamp_unit != "us":
                described["timestamp_unit"] = node.timestamp_unit
    return described


def _start(start: str | int | Startpoint) -> str | int:
    match start:
        case Startpoint(position_type=PositionType.TIMESTAMP, position=moment_us):
            return f"TIMESTAMP {moment_us}"
        case Startpoint(position_type=PositionType.SPECIFIC_OFFSET, position=int(offset)):
            return offset
        case Startpoint(position_type=kind):
            return kind.lower()
    return start


def _join(node: Join) -> dict[str, Any]:
    described = {"sides": str(node.sides), "function": node.joiner.label, "value": _form(node.value, node.joiner)}
    if node.key_of is not None:
        described["key_of"] = node.key_of.label
    if node.sides is JoinSides.STREAM_STREAM:
        described |= {"within": duration_text(node.within_us), "kept": duration_text(node.kept_us)}
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


def _windows(windows: AnyWindows) -> dict[str, Any]:
    if isinstance(windows, SessionWindows):
        lengths = {"gap": duration_text(windows.gap_us)}
    else:
        lengths = {"size": duration_text(windows.size_us), "advance": duration_text(windows.advance_us)}
    return {
        **lengths,
        "grace": None if windows.grace_us is None else duration_text(windows.grace_us),
        "kept": duration_text(windows.kept_us),
    }


def _repartition(topology: Topology, node: Repartition) -> dict[str, Any]:
    return {
        "stream": node.stream,
        "sub_topology": short_name_of(topology.application, node.stream),
        "key": _form(node.key),
        "value": _form(node.value),
        **_partitions(topology, node),
        "partitioner": _label(node.partitioner),
        "generated": node.generated,
    }


def _partitions(topology: Topology, node: Repartition) -> dict[str, Any]:
    """`partitions` None: the largest number that one of `partitions_of`, or else its only source, has at the start."""
    count = stated_counts_of(sub_topologies_of(topology))[node.stream]
    described: dict[str, Any] = {"partitions": count.partitions, "partitions_are": str(count.stated)}
    if count.of and (count.stated is not Stated.INHERITED or len(count.of) > 1):
        described["partitions_of"] = list(count.of)
    if count.is_hint and count.stated is not Stated.HINT:
        described["partitions_if_new"] = True
    return described


def _label(function: Function | None) -> str | None:
    return None if function is None else function.label


def _form(serde: Serde | None, function: Function | None = None) -> str | None:
    """A serde by its form. Without one: what Spark's type will say, or None where a function left it open."""
    if serde is not None:
        return serde.form
    return BY_SPARK_TYPE if function is None or function.in_jvm else None
