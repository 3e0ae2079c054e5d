"""Dropping duplicates: of the records with one key (and one value of `by`) that come close to each other, the first. State per
key and `by`: when it expires (8 bytes), and the time of the last record that was let through (a long)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import xxhash

from headrace.core.keys.key_layout import TIME_BYTES, time_bytes, time_from
from headrace.model import topology as t
from headrace.worker.batch_keys import state_keys
from headrace.worker.operators.base import Context, Operator
from headrace.worker.operators.expiry import expire, forget_expiry
from headrace.worker.rows import Rows


class DropDuplicatesOperator(Operator):
    """Lets a record through unless one was let through whose time is less than `within` before or after its own."""

    node: t.DropDuplicates

    def __init__(self, node: t.DropDuplicates, context: Context) -> None:
        super().__init__(node, context)
        assert node.store.value is not None
        self._times = node.store.value
        self._passed: dict[bytes, int | None] = {}  # what this round has read or changed: layout -> time, None without one
        self._changed: dict[bytes, bytes] = {}  # layout -> key

    def push(self, rows: Rows) -> None:
        rows = self.without(rows, rows.key.bytes()[1])
        subs: Sequence[bytes] | bytes = b""
        if self.node.by is not None:
            rows, subs = self._subs(rows, self.node.by)
        if not len(rows):
            return
        keys = rows.key.bytes()[0].to_pylist()
        layouts = state_keys(keys, subs)
        self._load(layouts)
        within, passed, changed = self.node.within_us, self._passed, self._changed
        mask = np.zeros(len(rows), bool)
        for number, (layout, time_us) in enumerate(zip(layouts, rows.timestamp_us.tolist(), strict=True)):
            last = passed[layout]
            if last is None or abs(time_us - last) >= within:
                mask[number] = True
                passed[layout] = time_us if last is None else max(last, time_us)
                changed[layout] = keys[number]
        if not mask.all():
            self.context.count("duplicates_dropped", int(len(rows) - mask.sum()))
        self.forward(rows.where(mask))

    def _subs(self, rows: Rows, by: t.Function) -> tuple[Rows, list[bytes]]:
        """The rows of which `by` gave something, and a digest of it for each."""
        rows = self.decoded(rows)
        return self.mapped(lambda record: _digest(by.body(record)), rows.records(self.context.streams), rows)

    def _load(self, layouts: list[bytes]) -> None:
        missing = [layout for layout in dict.fromkeys(layouts) if layout not in self._passed]
        watermark = self.context.watermark_us
        for layout, data in zip(missing, self.database.get_many(missing), strict=True):
            is_known = data is not None and (watermark is None or time_from(data[:TIME_BYTES]) > watermark)
            self._passed[layout] = self._times.decode(data[TIME_BYTES:]) if is_known else None

    def finish(self) -> None:
        if not self._changed:
            return
        database, name, kept_us = self.database, self.node.store.kept_in, self.node.store.ttl_us
        assert kept_us is not None
        layouts = list(self._changed)
        for layout, data in zip(layouts, database.get_many(layouts), strict=True):
            if data is not None:
                forget_expiry(self.context, name, self._changed[layout], layout, time_from(data[:TIME_BYTES]))
        times = [self._passed[layout] or 0 for layout in layouts]
        encode = self._times.encode
        database.put_many(layouts, [time_bytes(time_us + kept_us) + encode(time_us) for time_us in times])
        places = zip(layouts, times, strict=True)
        expire(self.context, name, [(self._changed[layout], layout, time_us + kept_us) for layout, time_us in places])
        self._passed, self._changed = {}, {}


def _digest(value: Any) -> bytes:
    """16 bytes that are the same for equal values, also in another process; 1 and 1.0 are different values."""
    return xxhash.xxh3_128_digest(msgspec.json.encode(value, order="sorted"))
