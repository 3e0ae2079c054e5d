"""Windows of time, against a dumb model that tries every start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.windows import RETENTION_DEFAULT_US, Windows

windows = st.integers(1, 60).flatmap(
    lambda size: st.builds(
        Windows, st.just(size), st.integers(1, size), st.none() | st.integers(0, 30), st.integers(0, 30)
    )
)
moments = st.integers(-200, 200)


def starts_by_trying(found: Windows, at_us: int) -> list[int]:
    return [
        start
        for start in range(at_us - found.size_us - found.advance_us, at_us + found.advance_us + 1)
        if start % found.advance_us == 0 and start <= at_us < start + found.size_us
    ]


@given(windows, moments)
def test_the_windows_of_a_moment(found: Windows, at_us: int) -> None:
    assert found.starts_of(at_us) == starts_by_trying(found, at_us)


@given(windows, st.integers(-(2**60), 2**60))
def test_every_moment_is_in_at_least_one_window(found: Windows, at_us: int) -> None:
    starts = found.starts_of(at_us)
    assert starts
    assert all(start % found.advance_us == 0 and start <= at_us < start + found.size_us for start in starts)
    assert len(starts) in (found.size_us // found.advance_us, -(-found.size_us // found.advance_us))


@given(st.integers(1, 10**9), st.integers(-(2**60), 2**60))
def test_a_tumbling_window_is_one(size_us: int, at_us: int) -> None:
    assert Windows(size_us, size_us).starts_of(at_us) == [at_us // size_us * size_us]


@given(windows, moments, st.none() | moments)
def test_a_record_is_late_once_the_watermark_reached_the_end_and_the_grace(
    found: Windows, start_us: int, watermark_us: int | None
) -> None:
    kept_us = found.retention_us if found.grace_us is None else found.grace_us
    last_in_time = start_us + found.size_us + kept_us - 1  # the last watermark at which a record is still taken
    assert found.is_late(start_us, watermark_us) == (watermark_us is not None and watermark_us > last_in_time)


@given(windows, moments)
def test_a_window_is_kept_until_it_closes_and_as_long_as_its_retention_says(found: Windows, start_us: int) -> None:
    end_us = start_us + found.size_us
    assert found.expires_us(end_us) == max(found.closes_us(end_us), end_us + found.retention_us)


def test_grace_none_and_zero_differ() -> None:
    hour = 3_600_000_000
    assert not Windows(hour, hour).is_late(0, hour)
    assert not Windows(hour, hour).is_late(0, hour + RETENTION_DEFAULT_US - 1)
    assert Windows(hour, hour).is_late(0, hour + RETENTION_DEFAULT_US)
    assert Windows(hour, hour, grace_us=0).is_late(0, hour)
    assert not Windows(hour, hour, grace_us=0).is_late(0, hour - 1)


@pytest.mark.parametrize("arguments", [(0, 1), (1, 0), (-1, -1), (5, 6), (5, 5, -1), (5, 5, None, -1), (5, 5, 0, -1)])
def test_windows_that_make_no_sense(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected more than 0|leave gaps|must not be below 0"):
        Windows(*arguments)
