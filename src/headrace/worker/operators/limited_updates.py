"""`suppress(hr.until_time_limit(...))`: of each key at most one update in a length of event time, the newest one.

A key's update waits until the task's watermark, as it was before the round, is the limit past it; those that come meanwhile
take its place. So a value is at most the limit behind, and what waits is one value for a key, in the store. An event timer for
each key that waits makes a round run for it. Store: key, of windows key | start and end -> time of the update, 8 bytes, 1 and
its value, or 0 for a deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headrace.core.keys.key_layout import TIME_BYTES, state_key, time_bytes, time_from
from headrace.model.table_operators import LimitUpdates
from headrace.serdes.windowed import TIMES_BYTES
from headrace.worker.operators.base import Context, Due, GatheringOperator, binary_field, rows_of_timers
from headrace.worker.operators.suppress import timer_owner
from headrace.worker.operators.tables import last_per_key
from headrace.worker.rows import Rows

_VALUE, _DELETION = b"\1", b"\0"


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
        rows = Rows.concat(self.release())
        firsts = dict(zip(reversed(rows.key.bytes()[0].to_pylist()), reversed(rows.timestamp_us.tolist()), strict=True))
        last = last_per_key(rows)
        keys = last.key.bytes()[0].to_pylist()
        parts = [self._parts(key) for key in keys]
        layouts = [state_key(*each) for each in parts]
        updates = zip(keys, parts, layouts, last.value.bytes()[0].to_pylist(), last.timestamp_us.tolist(), strict=True)
        for (key, (routed, sub), layout, value, time_us), waiting in zip(updates, self.database.get_many(layouts), strict=True):
            self.database.put(layout, time_bytes(time_us) + (_DELETION if value is None else _VALUE + value))
            if waiting is None:
                self.context.timers.set(self._owner, routed, sub.hex(), "event", firsts[key] + self.node.limit_us)

    def _parts(self, key: bytes) -> tuple[bytes, bytes]:
        """The key that the task has read records by, and what tells its entries apart."""
        return (key[:-TIMES_BYTES], key[-TIMES_BYTES:]) if self.node.by_inner_key else (key, b"")

    def fire(self, due: list[Due], until_us: Mapping[str, int]) -> tuple[str, int]:
        """Give what has waited long enough, by time and key; the number of these."""
        given: list[tuple[int, bytes, bytes]] = []  # when it was due, its key, what is stored
        for at_us, routed, name, _ in due:
            sub = bytes.fromhex(name)
            layout = state_key(routed, sub)
            stored = self.database.get(layout)
            if stored is not None:
                self.database.delete(layout)
                given.append((at_us, routed + sub, stored))
        if given:
            self.forward(self._rows(sorted(given)))
        return "updates_released", len(given)

    def _rows(self, given: Sequence[tuple[int, bytes, bytes]]) -> Rows:
        keys = binary_field(self.node.key, [key for _, key, _ in given])
        values = [stored[TIME_BYTES + 1 :] if stored[TIME_BYTES:][:1] == _VALUE else None for *_, stored in given]
        times = np.array([time_from(stored[:TIME_BYTES]) for *_, stored in given], np.int64)
        return rows_of_timers(times, keys, binary_field(self.node.value, values))
