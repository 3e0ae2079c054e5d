"""What a task of the model is made of: operators read off a topology, wired, and cut where there are repartition streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from topologies import functions as f
from topologies.model_foreign import ForeignJoin, ForeignResults, Send
from topologies.model_groups import GroupTable, TableAggregate
from topologies.model_joins import StreamStream, StreamTable, TableTable, WaitingTable
from topologies.model_process import PROCESSES, Takes, Writes
from topologies.model_sliding import Sliding
from topologies.model_tables import Aggregate, Last, Sessions, Suppress, Table, TimeLimit, VersionedTable, View
from topologies.operators import DropDuplicates, Merge, Operator, Row, Simple
from topologies.spec import Node, Spec


@dataclass(frozen=True)
class Written:
    """A record that a task wrote. `partition`: where a user's partitioner chose one; None: that of its key."""

    stream: str
    key: Any
    value: Any
    time_us: int
    partition: int | None


@dataclass(frozen=True)
class Entry:
    """Who takes the records of a stream. `rows`: a node whose rows they are; `is_table`: they come first at equal times."""

    rows: Node
    is_table: bool
    operator: Operator


class Graph:
    """All operators of a topology: those that a task has not are never given anything.

    `counts`: of all streams that there are, how many partitions they have. Whether a repartition stream was put in is not
    decided here: it is where there is one.
    """

    def __init__(self, spec: Spec, counts: Mapping[str, int]) -> None:
        self._spec, self._counts = spec, counts
        self.operators: list[Operator] = []
        self.entries: dict[str, Entry] = {}
        self.written: list[Written] = []
        self._made: list[Operator] = []
        self._foreign: dict[int, Any] = {}  # the joins by foreign keys, whose results are in `_made`
        for number, node in enumerate(spec.nodes):
            build = self._builders[node["op"]]
            self._made.append(build(self, number, node, [self._made[parent] for parent in node["of"]]))
        self.operators.sort(key=lambda operator: operator.number)

    # --- inputs and what has no state --------------------------------------------------------------------------------

    def _input(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        source = self._behind(Simple(number, _as_it_is))
        is_table = node["op"] != "stream"
        self.entries[self._spec.input_name(node["stream"])] = Entry(node, is_table, source)
        return self._behind(Table(number + 0.1), source) if is_table else source

    def _stateless(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        made = _STATELESS[node["op"]]
        return self._behind(Simple(number, lambda row: made(row, node["by"])), *parents)

    def _merge(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        return self._behind(Merge(number), *parents)

    def _process(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        return self._behind(PROCESSES[node["how"]](number, node), *parents)

    def _share(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        lists: dict[Any, list[int]] = defaultdict(list)
        writes, takes = Writes(number - 0.2, lists), Takes(number - 0.1, lists)
        return self._behind(Merge(number), self._behind(writes, parents[0]), self._behind(takes, parents[1]))

    def _to(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        return self._writing(number, self._spec.output_name(number), None, *parents)

    # --- by key ------------------------------------------------------------------------------------------------------

    def _repartition(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        above = self._rekeyed(number, node, parents[0]) if node["mapped"] else parents[0]
        return self._through(self._spec.between(number), number, node, above, node["partitioner"])

    def _drop_duplicates(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        return self._behind(DropDuplicates(number, node), self._grouped(number, node, parents[0]))

    def _to_table(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        return self._behind(_table(number, node), self._grouped(number, node, parents[0]))

    def _aggregate(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        return self._behind(_aggregate_of(number, node), self._grouped(number, node, parents[0]))

    def _rekeyed(self, number: int, node: Node, above: Operator) -> Operator:
        return self._behind(Simple(number - 0.4, lambda row: [replace(row, key=f.new_key(row.value, node["by"]))]), above)

    def _grouped(self, number: int, node: Node, above: Operator) -> Operator:
        """The rows of a key together, by a repartition stream where the key was changed; without those that have none."""
        stream, rows = self._spec.between(number), self._spec.nodes[node["of"][0]]
        if node.get("selector"):
            assert stream in self._counts, f"n{number}: the key was changed, and the records were not repartitioned"
            above, rows = self._rekeyed(number, node, above), {**rows, "keys": "plain"}
        if stream in self._counts:
            above = self._through(stream, number, rows, above, node.get("partitioner"))
        return self._behind(Simple(number - 0.1, lambda row: [] if row.key is None else [row]), above)

    # --- tables ------------------------------------------------------------------------------------------------------

    def _view(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        made = _VIEWS[node["op"]]
        return self._behind(View(number, lambda value: made(value, node["by"])), *parents)

    def _group_table(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        sent = self._behind(GroupTable(number - 0.4, node["by"]), *parents)
        rows = {**node, "values": f"change {node['rows']}"}
        read = self._through(self._spec.between(number), number, rows, sent, None, is_table=True)
        return self._behind(TableAggregate(number, node), read)

    def _suppress(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        return self._behind(Suppress(number, self._windows_of(number)), *parents)

    def _cogroup(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        tagged = []
        for place, above in enumerate(parents):
            rows, stream = self._spec.nodes[node["of"][place]], self._spec.between(number, f"{place + 1}")
            if stream in self._counts:
                above = self._through(stream, number, rows, above, None)
            made = lambda row, place=place: [] if row.key is None else [replace(row, value=(place, row.value))]  # noqa: E731
            tagged.append(self._behind(Simple(number - 0.1, made), above))
        return self._behind(_aggregate_of(number, node), self._behind(Merge(number - 0.05), *tagged))

    def _limit(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        self._ask_for_each(self._maker_of(node["of"][0]))
        return self._behind(TimeLimit(number, node["limit_us"]), *parents)

    def _to_stream(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        table = self._maker_of(node["of"][0])
        match node["emit"]:
            case "closed":
                return self._behind(Suppress(number, self._windows_of(table)), *parents)
            case "each":
                self._ask_for_each(table)
                return self._behind(Simple(number, _as_it_is), *parents)
        return self._behind(Last(number, self._made[table]), *parents)

    def _maker_of(self, number: int) -> int:
        """The table that another is a view of."""
        while self._spec.nodes[number]["op"] in ("table_filter", "table_map"):
            number = self._spec.nodes[number]["of"][0]
        return number

    def _windows_of(self, number: int) -> Node:
        while self._spec.nodes[number]["op"] not in ("aggregate", "cogroup"):
            number = self._spec.nodes[number]["of"][0]
        windows: Node = self._spec.nodes[number]["windows"]
        return windows

    def _ask_for_each(self, number: int) -> None:
        """Every update of a table is asked for, and so of those whose updates make it."""
        node, table = self._spec.nodes[number], self._made[number]
        if isinstance(table, Aggregate | Sessions | Sliding | Table | TableTable):
            table.each = True
        if isinstance(table, ForeignResults):
            table.each = self._foreign[number].each = True
            self._ask_for_each(self._maker_of(node["of"][0]))
            self._foreign[number].table.each = True
            if not isinstance(self._made[node["of"][1]], Table):  # of that all updates are taken before it
                self._ask_for_each(self._maker_of(node["of"][1]))
        if isinstance(table, TableAggregate):
            self._ask_for_each(self._maker_of(node["of"][0]))
        if isinstance(table, TableTable):
            for parent, side in zip(node["of"], table.tables, strict=True):
                side.each = True
                if not isinstance(self._made[parent], Table):  # of that all updates are taken before it
                    self._ask_for_each(self._maker_of(parent))

    # --- joins -------------------------------------------------------------------------------------------------------

    def _join_table(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        left, right = self._side(number, "left"), self._table_side(number, "right")
        if node["grace_us"] is None:
            return self._behind(StreamTable(number, node["kind"], right), left)
        assert isinstance(right, VersionedTable)
        return self._behind(WaitingTable(number, node, right), left)

    def _join_global(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        left, table = parents
        assert isinstance(table, Table)
        of_key = None if node["own_key"] else lambda row: f.looked_up(row.key, row.value, node["by"])
        return self._behind(StreamTable(number, node["kind"], table, of_key), left)

    def _join_tables(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        left = self._table_side(number, "left")
        right = left if parents[0] is parents[1] else self._table_side(number, "right")
        return self._behind(TableTable(number, node["kind"], left, right))

    def _join_foreign(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        sent = self._behind(Send(number - 0.9, node), parents[0])
        stream = self._spec.between(number, "left")
        said = self._through(stream, number - 0.5, {**node, "values": f"said {node['rows']}"}, sent, None, is_table=True)
        join = self._behind(ForeignJoin(number - 0.05, node["kind"], self._table_side(number, "right")), said)
        rows = {**node, "values": "answer"}
        results = ForeignResults(number)
        self._foreign[number] = join
        return self._behind(results, self._through(self._spec.between(number), number, rows, join, None, is_table=True))

    def _join_stream(self, number: int, node: Node, parents: list[Operator]) -> Operator:
        left = self._side(number, "left")
        right = left if parents[0] is parents[1] else self._side(number, "right")
        join: Operator = self._behind(StreamStream(number, node))
        left.children.append((join, 0))
        right.children.append((join, 1))
        return join

    def _side(self, number: int, side: str, is_table: bool = False) -> Operator:
        above: int = self._spec.nodes[number]["of"][side == "right"]
        rows, stream = self._made[above], self._spec.between(number, side)
        if stream not in self._counts:
            return rows
        if isinstance(rows, Table):
            rows = rows.taken  # all of its updates
        place = number - (0.5 if side == "left" else 0.3)
        return self._through(stream, place, self._spec.nodes[above], rows, None, is_table)

    def _table_side(self, number: int, side: str) -> Table:
        rows = self._side(number, side, is_table=True)
        if isinstance(rows, Table):
            return rows
        of = self._spec.nodes[self._spec.nodes[number]["of"][side == "right"]]
        table = _table(number - (0.2 if side == "left" else 0.1), of)
        self._behind(table, rows)
        return table

    # --- in here -----------------------------------------------------------------------------------------------------

    def _behind(self, operator: Operator, *parents: Operator) -> Operator:
        for parent in parents:
            parent.children.append((operator, 0))
        self.operators.append(operator)
        return operator

    def _writing(self, number: float, stream: str, partitioner: str | None, *parents: Operator) -> Operator:
        def write(row: Row) -> Iterable[Row]:
            partitions: Any = [None]
            if partitioner is not None:
                given = f.chosen(partitioner, row.value, self._counts[stream])
                partitions = [given] if given is None or isinstance(given, int) else dict.fromkeys(given)
            self.written.extend(Written(stream, row.key, row.value, row.time_us, partition) for partition in partitions)
            return ()

        return self._behind(Simple(number, write), *parents)

    def _through(
        self, stream: str, number: float, rows: Node, above: Operator, partitioner: str | None, is_table: bool = False
    ) -> Operator:
        """What is behind a repartition stream, which the rows of `above` are written to. `rows`: a node that has these."""
        self._writing(number - 0.3, stream, partitioner, above)
        read = self._behind(Simple(number - 0.2, _as_it_is))
        self.entries[stream] = Entry(rows, is_table, read)
        return read

    _builders: Mapping[str, Callable[[Graph, int, Node, list[Operator]], Operator]] = {
        "stream": _input,
        "table": _input,
        "global": _input,
        "filter": _stateless,
        "branch": _stateless,
        "map_values": _stateless,
        "flat_map_values": _stateless,
        "map": _stateless,
        "flat_map": _stateless,
        "select_key": _stateless,
        "merge": _merge,
        "process": _process,
        "share": _share,
        "repartition": _repartition,
        "drop_duplicates": _drop_duplicates,
        "to_table": _to_table,
        "group_table": _group_table,
        "aggregate": _aggregate,
        "table_filter": _view,
        "table_map": _view,
        "suppress": _suppress,
        "limit": _limit,
        "cogroup": _cogroup,
        "to_stream": _to_stream,
        "join_table": _join_table,
        "join_tables": _join_tables,
        "join_global": _join_global,
        "join_foreign": _join_foreign,
        "join_stream": _join_stream,
        "to": _to,
    }


def _table(number: float, node: Node) -> Table:
    history_us = node.get("history_us")
    return Table(number) if history_us is None else VersionedTable(number, history_us)


def _aggregate_of(number: int, node: Node) -> Operator:
    kinds = {"session": Sessions, "sliding": Sliding}
    windows = node["windows"]
    return (Aggregate if windows is None else kinds.get(windows["kind"], Aggregate))(number, node)


def _as_it_is(row: Row) -> Iterable[Row]:
    return [row]


_STATELESS: Mapping[str, Callable[[Row, int], Iterable[Row]]] = {
    "filter": lambda row, by: [row] if f.kept(row.value, by) else [],
    "branch": lambda row, by: [row] if f.taken(row.value, by) else [],
    "map_values": lambda row, by: [replace(row, value=f.doubled(row.value, by))],
    "flat_map_values": lambda row, by: [replace(row, value=value) for value in f.several(row.value, by)],
    "map": lambda row, by: [replace(row, key=f.new_key(row.value, by), value=f.doubled(row.value, by))],
    "flat_map": lambda row, by: [replace(row, key=key, value=value) for key, value in f.pairs(row.value, by)],
    "select_key": lambda row, by: [replace(row, key=f.new_key(row.value, by))],
}
_VIEWS: Mapping[str, Callable[[Any, int], Any]] = {
    "table_filter": lambda value, by: value if f.kept(value, by) else None,
    "table_map": f.doubled,
}
