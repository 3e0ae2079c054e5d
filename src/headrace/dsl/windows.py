"""Owns the public words for windows, `Tumbling`, `Hopping`, `Session`, and for when results of them are given; what a
window is, `headrace.model.windows` says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.dsl.durations import duration_text, duration_us
from headrace.errors import ConfigError, TopologyError
from headrace.model.windows import WINDOWS_PER_RECORD_MAX, SessionWindows, Windows

Duration = str | timedelta
_UNITS_US = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000)
LENGTH_MAX_US = 1 << 61  # 73,000 years: sums of these and of a record's time stay within 64 bits


def Tumbling(size: Duration, grace: Duration | None = None, retention: Duration = "7 days") -> Windows:  # noqa: N802
    """Windows of `size`, one after the other, beginning at multiples of `size` since 1970 in UTC.

    With a `grace` a record is late once the watermark is `grace` past its window's end; without one no record is late
    while the window is kept, which is `retention` beyond its end. `TopologyError` for what is no duration.

    >>> Tumbling("1 hour").starts_of(3_600_000_000 + 5)
    [3600000000]
    """
    size_us = _positive("size", size)
    return _windows("Tumbling", size_us, size_us, grace, retention)


def Hopping(  # noqa: N802 - the two read like the classes that they are in other systems
    size: Duration, advance: Duration, grace: Duration | None = None, retention: Duration = "7 days"
) -> Windows:
    """Windows of `size`, a new one every `advance`: a record falls into size / advance of them, 10,000 at most.

    `grace` and `retention` as for `Tumbling`. Raises `TopologyError`, also for an advance above the size, and for more than
    10,000 windows per record: each of them is a state that the record changes.

    >>> len(Hopping("1 hour", advance="15 minutes").starts_of(0))
    4
    """
    size_us, advance_us = _positive("size", size), _positive("advance", advance)
    if advance_us > size_us:
        raise TopologyError(
            f"Hopping: the advance of {duration_text(advance_us)} is above the size of {duration_text(size_us)}",
            "records between two windows would be lost: make the advance at most the size",
        )
    per_record = -(-size_us // advance_us)
    if per_record > WINDOWS_PER_RECORD_MAX:
        raise TopologyError(
            f"Hopping: a size of {duration_text(size_us)} with an advance of {duration_text(advance_us)} puts each record "
            f"into {per_record:,} windows, expected at most {WINDOWS_PER_RECORD_MAX:,}",
            f"each window is a state that the record changes: advance by {_least_advance(size_us)} or more",
        )
    return _windows("Hopping", size_us, advance_us, grace, retention)


def Session(gap: Duration, grace: Duration | None = None, retention: Duration = "7 days") -> SessionWindows:  # noqa: N802
    """Sessions: records of a key that are at most `gap` apart belong together; one in between joins two sessions.

    The key of a result has the times of the session's first and last record; both are in it. `grace` as for `Tumbling`,
    from when the gap after the last record is over; without one a session is kept for `retention` after that.

    >>> Session("30 minutes", grace="0 seconds").closes_us(0)   # a record 30 minutes later still joins it
    1800000001
    """
    gap_us = _positive("gap", gap)
    grace_us = None if grace is None else _length("Session grace", grace)
    return SessionWindows(gap_us, grace_us, _length("Session retention", retention))


@dataclass(frozen=True, slots=True)
class UntilWindowCloses:
    """What `until_window_closes` gives, for `KTable.suppress`."""


def until_window_closes() -> UntilWindowCloses:
    """For `suppress`: give the result of a window once, when it closes: no record can change it any more."""
    return UntilWindowCloses()


def _windows(kind: str, size_us: int, advance_us: int, grace: Duration | None, retention: Duration) -> Windows:
    grace_us = None if grace is None else _length(f"{kind} grace", grace)
    return Windows(size_us, advance_us, grace_us, _length(f"{kind} retention", retention))


def _least_advance(size_us: int) -> str:
    """A duration in one unit that is easy to read, and with which windows of `size_us` are few enough."""
    least_us = -(-size_us // WINDOWS_PER_RECORD_MAX)
    unit_us = next((unit_us for unit_us in _UNITS_US if least_us > unit_us), 1)
    return duration_text(-(-least_us // unit_us) * unit_us)


def _positive(name: str, value: Duration) -> int:
    length = _length(f"window {name}", value)
    if length == 0:
        raise TopologyError(f"window {name} {value!r}: expected more than 0")
    return length


def _length(name: str, value: Duration) -> int:
    try:
        length_us = duration_us(value, name)
    except ConfigError as error:
        raise TopologyError(error.message, error.hint) from None
    if length_us > LENGTH_MAX_US:
        raise TopologyError(f"{name} {value!r}: expected at most 26,000,000 days")
    return length_us
