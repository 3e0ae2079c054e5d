"""The public words for windows, `Tumbling`, `Hopping`, `Sliding`, `Session`, `Unlimited`, and for when results of them are
given; what a window is, `headrace.model.windows` says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.errors import ConfigError, TopologyError
from headrace.model.durations import duration_text, duration_us, time_us
from headrace.model.windows import (
    END_US,
    RETENTION_DEFAULT_US,
    WINDOWS_PER_RECORD_MAX,
    SessionWindows,
    SlidingWindows,
    UnlimitedWindows,
    Windows,
)

Duration = str | timedelta
_UNITS_US = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000)
LENGTH_MAX_US = 1 << 61  # 73,000 years: sums of these and of a record's time stay within 64 bits


def Tumbling(  # noqa: N802 - the three read like the classes that they are in other systems
    size: Duration, grace: Duration | None = None, retention: Duration | None = None
) -> Windows:
    """Windows of `size`, one after the other, beginning at multiples of `size` since 1970 in UTC.

    With a `grace` a window closes once the watermark is `grace` past its end, and a record for it is late from then on. Its
    result is kept, and can be read from outside, until the watermark is `retention` past its end: at least the grace, and
    just that if you give no retention. Without a `grace` no record is late while the window is kept, by default 7 days.
    `TopologyError` for what is no duration, and for a retention below the grace.

    >>> Tumbling("1 hour").starts_of(3_600_000_000 + 5)
    [3600000000]
    """
    size_us = _positive("size", size)
    return Windows(size_us, size_us, *_kept("Tumbling", grace, retention))


def Hopping(  # noqa: N802
    size: Duration, advance: Duration, grace: Duration | None = None, retention: Duration | None = None
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
    return Windows(size_us, advance_us, *_kept("Hopping", grace, retention))


def Session(  # noqa: N802
    gap: Duration, grace: Duration | None = None, retention: Duration | None = None
) -> SessionWindows:
    """Sessions: records of a key that are at most `gap` apart belong together; one in between joins two sessions.

    The key of a result has the times of the session's first and last record; both are in it. `grace` and `retention` as
    for `Tumbling`, from when the gap after the last record is over.

    >>> Session("30 minutes", grace="0 seconds").closes_us(0)   # a record 30 minutes later still joins it
    1800000001
    """
    gap_us = _positive("gap", gap)
    return SessionWindows(gap_us, *_kept("Session", grace, retention))


def Sliding(  # noqa: N802
    length: Duration, grace: Duration | None = None, retention: Duration | None = None
) -> SlidingWindows:
    """Windows of `length` that lie where the records of a key do: for each time t of one [t - length, t], and, if there are
    records in it, the one of that length which begins 1 µs after t. Start and end are in the window.

    So each set of records at most `length` apart has a window. A record changes all windows that hold it, about two for each
    record near to it. `grace` and `retention` as for `Tumbling`; a record that comes after some of its windows have closed
    changes the others.

    >>> Sliding("10 minutes", grace="1 minute").closes_us(0)   # at 60 seconds a record can still change it
    60000001
    """
    length_of_time_us = _positive("length", length)
    return SlidingWindows(length_of_time_us, *_kept("Sliding", grace, retention))


def Unlimited(start: datetime | int | str = 0) -> UnlimitedWindows:  # noqa: N802
    """One window without an end, which begins at `start`: a time, as text, an aware datetime or µs since 1970.

    A record before it is skipped, and none is late. The key of a result has the last µs of the year 9999 as its end. The
    window never closes, so it has no final result, and it is kept for ever.

    >>> Unlimited(start="1970-01-01T00:00:01Z").starts_of(5_000_000)
    [1000000]
    """
    try:
        start_us = start if type(start) is int else time_us(start, "start of a window")
    except ConfigError as error:
        raise TopologyError(f"Unlimited: {error.message}", error.hint) from None
    if not -LENGTH_MAX_US <= start_us < END_US:
        raise TopologyError(f"Unlimited(start={start!r}): expected a time before the year 10000")
    return UnlimitedWindows(start_us)


@dataclass(frozen=True, slots=True)
class UntilWindowCloses:
    """What `until_window_closes` gives, for `KTable.suppress`."""


def until_window_closes() -> UntilWindowCloses:
    """For `suppress`: give the result of a window once, when it closes: no record can change it any more."""
    return UntilWindowCloses()


@dataclass(frozen=True, slots=True)
class UntilTimeLimit:
    """What `until_time_limit` gives, for `KTable.suppress`. `limit_us`: more than 0."""

    limit_us: int


def until_time_limit(limit: Duration) -> UntilTimeLimit:
    """For `suppress`: give of each key at most one update in `limit` of event time, the newest one.

    `TopologyError` for what is no duration, or none above 0.

    >>> until_time_limit("5 minutes")
    UntilTimeLimit(limit_us=300000000)
    """
    limit_us = length_us("until_time_limit", limit)
    if limit_us == 0:
        raise TopologyError(f"until_time_limit({limit!r}): expected more than 0", "without suppress every update is given")
    return UntilTimeLimit(limit_us)


def _kept(kind: str, grace: Duration | None, retention: Duration | None) -> tuple[int | None, int]:
    """Grace and retention in µs; `TopologyError` where results would be deleted while they can still change."""
    grace_us = None if grace is None else length_us(f"{kind} grace", grace)
    if retention is None:
        return grace_us, RETENTION_DEFAULT_US if grace_us is None else grace_us
    retention_us = length_us(f"{kind} retention", retention)
    if grace_us is not None and retention_us < grace_us:
        raise TopologyError(
            f"{kind}: the retention of {duration_text(retention_us)} is below the grace of {duration_text(grace_us)}",
            "windows would be deleted before they close: make the retention, which counts from the end of a window as the"
            " grace does, at least as long; or leave it out",
        )
    return grace_us, retention_us


def _least_advance(size_us: int) -> str:
    """A duration in one unit that is easy to read, and with which windows of `size_us` are few enough."""
    least_us = -(-size_us // WINDOWS_PER_RECORD_MAX)
    unit_us = next((unit_us for unit_us in _UNITS_US if least_us > unit_us), 1)
    return duration_text(-(-least_us // unit_us) * unit_us)


def _positive(name: str, value: Duration) -> int:
    length = length_us(f"window {name}", value)
    if length == 0:
        raise TopologyError(f"window {name} {value!r}: expected more than 0")
    return length


def length_us(name: str, value: Duration, operator: str = "") -> int:
    """A length of time in µs; `TopologyError`, which begins with the operator, for what is none."""
    at = f"{operator}: " if operator else ""
    try:
        found_us = duration_us(value, name)
    except ConfigError as error:
        raise TopologyError(f"{at}{error.message}", error.hint) from None
    if found_us > LENGTH_MAX_US:
        raise TopologyError(f"{at}{name} {value!r}: expected at most 26,000,000 days")
    return found_us
