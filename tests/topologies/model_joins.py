"""Joins of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import xxhash

from topologies import functions as f
from topologies.model_tables import RETENTION_US, Table, VersionedTable, last_per_key
from topologies.operators import Operator, Row
from topologies.spec import Node


def _first_two(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return given[:2]


class StreamTable(Operator):
    """Each record with what the table had at the record's place."""

    def __init__(
        self,
        number: float,
        kind: str,
        table: Table,
        of_key: Callable[[Row], Any] | None = None,
    ) -> None:
        super().__init__(number)
        self._kind, self._table, self._of_key = kind, table, of_key
        self._held: list[Row] = []

    def push(self, row: Row, port: int) -> None:
        self._held.append(row)

    def finish(self) -> None:
        held, self._held = self._held, []
        for row in sorted(held, key=lambda row: row.rank):
            if row.value is None:
                continue
            key = row.key if self._of_key is None else self._of_key(row)
            if key is None and self._kind == "inner":
                continue
            self.join(row, key)

    def join(self, row: Row, key: Any) -> None:
        right = None if key is None else self._table.seen_by(key, row.rank, row.time_us)
        if right is not None or self._kind == "left":
            self.emit(replace(row, value=f.joined(row.value, right)))


class WaitingTable(StreamTable):
    """Each record with what the table had at the record's time, once the watermark is the grace past that."""

    def __init__(self, number: float, node: Node, table: VersionedTable) -> None:
        super().__init__(number, node["kind"], table)
        self._grace_us = node["grace_us"]
        self._waiting: list[tuple[tuple[Any, ...], Row]] = []

    def finish(self) -> None:
        held, self._held = self._held, []
        seen: dict[Any, int] = {}
        for row in sorted((row for row in held if row.value is not None), key=lambda row: row.rank):
            if row.key is None or self._is_over(row):
                if row.key is not None or self._kind == "left":
                    self.join(row, row.key)
                continue
            sub = origin_of(row, self.round_id)
            number = seen[sub] = seen.get(sub, -1) + 1
            self._waiting.append(((row.time_us, row.key, *sub, number), row))

    def _is_over(self, row: Row) -> bool:
        return self.watermark_us is not None and row.time_us + self._grace_us < self.watermark_us

    def due(self) -> int | None:
        return min((row.time_us + self._grace_us + 1 for _, row in self._waiting), default=None)

    def close(self) -> bool:
        over = sorted((each for each in self._waiting if self._is_over(each[1])), key=lambda each: each[0])
        self._waiting = [each for each in self._waiting if not self._is_over(each[1])]
        for _, row in over:
            self.join(replace(row, rank=-1, origin=None), row.key)
        return bool(over)


class TableTable(Operator):
    """Once per round the joined value of each key that has changed. `each`: after every update of either side."""

    def __init__(self, number: float, kind: str, left: Table, right: Table) -> None:
        super().__init__(number)
        self.each = False
        self.passing: frozenset[Any] = frozenset()
        self.tables = left, right
        self._kind = kind

    def finish(self) -> None:
        tables = list(dict.fromkeys(self.tables))
        changed = sorted(((row.rank, at, row) for at, table in enumerate(tables) for row in table.updates), key=_first_two)
        standing = {row.key: [table.before(row.key) for table in self.tables] for _, _, row in changed}
        times = {row.key: [table.time_before(row.key) for table in self.tables] for _, _, row in changed}
        before = {key: self._result(*values) for key, values in standing.items()}
        result, updates, latest = dict(before), [], dict[Any, int]()
        for _, at, row in changed:
            for place in (0, 1):
                if self.tables[place] is tables[at]:
                    standing[row.key][place] = row.value
                    times[row.key][place] = None if row.value is None else row.time_us
            had, result[row.key] = result[row.key], self._result(*standing[row.key])
            latest[row.key] = max([row.time_us, *(time_us for time_us in times[row.key] if time_us is not None)])
            if had is not None or result[row.key] is not None:
                updates.append(replace(row, value=result[row.key], time_us=latest[row.key]))
        self.passing = frozenset(key for key in before if before[key] is None and result[key] is None)
        if not self.each:
            last = last_per_key(row for _, _, row in changed)
            last = [row for row in last if row.key not in self.passing]
            updates = [replace(row, value=result[row.key], time_us=latest[row.key]) for row in last]
        for row in updates:
            self.emit(row)

    def _result(self, left: Any, right: Any) -> Any:
        needed = {"inner": left is not None and right is not None, "left": left is not None}
        return f.joined(left, right) if needed.get(self._kind, left is not None or right is not None) else None


@dataclass
class _Entry:
    sub: tuple[Any, ...]
    row: Row
    is_matched: bool


class StreamStream(Operator):
    """Pairs of records of one key that are near in time, and those that met nobody until their windows closed."""

    def __init__(self, number: float, node: Node) -> None:
        super().__init__(number)
        kept_us = RETENTION_US if node["grace_us"] is None else node["grace_us"]
        self._before_us = node["within_us"]  # of a right record to a left one, and the other way
        self._after_us = node["within_us"] if node["after_us"] is None else node["after_us"]
        self._open_us = self._after_us + kept_us + 1, self._before_us + kept_us + 1
        self._lasting = {"inner": (), "left": (0,), "outer": (0, 1)}[node["kind"]]
        self._entries: tuple[list[_Entry], list[_Entry]] = ([], [])
        self._held: list[tuple[int, int, Row]] = []
        self._alone: list[Row] = []

    def _is_closed(self, side: int, time_us: int) -> bool:
        return self.watermark_us is not None and time_us + self._open_us[side] <= self.watermark_us

    def _is_near(self, side: int, time_us: int, other_us: int) -> bool:
        left_us, right_us = (time_us, other_us) if side == 0 else (other_us, time_us)
        return left_us - self._before_us <= right_us <= left_us + self._after_us

    def begin(self) -> None:
        for side in {0, 1}.difference(self._lasting):
            self._entries[side][:] = [entry for entry in self._entries[side] if not self._is_closed(side, entry.row.time_us)]

    def due(self) -> int | None:
        times = [entry.row.time_us + self._open_us[side] for side in self._lasting for entry in self._entries[side]]
        return min(times, default=None)

    def close(self) -> bool:
        lonely = []
        for side in self._lasting:
            closed = [entry for entry in self._entries[side] if self._is_closed(side, entry.row.time_us)]
            self._entries[side][:] = [entry for entry in self._entries[side] if entry not in closed]
            lonely += [(e.row.time_us, e.row.key, side, e.sub, e.row) for e in closed if not e.is_matched]
        for _, _, side, _, row in sorted(lonely, key=lambda each: each[:4]):
            value = f.joined(row.value, None) if side == 0 else f.joined(None, row.value)
            self.emit(replace(row, rank=-1, value=value, origin=None))
        return bool(lonely)

    def push(self, row: Row, port: int) -> None:
        if row.value is None:
            return
        if row.key is None:
            if port in self._lasting:
                self._alone.append(replace(row, value=f.joined(*((row.value, None) if port == 0 else (None, row.value)))))
        elif not self._is_closed(port, row.time_us):
            self._held.append((row.rank, port, row))

    def record_done(self) -> None:
        alone, self._alone = self._alone, []
        for row in sorted(alone, key=lambda row: row.rank):
            self.emit(row)

    def finish(self) -> None:
        self.record_done()
        # each side in the order in which it came
        held = sorted(sorted(self._held, key=lambda each: each[1]), key=_first_two)
        self._held = []
        seen: dict[Any, int] = {}
        for _, side, row in held:
            sub = origin_of(row, self.round_id)
            number = seen[side, sub] = seen.get((side, sub), -1) + 1
            near = [
                entry
                for entry in self._entries[1 - side]
                if entry.row.key == row.key and self._is_near(side, row.time_us, entry.row.time_us)
            ]
            for entry in sorted(near, key=lambda entry: entry.sub):
                entry.is_matched = True
                pair = (row.value, entry.row.value) if side == 0 else (entry.row.value, row.value)
                self.emit(replace(row, value=f.joined(*pair), time_us=max(row.time_us, entry.row.time_us)))
            self._entries[side].append(_Entry((*sub, number), row, bool(near)))


def origin_of(row: Row, round_id: str) -> tuple[Any, ...]:
    """By what records of one key are put in order: time, and where they come from, by Headrace's hash of it."""
    if row.origin is None:
        return row.time_us, xxhash.xxh64_digest(round_id.encode()), 0, 0
    origin = row.origin
    return row.time_us, xxhash.xxh64_digest(origin.stream.encode()), origin.partition, origin.offset
