"""Filling in the serdes that follow Spark's types: they are known only once Spark has looked at the expressions.

A topology is written without a JVM; a node whose serde is None takes that of its parent, or what its expression's type
says. `resolved` walks the topology once, parents first, and gives it back with nothing left open that bytes depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.topology.compatibility import with_spark_types
from headrace.core.topology.engine_prefix import ALL, runs_in_jvm
from headrace.core.topology.shared_stores import check_shared
from headrace.errors import TopologyError
from headrace.model import topology as t
from headrace.model.serde import Serde
from headrace.model.table_operators import (
    ForeignKeyResults,
    GroupTable,
    JoinByForeignKey,
    LimitUpdates,
    SendByForeignKey,
    VersionedTable,
)

Sides = tuple[Serde | None, Serde | None]


def has_open_types(topology: t.Topology) -> bool:
    """Whether types have to be requested from Spark."""
    return any(runs_in_jvm(node) or _is_timed_by_spark(node) or isinstance(node, t.ForEachRound) for node in topology.nodes)


def _is_timed_by_spark(node: t.Node) -> bool:
    return isinstance(node, t.Source) and node.timestamp is not None and node.timestamp.in_jvm


def through_spark(topology: t.Topology) -> t.Topology:
    """The topology with a filter that keeps everything behind each source whose rows must go through Spark's engine, though
    no expression follows: its time is a Spark expression, or a `ForEachRound` takes its rows from there.

    All that follows goes through it then, so that rows are read once; but not what a function gives its time to, which is
    called in the worker.
    """
    nodes: list[t.Node] = []
    names = {node.name for node in topology.nodes}
    handing = {parent for node in topology.nodes if isinstance(node, t.ForEachRound) for parent in node.parents}
    instead: dict[str, str] = {}
    for_handing: dict[str, str] = {}
    for node in topology.nodes:
        if not runs_in_jvm(node):
            others = for_handing if isinstance(node, t.ForEachRound) else instead
            node = replace(node, parents=tuple(others.get(parent, parent) for parent in node.parents))
        nodes.append(node)
        if isinstance(node, t.Source) and (_is_timed_by_spark(node) or node.name in handing):
            name = f"{node.name}-{'timed' if _is_timed_by_spark(node) else 'rows'}"
            while name in names:
                name += "-"
            given_at = "" if node.timestamp is None else node.timestamp.given_at
            every = t.Function(t.FunctionKind.SQL, ALL, ALL, given_at)
            nodes.append(t.Filter(name=name, parents=(node.name,), predicate=every))
            for_handing[node.name] = name
            if node.timestamp is None or node.timestamp.in_jvm:
                instead[node.name] = name
    return t.Topology(topology.application, tuple(nodes))


@dataclass(frozen=True, slots=True)
class SerdeMakers:
    """The serdes that are made of others: of windowed keys, of changes of rows, of rows in their groups."""

    windowed: Callable[[Serde], Serde]
    changes: Callable[[Serde], Serde]
    placed: Callable[[Serde, Serde], Serde]


def resolved(
    topology: t.Topology,
    types_of: Callable[[t.Source, tuple[t.Node, ...]], tuple[str, str]],
    serde_of_type: Callable[[str], Serde | None],
    makers: SerdeMakers,
    fits: Callable[[Serde, str], bool],
) -> tuple[t.Topology, Mapping[str, Sides]]:
    """The topology with its serdes filled in, and per operator the serdes of the keys and values that it gives.

    `types_of(source, chain)`: Spark's types of key and value behind a chain of in-engine operators, as DDL.
    `fits(serde, type)`: whether a serde that was declared takes values of a Spark type.
    """
    sides: dict[str, Sides] = {}
    chains: dict[str, tuple[t.Source, tuple[t.Node, ...]]] = {}
    streams: dict[str, Sides] = {}
    nodes: list[t.Node] = []
    for node in through_spark(topology).nodes:
        before = sides[node.parents[0]] if node.parents else (None, None)
        if isinstance(node, t.Join):
            node = _joined(node, before, sides[node.parents[1]])
        if isinstance(node, t.Source) and node.kind is t.SourceKind.REPARTITION:
            key, value = streams[node.stream]
            node = replace(node, key=node.key or key, value=node.value or value)
        if runs_in_jvm(node):
            source, chain = chains[node.parents[0]]
            types = types_of(source, (*chain, node))
            _check_declared(node, types, fits)
            node = _typed(node, types, serde_of_type)
            chains[node.name] = (source, (*chain, node))
        elif isinstance(node, t.Source):
            chains[node.name] = (node, ())
        node, side = _with_sides(node, before, makers)
        sides[node.name] = side
        if isinstance(node, t.Repartition):
            streams[node.stream] = (node.key, node.value)
        nodes.append(node)
    check_shared(nodes)
    return t.Topology(topology.application, tuple(nodes)), sides


def _typed(node: t.Node, types: tuple[str, str], serde_of_type: Callable[[str], Serde | None]) -> Any:
    """An operator of the prefix with the serdes that its Spark types say, where it gives new keys or values."""
    key_type, value_type = types
    if isinstance(node, (t.SelectKey, t.Transform)) and node.key is None:
        node = replace(node, key=_serde(node, "key", key_type, serde_of_type))
    if isinstance(node, (t.MapValues, t.Transform)) and node.value is None:
        node = replace(node, value=_serde(node, "value", value_type, serde_of_type))
    return node


def _check_declared(node: Any, types: tuple[str, str], fits: Callable[[Serde, str], bool]) -> None:
    """Raise `TopologyError` where an operator of the prefix declares a serde that its Spark type does not fit."""
    declared = {
        "key": (getattr(node, "key", None), types[0]),
        "value": (getattr(node, "value", None), types[1]),
    }
    for part, (serde, spark_type) in declared.items():
        if serde is not None and not fits(serde, spark_type):
            given_at = getattr(getattr(node, "function", None), "given_at", "") or getattr(node, "given_at", "")
            raise TopologyError(
                f"{node.name}{given_at and f' ({given_at})'}: its {part} is of Spark's type {spark_type}, and the serde "
                f"that it declares, {serde!r}, does not take that type",
                _instead(serde, part),
            )


def _instead(serde: Serde, part: str) -> str:
    """What to do where a serde does not take what an expression gives."""
    leave_out = f"leave {part}= out, so that the serde follows from the type"
    if untyped := getattr(serde, "untyped_fields", None):
        return f"{leave_out}, or use a function: Spark does not see its {', '.join(untyped)}"
    if serde.spark_type is None and not serde.form.startswith("json"):
        return f"{leave_out}, or use a function: it has no Spark type (`spark_type`)"
    return f"{leave_out}, or cast the expression to {serde.spark_type or 'a type that JSON has'}"


def _serde(node: t.Node, part: str, spark_type: str, serde_of_type: Callable[[str], Serde | None]) -> Serde:
    serde = serde_of_type(spark_type)
    if serde is None:
        raise TopologyError(
            f"{node.name}: its {part} is of Spark's type {spark_type}, and no serde follows from that type",
            f"give {part}=... to the operator, or cast it to a type such as string, bigint or struct",
        )
    return serde


def _joined(node: t.Join, left: Sides, right: Sides) -> t.Join:
    """A join with what Spark's types say of its stores; `TopologyError` where keys of its sides can never be equal."""
    if node.key_of is None and left[0] is not None and right[0] is not None and left[0].form != right[0].form:
        raise key_mismatch(node.name, left[0], right[0])
    stores = tuple(with_spark_types(store, *of) for store, of in zip(node.stores, (left, right), strict=False))
    return replace(node, stores=stores)


def key_mismatch(join: str, left: Serde, right: Serde) -> TopologyError:
    """Keys are compared as bytes: those of two serdes would never meet."""
    return TopologyError(
        f"{join} joins keys of the serde {left!r} with keys of {right!r}: records meet where their key bytes are equal",
        "give both sides the same key serde: key=... where they are read, or select_key(..., key=...) before the join",
    )


def _table_with_sides(node: t.Table, before: Sides) -> t.Table:
    key, value = before
    if isinstance(node, VersionedTable):
        node = replace(node, versions=with_spark_types(node.versions, key, value))
    return replace(node, store=with_spark_types(node.store, key, value), value=node.value or value)


def _with_sides(node: t.Node, before: Sides, makers: SerdeMakers) -> tuple[Any, Sides]:
    """The operator with its open serdes taken from its parent, and the serdes of what it gives."""
    key, value = before
    match node:
        case t.Source() | t.Map() | t.FlatMap() | t.Transform():
            return node, (node.key, node.value)
        case t.SelectKey():
            return node, (node.key, value)
        case SendByForeignKey():
            return node, (node.key, None)  # its serdes are known: they are said to what writes it
        case JoinByForeignKey():
            return node, (node.table_key, node.value)
        case ForeignKeyResults():
            return node, (key, node.value)
        case t.MapValues() | t.FlatMapValues() | t.Join():
            return node, (key, node.value)
        case t.Process():
            stores = tuple(with_spark_types(store, key, value) for store in node.stores)
            return replace(node, stores=stores), (node.key or key, node.value)
        case t.Aggregate():
            result = node.key or (key if node.windows is None or key is None else makers.windowed(key))
            given = getattr(value, "inner", None) if node.of_changes else value  # within `RowChanges`
            store = with_spark_types(node.store, key, node.value or given)
            return replace(node, key=result, store=store, value=node.value or given), (result, node.value or given)
        case GroupTable():
            value = node.value or value
            placed = None if node.key is None or value is None else makers.placed(node.key, value)
            store = with_spark_types(node.store, key, placed)
            return replace(node, store=store, value=value), (node.key, None if value is None else makers.changes(value))
        case t.DropDuplicates():
            return replace(node, store=with_spark_types(node.store, key, value)), before
        case t.Suppress() | LimitUpdates():
            key, value = node.key or key, node.value or value
            return replace(node, key=key, store=with_spark_types(node.store, key, value), value=value), (key, value)
        case t.Table():
            return _table_with_sides(node, before), before
        case t.Repartition():
            node = replace(node, key=node.key or key, value=node.value or value)
            return node, (node.key, node.value)
        case t.Sink():
            return replace(node, key=node.key or key, value=node.value or value), before
        case _:
            return node, before
