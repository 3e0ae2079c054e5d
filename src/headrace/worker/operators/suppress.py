"""The final results of windows: each is held back until its window closes, and then given once.

A window closes when the task's watermark, as it was before the round, has come to `closes_us` of its end; no record can
change it from then on. An event timer per window makes a round run for it, and fires where it begins.

Store: key | start of the window -> its end, 8 bytes, the time of the last update, 8 bytes, its value. A given result is
not there any more. A watermark may go back, when an input that was idle resumes; what has closed stays closed all the
same: the highest watermark at which anything did is in the checkpoint, and judges for the whole task."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

import numpy as np

from headrace.core.keys.key_layout import TIME_BYTES, state_key, time_bytes, time_from
from headrace.model import topology as t
from headrace.worker.operators.base import Context, Due, GatheringOperator, binary_field, rows_of_timers, windowed_field
from headrace.worker.operators.tables import last_per_key
from headrace.worker.rows import Rows

_HEAD_BYTES = 2 * TIME_BYTES
_TIMES = Struct(">qq")  # of a windowed key: start and end


def timer_owner(database: str) -> str:
    """Under which name a suppression sets its timers: by its store's database, with what no operator's name has before it."""
    return f"~{database}"


class SuppressOperator(GatheringOperator):
    """Of a windowed table: the last value of each window, when it closes. A window whose value was deleted gives nothing."""

    node: t.Suppress

    def __init__(self, node: t.Suppress, context: Context) -> None:
        super().__init__(node, context)
        self._owner = timer_owner(node.store.kept_in)

    def push(self, rows: Rows) -> None:
        rows = self.encoded(rows)
        if len(rows):
            self.held.append(last_per_key(rows))

    def finish(self) -> None:
        if not self.held:
            return
        rows = last_per_key(Rows.concat(self.release()))
        windows = [window_of(raw) for raw in rows.key.bytes()[0].to_pylist()]
        layouts = [state_key(key, time_bytes(start)) for key, start, _ in windows]
        values, times = rows.value.bytes()[0].to_pylist(), rows.timestamp_us.tolist()
        known = dict(zip(layouts, self.database.get_many(layouts), strict=True))
        for window, layout, value, time in zip(windows, layouts, values, times, strict=True):
            known[layout] = self._pending(window, layout, known[layout], value, time)

    def _pending(
        self, window: tuple[bytes, int, int], layout: bytes, before: bytes | None, value: bytes | None, time_us: int
    ) -> bytes | None:
        """Keep a window's new value, or forget it where there is none any more; gives what is stored then."""
        key, start, end = window
        is_same = before is not None and time_from(before[:TIME_BYTES]) == end
        if value is None:
            if not is_same:  # a session that began as this one does, and has been joined since
                return before
            self.database.delete(layout)
            self.context.timers.delete(self._owner, key, str(start), "event")
            return None
        stored = time_bytes(end) + time_bytes(time_us) + value
        self.database.put(layout, stored)
        if not is_same:
            self._close_later(key, start, end)
        return stored

    def _close_later(self, key: bytes, start: int, end: int) -> None:
        self.context.timers.set(self._owner, key, str(start), "event", self.node.windows.closes_us(end))

    def fire(self, due: list[Due], until_us: Mapping[str, int]) -> tuple[str, int]:
        """Give the results of the windows that have closed, by their ends and keys; the number of these."""
        watermark_us = self.context.watermark_us
        assert watermark_us is not None, "an event timer is due by the watermark"
        closed: list[tuple[int, bytes, int, bytes]] = []  # end, key, start, what is stored
        for _, key, name, _ in due:
            layout = state_key(key, time_bytes(int(name)))
            stored = self.database.get(layout)
            if stored is None:
                continue
            end = time_from(stored[:TIME_BYTES])
            if self.node.windows.closes_us(end) > watermark_us:  # an edit has made the grace longer
                self._close_later(key, int(name), end)
                continue
            self.database.delete(layout)
            closed.append((end, key, int(name), stored))
        if closed:
            self.context.times_us["closed"] = watermark_us
            self.forward(self._results(sorted(closed)))
        return "windows_closed", len(closed)

    def _results(self, closed: list[tuple[int, bytes, int, bytes]]) -> Rows:
        keys = windowed_field(self.node.key, [(key, start, end) for end, key, start, _ in closed])
        values = binary_field(self.node.value, [stored[_HEAD_BYTES:] for *_, stored in closed])
        times = np.array([time_from(stored[TIME_BYTES:_HEAD_BYTES]) for *_, stored in closed], np.int64)
        return rows_of_timers(times, keys, values)


def window_of(raw: bytes) -> tuple[bytes, int, int]:
    """Key, start and end of the bytes of a windowed key (`serdes.windowed`)."""
    start, end = _TIMES.unpack(raw[-_TIMES.size :])
    return raw[: -_TIMES.size], start, end
