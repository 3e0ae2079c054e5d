"""What growth does to jobs that do not see it at once: between two runs, twice between two looks, before there was state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.keys.hashing import partition_of
from headrace.testing import Driver

KEYS = [f"user-{number}" for number in range(40)]
SERDES: dict[str, Any] = {"key": hr.String(), "value": hr.Long()}


def send(driver: Driver, value: int, believed: int) -> None:
    """A record for every key, by a producer that believes in so many partitions."""
    for key in KEYS:
        driver.send("in", key, value, partition=partition_of(key.encode(), believed))
    driver._flush()


def ordered(app_id: str = "seen") -> hr.App:
    app = hr.App(app_id)
    records = app.stream("in", **SERDES)
    records.group_by_key().aggregate(
        initial="", function=lambda seen, record: seen + str(record.value), value=hr.String(), store="seen"
    )
    return app


@pytest.mark.parametrize("steps", [(8, 16), (12, 24), (8, 24), (8, 16, 48)])
def test_a_stream_that_grows_several_times_unseen_keeps_each_keys_order(tmp_path: Path, steps: tuple[int, ...]) -> None:
    overrides = ["max_records_per_round=3"]
    with Driver(ordered(), partitions=4, directory=tmp_path, overrides=overrides) as d:
        send(d, 1, 4)
        d.run()
        send(d, 2, 4)
        for value, count in enumerate(steps, 3):
            d._system.expand_stream("in", count)
            send(d, value, count)
    with Driver(ordered(), directory=tmp_path, overrides=overrides) as d:
        d.run()
        assert d.store("seen").all() == dict.fromkeys(KEYS, "".join(map(str, range(1, len(steps) + 3))))


@pytest.mark.parametrize("is_read_again", [False, True])
def test_state_that_comes_after_a_growth_is_shared_out_by_the_first_number(tmp_path: Path, is_read_again: bool) -> None:
    def made(counts: bool) -> hr.App:
        app = hr.App("later")
        records = app.stream("in", reset_offset=is_read_again and counts, **SERDES)
        records.to("out")
        if counts:
            records.group_by_key().count(store="n").to("counts")
        return app

    with Driver(made(counts=False), partitions=4, directory=tmp_path) as d:
        send(d, 1, 4)
        d.run()
        d.expand("in", 8)
        assert len(list(d._prepared.plan.model.tasks)) == 8
        send(d, 2, 4)  # by a producer that has not heard of it yet
        send(d, 3, 8)
        if is_read_again:
            d.run()
    with Driver(made(counts=True), directory=tmp_path) as d:
        d.run()
        assert len(list(d._prepared.plan.model.tasks)) == 4
        expected = 3 if is_read_again else 2
        assert sorted(d.store("n").items()) == [(key, expected) for key in sorted(KEYS)], "a key is in two tasks"
    with Driver(made(counts=True), directory=tmp_path) as d:
        d.expand("in", 16)
        assert len(list(d._prepared.plan.model.tasks)) == 4


def test_a_job_that_begins_anew_at_the_end_begins_there_in_new_partitions_too(tmp_path: Path) -> None:
    app = hr.App("latest")
    app.stream("in", start="latest", reset_offset=True, **SERDES).to("out")
    with Driver(app, partitions=4, directory=tmp_path) as d:
        send(d, 1, 4)
        d.run()
        d._system.expand_stream("in", 8)
        send(d, 2, 8)
    with Driver(app, directory=tmp_path) as d:
        d.run()
        assert [record.value for record in d.read("out", from_start=True)] == [1] * 40
        d.expand("in", 16)  # while it runs, nothing begins anew
        send(d, 3, 16)
        d.run()
        assert sorted(record.value for record in d.read("out", from_start=True)) == [1] * 40 + [3] * 40


@pytest.mark.spark
def test_a_round_that_is_cut_short_writes_nothing_twice(tmp_path: Path) -> None:
    app = hr.App("cut")
    records = app.stream("in", **SERDES)
    records.filter("value >= 0").to("out")  # read by the engine
    records.group_by_key().count(store="n")  # read by the worker itself
    with Driver(app, partitions={"in": 2, "out": 2}, directory=tmp_path, overrides=["max_round_ms=1"]) as d:
        for number in range(300):
            d.send("in", f"k{number % 20}", number)
            if number % 50 == 0:
                d._flush()
        d.run()
        assert sorted(record.value for record in d.read("out")) == list(range(300))
        assert sum(d.store("n").all().values()) == 300
