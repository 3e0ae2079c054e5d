"""The keyed operators that call a Python function per record: `reduce` and the general `aggregate`. Within a round each key's
state is read once, kept as a Python object, and written once at the end. A function that raises leaves the state as it was."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.core.accumulators import INT64_MAX, INT64_MIN
from headrace.model import topology as t
from headrace.model.serde import Serde
from headrace.model.windows import TimeWindows, Windows, skips_null_values
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.aggregate import begun, start_bytes
from headrace.worker.operators.base import Context, Operator, binary_field
from headrace.worker.operators.entry_times import EntryTimes
from headrace.worker.operators.expiry import count_expired, expire
from headrace.worker.rows import Field, Rows

_IMMUTABLE = frozenset({int, float, str, bytes, bool, type(None)})
ABSENT = object()
# key, start of the window, value, time, (batch, row) of the record
_Update = tuple[bytes, int | None, Any, int, tuple[int, int]]


def copied(state: Any) -> Any:
    """A copy that changes in `state` do not reach; cheap for scalars, and for dicts and lists of scalars."""
    kind = type(state)
    if kind in _IMMUTABLE:
        return state
    parts = state.values() if kind is dict else state if kind is list else None
    if parts is not None and _IMMUTABLE.issuperset(map(type, parts)):
        return state.copy()
    return copy.deepcopy(state)


# Of these forms a decoded value is the encoded one, and need not be tried.
_UNCHANGED: Mapping[str, type] = {"long": int, "double": float, "bytes": bytes}


def as_stored(serde: Serde, state: Any) -> Any:
    """The state as the next round would read it, so that results do not depend on where rounds are cut. A state that has no
    bytes is the error of the record that made it."""
    if type(state) is _UNCHANGED.get(serde.form) and (type(state) is not int or INT64_MIN <= state <= INT64_MAX):
        return state
    return serde.decode(serde.encode(state))


def rows_at(batches: Sequence[Rows], places: Sequence[tuple[int, int]]) -> Rows:
    bases = np.cumsum([0] + [len(rows) for rows in batches])
    return Rows.concat(batches).take(np.array([bases[batch] + row for batch, row in places]))


def initial_of(node: t.Aggregate) -> Any:
    """What a state of a general aggregate begins as: the value that was given, or what the function that was given makes."""
    return node.initial() if callable(node.initial) else copy.deepcopy(node.initial)


def state_after(node: t.Aggregate, serde: Serde | None, before: Any, record: Any) -> Any:
    """The state with a record in it: of a reduce or a general aggregate. `ABSENT` is no state, before and after: the next
    record starts over, in this round as in any other."""
    assert node.function is not None and serde is not None
    if node.kind is t.AggregateKind.REDUCE:
        after = record.value if before is ABSENT else node.function(before, record.value)
    else:
        after = node.function(initial_of(node) if before is ABSENT else before, record)
    return ABSENT if after is None else as_stored(serde, after)


@dataclass(slots=True, eq=False)
class _Group:
    """One (key, window) that this round has touched. `time`: the highest of its records; `rows`: (batch, row) of the last
    record that changed it."""

    key: bytes
    start: int | None
    layout: bytes
    state: Any
    is_fresh: bool
    time: int
    rows: tuple[int, int] | None = None


class RecordAggregateOperator(Operator):
    """`reduce(function(old, new))` and `aggregate(initial, function(state, record))`, with or without windows. What is folded
    how is in `after` and the four methods behind it, which other aggregates replace."""

    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        assert node.windows is None or isinstance(node.windows, TimeWindows)
        self._windows: TimeWindows | None = node.windows
        self._groups: dict[bytes, _Group] = {}
        self._batches: list[Rows] = []
        self._key_serde: Any = None
        self.state_serde: Serde | None = node.store.value or node.value
        self._dirty = False
        self._times = EntryTimes(context, node.store.kept_in)
        self._updates: list[_Update] = []  # where each of them is requested

    def after(self, before: Any, record: Any) -> Any:
        """The state with a record in it; `ABSENT` for none."""
        return state_after(self.node, self.state_serde, before, record)

    def kept(self, state: Any) -> Any:
        """A copy of a state, to go back to where `after` raises."""
        return copied(state)

    def result(self, state: Any) -> Any:
        """What readers see of a state."""
        return None if state is ABSENT else state

    def read(self, data: bytes) -> Any:
        """The state of its bytes."""
        assert self.state_serde is not None
        return self.state_serde.decode(data)

    def stored(self, states: Sequence[Any]) -> list[bytes | None]:
        """The bytes of states."""
        assert self.state_serde is not None
        stored, failures = self.state_serde.encode_many([self.result(state) for state in states])
        assert not failures, f"a state that was encoded once: {failures[0][1]}"
        found: list[bytes | None] = stored.to_pylist()
        return found

    def push(self, rows: Rows) -> None:
        rows = begun(self._windows, self.valued(rows) if skips_null_values(self._windows) else rows)
        rows = self.without(self.decoded(rows), rows.key.bytes()[1])
        if not len(rows):
            return
        self._key_serde = rows.key.serde
        if self.state_serde is None:
            self.state_serde = rows.value.serde
        self._batches.append(rows)
        too_late = self._process(len(self._batches) - 1)
        if too_late:
            self.late(rows, np.array(too_late))

    def _process(self, batch: int) -> list[int]:
        """Put the rows of a batch into the states of their groups; gives the rows that no window takes any more."""
        rows = self._batches[batch]
        self._load(rows.key.bytes()[0].to_pylist(), rows.timestamp_us)
        too_late: list[int] = []
        for i, record in enumerate(rows.records(self.context.streams)):
            layouts = (self._layouts[i],) if self._windows is None else self._layouts_of[i]
            if not layouts:
                too_late.append(i)
            try:
                self._step([self._groups[layout] for layout in layouts], record, (batch, i))
            except BaseException as error:  # the user's function: anything may come
                self.reject(rows, i, error)
        return too_late

    def _load(self, keys: list[bytes], times: Any) -> None:
        """Read the states of all groups of the batch that are not known yet, at once."""
        windows = self._windows
        if windows is None:
            self._layouts = state_keys(keys)
            pairs = list(zip(keys, [None] * len(keys), self._layouts, strict=True))
        else:
            watermark = self.context.watermark_us
            starts = [[s for s in windows.starts_of(time) if not windows.is_late(s, watermark)] for time in times.tolist()]
            flat_keys = [key for key, mine in zip(keys, starts, strict=True) for _ in mine]
            flat_starts = [start for mine in starts for start in mine]
            layouts = state_keys(flat_keys, start_bytes(np.array(flat_starts, np.int64))) if flat_keys else []
            remaining = iter(layouts)
            self._layouts_of = [[next(remaining) for _ in mine] for mine in starts]
            pairs = list(zip(flat_keys, flat_starts, layouts, strict=True))  # type: ignore[arg-type]
        missing = {layout: (key, start) for key, start, layout in pairs if layout not in self._groups}
        stored, times = self.database.get_many(list(missing)), self._times.get_many(list(missing))
        for (layout, (key, start)), data, time in zip(missing.items(), stored, times, strict=True):
            state = ABSENT if data is None else self.read(data)
            self._groups[layout] = _Group(key, start, layout, state, state is ABSENT, time)

    def _step(self, groups: list[_Group], record: Any, row: tuple[int, int]) -> None:
        """Put a record into all its windows; where the function raises at one of them, into none."""
        # the function may change a state in place, and then raise
        kept = [group.state if group.state is ABSENT else self.kept(group.state) for group in groups]
        try:
            states = [self.after(group.state, record) for group in groups]
        except BaseException:
            for group, state in zip(groups, kept, strict=True):
                group.state = state
            raise
        for group, state, before in zip(groups, states, kept, strict=True):
            time = record.timestamp_us
            group.state, group.rows, group.time = state, row, time if before is ABSENT else max(time, group.time)
            self._dirty = True
            if self.gives_each:
                self._updates.append((group.key, group.start, copied(self.result(group.state)), group.time, row))

    def finish(self) -> None:
        if not self._dirty:
            self._reset()
            return
        groups = [group for group in self._groups.values() if group.rows is not None]
        self._keep(groups)
        self._emit(self._updates if self.gives_each else self._last_updates(groups))
        self._reset()

    def _keep(self, groups: Sequence[_Group]) -> None:
        """Store the states of groups; not what begins and expires within the round."""
        database, after_us = self.database, self.context.watermark_after_us
        fresh: list[tuple[bytes, bytes, int]] = []
        for group, data in zip(groups, self.stored([group.state for group in groups]), strict=True):
            if group.is_fresh and group.start is not None and isinstance(self._windows, Windows):
                due_us = self._windows.expires_us(self._windows.end_of(group.start))
                if after_us is not None and due_us <= after_us:
                    count_expired(self.context, int(data is not None))
                    continue
                if data is not None:
                    fresh.append((group.key, group.layout, due_us))
            database.put(group.layout, data)
            self._times.put(group.layout, None if data is None else group.time)
        expire(self.context, self.node.store.kept_in, fresh)

    def _emit(self, updates: list[_Update]) -> None:
        if not updates:
            return
        origins = rows_at(self._batches, [row for *_, row in updates])
        key = binary_field(self._key_serde, [key for key, *_ in updates])
        if self._windows is not None:
            serde: Any = self.node.key
            starts = np.array([start for _, start, *_ in updates], np.int64)
            key = Field(serde, raw=serde.encode_parts(key.raw, starts, self._windows.end_of(starts)))
        value = Field(self.node.value or self.state_serde, objects=[update[2] for update in updates])
        times = np.array([update[3] for update in updates], np.int64)
        self.forward(replace(origins, timestamp_us=times, key=key, value=value, headers=None))

    def _last_updates(self, groups: list[_Group]) -> list[_Update]:
        """Of each group what it has become, in the order of the records that did it."""
        changed = [(g.key, g.start, self.result(g.state), g.time, g.rows) for g in groups if g.rows is not None]
        return sorted(changed, key=lambda update: update[4])

    def _reset(self) -> None:
        self._groups, self._batches, self._dirty, self._updates = {}, [], False, []
