"""What must come of the inputs, whatever the elasticity factor is or becomes, and wherever rounds are cut.

It shares no code with Headrace, and knows neither tasks nor rounds. Input rows are those of `support.checker`, in the order of
their partition: dicts with key, timestamp_us and partition (0 where it is not there). Each function stands for one stateful
topology over ONE input that is grouped by its key, with no partition idle; records without a key are dropped. For the updates
of a count see `checker.model_count`, for those of windows `checker.model_windowed`.

Protocol.md 23: results do not depend on cuts as long as no record is later than the grace. `no_record_is_later_than` makes
sure that the inputs of a test are such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from support.checker import Row, last_of, model_count, model_windowed

Result = tuple[bytes, int, int]  # key, start, end; of a session the times of its first and last record


def no_record_is_later_than(rows: Iterable[Row], grace_us: int) -> int:
    """How many rows there are; an `AssertionError` names the first that is behind a newer one of its partition by more."""
    newest: dict[int, int] = {}
    count = 0
    for count, row in enumerate(rows, 1):
        partition, time_us = row.get("partition", 0), row["timestamp_us"]
        newest[partition] = max(time_us, newest.get(partition, time_us))
        late_us = newest[partition] - time_us
        assert late_us <= grace_us, f"row {count - 1}: {late_us} µs late, expected at most {grace_us}: cuts would decide"
    return count


def last_counts(rows: Sequence[Row]) -> dict[bytes, int]:
    """The count of each key."""
    return last_of(model_count(rows))


def closed_windows(rows: Sequence[Row], size_us: int, grace_us: int) -> dict[Result, int]:
    """The counts of tumbling windows that have closed: what `suppress` gives, each once.

    A window [start, end) closes at the watermark end + grace, which is the newest time of the partition. A round judges by the
    watermark before it: what the last rows close comes with the round after theirs.

    >>> rows = [{"key": b"a", "timestamp_us": time} for time in (1, 12, 3, 25)]
    >>> closed_windows(rows, 10, 10)
    {(b'a', 0, 10): 2}
    """
    no_record_is_later_than(rows, grace_us)
    closed: dict[Result, int] = {}
    for newest_us, mine in _by_partition(rows):
        for (key, start), count in last_of(model_windowed(mine, size_us)).items():
            if start + size_us + grace_us <= newest_us:
                closed[key, start, start + size_us] = count
    return closed


def closed_sessions(rows: Sequence[Row], gap_us: int, grace_us: int) -> dict[Result, int]:
    """The counts of sessions that have closed: records of a key that are at most `gap_us` apart are in one.

    It closes one µs after its last record + gap + grace.

    >>> rows = [{"key": b"a", "timestamp_us": time} for time in (1, 6, 4, 12, 23)]
    >>> closed_sessions(rows, 5, 4)
    {(b'a', 1, 6): 3, (b'a', 12, 12): 1}
    """
    no_record_is_later_than(rows, grace_us)
    closed: dict[Result, int] = {}
    for newest_us, mine in _by_partition(rows):
        times: dict[bytes, list[int]] = {}
        for row in mine:
            if row["key"] is not None:
                times.setdefault(row["key"], []).append(row["timestamp_us"])
        for key, every in times.items():
            sessions: list[list[int]] = []
            for time_us in sorted(every):
                if sessions and time_us - sessions[-1][-1] <= gap_us:
                    sessions[-1].append(time_us)
                else:
                    sessions.append([time_us])
            for session in sessions:
                if session[-1] + gap_us + 1 + grace_us <= newest_us:
                    closed[key, session[0], session[-1]] = len(session)
    return closed


def without_duplicates(rows: Sequence[Row], within_us: int) -> list[Row]:
    """The rows that `drop_duplicates` lets through: unless one of the key was, less than `within_us` before or after.

    No row may be later than half of `within_us`: so what was let through is known for as long as it counts.

    >>> rows = [{"key": b"a", "timestamp_us": time} for time in (1, 9, 11, 8)]
    >>> [row["timestamp_us"] for row in without_duplicates(rows, 10)]
    [1, 11]
    """
    no_record_is_later_than(rows, within_us // 2)
    last: dict[bytes, int] = {}
    kept: list[Row] = []
    for row in rows:
        key, time_us = row["key"], row["timestamp_us"]
        if key is not None and (key not in last or abs(time_us - last[key]) >= within_us):
            last[key] = max(time_us, last.get(key, time_us))
            kept.append(row)
    return kept


def live_entries(rows: Sequence[Row], ttl_us: int) -> dict[bytes, Any]:
    """What a store has that keeps the last value of each key for `ttl_us`, once the watermark has come to the newest time.

    An entry has expired at the watermark of its own time + ttl (protocol.md 23, Cuts).

    >>> live_entries([{"key": b"a", "value": 1, "timestamp_us": 0}, {"key": b"b", "value": 2, "timestamp_us": 10}], 10)
    {b'b': 2}
    """
    live: dict[bytes, Any] = {}
    for newest_us, mine in _by_partition(rows):
        last: Mapping[bytes, Row] = {row["key"]: row for row in mine if row["key"] is not None}
        live |= {key: row["value"] for key, row in last.items() if row["timestamp_us"] + ttl_us > newest_us}
    return live


def _by_partition(rows: Iterable[Row]) -> list[tuple[int, list[Row]]]:
    """The newest time and the rows of each partition; a key is in one of them."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row.get("partition", 0), []).append(row)
    return [(max(row["timestamp_us"] for row in mine), mine) for _, mine in sorted(found.items())]
