"""The expiry of state: an index by time of what is to be deleted once the task's watermark has passed it. Database `~expiry`:
`time_key(key, at, digest of the entry)` -> [database, layout key]. The checkpoint has a time that is not after the earliest
`at`, so that a round in which nothing is due does not look at the state. No store can have a name with a tilde."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import xxhash

from headrace.core.keys.key_layout import (
    SLOT_BYTES,
    TIME_BYTES,
    TIMES,
    due_range,
    split_state_key,
    time_from,
    time_key,
    time_of,
)
from headrace.model.windows import AnyWindows, SessionWindows, UnlimitedWindows
from headrace.worker.batch_keys import time_heads

_OLD_MARKS = {b"next": "expiry", b"closed": "closed"}
_ENTRY = msgspec.msgpack.Decoder(tuple[str, bytes])


def earliest_us(index: Any) -> int | None:
    """The lowest time in an index by time (a database whose keys are time keys), in µs; None where it is empty. An index has a
    range per slot of the hash, so that it is split and merged with the task, and each range is in order of time: the earliest
    entry is among the first ones of the slots. One seek for each slot in use, however many entries."""
    return min(map(time_of, index.first_keys(SLOT_BYTES)), default=None)


def due_entries(index: Any, until_us: int) -> list[tuple[bytes, bytes]]:
    """The entries of an index by time with a time <= `until_us`, by slot and time."""
    ranges = sorted(due_range(key, until_us) for key in index.first_keys(SLOT_BYTES) if time_of(key) <= until_us)
    return [entry for low, high in ranges for entry in index.scan(low, high)]


def expire(context: Any, database: str, entries: Sequence[tuple[bytes, bytes, int]]) -> None:
    """Have `entries` of a database deleted when their time has come: (routing key, layout key, µs from which on)."""
    if not entries:
        return
    encode, times = msgspec.msgpack.Encoder().encode, [at_us for *_, at_us in entries]
    heads = time_heads([layout for _, layout, _ in entries], times)
    keys = [head + _rest(database, layout) for head, (_, layout, _) in zip(heads, entries, strict=True)]
    context.database("~expiry").put_many(keys, [encode((database, layout)) for _, layout, _ in entries])
    earliest = min(times)
    before = context.times_us["expiry"]
    context.times_us["expiry"] = earliest if before is None else min(before, earliest)


def outlasting(context: Any, ends_us: Any) -> Any:
    """Which of the entries that expire at these times the next round can still find: new ones of the others are not stored."""
    after_us = context.watermark_after_us
    return np.ones(len(ends_us), bool) if after_us is None else ends_us > after_us


def count_expired(context: Any, entries: int) -> None:
    """Count entries that have expired, the ones among them that were never stored."""
    if entries:
        context.count("entries_expired", entries)


def forget_expiry(context: Any, database: str, key: bytes, layout: bytes, at_us: int) -> None:
    """Forget that an entry is to be deleted at `at_us`."""
    context.database("~expiry").delete(time_key(key, at_us, _rest(database, layout)))


def delete_expired(
    context: Any,
    watermark_us: int | None,
    windows: Mapping[str, AnyWindows],
    timed: Collection[str] = (),
    but: Collection[str] = (),
) -> int:
    """Delete what is due at `watermark_us`; the number of entries deleted. `windows`: database to the windows that are kept
    there. An edit may have made them be kept for longer than when one was begun, and a session may have grown since: then its
    turn comes later. `timed`: databases that have another one with the times of their entries. Entries of the databases in
    `but` are left."""
    next_us = context.times_us["expiry"]
    if watermark_us is None or next_us is None or next_us > watermark_us:
        return 0
    index = context.database("~expiry")
    deleted = 0
    for key, value in due_entries(index, watermark_us):
        database, layout = _ENTRY.decode(value)
        if database in but:
            continue
        index.delete(key)
        if database in windows:
            key, start = split_state_key(layout)
            at_us = _expires_us(context.database(database), layout, time_from(start), windows[database])
            if at_us is None:  # a session that was joined to another
                continue
            if at_us > watermark_us:
                index.put(time_key(key, at_us, _rest(database, layout)), value)
                continue
        context.database(database).delete(layout)
        if database in timed:
            context.database(database + TIMES).delete(layout)
        deleted += 1
    context.times_us["expiry"] = earliest_us(index)
    return deleted


def move_old_marks(context: Any) -> None:
    """Take what older versions kept in the database `~hints` into the task's times, and delete it there."""
    hints = context.database("~hints")
    for key, stored in list(hints.scan()):
        context.times_us[_OLD_MARKS[key]] = time_from(stored)
        hints.delete(key)


def _expires_us(database: Any, layout: bytes, start_us: int, windows: AnyWindows) -> int | None:
    """From which µs on the window of an entry is to be deleted, None where there is no such entry any more."""
    assert not isinstance(windows, UnlimitedWindows), "nothing of it expires"
    if not isinstance(windows, SessionWindows):
        return windows.expires_us(windows.end_of(start_us))
    stored = database.get(layout)
    return None if stored is None else windows.expires_us(time_from(stored[:TIME_BYTES]))


def _rest(database: str, layout: bytes) -> bytes:
    return xxhash.xxh3_128_digest(database.encode() + b"\0" + layout)
