"""Aggregation by sliding windows (KIP-450), record by record: for each time t of a key's records a window [t - length, t], and
[t + 1, t + 1 + length] if it holds records.

A record changes the windows that hold it. It makes its own window, of what the last one before it holds; the window that
begins after the record before it, if it is the first in there; and the one that begins after itself, of what the last window
with it holds without it. So each window's state is that of its records, in the order in which they came.

A window that has closed is kept for a while, since others are made of it. Late records still change what it holds, so that
these do not lack them; no update of it is given any more.

Store: key | start -> time of the window's last record, 8 bytes, then 1 and the state, or 0 where there is none."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from headrace.core.keys.key_layout import TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.model import topology as t
from headrace.model.windows import SlidingWindows
from headrace.worker.operators.base import Context, Operator, windowed_field
from headrace.worker.operators.expiry import expire
from headrace.worker.operators.keyed import rows_at
from headrace.worker.operators.windowing.folds import Fold, fold_for
from headrace.worker.rows import Rows

_NO_STATE, _STATE = b"\0", b"\1"
Row = tuple[int, int]  # (batch, row) of the record that did it
Update = tuple[bytes, "_Window", Row]


@dataclass(frozen=True, slots=True)
class _Window:
    """`last`: the time of its last record, by time; `state` None: there is none."""

    start: int
    last: int
    state: Any


_start_of = attrgetter("start")


class _Key:
    """A key's windows in order of time, as far as they were read: those that begin at `low` to `high`, both included."""

    __slots__ = ("before", "high", "low", "now")

    def __init__(self) -> None:
        self.before: dict[int, _Window] = {}
        self.now: list[_Window] = []
        self.low, self.high = 0, -1

    def unread(self, low: int, high: int) -> list[tuple[int, int]]:
        """What of a span of starts, both included, has to be read; from then on it counts as read."""
        if self.high < self.low:
            self.low, self.high = low, high
            return [(low, high)]
        missing = [(low, self.low - 1), (self.high + 1, high)]
        self.low, self.high = min(low, self.low), max(high, self.high)
        return [span for span in missing if span[0] <= span[1]]

    def add(self, windows: Iterable[_Window]) -> None:
        """Windows that were read."""
        found = list(windows)
        self.before.update((window.start, window) for window in found)
        self.now = sorted([*self.now, *found], key=_start_of)

    def place(self, start: int) -> int:
        return bisect_left(self.now, start, key=_start_of)

    def put(self, window: _Window) -> None:
        at = self.place(window.start)
        is_known = at < len(self.now) and self.now[at].start == window.start
        self.now[at : at + is_known] = [window]

    def has(self, start: int) -> bool:
        at = self.place(start)
        return at < len(self.now) and self.now[at].start == start


class SlidingOperator(Operator):
    node: t.Aggregate

    def __init__(self, node: t.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        assert isinstance(node.windows, SlidingWindows)
        self._windows = node.windows
        self._fold: Fold = fold_for(self, node)
        self._keys: dict[bytes, _Key] = {}
        self._batches: list[Rows] = []
        self._updates: list[Update] = []  # where each of them is requested
        self._last: dict[tuple[bytes, int], Row] = {}  # windows that have changed, by the last time they did

    def push(self, rows: Rows) -> None:
        rows = self.valued(rows)
        rows = self._fold.take(self.without(rows, rows.key.bytes()[1]))
        if not len(rows):
            return
        batch = len(self._batches)
        self._batches.append(rows)
        keys, times = rows.key.bytes()[0].to_pylist(), rows.timestamp_us.tolist()
        self._read(keys, times)
        too_late = []
        for row, (key, time) in enumerate(zip(keys, times, strict=True)):
            # the last window that can hold it
            if self._windows.is_closed(time + self._windows.length_us, self.context.watermark_us):
                too_late.append(row)
                continue
            try:
                changed = self._changed_by(self._keys[key], time, row)
            except BaseException as error:  # the user's function: anything may come
                self.reject(rows, row, error)
                continue
            for window in changed:
                self._keys[key].put(window)
                if not self._windows.is_closed(self._windows.end_of(window.start), self.context.watermark_us):
                    self._give_later(key, window, (batch, row))
        if too_late:
            self.late(rows, np.array(too_late))

    def _changed_by(self, known: _Key, time: int, row: int) -> list[_Window]:
        """The windows that a record changes or makes, in order of time, as they are with it; `known` is left as it is."""
        now, length, added = known.now, self._windows.length_us, self._fold.added
        first, stop = known.place(time - length), bisect_right(now, time, key=_start_of)
        holding = now[first:stop]
        changed = [
            _Window(window.start, max(window.last, time), added([] if window.state is None else [window.state], row))
            for window in holding
        ]
        own = holding[0] if holding and holding[0].start == time - length else None
        earlier = now[first - 1] if first else None
        if own is not None and own.last < time:
            previous: int | None = own.last
        else:
            previous = None if earlier is None else earlier.last
        if own is None:
            state = None if earlier is None or earlier.last < time - length else earlier.state
            changed.append(_Window(time - length, time, added([] if state is None else [state], row)))
        if previous is not None and time - length < previous + 1 <= time and not known.has(previous + 1):
            changed.append(_Window(previous + 1, time, added([], row)))
        later = holding[-1] if holding and holding[-1].last > time else None
        if later is not None and not known.has(time + 1):
            changed.append(_Window(time + 1, later.last, later.state))
        return sorted(changed, key=_start_of)

    def _give_later(self, key: bytes, window: _Window, row: Row) -> None:
        self._last.pop((key, window.start), None)
        self._last[key, window.start] = row
        if self.gives_each:
            self._updates.append((key, window, row))

    def _read(self, keys: list[bytes], times: list[int]) -> None:
        """Read the windows that are near to some records, as far as they are not known."""
        spans: dict[bytes, tuple[int, int]] = {}
        for key, time in zip(keys, times, strict=True):
            first, last = spans.get(key, (time, time))
            spans[key] = min(first, time), max(last, time)
        for key, (first, last) in spans.items():
            known = self._keys.setdefault(key, _Key())
            prefix = state_key(key)
            for low, high in known.unread(first - 2 * self._windows.length_us - 1, last + 1):
                entries = self.database.scan(prefix + time_bytes(low), prefix + time_bytes(high + 1))
                known.add(self._window_of(layout, data) for layout, data in entries)

    def _window_of(self, layout: bytes, data: bytes) -> _Window:
        start, last = time_from(split_state_key(layout)[1]), time_from(data[:TIME_BYTES])
        has_state = data[TIME_BYTES : TIME_BYTES + 1] == _STATE
        return _Window(start, last, self._fold.decoded(data[TIME_BYTES + 1 :]) if has_state else None)

    def finish(self) -> None:
        fresh: list[tuple[bytes, bytes, int]] = []
        for key, known in self._keys.items():
            for window in known.now:
                if known.before.get(window.start) is window:
                    continue
                layout = state_key(key, time_bytes(window.start))
                state = _NO_STATE if window.state is None else _STATE + self._fold.encoded(window.state)
                self.database.put(layout, time_bytes(window.last) + state)
                if window.start not in known.before:
                    fresh.append((key, layout, self._windows.expires_us(self._windows.end_of(window.start))))
        expire(self.context, self.node.store.kept_in, fresh)
        self._emit(self._updates if self.gives_each else self._last_updates())
        self._keys, self._batches, self._updates, self._last = {}, [], [], {}

    def _last_updates(self) -> list[Update]:
        """What has become of each window that changed."""
        return [(key, self._keys[key].now[self._keys[key].place(start)], row) for (key, start), row in self._last.items()]

    def _emit(self, updates: list[Update]) -> None:
        if not updates:
            return
        origins = rows_at(self._batches, [row for *_, row in updates])
        ends = [(key, window.start, self._windows.end_of(window.start)) for key, window, _ in updates]
        self.forward(
            replace(
                origins,
                timestamp_us=np.array([window.last for _, window, _ in updates], np.int64),
                key=windowed_field(self.node.key, ends),
                value=self._fold.results([window.state for _, window, _ in updates]),
                headers=None,
            )
        )
