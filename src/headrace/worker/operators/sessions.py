"""Aggregation by sessions: records of a key that are at most a gap apart, record by record.

A record joins all sessions of its key that it is near to into one. Their keys, which have the times of the first and the
last record, are removed then, and operators behind it learn of it: of each a null, then the value of the session that there
is now. Sessions that are closed (`SessionWindows.closes_us`) take no record any more; they are read from outside until
they expire (`expires_us`).

Store: key | time of the first record -> time of the last record, 8 bytes, then the state. A key's sessions lie side by
side; they are read at its first record in a round, and those that changed are written at the round's end. A record that
joins an open session may take its beginning back to that of a closed one: the closed one is moved to key | first | last.

What a session's state is and how it grows, by a record or by being joined to another session, is a fold's
(`windowing.folds`)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from headrace.core.keys.key_layout import TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.model import topology as t
from headrace.model.windows import SessionWindows
from headrace.worker.operators.base import Context, Operator, windowed_field
from headrace.worker.operators.expiry import expire
from headrace.worker.operators.keyed import rows_at
from headrace.worker.operators.windowing.folds import fold_for
from headrace.worker.rows import Rows

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


class SessionOperator(Operator):
    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        assert isinstance(node.windows, SessionWindows)
        self._windows = node.windows
        self._keeps_closed = node.windows.expires_us(0) > node.windows.closes_us(0)
        self._fold = fold_for(self, node)
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
        times = np.array([end for _, _, end, *_ in updates], np.int64)
        self.forward(replace(origins, timestamp_us=times, key=key, value=value, headers=None))
