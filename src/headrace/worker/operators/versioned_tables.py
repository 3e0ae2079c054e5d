"""Tables that keep their history, and what a join asks of one: the value at a record's own time, whenever that comes.

An update is a version, which holds from its time on; a record sees those that came before it, as of any table. One that is
older than the newest of its key changes what records of its time find, and is no update of the table to what follows. One
that is the history behind the watermark, as it was before the round, is late. Store: key -> newest value. Versions: key |
time, the newest first -> 1 and the value, or 0 for a deletion.

With a grace a record waits for the table until the watermark is more than the grace past its time. So its result depends on
what both sides have, and not on which of them was read first. Store: key | time, origin -> value and headers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import HEADERS_TYPE, header_tuples
from headrace.core.keys.key_layout import SUB_BYTES_MAX, TIME_BYTES, split_state_key, state_key, time_bytes, time_from
from headrace.core.rounds.watermarks import TIME_MAX_US
from headrace.core.versions import Versions
from headrace.model.table_operators import VersionedTable, WaitingJoin
from headrace.serdes.waiting import WaitingRecord, packed_record, waiting_record_of
from headrace.worker.batch_keys import as_bytes, state_keys
from headrace.worker.operators.base import Context, Due, binary_field, rows_of_timers
from headrace.worker.operators.expiry import expire, forget_expiry
from headrace.worker.operators.joining.joins import StreamTableJoin
from headrace.worker.operators.joining.origins import origin_subs
from headrace.worker.operators.stateless import merged_by_rank
from headrace.worker.operators.tables import TableOperator
from headrace.worker.rows import Rows

_VALUE, _DELETION = b"\1", b"\0"
_TIMER = "grace"
_AFTER_ALL_SUBS = b"\xff" * SUB_BYTES_MAX
_Known = list[tuple[int, bytes | None]]  # time and value of versions, by time


class VersionedTableOperator(TableOperator):
    node: VersionedTable

    def __init__(self, node: VersionedTable, context: Context) -> None:
        super().__init__(node, context)
        # of each key that the round has updates of: the versions before it from the first of these on, and these by their ranks
        self._of_round: dict[bytes, tuple[_Known, list[tuple[int, int, bytes | None]]]] = {}

    def push(self, rows: Rows) -> None:
        rows = self.keyed(self.encoded(rows))
        watermark_us = self.context.watermark_us
        if watermark_us is not None and len(rows):
            is_late = rows.timestamp_us + self.node.history_us < watermark_us
            if is_late.any():
                self.late(rows, np.flatnonzero(is_late))
                rows = rows.where(~is_late)
        if len(rows):
            self.held.append(rows)

    def finish(self) -> None:
        if not self.held:
            return
        rows = merged_by_rank(self.release())
        keys, times = rows.key.bytes()[0].to_pylist(), rows.timestamp_us.tolist()
        for key, (first_us, _) in _spans(keys, times).items():
            self._of_round[key] = self._between(key, first_us, TIME_MAX_US), []
        versions = {key: Versions(known) for key, (known, _) in self._of_round.items()}
        is_newest = np.zeros(len(rows), bool)
        updates = zip(keys, rows.rank.tolist(), times, rows.value.bytes()[0].to_pylist(), strict=True)
        for at, (key, rank, time_us, value) in enumerate(updates):
            self._of_round[key][1].append((rank, time_us, value))
            is_newest[at] = versions[key].put(time_us, value)
        self._keep(versions)
        if is_newest.any():
            self.held = [rows.where(is_newest)]
            super().finish()

    def seen_by(self, keys: Any, ranks: Any, times_us: Any) -> Any:
        """The value of each of `keys` at a record's time, of the versions that have a lower rank; null for none."""
        wanted, times = keys.to_pylist(), times_us.tolist()
        spans = _spans(wanted, times)
        versions = {key: Versions(self._before_round(key, *span)) for key, span in spans.items()}
        updates = {key: deque(self._of_round[key][1]) for key in versions if key in self._of_round}
        found: list[bytes | None] = [None] * len(wanted)
        for at in np.argsort(ranks, kind="stable").tolist():
            key = wanted[at]
            to_come = updates.get(key)
            while to_come and to_come[0][0] < ranks[at]:
                versions[key].put(*to_come.popleft()[1:])
            found[at] = versions[key].as_of(times[at])
        return pa.array(found, pa.binary())

    def _before_round(self, key: bytes, first_us: int, last_us: int) -> _Known:
        """The versions from before the round that hold at a time from the first to the last one."""
        if key not in self._of_round:
            return self._between(key, first_us, last_us)
        known, updates = self._of_round[key]
        from_us = min(time_us for time_us, *_ in (*known[:1], *(update[1:] for update in updates)))
        return known if first_us >= from_us else self._between(key, first_us, from_us - 1) + known

    @property
    def _versions(self) -> Any:
        return self.context.database(self.node.versions.kept_in)

    def _between(self, key: bytes, first_us: int, last_us: int) -> _Known:
        """The stored versions that hold at a time from the first to the last one, by time."""
        found: _Known = []
        for layout, data in self._versions.scan(_layout(key, last_us), state_key(key, _AFTER_ALL_SUBS)):
            time_us = ~time_from(split_state_key(layout)[1])
            found.append((time_us, data[1:] if data[:1] == _VALUE else None))
            if time_us <= first_us:
                break
        return found[::-1]

    def _keep(self, versions: Mapping[bytes, Versions]) -> None:
        database, kept_in, expiring = self._versions, self.node.versions.kept_in, list[tuple[bytes, bytes, int]]()
        for key, of_key in versions.items():
            changes = of_key.changes(self.node.history_us)
            for time_us, value in changes.put.items():
                database.put(_layout(key, time_us), _DELETION if value is None else _VALUE + value)
            for time_us, at_us in changes.expired_us.items():
                forget_expiry(self.context, kept_in, key, _layout(key, time_us), at_us)
            expiring += [(key, _layout(key, time_us), at_us) for time_us, at_us in changes.expires_us.items()]
        expire(self.context, kept_in, expiring)


class WaitingTableJoin(StreamTableJoin):
    node: WaitingJoin

    def __init__(self, node: WaitingJoin, context: Context) -> None:
        super().__init__(node, context)
        self._owner = context.program.timer_owner_of(node.name)

    def finish(self) -> None:
        if not self.held:
            return
        rows = self.valued(self.encoded(merged_by_rank(self.release())))
        watermark_us = self.context.watermark_us
        is_over = rows.key.is_null()  # it finds nothing, whatever comes
        if watermark_us is not None:
            is_over |= rows.timestamp_us + self.node.grace_us < watermark_us
        if not is_over.all():
            self._hold_back(rows.where(~is_over))
        if is_over.any():
            self.join(rows.where(is_over))

    def _hold_back(self, rows: Rows) -> None:
        keys, times = rows.key.bytes()[0].to_pylist(), rows.timestamp_us.tolist()
        headers = [()] * len(rows) if rows.headers is None else header_tuples(rows.headers)
        values = zip(rows.value.bytes()[0].to_pylist(), headers, strict=True)
        stored = [packed_record(WaitingRecord(value, list(own) or None)) for value, own in values]
        subs = origin_subs(self.context, rows, np.zeros(len(rows), np.int64))
        self._waiting.put_many(state_keys(keys, as_bytes(subs)), stored)
        for key, (first_us, _) in _spans(keys, times).items():
            at_us = first_us + self.node.grace_us + 1
            known = self.context.timers.at(self._owner, key, _TIMER, "event")
            if known is None or known > at_us:
                self.context.timers.set(self._owner, key, _TIMER, "event", at_us)

    @property
    def _waiting(self) -> Any:
        return self.context.database(self.node.stores[0].kept_in)

    def fire(self, due: list[Due], until_us: Mapping[str, int]) -> tuple[str, int]:
        """Join what has waited long enough, by time and key; how many records these are."""
        watermark_us = self.context.watermark_us
        assert watermark_us is not None, "an event timer is due by the watermark"
        found: list[tuple[int, bytes, bytes, bytes]] = []  # time, key, sub-key, what is stored
        for _, key, _, _ in due:
            for layout, stored in list(self._waiting.scan(state_key(key), state_key(key, _AFTER_ALL_SUBS))):
                sub = split_state_key(layout)[1]
                time_us = time_from(sub[:TIME_BYTES])
                if time_us + self.node.grace_us >= watermark_us:
                    self.context.timers.set(self._owner, key, _TIMER, "event", time_us + self.node.grace_us + 1)
                    break
                self._waiting.delete(layout)
                found.append((time_us, key, sub, stored))
        if found:
            self.join(self._rows(sorted(found)))
        return "join_records_released", len(found)

    def _rows(self, found: Sequence[tuple[int, bytes, bytes, bytes]]) -> Rows:
        records = [waiting_record_of(stored) for *_, stored in found]
        key = binary_field(self.context.program.key_serdes[self.node.name], [key for _, key, *_ in found])
        value = binary_field(self.node.stores[0].value, [one.value for one in records])
        rows = rows_of_timers(np.array([time_us for time_us, *_ in found], np.int64), key, value)
        if not any(one.headers for one in records):
            return rows
        headers = [[{"name": name, "value": data} for name, data in one.headers or ()] or None for one in records]
        return replace(rows, headers=pa.array(headers, HEADERS_TYPE))


def _layout(key: bytes, time_us: int) -> bytes:
    """That of a version: the later its time, the earlier it comes."""
    return state_key(key, time_bytes(~time_us))


def _spans(keys: Sequence[bytes], times: Sequence[int]) -> dict[bytes, tuple[int, int]]:
    """The first and the last time of each key."""
    spans: dict[bytes, tuple[int, int]] = {}
    for key, time_us in zip(keys, times, strict=True):
        first, last = spans.get(key, (time_us, time_us))
        spans[key] = min(first, time_us), max(last, time_us)
    return spans
