"""Tables: a store of each key's last value, and what a join asks of it: the value as a record found it. A round's updates are
put into the store at its end. A table that is joined keeps all of them until then, and the values that they replace, so that
each record sees the table as it was at the record's own place in the task's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model import topology as t
from headrace.model.serde import Serde
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.base import Context, GatheringOperator, Operator
from headrace.worker.operators.entry_times import EntryTimes
from headrace.worker.operators.stateless import FilterOperator, merged_by_number
from headrace.worker.rows import Field, Rows


class TableOperator(GatheringOperator):
    """Keeps each key's last value; a null value deletes it. Gives the last value of a key once per round, or every update."""

    node: t.Table

    def __init__(self, node: t.Table, context: Context) -> None:
        super().__init__(node, context)
        self.is_joined = self.has_times = False  # set where the operators are wired
        self._times = EntryTimes(context, node.store.kept_in)
        self.updates: Rows | None = None  # of this round, all of them by rank; known once the round is finished
        self._replaced: dict[bytes, bytes | None] = {}  # what was stored, before the round, under the keys that it changed
        self._replaced_times: dict[bytes, int] = {}

    @property
    def serde(self) -> Serde | None:
        return self.node.value or self.node.store.value

    def push(self, rows: Rows) -> None:
        rows = self.keyed(self.encoded(rows))
        if len(rows):
            self.held.append(rows if self.is_joined or self.gives_each else last_per_key(rows))

    def finish(self) -> None:
        if not self.held:
            return
        every = Rows.concat(self.release())
        rows = last_per_key(every)
        database, layouts = self.database, state_keys(rows.key.bytes()[0].to_pylist())
        if self.is_joined:
            self.updates = every.take(np.argsort(every.rank, kind="stable"))
            self._replaced = dict(zip(layouts, database.get_many(layouts), strict=True))
        values = rows.value.bytes()[0].to_pylist()
        database.put_many(layouts, values)
        if self.has_times:
            self._replaced_times = dict(zip(layouts, self._times.get_many(layouts), strict=True))
            times_us = zip(values, rows.timestamp_us.tolist(), strict=True)
            self._times.put_many(layouts, [None if data is None else time_us for data, time_us in times_us])
        self.forward(every if self.gives_each else rows)

    def before(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys` as they were before this round."""
        layouts = state_keys(keys)
        others = [layout for layout in layouts if layout not in self._replaced]
        stored = dict(zip(others, self.database.get_many(others), strict=True))
        return [self._replaced[each] if each in self._replaced else stored[each] for each in layouts]

    def after(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys` as they are after this round."""
        stored: list[bytes | None] = self.database.get_many(state_keys(keys))
        return stored

    def times_before(self, keys: Sequence[bytes]) -> list[int]:
        """The times of the rows of `keys` as they were before this round, in µs; `NO_TIME_US` where there is none. Of a table
        that `has_times`."""
        layouts = state_keys(keys)
        others = [layout for layout in layouts if layout not in self._replaced_times]
        known = self._replaced_times | dict(zip(others, self._times.get_many(others), strict=True))
        return [known[layout] for layout in layouts]

    def times_after(self, keys: Sequence[bytes]) -> list[int]:
        """The times of the rows of `keys` as they are after this round."""
        return self._times.get_many(state_keys(keys))

    def seen_by(self, keys: Any, ranks: Any, times_us: Any) -> Any:
        """The value of each of `keys` (a binary array without nulls) as a record of that rank sees it; null for none. That is
        the one of the key's last update with a lower rank, else the one from before the round. Rows of one rank come of one
        record: what it does to the table is not there yet when it is joined itself."""
        encoded = keys.dictionary_encode()
        known, codes = encoded.dictionary, encoded.indices.to_numpy()
        before = pa.array(self.before(known.to_pylist()), pa.binary())
        if self.updates is None:
            return before.take(pa.array(codes))
        found = pc.index_in(self.updates.key.bytes()[0], value_set=known)
        wanted = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        count = len(wanted)
        all_codes = np.concatenate([found.take(pa.array(wanted)).to_numpy(), codes])
        all_ranks = np.concatenate([self.updates.rank[wanted], ranks])
        is_update = np.arange(len(all_codes)) < count
        order = np.lexsort((is_update, all_ranks, all_codes))
        by_code, updating = all_codes[order], is_update[order]
        last = np.maximum.accumulate(np.where(updating, np.arange(len(order)), 0))  # the place of the update before each
        is_seen = updating[last] & (by_code[last] == by_code)
        source = np.where(is_seen, order[last], count + by_code)  # among the requested updates, else among `before`
        picked = np.empty(len(codes), np.int64)
        picked[order[~updating] - count] = source[~updating]
        updated = self.updates.value.bytes()[0].take(pa.array(wanted))
        return pa.concat_arrays([updated, before]).take(pa.array(picked))


class TableFilterOperator(FilterOperator):
    """Of a table: a value that the predicate refuses becomes a deletion, so that readers of the updates delete it."""

    def push(self, rows: Rows) -> None:
        rows = self.decoded(rows, value=False)
        numbered = rows.numbered()
        deleted = rows.value.is_null()
        parts = [numbered.where(deleted)] if deleted.any() else []
        if not deleted.all():
            present, mask = self.truths_of(self.node.predicate, numbered.where(~deleted))
            if self.node.negate:
                mask = ~mask
            if not mask.all():
                refused = present.where(~mask)
                parts.append(replace(refused, value=Field(present.value.serde, objects=[None] * len(refused))))
            parts.append(present.where(mask))
        if parts:
            self.forward(merged_by_number(parts, rows))


class ToStreamOperator(GatheringOperator):
    """Passes a table's updates on. With `takes_last_of` it is given every update of a table, and emits the last ones."""

    node: t.ToStream
    takes_last_of: Operator | None = None

    def push(self, rows: Rows) -> None:
        if self.takes_last_of is None:
            self.forward(rows)
            return
        rows = self.without(rows, rows.key.bytes()[1])
        if len(rows):
            self.held.append(last_per_key(rows))

    def finish(self) -> None:
        if not self.held:
            return
        rows = last_per_key(Rows.concat(self.release()))
        assert self.takes_last_of is not None
        if passing := self.takes_last_of.passing:
            reported = [key not in passing for key in rows.key.bytes()[0].to_pylist()]
            rows = rows.where(np.array(reported, bool))
        self.forward(rows)


def last_per_key(rows: Rows) -> Rows:
    """Of each key the last row, in the order of these; `rows` are not empty, and their keys encode."""
    keys: Any = rows.key.bytes()[0]
    table = pa.table({"key": keys, "at": pa.array(np.arange(len(rows)))})
    last = table.group_by("key", use_threads=False).aggregate([("at", "max")])["at_max"].to_numpy()
    return rows.take(np.sort(last))
