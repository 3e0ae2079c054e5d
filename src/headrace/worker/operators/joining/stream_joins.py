"""The join of two streams: both are kept for a while, and each record meets those of the other side near to it in time.

A left record's window ends `after` it, a right one's `before` after it, that time included. It closes once the watermark,
as it was before the round, is more than `kept_us` past the end (`t.Join.open_us`): from then on nothing is joined with the
record, and a record whose own window has closed is late. With a left or outer join a record without a match gives a result
of its own when its window closes, found by a timer of its key; the records of a side for which there is no such result
expire. So the pairs do not depend on where rounds are cut, but for lateness and the time of results without a match. Such a
record gives that result at once if its key is null. One without a value is dropped.

An entry lies under its key, time and origin; its value has one byte before it: whether it was matched, whether it is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.keys.key_layout import SUB_BYTES_MAX, TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.model import topology as t
from headrace.worker.batch_keys import as_bytes, state_keys, times_from_rows
from headrace.worker.operators.base import Context, Due, Operator, binary_field, rows_of_timers
from headrace.worker.operators.expiry import count_expired, expire, outlasting
from headrace.worker.operators.joining.join_pairs import Entries, pairs_of
from headrace.worker.operators.joining.joins import JoinOperator
from headrace.worker.operators.joining.origins import SUB_BYTES, origin_subs
from headrace.worker.operators.stateless import merged_by_rank
from headrace.worker.rows import Field, Rows

_LEFT, _RIGHT = 0, 1
_MATCHED, _NULL = 1, 2  # bits of the byte before a value
_TIMER = "window"
_PAIRS_MAX = 50_000  # joined at once: of what lies together in time there may be many
_TIME_MAX_US = (1 << 63) - 1
_FLAGS = [bytes([flags]) for flags in range(4)]
_EMITTING = {t.JoinKind.INNER: (), t.JoinKind.LEFT: (_LEFT,), t.JoinKind.OUTER: (_LEFT, _RIGHT)}


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
        self._alone: list[Rows] = []  # the results of records without a key
        self._open_us = node.open_us  # of each side
        self._reach_us = (node.before_us, node.after_us), (node.after_us, node.before_us)  # from a record of each side

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
        """The records that have a key; what the others give alone is given when the batch ends."""
        null = rows.key.is_null()
        alone, emitting = rows.where(null), [side for side in sides if side in _EMITTING[self.node.kind]]
        if not emitting:
            self.context.count("null_keys_dropped", len(alone))
        else:  # of a stream that is joined with itself each gives one for both sides
            places = [(at, side) for at in range(len(alone)) for side in emitting]
            values = alone.value.bytes()[0].to_pylist()
            left, right = ([values[at] if own == side else None for at, own in places] for side in (_LEFT, _RIGHT))
            rows_alone = replace(alone.take(np.array([at for at, _ in places])), headers=None)
            self._alone.append(self._joined(rows_alone, pa.array(left, pa.binary()), pa.array(right, pa.binary())))
        return rows.where(~null)

    def batch_end(self) -> None:
        if self._alone:
            alone, self._alone = self._alone, []
            self.forward(merged_by_rank(alone))

    def finish(self) -> None:
        self.batch_end()
        batches = [(side, rows) for side in (_LEFT, _RIGHT) for rows in self._held[side]]
        if not batches:
            return
        self._held = [[], []]
        every = Rows.concat([rows for _, rows in batches])
        side_of = np.concatenate([np.full(len(rows), side) for side, rows in batches])
        order = np.lexsort((side_of, every.rank))
        every, side_of = every.take(order), side_of[order]
        encoded = every.key.bytes()[0].dictionary_encode()
        keys, key_of = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
        kept = self._kept_near(keys, key_of, side_of, every.timestamp_us)
        entries = kept.with_new(side_of, key_of, every.timestamp_us, origin_subs(self.context, every, side_of))
        values = pa.concat_arrays([kept.values(), every.value.bytes()[0]])
        is_matched = np.concatenate([kept.is_matched, np.zeros(len(every), bool)])
        for later, met in pairs_of(entries, self._reach_us, _PAIRS_MAX):
            is_matched[later] = is_matched[met] = True
            self._join_pairs(every, entries, values, later, met)
        self._store(keys, entries, values, is_matched, kept.is_matched)
        self._wake(keys, key_of, side_of, every.timestamp_us)

    def _kept_near(self, keys: Sequence[bytes], key_of: Any, side_of: Any, times: Any) -> _Kept:
        """What is kept near the records of the other side, by key."""
        kept = _Kept()
        for side in (_LEFT, _RIGHT):
            others = np.flatnonzero(side_of == 1 - side)
            first = np.full(len(keys), _TIME_MAX_US)
            last = np.full(len(keys), -_TIME_MAX_US)
            np.minimum.at(first, key_of[others], times[others])
            np.maximum.at(last, key_of[others], times[others])
            before_us, after_us = self._reach_us[1 - side]
            database = self._database(side)
            for key in np.unique(key_of[others]).tolist():
                low = state_key(keys[key], time_bytes(int(first[key]) - before_us))
                high = state_key(keys[key], time_bytes(int(last[key]) + after_us + 1))
                for layout, data in database.scan(low, high):
                    kept.add(side, key, layout[-SUB_BYTES:], data)
        return kept

    def _join_pairs(self, every: Rows, entries: Entries, values: Any, later: Any, met: Any) -> None:
        is_left = entries.side[later] == _LEFT
        left, right = np.where(is_left, later, met), np.where(is_left, met, later)
        rows = every.take(later - entries.kept)
        times = np.maximum(entries.time_us[later], entries.time_us[met])
        self._give(replace(rows, timestamp_us=times), values.take(pa.array(left)), values.take(pa.array(right)))

    def _store(self, keys: Sequence[bytes], entries: Entries, values: Any, is_matched: Any, was_matched: Any) -> None:
        is_new = np.arange(len(is_matched)) >= entries.kept
        is_changed = is_new.copy()
        is_changed[: entries.kept] = is_matched[: entries.kept] & ~was_matched
        for side in (_LEFT, _RIGHT):
            emits = side in _EMITTING[self.node.kind]
            # whether those of a side that does not emit were matched does not matter: they are stored once
            mine = np.flatnonzero((entries.side == side) & (is_changed if emits else is_new))
            if not emits:
                every, mine = mine, mine[outlasting(self.context, entries.time_us[mine] + self._open_us[side])]
                count_expired(self.context, len(every) - len(mine))
            if not len(mine):
                continue
            wanted = values.take(pa.array(mine))
            nulls = wanted.is_null().to_numpy(zero_copy_only=False)
            flags = (np.where(is_matched[mine], _MATCHED, 0) | np.where(nulls, _NULL, 0)).tolist()
            stored = [_FLAGS[flag] + (value or b"") for flag, value in zip(flags, wanted.to_pylist(), strict=True)]
            own_keys = [keys[key] for key in entries.key[mine].tolist()]
            layouts = state_keys(own_keys, as_bytes(entries.sub[mine].view(np.uint8).reshape(-1, SUB_BYTES)))
            self._database(side).put_many(layouts, stored)
            if not emits:
                ends = (entries.time_us[mine] + self._open_us[side]).tolist()
                expire(self.context, self.node.stores[side].kept_in, list(zip(own_keys, layouts, ends, strict=True)))

    def _database(self, side: int) -> Any:
        return self.context.database(self.node.stores[side].kept_in)

    def _give(self, rows: Rows, left: Any, right: Any) -> None:
        self.forward(self._joined(rows, left, right))

    def _joined(self, rows: Rows, left: Any, right: Any) -> Rows:
        """What the joiner makes of values, which are binary arrays."""
        of_left, of_right = self.node.stores
        return self.results(rows, Field(of_left.value, raw=left), Field(of_right.value, raw=right))

    def _wake(self, keys: Sequence[bytes], key_of: Any, side_of: Any, times: Any) -> None:
        """Set the timer of each key that has new entries which give a result when their windows close."""
        earliest = np.full(len(keys), _TIME_MAX_US)
        for side in _EMITTING[self.node.kind]:
            mine = np.flatnonzero(side_of == side)
            np.minimum.at(earliest, key_of[mine], times[mine] + self._open_us[side])
        timers = self.context.timers
        for at in np.flatnonzero(earliest < _TIME_MAX_US).tolist():
            key, closes_us = keys[at], int(earliest[at])
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
                    sub = split_state_key(layout)[1]
                    self._database(side).delete(layout)
                    closed += 1
                    if side in _EMITTING[self.node.kind] and not data[0] & _MATCHED:
                        unmatched.append((time_from(sub[:TIME_BYTES]), key, side, sub, _value_of(data)))
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
        return next((time_from(split_state_key(layout)[1][:TIME_BYTES]) for layout, _ in found), None)

    def _give_unmatched(self, unmatched: list[tuple[int, bytes, int, bytes, bytes | None]]) -> None:
        key = binary_field(self.context.program.key_serdes[self.node.name], [key for _, key, *_ in unmatched])
        nothing = Field(None, raw=pa.nulls(len(unmatched), pa.binary()))
        rows = rows_of_timers(np.array([time_us for time_us, *_ in unmatched], np.int64), key, nothing)
        left, right = ([value if own == side else None for _, _, own, _, value in unmatched] for side in (_LEFT, _RIGHT))
        self._give(rows, pa.array(left, pa.binary()), pa.array(right, pa.binary()))


class _Kept:
    """What was kept before the round of the records that it is looked at with."""

    def __init__(self) -> None:
        self._sides, self._keys, self._subs = list[int](), list[int](), list[bytes]()
        self._values: list[bytes | None] = []
        self._matched: list[bool] = []

    def add(self, side: int, key: int, sub: bytes, data: bytes) -> None:
        self._sides.append(side)
        self._keys.append(key)
        self._subs.append(sub)
        self._values.append(_value_of(data))
        self._matched.append(bool(data[0] & _MATCHED))

    @property
    def is_matched(self) -> Any:
        return np.array(self._matched, bool)

    def values(self) -> Any:
        return pa.array(self._values, pa.binary())

    def with_new(self, side_of: Any, key_of: Any, times: Any, subs: Any) -> Entries:
        """These and the round's own."""
        mine = np.frombuffer(b"".join(self._subs), np.uint8).reshape(-1, SUB_BYTES)
        own_times = times_from_rows(mine[:, :TIME_BYTES])
        return Entries(
            np.concatenate([np.array(self._sides, np.int64), side_of]),
            np.concatenate([np.array(self._keys, np.int64), key_of]),
            np.concatenate([own_times, times]),
            np.ascontiguousarray(np.concatenate([mine, subs])).view(f"S{SUB_BYTES}").ravel(),
            len(self._sides),
        )


def _value_of(data: bytes) -> bytes | None:
    return None if data[0] & _NULL else data[1:]
