"""Sliding windows of the model: each has all of its rows, in the order in which they came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from topologies.model_tables import after, closes_us, has_no_value, last_per_key
from topologies.operators import Operator, Row
from topologies.spec import Node

Windows = dict[int, list[Row]]  # of a key: the rows of each, by its start


class Sliding(Operator):
    """A row comes into every window that it is in. It makes those that end with it and begin behind it, and the one behind the
    row before it: of the rows of the window before, and of those of the last one that it is in."""

    passing: frozenset[Any] = frozenset()

    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        self._how, self._windows, self.each = node["how"], node["windows"], False
        self._length_us = node["windows"]["size_us"]
        self._keys: dict[Any, Windows] = {}
        self._updates: list[Row] = []

    def begin(self) -> None:
        """What ends two lengths before any row that can still come is not needed any more."""
        for key, windows in self._keys.items():
            self._keys[key] = {at: rows for at, rows in windows.items() if self._is_open(at + 3 * self._length_us + 1)}

    def _is_open(self, end_us: int) -> bool:
        return self.watermark_us is None or closes_us(self._windows, end_us) > self.watermark_us

    def push(self, row: Row, port: int) -> None:
        length_us, time_us = self._length_us, row.time_us
        if has_no_value(self._how, row) or not self._is_open(time_us + length_us):
            return
        was = self._keys.setdefault(row.key, {})
        now = dict(was)
        inside = [at for at in sorted(was) if at <= time_us <= at + length_us]
        before = max((at for at in was if at + length_us < time_us), default=None)
        earlier = [] if before is None else was[before]
        for at in inside:
            now[at] = [*was[at], row]
        own = was.get(time_us - length_us)
        if own is None:
            is_near = earlier and _latest(earlier) >= time_us - length_us
            now[time_us - length_us] = [*(earlier if is_near else []), row]
        elif _latest(own) < time_us:
            earlier = own
        if earlier and time_us - length_us <= _latest(earlier) + 1 <= time_us:
            now.setdefault(_latest(earlier) + 1, [row])
        if inside and _latest(was[inside[-1]]) > time_us:
            now.setdefault(time_us + 1, was[inside[-1]])
        self._keys[row.key] = now
        for at in sorted(now):
            if now[at] is not was.get(at) and self._is_open(at + length_us):
                self._updates.append(self._update(row, at, now[at]))

    def _update(self, row: Row, at: int, rows: list[Row]) -> Row:
        state: Any = None
        for one in rows:
            state = after(self._how, state, one.value)
        return replace(row, key=(row.key, at, at + self._length_us), value=state, time_us=_latest(rows))

    def finish(self) -> None:
        updates, self._updates = self._updates, []
        for row in updates if self.each else last_per_key(updates):
            self.emit(row)


def _latest(rows: list[Row]) -> int:
    return max(row.time_us for row in rows)
