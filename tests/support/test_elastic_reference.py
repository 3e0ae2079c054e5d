"""The reference of what must come of inputs agrees with a job, at any factor and wherever its rounds are cut."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import headrace as hr
from headrace.testing import Driver
from support.checker import Row
from support.elastic_reference import (
    closed_sessions,
    closed_windows,
    last_counts,
    no_record_is_later_than,
    without_duplicates,
)

SIZE_US, GRACE_US, GAP_US, WITHIN_US = 100, 20, 15, 60


def rows_of(seed: int) -> list[Row]:
    """Rows of 8 keys, in one partition; none is later than the grace."""
    random, newest_us, rows = Random(seed), 1_000, []
    for _ in range(120):
        time_us = newest_us - random.randint(0, GRACE_US)
        newest_us = max(newest_us, time_us + random.randint(0, 12))
        rows.append({"key": b"k%d" % random.randrange(8), "value": 1, "timestamp_us": max(time_us, newest_us - GRACE_US)})
    return [*rows, {"key": b"k0", "value": 1, "timestamp_us": newest_us}]  # by its round has closed what closes


def application(factor: int) -> hr.App:
    app = hr.App("reference", elasticity_factor=factor)
    rows = app.stream("in", key=hr.Bytes(), value=hr.Json())
    grouped = rows.group_by_key()
    grouped.count(store="counts").to_stream().to("counted", value=hr.Long())
    hours = grouped.windowed_by(hr.Tumbling(f"{SIZE_US} us", grace=f"{GRACE_US} us")).count(store="hours")
    hours.suppress(hr.until_window_closes()).to_stream().to("closed", value=hr.Long())
    sessions = grouped.windowed_by(hr.Session(f"{GAP_US} us", grace=f"{GRACE_US} us")).count(store="sessions")
    sessions.suppress(hr.until_window_closes()).to_stream().to("visits", value=hr.Long())
    rows.drop_duplicates(within=f"{WITHIN_US} us", name="once").to("once")
    return app


@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_a_job(factor: int, seed: int) -> None:
    rows, random = rows_of(seed), Random(seed)
    with Driver(application(factor)) as driver:
        for number, row in enumerate(rows):
            if number == len(rows) - 1 or random.random() < 0.1:
                driver.run()
            driver.send("in", row["key"], row["value"], at=row["timestamp_us"])
        driver.run()
        assert {key: driver.store("counts").get(key) for key in {row["key"] for row in rows}} == last_counts(rows)
        found = {name: driver.read(name) for name in ("closed", "visits", "once")}
    for name, expected in (
        ("closed", closed_windows(rows, SIZE_US, GRACE_US)),
        ("visits", closed_sessions(rows, GAP_US, GRACE_US)),
    ):
        assert expected, name
        got = Counter(((r.key.key, r.key.start_us, r.key.end_us), r.value) for r in found[name] if r.value is not None)
        assert got == Counter(expected.items()), name
    expected_once = Counter((row["key"], row["timestamp_us"]) for row in without_duplicates(rows, WITHIN_US))
    assert 0 < expected_once.total() < len(rows)
    assert Counter((record.key, record.timestamp_us) for record in found["once"]) == expected_once


def test_inputs_whose_results_cuts_would_decide_are_refused() -> None:
    rows = [{"key": b"a", "timestamp_us": time_us} for time_us in (100, 79)]
    assert no_record_is_later_than(rows, 21) == 2
    with pytest.raises(AssertionError, match="row 1: 21 µs late, expected at most 20"):
        closed_windows(rows, SIZE_US, 20)


def test_partitions_have_watermarks_of_their_own() -> None:
    rows = [{"key": b"a", "timestamp_us": 10}, {"key": b"b", "timestamp_us": 500, "partition": 1}]
    assert closed_windows(rows, 100, 0) == {}
    assert closed_windows([*rows, {"key": b"a", "timestamp_us": 100}], 100, 0) == {(b"a", 0, 100): 1}
