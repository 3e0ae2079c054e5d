"""Decides what number an event time is, and whether one lies suspiciously far from its record's own time.

A number in another unit than is taken shows as a time that is a thousand times too near to 1970, or too far from it. Nothing is
wrong with such a record that could be known: so it is processed, and a warning names it, once per stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from headrace.errors import OutOfRangeError
from headrace.model.durations import time_text

UNIT_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "ns": 1}
METRIC = "far_event_times"
NO_TIME_US = -1_000  # what Kafka gives for a record without a timestamp: -1 ms
_UNIT_NAMES = {"us": "microseconds", "ms": "milliseconds", "s": "seconds", "ns": "nanoseconds"}


@dataclass(frozen=True, slots=True)
class FarTime:
    """A record of `stream` whose event time `time_us` is far from its own timestamp `own_us`."""

    stream: str
    partition: int
    offset: int
    time_us: int
    own_us: int


def in_us(number: int | float, unit: str) -> int:
    """µs of a number of `unit`; of nanoseconds the whole µs below. A float is rounded to the nearest µs. `OutOfRangeError` for
    one that is no number, or infinite.

    >>> in_us(1_700_000_000_123, "ms"), in_us(1_700_000_000.5, "s"), in_us(-1, "ns")
    (1700000000123000, 1700000000500000, -1)
    """
    if isinstance(number, float):
        if not isfinite(number):
            raise OutOfRangeError(f"timestamp {number}: expected a time as a finite number")
        return round(number * UNIT_NS[unit] / 1_000)
    return number * UNIT_NS[unit] // 1_000


def likely_unit(time_us: int, own_us: int, unit: str, far_us: int) -> str | None:
    """The unit by which a time that was read in `unit` would lie near the record's own; None if there is none.

    >>> year_us = 365 * 86_400 * 1_000_000
    >>> likely_unit(1_700_000_000_000, 1_700_000_000_000_000, "us", year_us)
    'ms'
    >>> likely_unit(1_700_000_000, 1_700_000_000_000_000, "us", year_us)
    's'
    >>> likely_unit(1_300_000_000_000_000, 1_700_000_000_000_000, "us", year_us) is None
    True
    """
    distances = {other: abs(time_us * ns // UNIT_NS[unit] - own_us) for other, ns in UNIT_NS.items() if other != unit}
    nearest = min(distances, key=lambda other: distances[other])
    return nearest if distances[nearest] <= far_us else None


def warning_of(far: FarTime, unit: str, far_us: int) -> str:
    """What is said of the first such record of a stream."""
    likely = likely_unit(far.time_us, far.own_us, unit, far_us)
    if likely is None:
        fix = "check timestamp= and timestamp_unit=; if the time is right, set event_time_warning_s higher (0: no warning)"
    else:
        fix = f"it looks like {_UNIT_NAMES[likely]} read as {_UNIT_NAMES[unit]}: give the stream timestamp_unit={likely!r}"
    return (
        f"stream {far.stream!r} partition {far.partition} offset {far.offset}: the event time is {time_text(far.time_us)}, the "
        f"record's own timestamp {time_text(far.own_us)}, further apart than event_time_warning_s ({far_us // 1_000_000:,} s); "
        f"{fix}. This warning comes once per stream; the counter {METRIC} counts them all"
    )
