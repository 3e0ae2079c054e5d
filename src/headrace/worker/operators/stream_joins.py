"""The join of two streams: both are kept for a while, and each record meets those of the other side near to it in time.

A left record's window ends `after` it, a right one's `before` after it, that time included. It closes once the watermark,
as it was before the round, is more than `kept_us` past the end (`t.Join.open_us`): from then on nothing is joined with the
record, and a record whose own window has closed is late. With a left or outer join a record without a match gives a result
of its own when its window closes, found by a timer of its key; the records of a side for which there is no such result
expire. So the pairs do not depend on where rounds are cut, but for lateness and the time of results without a match. Such a
record gives that result at once if its key is null. One without a value is dropped.

An entry lies under its key, time and origin; its value has one byte before it: whether it was matched, whether it is null."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from headrace.core.keys.key_layout import SUB_BYTES_MAX, TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.model import topology as t
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.base import Context, Due, Operator, binary_field, rows_of_timers
from headrace.worker.operators.expiry import expire
from headrace.worker.operators.joins import JoinOperator
from headrace.worker.rows import Field, Rows

_LEFT, _RIGHT = 0, 1
_MATCHED, _NULL = 1, 2  # bits of the byte before a value
_TIMER = "window"
_PAIRS_MAX = 50_000  # joined at once: of what lies together in time there may be many
_EMITTING = {t.JoinKind.INNER: (), t.JoinKind.LEFT: (_LEFT,), t.JoinKind.OUTER: (_LEFT, _RIGHT)}


@dataclass(slots=True, eq=False)
class _Entry:
    """A record that waits for others, one of its key and side."""

    sub: bytes
    time_us: int
    value: bytes | None
    is_matched: bool
    is_changed: bool

    @classmethod
    def of(cls, layout: bytes, data: bytes) -> _Entry:
        sub = split_state_key(layout)[1]
        value = None if data[0] & _NULL else data[1:]
        return cls(sub, time_from(sub[:TIME_BYTES]), value, bool(data[0] & _MATCHED), False)

    def stored(self) -> bytes:
        flags = (_MATCHED if self.is_matched else 0) | (_NULL if self.value is None else 0)
        return bytes([flags]) + (self.value or b"")


class _Waiting:
    """The entries of one key and side that this round looks at, in order of time."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self._subs: list[bytes] = []

    def add(self, entry: _Entry) -> None:
        at = bisect_left(self._subs, entry.sub)
        self._subs.insert(at, entry.sub)
        self.entries.insert(at, entry)

    def near(self, time_us: int, reach_us: tuple[int, int]) -> list[_Entry]:
        """Those so far before and after a time."""
        first = bisect_left(self._subs, time_bytes(time_us - reach_us[0]))
        return self.entries[first : bisect_left(self._subs, time_bytes(time_us + reach_us[1] + 1))]


class _Inlet(Operator):
    """Takes the rows of one side of a join, or of both where a stream is joined with itself."""

    def __init__(self, join: StreamStreamJoin, sides: Sequence[int]) -> None:
        super().__init__(join.node, join.context)
        self._join, self._sides = join, sides

    def push(self, rows: Rows) -> None:
        self._join.hold(self._sides, rows)


class StreamStreamJoin(JoinOperator):
    def __init__(self, node: t.Join, context: Context) -> None:
        super().__init__(node, context)
        self._owner = context.program.timer_owner_of(node.name)
        self._held: list[list[Rows]] = [[], []]
        self._open_us = node.open_us  # of each side
        self._reach_us = (node.before_us, node.after_us), (node.after_us, node.before_us)  # from a record of each side
        self._pairs: list[tuple[int, bytes | None, bytes | None, int]] = []  # row, left, right, time

    def inlet(self, parent: str, operator: Operator) -> Operator | None:
        return _Inlet(self, [side for side in (_LEFT, _RIGHT) if self.node.parents[side] == parent])

    def hold(self, sides: Sequence[int], rows: Rows) -> None:
        rows = self.valued(self.encoded(rows))
        if rows.key.is_null().any():
            rows = self._without_keys(sides, rows)
        watermark = self.context.watermark_us
        in_time = dict.fromkeys(sides, rows)
        if watermark is not None and len(rows):
            too_late = rows.timestamp_us + max(self._open_us[side] for side in sides) <= watermark
            if too_late.any():
                self.late(rows, np.flatnonzero(too_late))
            for side in sides:
                is_open = rows.timestamp_us + self._open_us[side] > watermark
                in_time[side] = rows if is_open.all() else rows.where(is_open)
        for side, mine in in_time.items():
            if len(mine):
                key, value = Field(mine.key.serde, raw=mine.key.bytes()[0]), Field(None, raw=mine.value.bytes()[0])
                self._held[side].append(replace(mine, key=key, value=value, headers=None))

    def _without_keys(self, sides: Sequence[int], rows: Rows) -> Rows:
        """Give what records without a key give alone; the other ones."""
        null = rows.key.is_null()
        alone, emitting = rows.where(null), [side for side in sides if side in _EMITTING[self.node.kind]]
        if not emitting:
            self.context.count("null_keys_dropped", len(alone))
        else:  # of a stream that is joined with itself each gives one for both sides
            places = [(at, side) for at in range(len(alone)) for side in emitting]
            values = alone.value.bytes()[0].to_pylist()
            left, right = ([values[at] if own == side else None for at, own in places] for side in (_LEFT, _RIGHT))
            self._give(replace(alone.take(np.array([at for at, _ in places])), headers=None), left, right)
        return rows.where(~null)

    def finish(self) -> None:
        batches = [(side, rows) for side in (_LEFT, _RIGHT) for rows in self._held[side]]
        if not batches:
            return
        self._held = [[], []]
        every = Rows.concat([rows for _, rows in batches])
        side_of = np.concatenate([np.full(len(rows), side) for side, rows in batches])
        order = np.lexsort((side_of, every.rank))
        every, sides = every.take(order), side_of[order].tolist()
        keys, times = every.key.bytes()[0].to_pylist(), every.timestamp_us.tolist()
        values, subs = every.value.bytes()[0].to_pylist(), self._subs_of(every, sides)
        waiting = self._loaded(keys, sides, times)
        for row, (key, side, time_us) in enumerate(zip(keys, sides, times, strict=True)):
            found = waiting[key, 1 - side].near(time_us, self._reach_us[side])
            for match in found:
                pair = (values[row], match.value) if side == _LEFT else (match.value, values[row])
                self._pairs.append((row, *pair, max(time_us, match.time_us)))
                match.is_changed |= not match.is_matched
                match.is_matched = True
            if len(self._pairs) >= _PAIRS_MAX:
                self._join_pairs(every)
            waiting[key, side].add(_Entry(subs[row], time_us, values[row], bool(found), True))
        self._join_pairs(every)
        self._store(waiting)
        self._wake(keys, sides, times)

    def _subs_of(self, rows: Rows, sides: list[int]) -> list[bytes]:
        """Time and origin of each record: the same wherever rounds are cut, and no two alike. What comes of a timer has no
        origin; it is identified by the round, and what comes of one record by its number."""
        origins = [
            xxhash.xxh64_digest(stream.encode()) + partition.to_bytes(4, "big") for stream, partition in self.context.streams
        ]
        no_origin = xxhash.xxh64_digest(self.context.plan.round_id.encode()) + bytes(4)
        seen: dict[tuple[int, bytes], int] = {}
        subs = []
        places = zip(sides, rows.timestamp_us.tolist(), rows.ssp.tolist(), rows.offset.tolist(), strict=True)
        for side, time_us, ssp, offset in places:
            sub = time_bytes(time_us) + (origins[ssp] if offset >= 0 else no_origin) + max(offset, 0).to_bytes(8, "big")
            number = seen.get((side, sub), 0)
            seen[side, sub] = number + 1
            subs.append(sub + number.to_bytes(4, "big"))
        return subs

    def _loaded(self, keys: list[bytes], sides: list[int], times: list[int]) -> dict[tuple[bytes, int], _Waiting]:
        """Per key and side what is kept near the records of the other side."""
        spans: dict[tuple[bytes, int], tuple[int, int]] = {}
        waiting: dict[tuple[bytes, int], _Waiting] = {}
        for key, side, time_us in zip(keys, sides, times, strict=True):
            first, last = spans.get((key, 1 - side), (time_us, time_us))
            spans[key, 1 - side] = min(first, time_us), max(last, time_us)
            waiting.setdefault((key, side), _Waiting())
        for (key, side), (first, last) in spans.items():
            found = waiting.setdefault((key, side), _Waiting())
            before_us, after_us = self._reach_us[1 - side]
            low = state_key(key, time_bytes(first - before_us))
            high = state_key(key, time_bytes(last + after_us + 1))
            for layout, data in self._database(side).scan(low, high):
                found.add(_Entry.of(layout, data))
        return waiting

    def _store(self, waiting: dict[tuple[bytes, int], _Waiting]) -> None:
        emitting = _EMITTING[self.node.kind]
        for side in (_LEFT, _RIGHT):
            changed = [
                (key, entry)
                for (key, own), found in waiting.items()
                if own == side
                for entry in found.entries
                if entry.is_changed
            ]
            layouts = state_keys([key for key, _ in changed], [entry.sub for _, entry in changed]) if changed else []
            if side in emitting:
                written = list(zip(layouts, changed, strict=True))
            else:  # whether these were matched does not matter: they are stored once
                stored = self._database(side).get_many(layouts)
                written = [pair for pair, data in zip(zip(layouts, changed, strict=True), stored, strict=True) if data is None]
                expiring = [(key, layout, entry.time_us + self._open_us[side]) for layout, (key, entry) in written]
                expire(self.context, self.node.stores[side].kept_in, expiring)
            self._database(side).put_many([each for each, _ in written], [entry.stored() for _, (_, entry) in written])

    def _database(self, side: int) -> Any:
        return self.context.database(self.node.stores[side].kept_in)

    def _join_pairs(self, every: Rows) -> None:
        if not self._pairs:
            return
        numbers, left, right, times = zip(*self._pairs, strict=True)
        self._pairs = []
        rows = replace(every.take(np.array(numbers, np.int64)), timestamp_us=np.array(times, np.int64))
        self._give(rows, left, right)

    def _give(self, rows: Rows, left: Sequence[bytes | None], right: Sequence[bytes | None]) -> None:
        of_left, of_right = self.node.stores
        self.forward(self.results(rows, binary_field(of_left.value, left), binary_field(of_right.value, right)))

    def _wake(self, keys: list[bytes], sides: list[int], times: list[int]) -> None:
        """Set the timer of each key that has new entries which give a result when their windows close."""
        earliest: dict[bytes, int] = {}
        for key, side, time_us in zip(keys, sides, times, strict=True):
            if side in _EMITTING[self.node.kind]:
                closes_us = time_us + self._open_us[side]
                earliest[key] = min(closes_us, earliest.get(key, closes_us))
        timers = self.context.timers
        for key, closes_us in earliest.items():
            known = timers.at(self._owner, key, _TIMER, "event")
            if known is None or known > closes_us:
                timers.set(self._owner, key, _TIMER, "event", closes_us)

    def fire(self, due: list[Due], until_us: Mapping[str, int]) -> tuple[str, int]:
        """Of each key that is due take out what has closed, and give what has no match; how many entries had closed."""
        closed = 0
        watermark = self.context.watermark_us
        assert watermark is not None, "an event timer is due by the watermark"
        unmatched: list[tuple[int, bytes, int, bytes, bytes | None]] = []
        for _, key, _, _ in due:
            open_from = [state_key(key, time_bytes(watermark - open_us + 1)) for open_us in self._open_us]
            for side in (_LEFT, _RIGHT):
                for layout, data in list(self._database(side).scan(state_key(key), open_from[side])):
                    entry = _Entry.of(layout, data)
                    self._database(side).delete(layout)
                    closed += 1
                    if side in _EMITTING[self.node.kind] and not entry.is_matched:
                        unmatched.append((entry.time_us, key, side, entry.sub, entry.value))
            ahead = [(self._first(side, open_from[side], key), self._open_us[side]) for side in _EMITTING[self.node.kind]]
            known = [time_us + open_us for time_us, open_us in ahead if time_us is not None]
            if known:
                self.context.timers.set(self._owner, key, _TIMER, "event", min(known))
        if unmatched:
            self._give_unmatched(sorted(unmatched, key=lambda entry: entry[:4]))
        return "join_windows_closed", closed

    def _first(self, side: int, low: bytes, key: bytes) -> int | None:
        """The time of the first entry of a key from `low` on."""
        found = islice(self._database(side).scan(low, state_key(key, b"\xff" * SUB_BYTES_MAX)), 1)
        return next((_Entry.of(layout, data).time_us for layout, data in found), None)

    def _give_unmatched(self, unmatched: list[tuple[int, bytes, int, bytes, bytes | None]]) -> None:
        key = binary_field(self.context.program.key_serdes[self.node.name], [key for _, key, *_ in unmatched])
        nothing = Field(None, raw=pa.nulls(len(unmatched), pa.binary()))
        rows = rows_of_timers(np.array([time_us for time_us, *_ in unmatched], np.int64), key, nothing)
        left, right = ([value if own == side else None for _, _, own, _, value in unmatched] for side in (_LEFT, _RIGHT))
        self._give(rows, left, right)
