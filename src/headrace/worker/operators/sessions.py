"""Aggregation by sessions: records of a key that are at most a gap apart, record by record.

A record joins all sessions of its key that it is near to into one. Their keys, which have the times of the first and the
last record, are removed then, and operators behind it learn of it: of each a null, then the value of the session that there
is now. Sessions that are closed (`SessionWindows.closes_us`) take no record any more; they are read from outside until
they expire (`expires_us`).

Store: key | time of the first record -> time of the last record, 8 bytes, then the state. A key's sessions lie side by
side; they are read at its first record in a round, and those that changed are written at the round's end. A record that
joins an open session may take its beginning back to that of a closed one: the closed one is moved to key | first | last.

What a session's state is and how it grows, by a record or by being joined to another session, is a fold's, one per kind of
aggregate. It looks at the records of a batch beforehand (`take`), and then returns one after the other (`added`). What it is
given is never changed in place, so that a record that fails leaves everything as it was."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from headrace.core.accumulators import accumulators_of
from headrace.core.keys.key_layout import TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.model import topology as t
from headrace.model.serde import Serde
from headrace.model.windows import SessionWindows
from headrace.worker.operators.aggregate import (
    State,
    fields_of,
    merged_states,
    result_of,
    states_of_rows,
    typed_columns,
    with_fields,
)
from headrace.worker.operators.base import Context, Operator, windowed_field
from headrace.worker.operators.expiry import expire
from headrace.worker.operators.keyed import ABSENT, copied, rows_at, state_after
from headrace.worker.operators.totals import check_totals
from headrace.worker.rows import Field, Rows

_FIRST, _LAST = bytes(TIME_BYTES), b"\xff" * TIME_BYTES  # no time of a record is as late as the last one
Row = tuple[int, int]  # (batch, row) of the record that did it
Update = tuple[bytes, int, int, Any, Row]  # key, start, end, state or None, record


@dataclass(frozen=True, slots=True)
class _Session:
    start: int
    end: int
    state: Any


_start_of, _end_of = attrgetter("start"), attrgetter("end")


class _Key:
    """A key's open sessions, by time, and how they lay when the round began."""

    __slots__ = ("before", "now")

    def __init__(self, sessions: list[_Session]) -> None:
        self.before = {session.start: session for session in sessions}
        self.now = sessions

    def existed(self, start: int, end: int) -> bool:
        return start in self.before and self.before[start].end == end

    def near(self, time: int, gap: int) -> slice:
        """The sessions that a record at `time` joins; none of them: the place of its own."""
        first = bisect_left(self.now, time - gap, key=_end_of)
        return slice(first, bisect_right(self.now, time + gap, first, key=_start_of))


class Fold(Protocol):
    """`states` are those of the sessions that a record joins, by time; None stands for the end of a session."""

    def take(self, rows: Rows) -> Rows:
        """The rows that can be folded, which `added` returns by their place."""

    def added(self, states: Sequence[Any], row: int) -> Any | None: ...

    def encoded(self, state: Any) -> bytes: ...

    def decoded(self, data: bytes) -> Any: ...

    def results(self, states: Sequence[Any | None]) -> Field:
        """What is given of states; nulls where there is none."""


class CountFold:
    """A number of records, stored as 8 bytes little endian."""

    def __init__(self, operator: Operator, node: t.Aggregate) -> None:
        self._serde = node.value

    def take(self, rows: Rows) -> Rows:
        return rows

    def added(self, states: Sequence[int], row: int) -> int:
        return sum(states) + 1

    def encoded(self, state: int) -> bytes:
        return state.to_bytes(8, "little", signed=True)

    def decoded(self, data: bytes) -> int:
        return int.from_bytes(data, "little", signed=True)

    def results(self, states: Sequence[int | None]) -> Field:
        return Field(self._serde, typed=pa.array(states, pa.int64()))


class NamedFold:
    """Named aggregates: a state for each (`core.accumulators`), stored as a msgpack list."""

    def __init__(self, operator: Operator, node: t.Aggregate) -> None:
        named = node.named or {}
        self._operator, self._serde, self._names = operator, node.value, list(named)
        self._accumulators = accumulators_of(named)
        self._fields = fields_of(named)
        self._parts: list[State] = []
        self.encoded: Callable[[State], bytes] = msgspec.msgpack.Encoder().encode
        self.decoded: Callable[[bytes], State] = msgspec.msgpack.Decoder(list[Any]).decode

    def take(self, rows: Rows) -> Rows:
        rows, arrays = with_fields(self._operator, rows, self._fields)
        table = pa.table({"ordinal": pa.array(np.arange(len(rows))), **arrays})
        self._parts = states_of_rows(typed_columns(self._fields, table), ["ordinal"], self._accumulators) if len(rows) else []
        return rows

    def added(self, states: Sequence[State], row: int) -> State:
        state = reduce(partial(merged_states, self._accumulators), [*states, self._parts[row]])
        check_totals(self._accumulators, state)
        return state

    def results(self, states: Sequence[State | None]) -> Field:
        names, accumulators = self._names, self._accumulators
        return Field(self._serde, objects=[None if one is None else result_of(names, accumulators, one) for one in states])


class FunctionFold:
    """`reduce`, whose function joins sessions too, and the general `aggregate` with its merger."""

    def __init__(self, operator: Operator, node: t.Aggregate) -> None:
        self._operator, self._node = operator, node
        self._given: Serde | None = node.store.value or node.value
        self._records: list[Any] = []

    @property
    def _serde(self) -> Serde:
        assert self._given is not None
        return self._given

    def take(self, rows: Rows) -> Rows:
        rows = self._operator.decoded(rows)
        self._given = self._given or rows.value.serde
        self._records = rows.records(self._operator.context.streams)
        return rows

    def added(self, states: Sequence[Any], row: int) -> Any | None:
        node = self._node
        merger = node.function if node.kind is t.AggregateKind.REDUCE else node.merger
        assert merger is not None
        before: Any = None
        for state in map(copied, states):  # a function may change in place what it is given, and then raise
            before = state if before is None else merger(before, state)
        after = state_after(node, self._serde, ABSENT if before is None else before, self._records[row])
        return None if after is ABSENT else after

    def encoded(self, state: Any) -> bytes:
        return self._serde.encode(state)

    def decoded(self, data: bytes) -> Any:
        return self._serde.decode(data)

    def results(self, states: Sequence[Any | None]) -> Field:
        return Field(self._serde, objects=[copied(state) for state in states])


class SessionOperator(Operator):
    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        assert isinstance(node.windows, SessionWindows)
        self._windows = node.windows
        self._keeps_closed = node.windows.expires_us(0) > node.windows.closes_us(0)
        kinds: dict[t.AggregateKind, Callable[[Operator, t.Aggregate], Fold]]
        kinds = {t.AggregateKind.COUNT: CountFold, t.AggregateKind.NAMED: NamedFold}
        self._fold = kinds.get(node.kind, FunctionFold)(self, node)
        self._keys: dict[bytes, _Key] = {}
        self._batches: list[Rows] = []
        self._updates: list[Update] = []  # where each of them is requested
        self._last: dict[tuple[bytes, int, int], Row] = {}  # sessions that came, changed or went, by the last time they did

    def push(self, rows: Rows) -> None:
        rows = self._fold.take(self.without(rows, rows.key.bytes()[1]))
        if not len(rows):
            return
        batch = len(self._batches)
        self._batches.append(rows)
        too_late = []
        keys = rows.key.bytes()[0].to_pylist()
        for row, (key, time) in enumerate(zip(keys, rows.timestamp_us.tolist(), strict=True)):
            try:
                if not self._add(key, time, (batch, row)):
                    too_late.append(row)
            except BaseException as error:  # the user's function: anything may come
                self.reject(rows, row, error)
        if too_late:
            self.late(rows, np.array(too_late))

    def _add(self, key: bytes, time: int, row: Row) -> bool:
        """Put a record into its session; False where that is closed. Where it raises nothing has changed."""
        known = self._keys.get(key) or self._loaded(key)
        place = known.near(time, self._windows.gap_us)
        joined = known.now[place]
        if not joined and self._windows.is_closed(time, self.context.watermark_us):
            return False
        state = self._fold.added([session.state for session in joined], row[1])
        start, end = min([time, *(s.start for s in joined)]), max([time, *(s.end for s in joined)])
        known.now[place] = [] if state is None else [_Session(start, end, state)]
        for session in joined:
            if (session.start, session.end) != (start, end):
                self._changed(key, session.start, session.end, None, row)
        self._changed(key, start, end, state, row)
        return True

    def _changed(self, key: bytes, start: int, end: int, state: Any, row: Row) -> None:
        self._last.pop((key, start, end), None)
        self._last[key, start, end] = row
        if self.gives_each:
            self._updates.append((key, start, end, state, row))

    def _loaded(self, key: bytes) -> _Key:
        prefix = state_key(key)
        sessions = []
        for layout, data in self.database.scan(prefix + _FIRST, prefix + _LAST):
            end = time_from(data[:TIME_BYTES])
            if not self._windows.is_closed(end, self.context.watermark_us):
                start = time_from(split_state_key(layout)[1][:TIME_BYTES])
                sessions.append(_Session(start, end, self._fold.decoded(data[TIME_BYTES:])))
        known = self._keys[key] = _Key(sessions)
        return known

    def finish(self) -> None:
        self._store()
        last = self._last_updates()
        if self.gives_each:
            reported = {update[:3] for update in last}
            passing = windowed_field(self.node.key, [each for each in self._last if each not in reported])
            self.passing = frozenset(passing.raw.to_pylist())
        self._emit(self._updates if self.gives_each else last)
        self._keys, self._batches, self._updates, self._last = {}, [], [], {}

    def _store(self) -> None:
        database = self.database
        fresh: list[tuple[bytes, bytes, int]] = []
        for key, known in self._keys.items():
            now = {session.start: session for session in known.now}
            prefix = state_key(key)
            for start in known.before.keys() - now.keys():
                database.delete(prefix + time_bytes(start))
            for start, session in now.items():
                if known.before.get(start) is session:
                    continue
                layout = prefix + time_bytes(start)
                if start not in known.before and self._keeps_closed and (closed := database.get(layout)) is not None:
                    moved = layout + closed[:TIME_BYTES]
                    database.put(moved, closed)
                    fresh.append((key, moved, self._windows.expires_us(time_from(closed[:TIME_BYTES]))))
                database.put(layout, time_bytes(session.end) + self._fold.encoded(session.state))
                if start not in known.before:  # one that has grown is found out when its turn comes
                    fresh.append((key, layout, self._windows.expires_us(session.end)))
        expire(self.context, self.node.store.kept_in, fresh)

    def _last_updates(self) -> list[Update]:
        """What has become of each session that changed; none of those that came and went within the round."""
        now = {(key, s.start, s.end): s.state for key, known in self._keys.items() for s in known.now}
        return [
            (key, start, end, now.get((key, start, end)), row)
            for (key, start, end), row in self._last.items()
            if (key, start, end) in now or self._keys[key].existed(start, end)
        ]

    def _emit(self, updates: list[Update]) -> None:
        if not updates:
            return
        origins = rows_at(self._batches, [row for *_, row in updates])
        key = windowed_field(self.node.key, [update[:3] for update in updates])
        value = self._fold.results([update[3] for update in updates])
        self.forward(replace(origins, key=key, value=value, headers=None))
