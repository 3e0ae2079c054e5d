"""How joins are built, and how both sides come to one task.

A record meets those of its key where both sides are partitioned alike, and read by one sub-topology. A side whose key was
changed, or that its producer partitions by something else, is repartitioned by its key, into a repartition stream that is
named after the join. So is the other side then, if the rows of a sub-topology would meet with its own output: a
sub-topology cannot read its own stream.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from headrace.core.topology.partitioning import same_partitioner
from headrace.core.topology.resolution import key_mismatch
from headrace.core.topology.sub_topologies import reads_inputs, sub_topologies_of
from headrace.dsl import stream_cursor as flows
from headrace.dsl.builder import Builder, operator_text
from headrace.dsl.functions import is_batch, returned
from headrace.dsl.rekeying import with_repartition, with_table
from headrace.dsl.stream_cursor import SerdeSlot, StreamCursor, checked_function, needed, result_side
from headrace.dsl.windows import Duration, length_us
from headrace.errors import TopologyError
from headrace.model.durations import duration_text
from headrace.model.serde import Serde
from headrace.model.table_operators import VersionedTable, WaitingJoin
from headrace.model.topology import Function, Join, JoinKind, JoinSides, Repartition, StoreKind, StoreSpec, Table
from headrace.model.windows import RETENTION_DEFAULT_US

_LEFT, _RIGHT = "left", "right"
_KINDS = {"join": JoinKind.INNER, "left_join": JoinKind.LEFT, "outer_join": JoinKind.OUTER}
Sides = frozenset[str]
_TABLES = {
    JoinSides.STREAM_STREAM: Sides(),
    JoinSides.STREAM_TABLE: Sides({_RIGHT}),
    JoinSides.TABLE_TABLE: Sides({_LEFT, _RIGHT}),
}


@dataclass(frozen=True, slots=True)
class JoinArguments:
    """What the user said of a join. `operator`: the method's name; `within` to `key` are for joins of streams."""

    operator: str
    joiner: Any
    name: str | None
    value: Serde | None
    store: str | None
    within: Duration | None = None
    grace: Duration | None = None
    retention: Duration | None = None
    key: Any = None
    before: Duration | None = None
    after: Duration | None = None

    @property
    def has_window(self) -> bool:
        return (self.within, self.before, self.after) != (None, None, None)

    @property
    def kind(self) -> JoinKind:
        return _KINDS[self.operator]


class JoinBuild:
    """One join while it is added to a topology."""

    def __init__(self, arguments: JoinArguments, left: StreamCursor, right: StreamCursor) -> None:
        self.builder, self.arguments = left.builder, arguments
        self.left, self.right = left, right
        self.joiner, self.with_key = _joiner_of(arguments)
        self.before_us, self.after_us, self.kept_us = _lengths(arguments)

    def of(self, sides: JoinSides) -> StreamCursor:
        """Two streams, two tables, or a stream and a table, with as few sides repartitioned as possible so that both meet."""
        least = Sides(side for side, flow in ((_LEFT, self.left), (_RIGHT, self.right)) if not flow.is_by_key)
        if not has_loop(self.builder):  # one that is there already is an error of its own, and said later
            for repartitioned in _ways(least):
                try:
                    with self.builder.all_or_nothing():
                        joined = self._joined(sides, repartitioned)
                        if has_loop(self.builder):
                            raise LoopError
                        return joined
                except LoopError:
                    continue
        with self.builder.all_or_nothing():
            return self._joined(sides, least)

    def _joined(self, sides: JoinSides, repartitioned: Sides) -> StreamCursor:
        tables, flow_of = _TABLES[sides], {_LEFT: self.left, _RIGHT: self.right}
        waits = sides is JoinSides.STREAM_TABLE and self.arguments.grace is not None
        is_kept = bool(tables) and not waits and all(self._is_kept(flow_of[side]) for side in tables)
        own, prefix, text = self._names(bool(repartitioned) or not is_kept)

        def side_of(side: str) -> StreamCursor:
            flow, name = flow_of[side], f"{prefix}-{side}"
            if side in tables:
                return self._table(flow, name, side in repartitioned)
            return with_repartition(flow, name) if side in repartitioned else flow

        first = side_of(_LEFT)
        second = first if self.left.node == self.right.node else side_of(_RIGHT)
        stores: tuple[StoreSpec, ...] = ()
        if sides is JoinSides.STREAM_STREAM:
            sided = ((_LEFT, first, self.after_us), (_RIGHT, second, self.before_us))
            kept = [(f"{prefix}-{at}", flow, ends_us + self.kept_us) for at, flow, ends_us in sided]
            stores = tuple(self._store_by_time(name, text, flow, "joined", kept_us) for name, flow, kept_us in kept)
        check_keys(text, first.key, second.key)
        check_partitioners(self.builder, text, first, second)
        if waits:
            return self._waiting(own, prefix, text, first, second)
        return self._added(own, text, sides, first, second, stores=stores)

    def _waiting(self, own: str, prefix: str, text: str, left: StreamCursor, right: StreamCursor) -> StreamCursor:
        """A join of a stream with a table of versions, whose records wait for it."""
        table, grace_us = self.builder.topology().node(right.node), length_us("grace", self.arguments.grace or "", text)
        if not isinstance(table, VersionedTable):
            raise TopologyError(
                f"{text}: grace={self.arguments.grace!r} with a table that keeps its newest values alone",
                'keep its versions: app.table(..., history="1 hour"), or to_table(history=...); or leave the grace out',
            )
        if grace_us > table.history_us:
            raise TopologyError(
                f"{text}: the grace of {duration_text(grace_us)} is above the history of {duration_text(table.history_us)}",
                "what a record waits for would be deleted: make the history of the table at least as long",
            )
        store = self._store_by_time(f"{prefix}-waiting", text, left, "waiting")
        return self._added(own, text, JoinSides.STREAM_TABLE, left, right, stores=(store,), grace_us=grace_us)

    def with_global(self) -> StreamCursor:
        """A sub-topology that reads no input of the job has the table once more, read by its own tasks."""
        with self.builder.all_or_nothing():
            is_read_there = reads_inputs(self.builder.topology(), self.left.node)
            own, prefix, text = self._names(not is_read_there)
            right = self.right if is_read_there else self._read_again(self.right, f"{prefix}-{_RIGHT}")
            key_of = None
            if self.arguments.key is None:
                check_keys(text, self.left.key, right.key)
            else:
                key_of = checked_function(f"{text}: key", self.arguments.key, flows.RECORD_ONLY, None)
            sides = JoinSides.STREAM_GLOBAL
            return self._added(own, text, sides, self.left, right, key_of=key_of, table_key=right.key.serde)

    def _read_again(self, table: StreamCursor, name: str) -> StreamCursor:
        topology = self.builder.topology()
        source = topology.node(topology.node(table.node).parents[0])
        again = replace(source, name=self.builder.checked("global_table", f"{name}-{source.name}"))
        self.builder.add("global_table", again)
        own, store = self.builder.checked("global_table", name), self.builder.checked_store("global_table", name)
        return with_table(replace(table, node=again.name), own, store, table.key, table.value, "global")

    def _table(self, flow: StreamCursor, name: str, is_repartitioned: bool) -> StreamCursor:
        """The flow of a `Table`: the table's own where it is one, else one that is put behind it."""
        history_us = None
        if is_repartitioned:
            table = self.builder.topology().node(flow.node)
            if isinstance(table, Table):  # all of its updates, and not the last of each round
                flow = replace(flow, node=table.parents[0])
                history_us = table.history_us if isinstance(table, VersionedTable) else None
            flow = with_repartition(flow, name, of_table=True)
        elif self._is_kept(flow):
            return flow
        text = operator_text(self.arguments.operator, name)
        own, store = self.builder.checked("table", name), self.builder.checked_store("table", name)
        key, value = needed(flow.key, "key", text, None), needed(flow.value, "value", text, None)
        return with_table(flow, own, store, key, value, history_us=history_us)

    def _is_kept(self, flow: StreamCursor) -> bool:
        """Whether the operator of a table keeps all of it, as given."""
        return isinstance(self.builder.topology().node(flow.node), Table)

    def _store_by_time(self, name: str, text: str, flow: StreamCursor, what: str, kept_us: int | None = None) -> StoreSpec:
        """A store of records of `flow` by their times."""
        key, value = needed(flow.key, "key", text, None), needed(flow.value, "value", text, None)
        store = self.builder.checked_store(text, name)
        return StoreSpec(store, StoreKind.WINDOW, f"{what} key={key.form} value={value.form}", value.serde, kept_us)

    def _names(self, keeps: bool) -> tuple[str, str, str]:
        """The operator's name, what its stores and streams are named after, and what errors call it.

        Its name lasts where something is kept under it.
        """
        arguments, left = self.arguments, self.left
        if keeps:
            own = left.builder.lasting_name_of(arguments.operator, left.anchor, arguments.name)
        else:
            own = left.name_of(arguments.operator, arguments.name)
        return own, arguments.store or own, operator_text(arguments.operator, own)

    def _added(
        self, own: str, text: str, sides: JoinSides, left: StreamCursor, right: StreamCursor, **more: Any
    ) -> StreamCursor:
        arguments = self.arguments
        side = result_side(self.joiner, arguments.value, returned(self.joiner), text, left)
        make: Any = WaitingJoin if "grace_us" in more else Join
        node = make(
            name=own,
            parents=(left.node, right.node),
            kind=arguments.kind,
            sides=sides,
            joiner=self.joiner,
            with_key=self.with_key,
            value=side.serde,
            before_us=self.before_us,
            after_us=self.after_us,
            kept_us=self.kept_us,
            **more,
        )
        return left.put(arguments.operator, node, arguments.name, value=side)


class LoopError(Exception):
    """The topology as just built would read what it writes."""


def has_loop(builder: Builder) -> bool:
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


def _joiner_of(arguments: JoinArguments) -> tuple[Function, bool]:
    """The joiner, and whether it is given the key."""
    with_key = _takes(arguments.joiner, 3) and not _takes(arguments.joiner, 2)
    names: tuple[str, ...] = ("key", "left", "right") if with_key else ("left", "right")
    if is_batch(arguments.joiner):
        names = ("batch",)
    return checked_function(arguments.operator, arguments.joiner, flows.WORKER, None, names), with_key


def _takes(given: Any, count: int) -> bool:
    try:
        inspect.signature(given).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a built-in that does not say
        return count == 2
    return True


def _lengths(arguments: JoinArguments) -> tuple[int, int, int]:
    """How far before and after a left record the right ones may be, and how long they are kept beyond that."""
    if not arguments.has_window:
        return 0, 0, 0
    if arguments.grace is not None and arguments.retention is not None:
        raise TopologyError(
            f"{arguments.operator}: grace={arguments.grace!r} and retention={arguments.retention!r}: expected one of them",
            "records of two streams are kept until their windows close, which the grace says: leave the retention out",
        )

    def us_of(name: str, given: Duration | None, otherwise: int) -> int:
        return otherwise if given is None else length_us(name, given, arguments.operator)

    within_us = us_of("within", arguments.within, 0)
    before_us, after_us = us_of("before", arguments.before, within_us), us_of("after", arguments.after, within_us)
    if arguments.within is not None and None not in (arguments.before, arguments.after):
        raise TopologyError(
            f"{arguments.operator}: within={arguments.within!r} with both before= and after=: it would mean nothing",
            "leave within= out",
        )
    kept_us = us_of("retention", arguments.retention, RETENTION_DEFAULT_US)
    return before_us, after_us, us_of("grace", arguments.grace, kept_us)


def check_keys(text: str, left: SerdeSlot, right: SerdeSlot) -> None:
    """Two serdes make other bytes of one key. What follows from Spark's types is checked when they are known."""
    for side in (left, right):
        needed(side, "key", text, None)
    if left.serde is not None and right.serde is not None and left.serde.form != right.serde.form:
        raise key_mismatch(text, left.serde, right.serde)


def check_partitioners(builder: Builder, text: str, left: StreamCursor, right: StreamCursor) -> None:
    by_stream = {node.stream: node.partitioner for node in builder.topology().nodes if isinstance(node, Repartition)}
    found = [(each, by_stream.get(each)) for flow in (left, right) for each in sorted(builder.sources_of(flow.node))]
    first_stream, first = found[0]
    for stream, partitioner in found[1:]:
        if not same_partitioner(first, partitioner):
            raise TopologyError(
                f"{text}: {_partitioned(first_stream, first)}, and {_partitioned(stream, partitioner)}: a key's records "
                "would come to different tasks",
                "put .repartition(hr.Repartitioned(partitioner=...)) with one and the same function before both sides, "
                "or with none",
            )


def _partitioned(stream: str, partitioner: Function | None) -> str:
    return f"stream {stream!r} is partitioned by {'the key' if partitioner is None else partitioner.label}"
