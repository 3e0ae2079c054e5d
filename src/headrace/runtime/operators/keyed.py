"""Owns the keyed operators that call a Python function per record, `reduce` and the general `aggregate`, and tables.

Within a round each key's state is read once, kept as a Python object, and written once at the end. A function that raises
leaves the state as it was.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model import topology as t
from headrace.model.serde import Serde
from headrace.runtime.operators.aggregate import late, start_bytes
from headrace.runtime.operators.base import Context, Operator
from headrace.runtime.operators.expiry import Expiry
from headrace.runtime.operators.stateless import FilterOperator, merged_by_rank
from headrace.runtime.rows import Field, Rows
from headrace.runtime.vectors import state_keys

_IMMUTABLE = frozenset({int, float, str, bytes, bool, type(None)})
_ABSENT = object()


def copied(state: Any) -> Any:
    """A copy that changes in `state` do not reach; cheap for scalars, and for dicts and lists of scalars."""
    kind = type(state)
    if kind in _IMMUTABLE:
        return state
    if kind is dict and _IMMUTABLE.issuperset(map(type, state.values())):
        return state.copy()
    if kind is list and _IMMUTABLE.issuperset(map(type, state)):
        return state.copy()
    return copy.deepcopy(state)


# Of these forms what is read is what was written, and need not be tried.
_UNCHANGED: Mapping[str, type] = {"long": int, "double": float, "bytes": bytes}
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class _Group:
    """One (key, window) that this round has touched."""

    __slots__ = ("fresh", "key", "layout", "rows", "start", "state")

    def __init__(self, key: bytes, start: int | None, layout: bytes, state: Any) -> None:
        self.key, self.start, self.layout, self.state = key, start, layout, state
        self.fresh = state is _ABSENT
        self.rows: tuple[int, int] | None = None  # (batch, row) of the last record that changed it

    @property
    def value(self) -> Any:
        """The state, None where there is none."""
        return None if self.state is _ABSENT else self.state


class RecordAggregateOperator(Operator):
    """`reduce(function(old, new))` and `aggregate(initial, function(state, record))`, with or without windows."""

    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        self._groups: dict[bytes, _Group] = {}
        self._batches: list[Rows] = []
        self._key_serde: Any = None
        self._value_serde: Serde | None = node.store.value or node.value
        self._dirty = False

    def push(self, rows: Rows) -> None:
        rows = self.without(self.decoded(rows), rows.key.bytes()[1])
        if not len(rows):
            return
        self._key_serde = rows.key.serde
        if self._value_serde is None:
            self._value_serde = rows.value.serde
        self._batches.append(rows)
        too_late = self._worked_off(len(self._batches) - 1)
        if too_late:
            late(self, rows, np.array(too_late))

    def _worked_off(self, batch: int) -> list[int]:
        """Put the rows of a batch into the states of their groups; gives the rows that no window takes any more."""
        rows = self._batches[batch]
        self._load(rows.key.bytes()[0].to_pylist(), rows.timestamp_us)
        too_late: list[int] = []
        for i, record in enumerate(rows.records(self.context.streams)):
            layouts = (self._layouts[i],) if self.node.windows is None else self._layouts_of[i]
            if not layouts:
                too_late.append(i)
            try:
                self._step([self._groups[layout] for layout in layouts], record, (batch, i))
            except BaseException as error:  # the user's function: anything may come
                self.reject(rows, i, error)
        return too_late

    def _load(self, keys: list[bytes], times: Any) -> None:
        """Read the states of all groups of the batch that are not known yet, at once."""
        windows = self.node.windows
        if windows is None:
            self._layouts = state_keys(keys)
            pairs = list(zip(keys, [None] * len(keys), self._layouts, strict=True))
        else:
            watermark = self.context.watermark_us
            starts = [
                [s for s in windows.starts_of(time) if not windows.is_late(s, watermark)] for time in times.tolist()
            ]
            flat_keys = [key for key, mine in zip(keys, starts, strict=True) for _ in mine]
            flat_starts = [start for mine in starts for start in mine]
            layouts = state_keys(flat_keys, start_bytes(np.array(flat_starts, np.int64))) if flat_keys else []
            remaining = iter(layouts)
            self._layouts_of = [[next(remaining) for _ in mine] for mine in starts]
            pairs = list(zip(flat_keys, flat_starts, layouts, strict=True))  # type: ignore[arg-type]
        missing = {layout: (key, start) for key, start, layout in pairs if layout not in self._groups}
        stored = self.context.database(self.node.store.name).get_many(list(missing))
        serde = self._value_serde
        assert serde is not None
        for (layout, (key, start)), data in zip(missing.items(), stored, strict=True):
            self._groups[layout] = _Group(key, start, layout, _ABSENT if data is None else serde.decode(data))

    def _step(self, groups: list[_Group], record: Any, row: tuple[int, int]) -> None:
        """Put a record into all its windows; where the function raises at one of them, into none."""
        # the function may change a state in place, and then raise
        kept = [group.state if group.state is _ABSENT else copied(group.state) for group in groups]
        try:
            states = [self._after(group.state, record) for group in groups]
        except BaseException:
            for group, state in zip(groups, kept, strict=True):
                group.state = state
            raise
        for group, state in zip(groups, states, strict=True):
            group.state, group.rows = state, row
            self._dirty = True

    def _after(self, before: Any, record: Any) -> Any:
        if self.node.kind is t.AggregateKind.REDUCE:
            after = record.value if before is _ABSENT else self._function(before, record.value)
        else:
            after = self._function(self._initial() if before is _ABSENT else before, record)
        if after is None:
            return _ABSENT  # None deletes: the next record begins anew, in this round as in any other
        return self._as_stored(after)

    def _as_stored(self, state: Any) -> Any:
        """The state as the next round would read it, so that results do not depend on where rounds are cut.

        A state that has no bytes is the error of the record that made it.
        """
        serde = self._value_serde
        assert serde is not None
        if type(state) is _UNCHANGED.get(serde.form) and (type(state) is not int or _INT64_MIN <= state <= _INT64_MAX):
            return state
        return serde.decode(serde.encode(state))

    def _function(self, *arguments: Any) -> Any:
        assert self.node.function is not None
        return self.node.function(*arguments)

    def _initial(self) -> Any:
        initial = self.node.initial
        return initial() if callable(initial) else copy.deepcopy(initial)

    def finish(self) -> None:
        if not self._dirty:
            self._reset()
            return
        groups = self._encoded_groups()
        database = self.context.database(self.node.store.name)
        values: list[Any] = []
        fresh: list[tuple[bytes, bytes, int]] = []
        for group, data in groups:
            if data is None:
                database.delete(group.layout)
            else:
                database.put(group.layout, data)
                if group.fresh and self.node.windows is not None and group.start is not None:
                    windows = self.node.windows
                    fresh.append((group.key, group.layout, group.start + windows.size_us + windows.kept_us))
            values.append(group.value)
        Expiry(self.context).add(self.node.store.name, fresh)
        self._emit([group for group, _ in groups], values)
        self._reset()

    def _encoded_groups(self) -> list[tuple[_Group, bytes | None]]:
        """The groups that were changed, with their states as bytes."""
        serde = self._value_serde
        assert serde is not None
        groups = [group for group in self._groups.values() if group.rows is not None]
        data, failures = serde.encode_many([group.value for group in groups])
        assert not failures, f"a state that was encoded once: {failures[0][1]}"
        return list(zip(groups, data.to_pylist(), strict=True))

    def _emit(self, groups: list[_Group], values: list[Any]) -> None:
        if not groups:
            return
        bases = np.cumsum([0] + [len(rows) for rows in self._batches])
        at = np.array([bases[group.rows[0]] + group.rows[1] for group in groups])  # type: ignore[index]
        order = np.argsort(at, kind="stable")
        origins = Rows.concat(self._batches).take(at[order])
        keys = pa.array([groups[i].key for i in order], pa.binary())
        if self.node.windows is None:
            key = Field(self._key_serde, raw=keys)
        else:
            serde: Any = self.node.key
            starts = np.array([groups[i].start for i in order], np.int64)
            key = Field(serde, raw=serde.encode_parts(keys, starts, starts + self.node.windows.size_us))
        value = Field(self._value_serde, objects=[values[i] for i in order])
        self.forward(Rows(origins.ssp, origins.offset, origins.timestamp_us, key, value, None, origins.rank))

    def _reset(self) -> None:
        self._groups, self._batches, self._dirty = {}, [], False


class TableOperator(Operator):
    """Keeps each key's last value; a null value deletes it. Emits the last value of each key once per round."""

    node: t.Table

    def __init__(self, node: t.Table, context: Context) -> None:
        super().__init__(node, context)
        self._held: list[Rows] = []

    def push(self, rows: Rows) -> None:
        rows = self.encoded(rows)
        null = rows.key.is_null()
        if null.any():
            self.context.count("null_keys_dropped", int(null.sum()))
            rows = rows.where(~null)
        if len(rows):
            self._held.append(_last_per_key(rows))

    def finish(self) -> None:
        if not self._held:
            return
        rows = _last_per_key(Rows.concat(self._held))
        self._held = []
        database = self.context.database(self.node.store.name)
        layouts = state_keys(rows.key.bytes()[0].to_pylist())
        for layout, data in zip(layouts, rows.value.bytes()[0].to_pylist(), strict=True):
            if data is None:
                database.delete(layout)
            else:
                database.put(layout, data)
        self.forward(rows)


def _last_per_key(rows: Rows) -> Rows:
    table = pa.table({"key": rows.key.bytes()[0], "at": pa.array(np.arange(len(rows)))})
    last = table.group_by("key", use_threads=False).aggregate([("at", "max")])["at_max"].to_numpy()
    return rows.take(np.sort(last))


class TableFilterOperator(FilterOperator):
    """Of a table: a value that the predicate refuses becomes a deletion, so that whoever reads the updates forgets it."""

    def push(self, rows: Rows) -> None:
        rows = self.decoded(rows, value=False)
        deleted = rows.value.is_null()
        parts = [rows.take(np.flatnonzero(deleted))] if deleted.any() else []
        if not deleted.all():
            present, mask = self.truths_of(self.node.predicate, rows.where(~deleted))
            if self.node.negate:
                mask = ~mask
            serde = present.value.serde
            if not mask.all():
                refused = present.take(np.flatnonzero(~mask))
                parts.append(refused.replaced(value=Field(serde, objects=[None] * len(refused))))
            parts.append(present.take(np.flatnonzero(mask)))
        if parts:
            self.forward(merged_by_rank(parts))
