"""A plain model of one task: given the cuts of its rounds and what it read, it says what the task wrote.

Record by record and in dicts. A round begins with what its watermark has closed, takes its records by (time, tables first,
stream, partition, offset), never past a smaller offset of the same partition, and ends with what tables and joins give.
It shares nothing with Headrace but the users' functions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from topologies.model_joins import StreamStream, StreamTable, TableTable
from topologies.model_tables import Aggregate, Last, Sessions, Suppress, Table, View

from topologies import functions as f
from topologies.operators import Operator, Origin, Row
from topologies.recording import Read, Round
from topologies.spec import Node, Spec

TIMES = struct.Struct(">qq")
TABLES = ("table", "to_table")


@dataclass(frozen=True)
class Written:
    """A record that a task wrote. `partition`: where a user's partitioner chose it."""

    stream: str
    key: Any
    value: Any
    time_us: int
    partition: int | None


def decoded(node: Node, read: Read) -> tuple[Any, Any]:
    """Key and value as the rows behind `node` have them; a windowed key is (key, start, end)."""
    return key_of(read.key, node["keys"] == "windowed"), value_of(read.value, node["values"] == "long")


def key_of(data: bytes | None, windowed: bool) -> Any:
    if data is None:
        return None
    return (data[:-16].decode(), *TIMES.unpack(data[-16:])) if windowed else data.decode()


def value_of(data: bytes | None, long: bool) -> Any:
    if data is None:
        return None
    return int.from_bytes(data, "big", signed=True) if long else json.loads(data)


class Simple(Operator):
    """Gives for each row what `made` gives of it."""

    def __init__(self, number: float, made: Any) -> None:
        super().__init__(number)
        self._made = made

    def push(self, row: Row, port: int) -> None:
        for made in self._made(row):
            self.emit(made)


class Merge(Operator):
    def __init__(self, number: float) -> None:
        super().__init__(number)
        self._held: list[Row] = []

    def push(self, row: Row, port: int) -> None:
        self._held.append(row)

    def record_done(self) -> None:
        held, self._held = self._held, []
        for row in sorted(held, key=lambda row: row.rank):
            self.emit(row)

    finish = record_done


class DropDuplicates(Operator):
    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._within_us, self._by_kind = node["within_us"], node["by_kind"]
        self._passed: dict[Any, int] = {}

    def begin(self, watermark_us: int | None) -> None:
        if watermark_us is not None:
            self._passed = {at: time for at, time in self._passed.items() if time + 2 * self._within_us > watermark_us}

    def push(self, row: Row, port: int) -> None:
        if row.key is None:
            return
        at = row.key, f.kind_of(row.value) if self._by_kind else None
        before = self._passed.get(at)
        if before is None or abs(row.time_us - before) >= self._within_us:
            self._passed[at] = row.time_us if before is None else max(before, row.time_us)
            self.emit(row)


class Process(Operator):
    def __init__(self, number: float) -> None:
        super().__init__(number)
        self._seen: dict[Any, int] = {}

    def push(self, row: Row, port: int) -> None:
        seen = -1
        if row.key is not None:
            seen = self._seen[row.key] = self._seen.get(row.key, 0) + 1
        self.emit(replace(row, value=f.counted(row.value, seen)))


class Task:
    """The model of one task. `counts`: of all streams that there are, how many partitions they have."""

    def __init__(self, spec: Spec, counts: dict[str, int]) -> None:
        self._spec, self._counts = spec, counts
        self._operators: list[Operator] = []
        self._entries: dict[str, tuple[Node, bool, Operator]] = {}  # what is read, whether as a table, who takes it
        self._written: list[Written] = []
        self._closed_us: int | None = None
        self._made: list[Operator] = []
        for number, node in enumerate(spec.nodes):
            self._made.append(self._build(number, node))
        self._operators.sort(key=lambda operator: operator.number)

    def work(self, round_: Round) -> list[Written]:
        self._written = []
        watermark_us = round_.watermark_us
        if self._closed_us is not None:
            watermark_us = self._closed_us if watermark_us is None else max(watermark_us, self._closed_us)
        for operator in self._operators:
            operator.streams, operator.round_id, operator.watermark_us = round_.streams, round_.id, watermark_us
            operator.begin(watermark_us)
        for operator in self._due(watermark_us):
            if operator.close(watermark_us) and isinstance(operator, Suppress):
                self._closed_us = watermark_us
        for rank, read in enumerate(self._in_order(round_)):
            node, _, operator = self._entries[read.stream]
            key, value = decoded(node, read)
            operator.push(Row(rank, key, value, read.time_us, Origin(read.stream, read.partition, read.offset)), 0)
            for each in self._operators:
                each.record_done()
        for operator in self._operators:
            operator.finish()
        return self._written

    def _due(self, watermark_us: int | None) -> Iterable[Operator]:
        """Who has something that closes, the earliest first."""
        waiting = [(due, operator) for operator in self._operators if (due := operator.due()) is not None]
        due = [pair for pair in waiting if watermark_us is not None and pair[0][0] <= watermark_us]
        return [operator for _, operator in sorted(due, key=lambda pair: pair[0])]

    def _in_order(self, round_: Round) -> Iterable[Read]:
        highest: dict[tuple[str, int], int] = {}
        keyed = []
        for read in sorted(round_.read, key=lambda read: (read.stream, read.partition, read.offset)):
            at = read.stream, read.partition
            highest[at] = max(read.time_us, highest.get(at, read.time_us))
            keyed.append(((highest[at], not self._entries[read.stream][1], at, read.offset), read))
        return [read for _, read in sorted(keyed, key=lambda pair: pair[0])]

    # --- what it is made of ------------------------------------------------------------------------------------------

    def _add(self, operator: Operator) -> Operator:
        self._operators.append(operator)
        return operator

    def _enter(self, stream: str, node: Node, as_table: bool, operator: Operator) -> Operator:
        self._entries[stream] = node, as_table, operator
        return operator

    def _build(self, number: int, node: Node) -> Operator:
        spec, by = self._spec, node.get("by", 2)
        parents = [self._made[parent] for parent in node["of"]]
        match node["op"]:
            case "stream" | "table" | "global":
                source = self._add(Simple(number, lambda row: [row]))
                self._enter(spec.input_name(node["stream"]), node, node["op"] != "stream", source)
                if node["op"] == "stream":
                    return source
                return self._behind(Table(number + 0.1), source)
            case "filter":
                return self._simple(number, lambda row: [row] if f.kept(row.value, by) else [], parents)
            case "branch":
                return self._simple(number, lambda row: [row] if f.taken(row.value, by) else [], parents)
            case "map_values":
                return self._simple(number, lambda row: [replace(row, value=f.doubled(row.value, by))], parents)
            case "flat_map_values":
                return self._simple(
                    number, lambda row: [replace(row, value=value) for value in f.several(row.value, by)], parents
                )
            case "select_key":
                return self._simple(number, lambda row: [replace(row, key=f.new_key(row.value, by))], parents)
            case "merge":
                return self._behind(Merge(number), *parents)
            case "process":
                return self._behind(Process(number), *parents)
            case "repartition":
                return self._through(spec.between(number), number, node, parents[0], node["mapped"], node["partitioner"])
            case "drop_duplicates":
                return self._behind(DropDuplicates(number, node), self._grouped(number, node, parents[0]))
            case "to_table":
                return self._behind(Table(number), self._grouped(number, node, parents[0]))
            case "aggregate":
                return self._aggregate(number, node, parents[0])
            case "table_filter":
                return self._view(number, node, lambda value: value if f.kept(value, by) else None)
            case "table_map":
                return self._view(number, node, lambda value: f.doubled(value, by))
            case "to_stream":
                return self._to_stream(number, node, parents[0])
            case "suppress":
                return self._behind(Suppress(number, self._windows_of(number), f"~n{number}"), parents[0])
            case "join_table":
                left = self._side(number, "left", 0, as_table=False)
                return self._joined(StreamTable(number, node["kind"]), left, self._table_side(number, "right", 1))
            case "join_tables":
                left = self._table_side(number, "left", 0)
                right = left if node["of"][0] == node["of"][1] else self._table_side(number, "right", 1)
                return self._joined(TableTable(number, node["kind"]), left, right)
            case "join_global":
                of_key = None if node["own_key"] else lambda row: f.looked_up(row.key, row.value, by)
                join = StreamTable(number, node["kind"], of_key, is_global=True)
                return self._joined(join, parents[0], parents[1])
            case "join_stream":
                left = self._side(number, "left", 0, as_table=False)
                right = left if node["of"][0] == node["of"][1] else self._side(number, "right", 1, as_table=False)
                join_streams = StreamStream(number, node, f"n{number}")
                self._add(join_streams)
                left.children.append((join_streams, 0))
                right.children.append((join_streams, 1))
                return join_streams
            case "to":
                return self._simple(number, lambda row: self._write(spec.output_name(number), row, None), parents)
        raise AssertionError(node["op"])

    def _simple(self, number: float, made: Any, parents: Iterable[Operator]) -> Operator:
        return self._behind(Simple(number, made), *parents)

    def _behind(self, operator: Operator, *parents: Operator) -> Operator:
        for parent in parents:
            parent.children.append((operator, 0))
        return self._add(operator)

    def _write(self, stream: str, row: Row, partitioner: str | None) -> Collection[Row]:
        if partitioner is None:
            self._written.append(Written(stream, row.key, row.value, row.time_us, None))
            return ()
        given = f.chosen(partitioner, row.value, self._counts[stream])
        for partition in [given] if isinstance(given, int) else dict.fromkeys(given or ()):
            self._written.append(Written(stream, row.key, row.value, row.time_us, partition))
        return ()

    def _through(
        self, stream: str, number: float, node: Node, above: Operator, mapped: bool, partitioner: str | None, table: bool = False
    ) -> Operator:
        """What is behind a repartition stream, which the rows of `above` are written to. `node`: whose rows it has."""

        def written(row: Row) -> Collection[Row]:
            return self._write(stream, replace(row, key=f.new_key(row.value, node["by"])) if mapped else row, partitioner)

        self._simple(number - 0.3, written, [above])
        rows = {**node, "keys": "plain"} if mapped else node
        return self._enter(stream, rows, table, self._add(Simple(number - 0.2, lambda row: [row])))

    def _grouped(self, number: int, node: Node, above: Operator) -> Operator:
        """The rows of a key together, by a repartition stream where the key was changed; without those that have none."""
        stream, rows = self._spec.between(number), self._spec.nodes[node["of"][0]]
        mapped, partitioner = node.get("selector", False), node.get("partitioner")
        if stream in self._counts:
            by_key = {**rows, "by": node["by"]}
            above = self._through(stream, number, by_key, above, mapped, partitioner)
        else:
            assert not mapped, f"n{number}: the key was changed, and it was not repartitioned"
        return self._simple(number - 0.1, lambda row: [] if row.key is None else [row], [above])

    def _aggregate(self, number: int, node: Node, above: Operator) -> Operator:
        is_session = node["windows"] is not None and node["windows"]["kind"] == "session"
        made = Sessions(number, node) if is_session else Aggregate(number, node)
        return self._behind(made, self._grouped(number, node, above))

    def _made_by(self, number: int) -> int:
        """The table that another is a view of."""
        while self._spec.nodes[number]["op"] in ("table_filter", "table_map"):
            number = self._spec.nodes[number]["of"][0]
        return number

    def _windows_of(self, number: int) -> Node:
        while self._spec.nodes[number]["op"] != "aggregate":
            number = self._spec.nodes[number]["of"][0]
        windows: Node = self._spec.nodes[number]["windows"]
        return windows

    def _view(self, number: int, node: Node, made: Any) -> Operator:
        return self._behind(View(number, made), self._made[node["of"][0]])

    def _to_stream(self, number: int, node: Node, above: Operator) -> Operator:
        if node["emit"] == "closed":
            above = self._behind(Suppress(number - 0.1, self._windows_of(node["of"][0]), ""), above)
        table = self._made_by(node["of"][0])
        if node["emit"] == "each":
            self._ask_for_each(table)
        if node["emit"] == "round":
            return self._behind(Last(number, self._made[table]), above)
        return self._behind(Simple(number, lambda row: [row]), above)

    def _ask_for_each(self, number: int) -> None:
        """Every update of a table is asked for, and so of those whose updates make it."""
        node, table = self._spec.nodes[number], self._made[number]
        if isinstance(table, Aggregate | Sessions | Table | TableTable):
            table.each = True
        if isinstance(table, TableTable):
            for parent, side in zip(node["of"], table.tables, strict=True):
                side.each = True
                if not isinstance(self._made[parent], Table):  # of that all updates are taken before it
                    self._ask_for_each(self._made_by(parent))

    # --- sides of joins ----------------------------------------------------------------------------------------------

    def _side(self, number: int, side: str, place: int, as_table: bool) -> Operator:
        above = self._spec.nodes[number]["of"][place]
        rows, stream = self._made[above], self._spec.between(number, side)
        if stream not in self._counts:
            return rows
        if isinstance(rows, Table):
            rows = rows.taken  # all of its updates
        return self._through(stream, number - (0.4 if side == "left" else 0), self._spec.nodes[above], rows, False, None, as_table)

    def _table_side(self, number: int, side: str, place: int) -> Operator:
        rows = self._side(number, side, place, as_table=True)
        return rows if isinstance(rows, Table) else self._behind(Table(number - (0.08 if side == "left" else 0.05)), rows)

    def _joined(self, join: Any, left: Operator, right: Operator) -> Operator:
        if isinstance(join, StreamTable):
            join.tables = [right]
            left.children.append((join, 0))
        else:
            join.tables = [left, right]
        self._add(join)
        return join
