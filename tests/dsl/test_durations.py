"""Durations and times as users write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.model.durations import duration_text, duration_us, time_ago_us, time_text, time_us

MINUTE_US = 60_000_000


@pytest.mark.parametrize(
    ("value", "length_us"),
    [
        ("1 hour", 60 * MINUTE_US),
        ("90 seconds", 90_000_000),
        ("1 hour 30 minutes", 90 * MINUTE_US),
        ("1 hour, 30 min", 90 * MINUTE_US),
        ("1h30min", 90 * MINUTE_US),
        ("1.5 hours", 90 * MINUTE_US),
        ("500 ms", 500_000),
        ("7 days", 7 * 1440 * MINUTE_US),
        ("2 Weeks", 14 * 1440 * MINUTE_US),
        ("3 µs", 3),
        ("0 seconds", 0),
        ("  1   day ", 1440 * MINUTE_US),
        (timedelta(hours=1, microseconds=1), 60 * MINUTE_US + 1),
    ],
)
def test_duration_us(value: Any, length_us: int) -> None:
    assert duration_us(value) == length_us


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (60, 'write "60 seconds"'),
        (1.5, "found a bare number"),
        ("60", "expected numbers with units"),
        ("", "found nothing"),
        ("an hour", "found 'an hour'"),
        ("1 hour and a bit", "found 'and a bit'"),
        ("1 month", "no fixed length"),
        ("5 m", "use min or minutes"),
        ("5 parsecs", "the units are weeks, days"),
        ("-1 hour", "expected numbers with units"),
        (timedelta(seconds=-1), "expected 0 or more"),
        ("0.5 us", "whole number of microseconds"),
        ("99999999999 days", "expected at most"),
        (None, "found NoneType"),
        (True, "found bool"),
    ],
)
def test_what_is_no_duration_is_refused(value: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        duration_us(value, "idle timeout")
    assert told in str(raised.value)
    assert str(raised.value).startswith(f"idle timeout {value!r}: ")


@given(st.integers(0, 2**63 - 1))
def test_duration_text_is_the_inverse(length_us: int) -> None:
    assert duration_us(duration_text(length_us)) == length_us


@given(st.timedeltas(timedelta(0), timedelta(days=10**5)))
def test_timedeltas_are_exact(value: timedelta) -> None:
    assert timedelta(microseconds=duration_us(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        "2013-01-01T00:00:00Z",
        "2013-01-01T02:00:00+02:00",
        " 2013-01-01 00:00Z",
        datetime(2013, 1, 1, tzinfo=UTC),
        datetime(2012, 12, 31, 19, tzinfo=timezone(timedelta(hours=-5))),
        1_356_998_400_000_000,
    ],
)
def test_time_us(value: Any) -> None:
    assert time_us(value) == 1_356_998_400_000_000


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("2013-01-01T00:00:00", "add Z for UTC: 2013-01-01T00:00:00Z"),
        ("2013-01-01", "expected a time with its zone"),
        (datetime(2013, 1, 1), "tzinfo=datetime.UTC"),  # noqa: DTZ001 - what is refused
        ("yesterday", "expected a time in ISO 8601"),
        (1.5, "found float"),
        (True, "found bool"),
        (2**63, "64 bits"),
    ],
)
def test_what_is_no_time_is_refused(value: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        time_us(value, "start")
    assert told in str(raised.value)


@given(st.datetimes(timezones=st.just(UTC)))
def test_time_text_is_the_inverse(value: datetime) -> None:
    assert time_us(time_text(time_us(value))) == time_us(value)
    assert time_text(time_us(value)).endswith("Z")


def test_time_text_outside_of_datetimes() -> None:
    assert time_text(2**62) == f"{2**62} µs"


@pytest.mark.parametrize("ago", ["90000000 days", timedelta(days=2014 * 366)])
def test_a_time_ago_is_one_that_a_calendar_has(ago: Any) -> None:
    now_us = time_us("2013-01-01T00:00:00Z")
    assert time_ago_us("1 day", now_us) == time_us("2012-12-31T00:00:00Z")
    with pytest.raises(ConfigError, match="expected a time that a calendar has, found one before the year 1"):
        time_ago_us(ago, now_us, "--ago")


@pytest.mark.parametrize("text", ["9" * 5_000 + " days", "1." + "1" * 5_000 + " s", "1 s " * 100_000])
def test_a_text_that_is_too_long_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(ConfigError, match=r"gap: expected a duration, found a text of [\d,]+ characters"):
        duration_us(text, "gap")
