"""How durations and times are written: "1 hour", `timedelta`, ISO 8601. Everywhere else they are ints of µs.

Times are UTC; one without a zone is refused, because it would mean another instant on another machine.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from headrace.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
INT64_MAX = 2**63 - 1

# The names by which a unit may be written, after its length in µs. Months and years have none.
_UNITS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (7 * 86_400_000_000, ("week", "weeks", "w")),
    (86_400_000_000, ("day", "days", "d")),
    (3_600_000_000, ("hour", "hours", "h")),
    (60_000_000, ("minute", "minutes", "min")),
    (1_000_000, ("second", "seconds", "sec", "s")),
    (1_000, ("millisecond", "milliseconds", "ms")),
    (1, ("microsecond", "microseconds", "us", "µs", "μs")),  # the micro sign and the Greek letter
)
_LENGTHS = {name: length for length, names in _UNITS for name in names}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([^\W\d_]+)\s*,?")
_TEXT_CHARACTERS_MAX = 200  # a longer text is no duration, and its numbers are beyond what int() reads
_HINT = 'write for example "1 hour", "90 seconds", "1 hour 30 minutes", "500 ms", or give a timedelta'


def duration_us(value: str | timedelta, name: str = "duration") -> int:
    """The length of a duration in µs, 0 or more; `name` is what an error calls it.

    Raises `ConfigError` for anything else than a text of numbers with units or a timedelta.

    >>> duration_us("1 hour 30 minutes") == duration_us(timedelta(minutes=90)) == duration_us("1.5 hours")
    True
    """
    if isinstance(value, timedelta):
        length = value // _MICROSECOND
    elif isinstance(value, str):
        length = _parsed_us(value, name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ConfigError(
            f"{name} {value!r}: expected a duration with its unit, found a bare number",
            f'write "{value} seconds" or "{value} ms", whichever is meant',
        )
    else:
        raise ConfigError(f"{name} {value!r}: expected a duration, found {type(value).__name__}", _HINT)
    if length < 0:
        raise ConfigError(f"{name} {value!r}: expected 0 or more")
    if length > INT64_MAX:
        raise ConfigError(f"{name} {value!r}: expected at most {duration_text(INT64_MAX)}")
    return length


def _parsed_us(text: str, name: str) -> int:
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise ConfigError(f"{name}: expected a duration, found a text of {len(text):,} characters", _HINT)
    total, at = Fraction(0), 0
    while found := _PART.match(text, at):
        number, unit = found[1], found[2].lower()
        if unit not in _LENGTHS:
            raise ConfigError(f"{name} {text!r}: expected a unit of time, found {found[2]!r}", _hint_for(unit))
        total += Fraction(number) * _LENGTHS[unit]
        at = found.end()
    if at == 0 or text[at:].strip():
        rest = text[at:].strip()
        found_text = f"found {rest!r}" if rest else "found nothing"
        raise ConfigError(f"{name} {text!r}: expected numbers with units, {found_text}", _HINT)
    if total.denominator != 1:
        raise ConfigError(f"{name} {text!r}: expected a whole number of microseconds")
    return int(total)


def _hint_for(unit: str) -> str:
    if unit in ("m", "mo", "month", "months", "y", "year", "years"):
        return "months and years have no fixed length, and m could be either: use min or minutes, hours, days or weeks"
    return f"the units are {', '.join(names[1] for _, names in _UNITS)}"


def duration_text(length_us: int) -> str:
    """The duration as text, so that `duration_us` gives it back.

    >>> duration_text(5_400_000_000), duration_text(7 * 86_400_000_000), duration_text(1_500_000), duration_text(0)
    ('1 hour 30 minutes', '7 days', '1 second 500 ms', '0 seconds')
    """
    parts: list[str] = []
    rest = length_us
    for unit_us, names in _UNITS[1:]:  # 7 days says more than 1 week
        count, rest = divmod(rest, unit_us)
        if count:
            short = {1_000: "ms", 1: "µs"}.get(unit_us)
            parts.append(f"{count} {short or names[0 if count == 1 else 1]}")
    return " ".join(parts) or "0 seconds"


def time_us(value: str | datetime | int, name: str = "time") -> int:
    """A time in µs since 1970 UTC, from ISO 8601 text with a zone, an aware datetime, or µs.

    Raises `ConfigError`, also for a time without a zone.

    >>> time_us("2013-01-01T00:00:00Z")
    1356998400000000
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not -INT64_MAX <= value <= INT64_MAX:
            raise ConfigError(f"{name} {value}: expected µs since 1970 in 64 bits")
        return value
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value.strip())
        except ValueError:
            hint = "write for example 2013-01-01T00:00:00Z"
            raise ConfigError(f"{name} {value!r}: expected a time in ISO 8601", hint) from None
    elif isinstance(value, datetime):
        time = value
    else:
        hint = "give ISO 8601 text with a zone, an aware datetime, or an int of µs since 1970"
        raise ConfigError(f"{name} {value!r}: expected a time, found {type(value).__name__}", hint)
    if time.utcoffset() is None:
        hint = f"add Z for UTC: {time.isoformat()}Z" if isinstance(value, str) else "give it tzinfo=datetime.UTC"
        raise ConfigError(f"{name} {value!r}: expected a time with its zone, found one without", hint)
    return (time - _EPOCH) // _MICROSECOND


def time_text(time_us_: int) -> str:
    """The time as ISO 8601 text in UTC, so that `time_us` gives it back; as µs if it is outside the years 1 to 9999.

    >>> time_text(1356998400000000), time_text(1)
    ('2013-01-01T00:00:00Z', '1970-01-01T00:00:00.000001Z')
    """
    try:
        return datetime_of(time_us_).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{time_us_} µs"


def time_ago_us(ago: str | timedelta, now_us: int, name: str = "how long ago") -> int:
    """The time in µs that lies a duration before `now_us`. Raises `ConfigError`, also for one before the year 1.

    >>> time_ago_us("2 hours", 1356998400000000) == time_us("2012-12-31T22:00:00Z")
    True
    """
    found_us = now_us - duration_us(ago, name)
    try:
        datetime_of(found_us)
    except OverflowError:
        hint = "times are those of the years 1 to 9999"
        raise ConfigError(f"{name} {ago!r}: expected a time that a calendar has, found one before the year 1", hint) from None
    return found_us


def datetime_of(time_us_: int) -> datetime:
    """The aware datetime in UTC; `OverflowError` outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=time_us_)
