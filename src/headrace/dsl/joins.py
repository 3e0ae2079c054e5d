"""How joins are built: what may be joined with what, and how both sides come to one task.

A record meets those of its key where both sides are partitioned alike, and read by one sub-topology. A side whose key was
changed, or that its producer partitions by something else, is repartitioned by its key, into a repartition stream that is
named after the join. So is the other side then, if the rows of a sub-topology would meet with its own output: a
sub-topology cannot read its own stream.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from headrace.core.topology.partitioning import same_partitioner
from headrace.core.topology.resolution import key_mismatch
from headrace.core.topology.sub_topologies import reads_inputs, sub_topologies_of
from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.functions import is_batch
from headrace.dsl.global_table import GlobalTable
from headrace.dsl.grouped import added_table
from headrace.dsl.joinable import JoinArguments
from headrace.dsl.kstream import KStream
from headrace.dsl.ktable import KTable
from headrace.dsl.rekeying import with_repartition
from headrace.dsl.repartitioned import Repartitioned
from headrace.dsl.returns import returned
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_function, needed, result_side, with_sides
from headrace.dsl.windows import length_us
from headrace.errors import TopologyError
from headrace.model.topology import Function, Join, JoinKind, JoinSides, Repartition, StoreKind, StoreSpec, Table
from headrace.model.windows import RETENTION_DEFAULT_US

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration

_LEFT, _RIGHT = "left", "right"
Sides = frozenset[str]  # those that are repartitioned


def joined_stream(left: KStream, other: Any, asked: JoinArguments) -> KStream:
    """A stream joined with a table, a global table, or another stream."""
    _check_other(left.app, other, asked, KStream, KTable, GlobalTable)
    is_stream = isinstance(other, KStream)
    if is_stream and asked.within is None:
        raise TopologyError(
            f"{asked.operator} of two streams: within= is missing, so each record would be kept for ever",
            f'write {asked.operator}(other, joiner, within="1 hour"), or join with other.to_table()',
        )
    if not is_stream and asked.kind is JoinKind.OUTER:
        raise TopologyError(
            "outer_join of a stream with a table: a change of the table alone gives no record",
            "use left_join, or make the stream a table by to_table() and join two tables",
        )
    if not is_stream and (asked.within, asked.grace, asked.retention) != (None, None, None):
        raise TopologyError(
            f"{asked.operator}(within=..., grace=..., retention=...) with a table: these are for two streams",
            "leave them out: a record is joined with what the table has at its time",
        )
    if asked.key is not None and not isinstance(other, GlobalTable):
        raise TopologyError(
            f"{asked.operator}(key=...): only a global table can be joined by any key",
            "call select_key(...) before the join; or read the other side by app.global_table(...)",
        )
    build = _Build(left.app.builder, asked)
    if isinstance(other, KStream):
        return KStream(left.app, build.of_streams(left.flow, other.flow))
    if isinstance(other, KTable):
        return KStream(left.app, build.with_table(left, other))
    return KStream(left.app, build.with_global(left, other))


def joined_table(left: KTable, other: Any, asked: JoinArguments) -> KTable:
    """A table joined with another."""
    _check_other(left.app, other, asked, KTable)
    return KTable(left.app, _Build(left.app.builder, asked).of_tables(left, other))


def _check_other(app: AppDeclaration, other: Any, asked: JoinArguments, *kinds: type) -> None:
    if not isinstance(other, kinds) or not isinstance(other, KStream | KTable | GlobalTable):
        hint = "a stream can be joined with a table: stream.join(table, ...)"
        if not isinstance(other, KStream | GlobalTable):
            hint = "give what app.table(), app.stream() or an aggregation gave"
        expected = "a stream or a table" if KStream in kinds else "a table"
        raise TopologyError(f"{asked.operator}({type(other).__name__}): expected {expected}", hint)
    if other.app is not app:
        raise TopologyError(
            f"{asked.operator}: one side is of application {app.name!r}, the other of {other.app.name!r}",
            "what one App reads can be joined",
        )


class _Build:
    """One join while it is added to a topology."""

    def __init__(self, builder: Builder, asked: JoinArguments) -> None:
        self.builder, self.asked = builder, asked
        self.joiner, self.with_key = _joiner_of(asked)
        self.within_us, self.kept_us = _lengths(asked)

    def with_table(self, left: KStream, right: KTable) -> StreamCursor:
        def build(repartitioned: Sides) -> StreamCursor:
            own, prefix, text = self._names(left.flow, bool(repartitioned) or not self._is_kept(right.flow))
            sides = self._stream(left.flow, prefix, repartitioned), self._table(right, _RIGHT, prefix, repartitioned)
            return self._joined(own, text, JoinSides.STREAM_TABLE, *sides)

        return self._with_repartitions(build, left.flow, right.flow)

    def of_tables(self, left: KTable, right: KTable) -> StreamCursor:
        def build(repartitioned: Sides) -> StreamCursor:
            is_kept = self._is_kept(left.flow) and self._is_kept(right.flow)
            own, prefix, text = self._names(left.flow, bool(repartitioned) or not is_kept)
            first = self._table(left, _LEFT, prefix, repartitioned)
            is_one = left.flow.node == right.flow.node
            second = first if is_one else self._table(right, _RIGHT, prefix, repartitioned)
            return self._joined(own, text, JoinSides.TABLE_TABLE, first, second)

        return self._with_repartitions(build, left.flow, right.flow)

    def with_global(self, left: KStream, table: GlobalTable) -> StreamCursor:
        """A sub-topology that reads no input of the job has the table once more, read by its own tasks."""
        with self.builder.all_or_nothing():
            is_read_there = reads_inputs(self.builder.topology(), left.flow.node)
            own, prefix, text = self._names(left.flow, not is_read_there)
            right = table.flow if is_read_there else self._read_again(left, table, f"{prefix}-{_RIGHT}")
            key_of = None
            if self.asked.key is None:
                check_keys(text, left.flow.key, right.key)
            else:
                key_of = checked_function(f"{text}: key", self.asked.key, flows.RECORD_ONLY, None)
            sides = JoinSides.STREAM_GLOBAL
            return self._added(own, text, sides, left.flow, right, key_of=key_of, table_key=right.key.serde)

    def _read_again(self, left: KStream, table: GlobalTable, name: str) -> StreamCursor:
        topology = self.builder.topology()
        source = topology.node(topology.node(table.flow.node).parents[0])
        again = replace(source, name=self.builder.checked("global_table", f"{name}-{source.name}"))
        self.builder.add("global_table", again)
        own, store = self.builder.checked("global_table", name), self.builder.checked_store("global_table", name)
        flow = replace(table.flow, node=again.name)
        return added_table(left.app, flow, own, store, flow.key, flow.value, "global").flow

    def of_streams(self, left: StreamCursor, right: StreamCursor) -> StreamCursor:
        def build(repartitioned: Sides) -> StreamCursor:
            own, prefix, text = self._names(left, True)
            first = self._stream(left, prefix, repartitioned)
            second = first if left.node == right.node else self._stream(right, prefix, repartitioned, _RIGHT)
            stores = tuple(
                self._window_store(f"{prefix}-{name}", text, side) for name, side in ((_LEFT, first), (_RIGHT, second))
            )
            return self._joined(own, text, JoinSides.STREAM_STREAM, first, second, stores=stores)

        return self._with_repartitions(build, left, right)

    def _with_repartitions(
        self, build: Callable[[Sides], StreamCursor], left: StreamCursor, right: StreamCursor
    ) -> StreamCursor:
        """What `build` gives when as few sides as possible are repartitioned, so that both meet."""
        least = frozenset(side for side, flow in ((_LEFT, left), (_RIGHT, right)) if not flow.is_by_key)
        if not _has_loop(self.builder):  # one that is there already is an error of its own, and said later
            for sides in _ways(least):
                try:
                    with self.builder.all_or_nothing():
                        made = build(sides)
                        if _has_loop(self.builder):
                            raise _LoopError
                        return made
                except _LoopError:
                    continue
        with self.builder.all_or_nothing():
            return build(least)

    def _stream(self, flow: StreamCursor, prefix: str, repartitioned: Sides, side: str = _LEFT) -> StreamCursor:
        if side not in repartitioned:
            return flow
        return with_repartition(self.builder, flow, Repartitioned(), f"{prefix}-{side}", generated=True)

    def _table(self, table: KTable, side: str, prefix: str, repartitioned: Sides) -> StreamCursor:
        """The flow of a `Table`: the table's own where it is one, else one that is put behind it."""
        flow, name = table.flow, f"{prefix}-{side}"
        if side in repartitioned:
            if self._is_kept(flow):  # all of its updates, and not the last of each round
                flow = replace(flow, node=self.builder.topology().node(flow.node).parents[0])
            flow = with_repartition(self.builder, flow, Repartitioned(), name, generated=True, of_table=True)
        elif self._is_kept(flow):
            return flow
        text = operator_text(self.asked.operator, name)
        own, store = self.builder.checked("table", name), self.builder.checked_store("table", name)
        key, value = needed(flow.key, "key", text, None), needed(flow.value, "value", text, None)
        return added_table(table.app, flow, own, store, key, value).flow

    def _is_kept(self, flow: StreamCursor) -> bool:
        """Whether the operator of a table keeps all of it, as given."""
        return isinstance(self.builder.topology().node(flow.node), Table)

    def _window_store(self, name: str, text: str, flow: StreamCursor) -> StoreSpec:
        key, value = needed(flow.key, "key", text, None), needed(flow.value, "value", text, None)
        store = self.builder.checked_store(text, name)
        form = f"joined key={key.form} value={value.form}"
        return StoreSpec(store, StoreKind.WINDOW, form, value.serde, self.within_us + self.kept_us)

    def _names(self, left: StreamCursor, keeps: bool) -> tuple[str, str, str]:
        """The operator's name, what its stores and streams are named after, and what errors call it.

        Its name lasts where something is kept under it.
        """
        asked = self.asked
        if keeps:
            own = self.builder.lasting_name_of(asked.operator, left.anchor, asked.name)
        else:
            own = self.builder.name_of(asked.operator, left.node, asked.name)
        return own, asked.store or own, operator_text(asked.operator, own)

    def _joined(
        self, own: str, text: str, sides: JoinSides, left: StreamCursor, right: StreamCursor, **more: Any
    ) -> StreamCursor:
        check_keys(text, left.key, right.key)
        check_partitioners(self.builder, text, left, right)
        return self._added(own, text, sides, left, right, **more)

    def _added(
        self, own: str, text: str, sides: JoinSides, left: StreamCursor, right: StreamCursor, **more: Any
    ) -> StreamCursor:
        asked = self.asked
        side = result_side(self.joiner, asked.value, returned(self.joiner), text, left)
        node = Join(
            name=own,
            parents=(left.node, right.node),
            kind=asked.kind,
            sides=sides,
            joiner=self.joiner,
            with_key=self.with_key,
            value=side.serde,
            within_us=self.within_us,
            kept_us=self.kept_us,
            **more,
        )
        self.builder.add(asked.operator, node)
        return with_sides(left.after(own, text, given=asked.name), None, side, None)


class _LoopError(Exception):
    """The topology as just built would read what it writes."""


def _has_loop(builder: Builder) -> bool:
    try:
        sub_topologies_of(builder.topology())
    except TopologyError:
        return True
    return False


def _ways(least: Sides) -> Iterator[Sides]:
    """The sides that may be repartitioned, as few as possible first; of two the right one first."""
    others = [side for side in (_RIGHT, _LEFT) if side not in least]
    for count in range(len(others) + 1):
        for more in combinations(others, count):
            yield least | set(more)


def _joiner_of(asked: JoinArguments) -> tuple[Function, bool]:
    """The joiner, and whether it is given the key."""
    with_key = _takes(asked.joiner, 3) and not _takes(asked.joiner, 2)
    arguments: tuple[str, ...] = ("key", "left", "right") if with_key else ("left", "right")
    if is_batch(asked.joiner):
        arguments = ("batch",)
    return checked_function(asked.operator, asked.joiner, flows.WORKER, None, arguments), with_key


def _takes(given: Any, count: int) -> bool:
    try:
        inspect.signature(given).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a built-in that does not say
        return count == 2
    return True


def _lengths(asked: JoinArguments) -> tuple[int, int]:
    """How far apart two streams' records may be, and how long they are kept beyond that."""
    if asked.within is None:
        return 0, 0
    if asked.grace is not None and asked.retention is not None:
        raise TopologyError(
            f"{asked.operator}: grace={asked.grace!r} and retention={asked.retention!r}: expected one of them",
            "records of two streams are kept until their windows close, which the grace says: leave the retention out",
        )
    within_us = length_us("within", asked.within, asked.operator)
    if asked.grace is not None:
        return within_us, length_us("grace", asked.grace, asked.operator)
    if asked.retention is not None:
        return within_us, length_us("retention", asked.retention, asked.operator)
    return within_us, RETENTION_DEFAULT_US


def check_keys(text: str, left: SerdeSlot, right: SerdeSlot) -> None:
    """Two serdes make other bytes of one key. What follows from Spark's types is checked when they are known."""
    for side in (left, right):
        needed(side, "key", text, None)
    if left.serde is not None and right.serde is not None and left.serde.form != right.serde.form:
        raise key_mismatch(text, left.serde, right.serde)


def check_partitioners(builder: Builder, text: str, left: StreamCursor, right: StreamCursor) -> None:
    found = [
        (stream, partitioner)
        for flow in (left, right)
        for stream, partitioner in sorted(_partitioners(builder, flow).items(), key=lambda pair: pair[0])
    ]
    first_stream, first = found[0]
    for stream, partitioner in found[1:]:
        if not same_partitioner(first, partitioner):
            raise TopologyError(
                f"{text}: {_partitioned(first_stream, first)}, and {_partitioned(stream, partitioner)}: a key's records "
                "would come to different tasks",
                "put .repartition(hr.Repartitioned(partitioner=...)) with one and the same function before both sides, "
                "or with none",
            )


def _partitioners(builder: Builder, flow: StreamCursor) -> dict[str, Function | None]:
    """The streams that a flow comes from within its sub-topology, and by what their partitions were chosen."""
    by_stream = {node.stream: node.partitioner for node in builder.topology().nodes if isinstance(node, Repartition)}
    return {stream: by_stream.get(stream) for stream in builder.sources_of(flow.node)}


def _partitioned(stream: str, partitioner: Function | None) -> str:
    return f"stream {stream!r} is partitioned by {'the key' if partitioner is None else partitioner.label}"
