"""Event times: what number is which time, and which one is far from the record's own, and why."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.rounds.event_times import UNIT_NS, FarTime, in_us, likely_unit, warning_of
from headrace.errors import OutOfRangeError
from headrace.model.durations import time_text

YEAR_US = 365 * 86_400 * 1_000_000
NOW_US = 1_700_000_000_000_000
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(sorted(UNIT_NS)))
def test_whole_numbers_are_exact(number: int, unit: str) -> None:
    assert in_us(number, unit) == Fraction(number * 1_000_000, PER_SECOND[unit]).__floor__()


@given(st.integers(NOW_US - YEAR_US // 2, NOW_US + YEAR_US // 2), st.permutations(sorted(UNIT_NS)))
def test_the_unit_that_was_meant_is_found(meant_us: int, units: list[str]) -> None:
    meant, taken, *_ = units
    number = meant_us * PER_SECOND[meant] // 1_000_000
    assert likely_unit(in_us(number, taken), NOW_US, taken, YEAR_US) == meant


def test_an_old_time_is_of_no_other_unit() -> None:
    assert likely_unit(1_300_000_000_000_000, NOW_US, "us", YEAR_US) is None


@pytest.mark.parametrize(
    ("time_us", "said"),
    [
        (NOW_US // 1_000, "looks like milliseconds read as microseconds: give the stream timestamp_unit='ms'"),
        (NOW_US // 1_000_000, "looks like seconds read as microseconds: give the stream timestamp_unit='s'"),
        (NOW_US * 1_000, "looks like nanoseconds read as microseconds: give the stream timestamp_unit='ns'"),
        (NOW_US - 3 * YEAR_US, "if the time is right, set event_time_warning_s higher"),
    ],
)
def test_the_warning_names_the_record_both_times_and_the_likely_fix(time_us: int, said: str) -> None:
    text = warning_of(FarTime("clicks", 3, 17, time_us, NOW_US), "us", YEAR_US)
    assert text.startswith(f"stream 'clicks' partition 3 offset 17: the event time is {time_text(time_us)}, ")
    assert "the record's own timestamp 2023-11-14T22:13:20Z" in text and "(31,536,000 s)" in text
    assert said in text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_finite_number_is_no_time(number: float) -> None:
    with pytest.raises(OutOfRangeError, match="expected a time as a finite number"):
        in_us(number, "s")
