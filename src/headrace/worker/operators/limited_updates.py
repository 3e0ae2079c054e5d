"""`suppress(hr.until_time_limit(...))`: of each key at most one update in a length of event time, the newest one.

A key's update waits until time is the limit past it; those that come meanwhile take its place. Time is that of the key's own
updates, one after the other, so that a round that reads much gives what many rounds would; and the task's watermark, as it was
before the round, so that what waits is given though no update follows. An event timer for each key that waits makes a round run
for it. Store: key, of windows key | start and end -> time of the update, 8 bytes, 1 and
its value, or 0 for a deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from headrace.core.keys.key_layout import TIME_BYTES, state_key, time_bytes, time_from
from headrace.model.table_operators import LimitUpdates
from headrace.serdes.windowed import TIMES_BYTES
from headrace.worker.operators.base import Context, Due, GatheringOperator, binary_field, rows_of_timers
from headrace.worker.operators.stateless import merged_by_rank
from headrace.worker.operators.suppress import timer_owner
from headrace.worker.rows import Rows

_VALUE, _DELETION = b"\1", b"\0"


class _Waiting(NamedTuple):
    """The newest update of a key, and when it is given; None for a deletion."""

    due_us: int
    time_us: int
    value: bytes | None


class LimitUpdatesOperator(GatheringOperator):
    node: LimitUpdates

    def __init__(self, node: LimitUpdates, context: Context) -> None:
        super().__init__(node, context)
        self._owner = timer_owner(node.store.kept_in)

    def push(self, rows: Rows) -> None:
        rows = self.keyed(self.encoded(rows))
        if len(rows):
            self.held.append(rows)

    def finish(self) -> None:
        if not self.held:
            return
        rows = merged_by_rank(self.release())
        keys, times, ranks = rows.key.bytes()[0].to_pylist(), rows.timestamp_us.tolist(), rows.rank.tolist()
        known = self._known(list(dict.fromkeys(keys)))
        waiting, given = dict(known), list[tuple[bytes, int, bytes | None]]()
        at_ranks: list[int] = []
        for key, value, time_us, rank in zip(keys, rows.value.bytes()[0].to_pylist(), times, ranks, strict=True):
            before = waiting[key]
            due_us = time_us + self.node.limit_us if before is None else before.due_us
            waiting[key] = None if due_us <= self._now_us(time_us) else _Waiting(due_us, time_us, value)
            if waiting[key] is None:
                given.append((key, time_us, value))
                at_ranks.append(rank)
        self._keep(known, waiting)
        if given:
            released = self._rows(given)
            released.rank = np.array(at_ranks, np.int64)
            self.context.count("updates_released", len(given))
            self.forward(released)

    def _now_us(self, time_us: int) -> int:
        watermark_us = self.context.watermark_us
        return time_us if watermark_us is None else max(time_us, watermark_us)

    def _known(self, keys: Sequence[bytes]) -> dict[bytes, _Waiting | None]:
        """What waits of each key."""
        parts, found = [self._parts(key) for key in keys], dict[bytes, _Waiting | None]()
        for key, (routed, sub), stored in zip(keys, parts, self._stored(parts), strict=True):
            found[key] = None
            if stored is not None:
                due_us = self.context.timers.at(self._owner, routed, sub.hex(), "event")
                assert due_us is not None, "what waits has a timer"
                found[key] = _Waiting(due_us, time_from(stored[:TIME_BYTES]), _value_of(stored))
        return found

    def _stored(self, parts: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        found: list[bytes | None] = self.database.get_many([state_key(*each) for each in parts])
        return found

    def _keep(self, known: Mapping[bytes, _Waiting | None], waiting: Mapping[bytes, _Waiting | None]) -> None:
        """Store what waits now; `known` waited before."""
        timers = self.context.timers
        for key, now in waiting.items():
            (routed, sub), before = self._parts(key), known[key]
            if now is not None:
                self.database.put(state_key(routed, sub), time_bytes(now.time_us) + _stored_value(now.value))
                if before is None or before.due_us != now.due_us:
                    timers.set(self._owner, routed, sub.hex(), "event", now.due_us)
            elif before is not None:
                self.database.delete(state_key(routed, sub))
                timers.delete(self._owner, routed, sub.hex(), "event")

    def _parts(self, key: bytes) -> tuple[bytes, bytes]:
        """The key that the task has read records by, and what tells its entries apart."""
        return (key[:-TIMES_BYTES], key[-TIMES_BYTES:]) if self.node.by_inner_key else (key, b"")

    def fire(self, due: list[Due], until_us: Mapping[str, int]) -> tuple[str, int]:
        """Give what has waited long enough, by time and key; the number of these."""
        parts = [(routed, bytes.fromhex(sub)) for _, routed, sub, _ in sorted(due, key=itemgetter(0, 1, 2))]
        given: list[tuple[bytes, int, bytes | None]] = []
        for (routed, sub), stored in zip(parts, self._stored(parts), strict=True):
            if stored is not None:
                self.database.delete(state_key(routed, sub))
                given.append((routed + sub, time_from(stored[:TIME_BYTES]), _value_of(stored)))
        if given:
            self.forward(self._rows(given))
        return "updates_released", len(given)

    def _rows(self, given: Sequence[tuple[bytes, int, bytes | None]]) -> Rows:
        keys = binary_field(self.node.key, [key for key, *_ in given])
        values = binary_field(self.node.value, [value for *_, value in given])
        return rows_of_timers(np.array([time_us for _, time_us, _ in given], np.int64), keys, values)


def _stored_value(value: bytes | None) -> bytes:
    return _DELETION if value is None else _VALUE + value


def _value_of(stored: bytes) -> bytes | None:
    return stored[TIME_BYTES + 1 :] if stored[TIME_BYTES : TIME_BYTES + 1] == _VALUE else None
