"""The public words for windows, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace.dsl.windows import Hopping, Tumbling
from headrace.errors import TopologyError
from headrace.model.windows import DAY_US, Windows

HOUR_US = 3_600_000_000


def test_tumbling() -> None:
    assert Tumbling("1 hour") == Windows(HOUR_US, HOUR_US, None, 7 * DAY_US)
    assert Tumbling(timedelta(hours=1), grace="0 seconds", retention="1 day") == Windows(HOUR_US, HOUR_US, 0, DAY_US)


def test_hopping() -> None:
    assert Hopping("1 hour", "20 minutes", grace="5 min") == Windows(HOUR_US, HOUR_US // 3, HOUR_US // 12, 7 * DAY_US)
    assert Hopping("1 hour", advance="1 hour") == Tumbling("1 hour")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Hopping("1 hour", "2 hours"), "the advance of 2 hours is above the size of 1 hour"),
        (lambda: Hopping("1 hour", "0 seconds"), "window advance '0 seconds': expected more than 0"),
        (lambda: Tumbling("0 ms"), "window size '0 ms': expected more than 0"),
        (lambda: Tumbling(3600), "window size 3600"),  # type: ignore[arg-type]
        (lambda: Tumbling("1 hour", grace="soon"), "Tumbling grace 'soon'"),
        (lambda: Hopping("1 hour", "1 min", retention="1 year"), "Hopping retention '1 year'"),
    ],
)
def test_what_makes_no_windows_is_refused(made: Callable[[], Any], told: str) -> None:
    with pytest.raises(TopologyError) as raised:
        made()
    assert told in str(raised.value)
