"""Joins with tables: of a stream with a table, of a stream with a global table, of two tables.

A record is joined with what its task's order has put before it (by rank: timestamp, tables first, stream, partition,
offset), however many records a round has. All of them are joined at the end of the round, when the tables are known, by one
look-up for all keys. A table that is an aggregation's, or is made from one, changes once per round, at the place of the last
record of each key: which records of that same round see the change depends on where rounds are cut. (Where every update of
it is requested, it changes at each of its records.)

Of the records of different partitions and streams only those of one round are put in order; a table is not read ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model import topology as t
from headrace.model.serde import Failures
from headrace.worker.operators.base import Context, GatheringOperator, Operator, binary_field, column_of, values_field
from headrace.worker.operators.entry_times import NO_TIME_US
from headrace.worker.operators.stateless import merged_by_number, merged_by_rank
from headrace.worker.operators.tables import TableOperator, last_per_key
from headrace.worker.rows import Field, Rows


class JoinOperator(Operator):
    """What is common to joins: how the joiner is called, with two values, and the key where it asks for it."""

    node: t.Join

    def results(self, rows: Rows, left: Field, right: Field) -> Rows:
        """The rows that the joiner took, with the values that it gave for theirs."""
        batch = self.node.joiner.kind is t.FunctionKind.BATCH
        parts = [rows.key, left, right] if batch or self.node.with_key else [left, right]
        rows, parts = self._readable(rows, parts, batch)
        if batch:
            time_us = pa.array(rows.timestamp_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            columns = dict(zip(("key", "left", "right"), (part.arrow()[0] for part in parts), strict=True))
            given = pa.RecordBatch.from_pydict({**columns, "timestamp": time_us})
            rows, values = self.called_on(self.node.joiner.body, given, rows)
        else:
            joiner = self.node.joiner.body
            arguments = zip(*(part.objects()[0] for part in parts), strict=True)
            rows, values = self.mapped(lambda given: joiner(*given), arguments, rows)
        return replace(rows, value=values_field(self.node.value, values))

    def _readable(self, rows: Rows, parts: list[Field], batch: bool) -> tuple[Rows, list[Field]]:
        for number in range(len(parts)):
            failures = (parts[number].arrow() if batch else parts[number].objects())[1]
            if failures:
                rows, *parts = self._taken(rows, failures, *parts)
        return rows, parts

    def _taken(self, rows: Rows, failures: Failures, *fields: Field) -> list[Any]:
        good = np.setdiff1d(np.arange(len(rows)), [index for index, _ in failures])
        return [self.without(rows, failures), *(field.take(good) for field in fields)]

    def batch_result(self, result: Any) -> Any:
        return column_of(result, "value")

    def without_null_keys(self, rows: Rows) -> Rows:
        """The rows that have a key, which can be encoded; the others are counted."""
        return self.keyed(self.without(rows, rows.key.bytes()[1]))


def _joined_table(operator: Operator) -> TableOperator:
    assert isinstance(operator, TableOperator), f"{operator.node.name!r} is no table; building the join must have made one"
    operator.is_joined = True
    return operator


class JoinWithTable(JoinOperator, GatheringOperator):
    """Holds the rows of its left side until the round ends, when its right side, a table, is known."""

    def __init__(self, node: t.Join, context: Context) -> None:
        super().__init__(node, context)
        self._table: TableOperator | None = None

    def inlet(self, parent: str, operator: Operator) -> Operator | None:
        if parent != self.node.parents[1]:
            return self
        self._table = _joined_table(operator)
        return None


class StreamTableJoin(JoinWithTable):
    """Joins each record with the value that the table has for its key, or for the key that `key_of` gives. The result keeps the
    record's key, time and headers. Without a value there is no result, or with a left join one of None; so for a key that is
    null. A record without a value of its own is dropped and counted, and in an inner join one whose key is null."""

    def finish(self) -> None:
        if not self.held:
            return
        self.join(merged_by_rank(self.release()))

    def join(self, rows: Rows) -> None:
        """Join the rows, which are in the order of their ranks, and pass the results on."""
        rows, keys = self._looked_up(rows)
        if not len(rows):
            return
        right = self._found(keys, rows)
        if self.node.kind is t.JoinKind.INNER:
            is_found = ~right.is_null()
            rows, right = rows.where(is_found), right.take(np.flatnonzero(is_found))
        self.forward(self.results(rows, rows.value, right))

    def _looked_up(self, rows: Rows) -> tuple[Rows, Any]:
        """The rows, and the keys of the table that they ask for, as bytes."""
        rows = self.valued(rows)
        if self.node.key_of is None:
            is_left = self.node.kind is t.JoinKind.LEFT
            rows = self.without(rows, rows.key.bytes()[1]) if is_left else self.without_null_keys(rows)
            return rows, rows.key.bytes()[0]
        rows, given = self.called(self.node.key_of, rows)
        wanted = values_field(self.node.table_key, given)
        failures = wanted.bytes()[1]
        if failures:
            rows, wanted = self._taken(rows, failures, wanted)
        null = wanted.is_null()
        if self.node.kind is t.JoinKind.INNER and null.any():
            self.context.count("null_keys_dropped", int(null.sum()))
            rows, wanted = rows.where(~null), wanted.take(np.flatnonzero(~null))
        return rows, wanted.bytes()[0]

    def _found(self, keys: Any, rows: Rows) -> Field:
        """The table's value of each key, null where it has none."""
        assert self._table is not None
        known = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        seen = self._table.seen_by(keys.take(pa.array(known)), rows.rank[known], rows.timestamp_us[known])
        if len(known) < len(keys):
            places = np.zeros(len(keys), np.int64)
            places[known] = np.arange(len(known))
            seen = seen.take(pa.array(places, mask=~np.isin(np.arange(len(keys)), known)))
        return Field(self._table.serde, raw=seen)


_Pair = tuple[bytes | None, bytes | None]  # what both sides have of a key


# The rows that give an update of a join each, with its time; what both sides had before it, and have with it.
_Updates = tuple[Rows, Sequence[_Pair], Sequence[_Pair]]


class TableTableJoin(JoinOperator):
    """Gives, once per round and for each key that changed on either side, the joined value as both tables have it now. Where
    every update is requested, gives one for each update of either side, as both tables had it then; of those that come of one
    record the left side's are the earlier ones. A deletion follows where there was a joined value before and there is none any
    more. The time of a result is that of the update, or of the other side's row if that is later."""

    def __init__(self, node: t.Join, context: Context) -> None:
        super().__init__(node, context)
        self._tables: dict[str, TableOperator] = {}

    def inlet(self, parent: str, operator: Operator) -> Operator | None:
        self._tables[parent] = _joined_table(operator)
        self._tables[parent].has_times = True
        return None

    def finish(self) -> None:
        changed = {parent: table.updates for parent, table in self._tables.items() if table.updates is not None}
        if changed:
            self._give(*(self._each_update(changed) if self.gives_each else self._last_updates(list(changed.values()))))

    def _give(self, updates: Rows, before: Sequence[_Pair], after: Sequence[_Pair]) -> None:
        rows = updates.numbered()  # by their ranks they may be alike: several come of one record
        now, was = self._is_joined(after), self._is_joined(before)
        parts = []
        if now.any():
            values = zip(*(after[i] for i in np.flatnonzero(now).tolist()), strict=True)
            serdes = (self._tables[parent].serde for parent in self.node.parents)
            sides = (binary_field(serde, side) for serde, side in zip(serdes, values, strict=True))
            parts.append(self.results(rows.where(now), *sides))
        if (was & ~now).any():
            deleted = rows.where(was & ~now)
            parts.append(replace(deleted, value=Field(self.node.value, objects=[None] * len(deleted))))
        if parts:
            self.forward(merged_by_number(parts, updates))

    def _last_updates(self, changed: list[Rows]) -> _Updates:
        rows = last_per_key(merged_by_rank([keys_of(updates) for updates in changed]))
        keys = rows.key.bytes()[0].to_pylist()
        left, right = (self._tables[parent] for parent in self.node.parents)
        before = list(zip(left.before(keys), right.before(keys), strict=True))
        times = np.maximum.reduce([rows.timestamp_us, *(np.array(side.times_after(keys), np.int64) for side in (left, right))])
        return replace(rows, timestamp_us=times), before, list(zip(left.after(keys), right.after(keys), strict=True))

    def _each_update(self, changed: Mapping[str, Rows]) -> _Updates:
        parents = [parent for parent in dict.fromkeys(self.node.parents) if parent in changed]
        every = Rows.concat([keys_of(changed[parent]) for parent in parents])
        made_by = [parent for parent in parents for _ in range(len(changed[parent]))]
        values = [value for parent in parents for value in changed[parent].value.bytes()[0].to_pylist()]
        keys = every.key.bytes()[0].to_pylist()
        known = list(dict.fromkeys(keys))
        first: list[_Pair] = list(zip(*(self._tables[parent].before(known) for parent in self.node.parents), strict=True))
        current = dict(zip(known, first, strict=True))
        times = {parent: dict(zip(known, table.times_before(known), strict=True)) for parent, table in self._tables.items()}
        own_times, before, after = every.timestamp_us.copy(), [], []
        of_left, of_right = self.node.parents
        order = np.argsort(every.rank, kind="stable")
        for row in order.tolist():
            key, value, parent = keys[row], values[row], made_by[row]
            had = current[key]
            current[key] = (value if parent == of_left else had[0], value if parent == of_right else had[1])
            before.append(had)
            after.append(current[key])
            own = int(own_times[row])
            times[parent][key] = NO_TIME_US if value is None else own
            own_times[row] = max(own, *(side[key] for side in times.values()))
        came_and_went = ~self._is_joined(first) & ~self._is_joined(list(current.values()))
        self.passing = frozenset(known[i] for i in np.flatnonzero(came_and_went))
        return replace(every, timestamp_us=own_times).take(order), before, after

    def _is_joined(self, pairs: Sequence[_Pair]) -> Any:
        there = np.array([[value is not None for value in pair] for pair in pairs], bool)
        if self.node.kind is t.JoinKind.INNER:
            return there.all(axis=1)
        return there[:, 0] if self.node.kind is t.JoinKind.LEFT else there.any(axis=1)


def keys_of(rows: Rows) -> Rows:
    """The rows with nothing but their keys, in the form that those of other tables have as well."""
    key = Field(rows.key.serde, raw=rows.key.bytes()[0])
    return replace(rows, key=key, value=Field(None, raw=pa.nulls(len(rows), pa.binary())), headers=None)
