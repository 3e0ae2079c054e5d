"""The description of a topology as plain values, which programs read and every other description is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from headrace.core.topology.description_types import (
    OperatorDescription,
    StoreDescription,
    SubTopologyDescription,
    TopologyDescription,
)
from headrace.core.topology.engine_prefix import runs_in_jvm
from headrace.core.topology.partition_counts import Stated, StatedCount, stated_counts_of
from headrace.core.topology.partition_families import count_requests_of
from headrace.core.topology.sub_topologies import (
    SubTopology,
    has_state,
    short_name_of,
    stores_of,
    sub_topologies_of,
    upstream_names_of,
)
from headrace.model import topology as nodes
from headrace.model.durations import duration_text, time_text
from headrace.model.serde import Serde
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.stream_operators import SetHeaders
from headrace.model.table_operators import (
    ForeignKeyResults,
    GroupTable,
    JoinByForeignKey,
    LimitUpdates,
    SendByForeignKey,
    TransformValues,
    VersionedTable,
    WaitingJoin,
)
from headrace.model.topology import Function, Node, StoreSpec, Topology
from headrace.model.windows import AnyWindows, SessionWindows, SlidingWindows, UnlimitedWindows

_BY_SPARK_TYPE = "by Spark type"
# What an operator is, in a word (as its method is named, as a rule), and what is said of it.
_OPERATORS: dict[type[Node], tuple[str, ...]] = {
    nodes.Filter: ("filter", "function"),
    nodes.MapValues: ("map_values", "function", "value"),
    nodes.FlatMapValues: ("flat_map_values", "function", "value"),
    nodes.Map: ("map", "function", "key", "value"),
    nodes.FlatMap: ("flat_map", "function", "key", "value"),
    nodes.SelectKey: ("select_key", "function", "key"),
    nodes.Peek: ("peek", "function"),
    SetHeaders: ("with_headers", "function"),
    nodes.Merge: ("merge",),
    nodes.Split: ("split", "predicates"),
    nodes.SplitOutput: ("split-output", "output"),
    nodes.Transform: ("transform", "function", "key", "value"),
    nodes.Process: ("process", "processor", "timers", "value"),
    TransformValues: ("transform_values", "processor", "timers", "value"),
    nodes.DropDuplicates: ("drop_duplicates", "by", "within"),
    nodes.Group: ("group",),
    GroupTable: ("group_by", "function", "key"),
    SendByForeignKey: ("foreign-key", "function", "key"),
    ForeignKeyResults: ("join-results", "value"),
    nodes.Table: ("table-store",),
    VersionedTable: ("table-store", "history"),
    nodes.TableFilter: ("filter", "function"),
    nodes.ToStream: ("to_stream", "emit"),
    nodes.Suppress: ("suppress", "key", "value", "windows"),
    LimitUpdates: ("suppress", "key", "value", "limit"),
    nodes.Sink: ("to", "stream", "key", "value", "partitioner"),
    nodes.ForEachRound: ("for_each_round", "function"),
    nodes.Join: ("join", "sides", "function", "value", "key_of", "within", "before", "after", "kept"),
    WaitingJoin: ("join", "sides", "function", "value", "grace"),
    JoinByForeignKey: ("join", "sides", "function", "value"),
    nodes.Aggregate: ("aggregate", "key", "value", "aggregates", "function", "windows"),
}
_ALWAYS = ("key", "value", "partitioner")  # said where there is none too


def description_of(topology: Topology) -> TopologyDescription:
    """The topology as plain values. `TopologyError` where its operators do not fit together."""
    subs = sub_topologies_of(topology)
    upstream, counts = upstream_names_of(subs), stated_counts_of(count_requests_of(subs))
    described: list[SubTopologyDescription] = [
        {
            "name": sub.title,
            "has_state": has_state(sub),
            "upstream": [name or "source" for name in upstream[sub.name]],
            "reads": list(sub.reads),
            "writes": sorted({_detail(sink, "stream") for sink in sub.sinks} | set(sub.writes)),
            "operators": [_operator(topology.application, node, counts) for node in sub.nodes],
            "stores": _stores(sub),
        }
        for sub in subs
    ]
    return {"application": topology.application, "sub_topologies": described}


def kind_of(node: Node) -> str:
    """What an operator is, in a word: as its method is named, as a rule."""
    match node:
        case nodes.Source(kind=nodes.SourceKind.REPARTITION):
            return "repartition-source"
        case nodes.Source(kind=kind):
            return str(kind)
        case nodes.Repartition():
            return "repartition"
        case nodes.Filter(negate=True) | nodes.TableFilter(negate=True):
            return "filter_not"
        case nodes.Join(kind=kind) if kind is not nodes.JoinKind.INNER:
            return f"{kind}_join"
        case nodes.Aggregate(kind=kind) if kind in ("count", "reduce"):
            return str(kind)
        case _:
            return _OPERATORS[type(node)][0]


def _operator(application: str, node: Node, counts: Mapping[str, StatedCount]) -> OperatorDescription:
    described: dict[str, Any] = {
        "name": node.name,
        "kind": kind_of(node),
        "parents": list(node.parents),
        "engine": "spark" if runs_in_jvm(node) or isinstance(node, nodes.ForEachRound) else "worker",
    }
    match node:
        case nodes.Source():
            described |= _source(node)
        case nodes.Repartition():
            described |= _repartition(application, node, counts[node.stream])
        case _:
            details = {name: _detail(node, name) for name in _OPERATORS[type(node)][1:]}
            described |= {name: value for name, value in details.items() if value is not None or name in _ALWAYS}
    if stores := stores_of(node):
        described["stores"] = [store.name for store in stores]
    return cast(OperatorDescription, described)


def _join_length(join: nodes.Join, name: str) -> str | None:
    """One of `within` and of `before` and `after`; and `kept`."""
    is_even = join.before_us == join.after_us
    lengths_us = {"within": join.after_us} if is_even else {"before": join.before_us, "after": join.after_us}
    lengths_us["kept"] = join.kept_us
    return duration_text(lengths_us[name]) if name in lengths_us else None


def _detail(node: Any, name: str) -> Any:
    """One thing that is said of an operator; None for what it has not."""
    given = next((getattr(node, one) for one in ("function", "predicate", "joiner") if hasattr(node, one)), None)
    function = given if isinstance(given, Function) else None
    match name:
        case "function":
            return (node.label or None) if function is None else function.label
        case "key" | "value":
            return _form(getattr(node, name), function)
        case "predicates":
            return [predicate.label for predicate in node.predicates]
        case "output":
            return node.index
        case "processor":
            return node.processor.__qualname__
        case "timers":
            return node.timers
        case "stream":
            return node.stream.label if isinstance(node.stream, Function) else node.stream
        case "sides":
            return str(node.sides)
        case "by" | "key_of" | "partitioner":
            return _label(getattr(node, name))
        case "within" | "limit" | "history" | "grace" if not isinstance(node, nodes.Join) or isinstance(node, WaitingJoin):
            return duration_text(getattr(node, f"{name}_us"))
        case "within" | "before" | "after" | "kept" if node.sides is nodes.JoinSides.STREAM_STREAM:
            return _join_length(node, name)
        case "emit" if node.emit is not nodes.Emit.ROUND:
            return str(node.emit)
        case "aggregates" if node.named is not None:
            return {name: f"{one.kind}({one.field or ''})" for name, one in node.named.items()}
        case "windows" if node.windows is not None:
            return _windows(node.windows)
    return None


def _source(node: nodes.Source) -> dict[str, Any]:
    described: dict[str, Any] = {"stream": node.stream, "key": _form(node.key), "value": _form(node.value)}
    if node.broadcast:
        described["broadcast"] = True
    if node.kind is not nodes.SourceKind.REPARTITION:
        described |= {"start": _start(node.start), "reset_offset": node.reset_offset}
        if node.partitioning is not nodes.Partitioning.HASH:
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


def _repartition(application: str, node: nodes.Repartition, count: StatedCount) -> dict[str, Any]:
    """`partitions` None: the largest number that one of `partitions_of`, or else its only source, has at the start."""
    described: dict[str, Any] = {
        "stream": node.stream,
        "sub_topology": short_name_of(application, node.stream),
        "key": _form(node.key),
        "value": _form(node.value),
        "partitions": count.partitions,
        "partitions_are": str(count.stated),
    }
    if count.of and (count.stated is not Stated.INHERITED or len(count.of) > 1):
        described["partitions_of"] = list(count.of)
    if count.is_hint and count.stated is not Stated.HINT:
        described["partitions_if_new"] = True
    return described | {"partitioner": _label(node.partitioner), "generated": node.generated}


def _windows(windows: AnyWindows) -> dict[str, Any]:
    match windows:
        case UnlimitedWindows():
            return {"start": time_text(windows.start_us), "grace": None, "kept": "for ever"}
        case SessionWindows():
            lengths = {"gap": duration_text(windows.gap_us)}
        case SlidingWindows():
            lengths = {"length": duration_text(windows.length_us)}
        case _:
            lengths = {"size": duration_text(windows.size_us), "advance": duration_text(windows.advance_us)}
    grace = None if windows.grace_us is None else duration_text(windows.grace_us)
    return {**lengths, "grace": grace, "kept": duration_text(windows.kept_us)}


def _stores(sub: SubTopology) -> list[StoreDescription]:
    """Each once: processors may share one."""
    described = {store.name: _store(store, node) for node in sub.nodes for store in stores_of(node)}
    return list(described.values())


def _store(store: StoreSpec, node: Node) -> StoreDescription:
    windows = node.windows if isinstance(node, nodes.Aggregate) else None
    if isinstance(node, LimitUpdates):
        kept = duration_text(node.limit_us)
    elif isinstance(node, VersionedTable) and store is node.versions:
        kept = f"{duration_text(node.history_us)} past the next version"
    elif isinstance(node, WaitingJoin):
        kept = f"{duration_text(node.grace_us)} past its time"
    elif isinstance(node, nodes.Suppress):
        kept = "until its window closes"
    elif windows is not None and not isinstance(windows, UnlimitedWindows):
        past = "the gap after its last record" if isinstance(windows, SessionWindows) else "the window's end"
        kept = f"{duration_text(windows.kept_us)} past {past}"
    else:
        kept = "for ever" if store.ttl_us is None else duration_text(store.ttl_us)
    return {"name": store.name, "kind": str(store.kind), "operator": node.name, "form": store.form, "kept": kept}


def _label(function: Function | None) -> str | None:
    return None if function is None else function.label


def _form(serde: Serde | None, function: Function | None = None) -> str | None:
    """A serde by its form. Without one: what Spark's type will say, or None where a function left it open."""
    if serde is not None:
        return serde.form
    return _BY_SPARK_TYPE if function is None or function.in_jvm else None
