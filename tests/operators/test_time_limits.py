"""`suppress(hr.until_time_limit(...))`: of each key at most one update in a length of event time, the newest."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

SECOND = 1_000_000


def app_of(limit: str = "10 seconds", **keys: Any) -> hr.App:
    app = hr.App("limits", **keys)
    app.table("in", key=hr.String(), value=hr.Long()).suppress(hr.until_time_limit(limit), store="s").to_stream().to("out")
    return app


def given(driver: Driver) -> list[tuple[str, Any, int]]:
    return [(r.key, r.value, (r.timestamp_us or 0) // SECOND) for r in driver.read("out")]


@pytest.mark.parametrize("per_round", [1, 1000])
def test_the_newest_update_comes_when_the_first_has_waited(per_round: int) -> None:
    with Driver(app_of(max_records_per_round=per_round)) as d:
        for key, value, second in (("a", 1, 0), ("a", 2, 4), ("b", 7, 6), ("a", 3, 9)):
            d.send("in", key, value, at=second * SECOND)
        d.run()
        assert given(d) == []
        d.send("in", "c", 0, at=10 * SECOND)
        d.run()
        assert given(d) == [("a", 3, 9)]
        d.send("in", "a", 4, at=12 * SECOND)
        d.send("in", "c", 1, at=17 * SECOND)
        d.run()
        assert given(d) == [("b", 7, 6)]
        d.send("in", "z", 0, at=60 * SECOND)
        d.run()
        assert given(d) == [("c", 1, 17), ("a", 4, 12)]
        assert d.store("s").all() == {"z": 0}


@pytest.mark.parametrize("per_round", [1, 7, 1000])
@pytest.mark.parametrize("counted", [False, True])
def test_what_is_given_does_not_hang_on_where_rounds_are_cut(per_round: int, counted: bool) -> None:
    """As in Kafka Streams, which takes an update and then gives what has waited until its time."""
    app = hr.App("limits", max_records_per_round=per_round)
    numbers = app.stream("in", key=hr.String(), value=hr.Long())
    table = numbers.group_by_key().count() if counted else numbers.to_table()
    table.suppress(hr.until_time_limit("10 seconds"), store="s").to_stream().to("out")
    with Driver(app, partitions=1) as d:
        for second in range(60):
            d.send("in", "k", second, at=second * SECOND)
            d.send("in", "other", 0, at=second * SECOND)
        d.run()
        mine = [(value, second) for key, value, second in given(d) if key == "k"]
        assert mine == [(second + counted, second) for second in (10, 21, 32, 43, 54)]


def test_a_deletion_is_an_update() -> None:
    with Driver(app_of()) as d:
        d.send("in", "a", 1, at=0)
        d.send("in", "a", None, at=SECOND)
        d.run()
        assert d.store("s").all() == {"a": None}
        d.send("in", "b", 1, at=30 * SECOND)
        d.run()
        assert given(d) == [("a", None, 1)]


@pytest.mark.parametrize("factor", [1, 4])
def test_results_of_windows_are_limited_each_by_itself(factor: int) -> None:
    app = hr.App("limits", elasticity_factor=factor, max_records_per_round=1)
    visits = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("10 seconds")).count()
    visits.suppress(hr.until_time_limit("5 seconds"), store="s").to_stream().map(
        lambda r: (r.key.key, [r.key.start_us // SECOND, r.value]), key=hr.String(), value=hr.Json()
    ).to("out")
    with Driver(app) as d:
        for key, second in (("a", 1), ("a", 2), ("b", 3), ("a", 11), ("a", 12), ("a", 40)):
            d.send("in", key, 0, at=second * SECOND)
        d.run()
        assert sorted((r.key, r.value) for r in d.read("out")) == [("a", [0, 2]), ("a", [10, 2]), ("b", [0, 1])]


@pytest.mark.parametrize("limit", ["0 seconds", "soon"])
def test_what_is_no_limit_is_refused(limit: str) -> None:
    with pytest.raises(hr.TopologyError):
        app_of(limit)
