"""What a job writes while it reads again what it has read before carries the number of the replay; nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

KEYS = 4
ONE_BY_ONE = ["max_records_per_round=3"]


def marks(records: list[hr.Record]) -> list[int | None]:
    """Of each record the number of its replay, None without the header; it is there once at most."""
    found = [[int(value) for name, value in record.headers if name == "headrace.replay"] for record in records]
    assert all(len(numbers) <= 1 for numbers in found), f"marked more than once: {found}"
    return [numbers[0] if numbers else None for numbers in found]


def send(driver: Driver, first: int, count: int, headers: Any = ()) -> None:
    for number in range(first, first + count):
        driver.send("in", key=f"k{number % KEYS}", value=number, headers=headers)


def app_of(**keys: Any) -> tuple[hr.App, Any]:
    app = hr.App("again", **keys)
    return app, app.stream("in", key=hr.String(), value=hr.Long())


def test_the_second_pass_is_marked_and_neither_the_first_nor_what_comes_after_is() -> None:
    app, records = app_of()
    records.map_values(lambda record: record.value, value=hr.Long()).to("out")
    with Driver(app, overrides=ONE_BY_ONE) as driver:
        send(driver, 0, 10)
        driver.run()
        assert marks(driver.read("out")) == [None] * 10
        driver.startpoint("in", 4)
        send(driver, 10, 5)
        driver.run()
        found = driver.read("out")
        assert [record.value for record in found] == list(range(4, 15))
        assert marks(found) == [1] * 6 + [None] * 5
        driver.startpoint("in", "earliest")
        send(driver, 15, 2)
        driver.run()
        found = driver.read("out")
        assert [record.value for record in found] == [*range(15), 15, 16]
        assert marks(found) == [2] * 15 + [None] * 2


def test_one_round_does_not_mix_what_is_read_again_with_what_is_new() -> None:
    app, records = app_of()
    records.to("out")
    with Driver(app) as driver:  # as large a round as can be
        send(driver, 0, 10)
        driver.run()
        driver.startpoint("in", 5)
        send(driver, 10, 10)
        driver.run()
        assert marks(driver.read("out")) == [None] * 10 + [1] * 5 + [None] * 10


def test_a_partition_that_went_back_is_marked_and_others_are_not() -> None:
    app, records = app_of()
    records.map_values(lambda record: [record.partition, record.offset], value=hr.Json()).to("out")
    with Driver(app, partitions=3) as driver:
        send(driver, 0, 30)
        driver.run()
        driver.read("out")
        driver.startpoint("in", "earliest", partition=1)
        send(driver, 30, 30)
        driver.run()
        found = driver.read("out")
        ends = {0: 0, 1: 0, 2: 0}
        for record, mark in zip(found, marks(found), strict=True):
            partition, offset = record.value
            ends[partition] += mark is not None
            assert mark == (1 if partition == 1 and offset < ends[1] else None), f"{record}, {mark}"
        assert ends[1] > 0


@pytest.mark.parametrize("overrides", [[], ONE_BY_ONE])
def test_what_comes_of_a_replay_is_marked_behind_repartition_streams_too(overrides: list[str]) -> None:
    app, records = app_of()
    moved = records.select_key(lambda record: f"g{record.value % 2}", key=hr.String())
    counts = moved.repartition(hr.Repartitioned(name="first", number_of_partitions=1)).group_by_key().count(store="n")
    again = counts.to_stream().select_key(lambda record: "all", key=hr.String())
    again.repartition(hr.Repartitioned(name="second", number_of_partitions=1)).to("out")
    with Driver(app, overrides=overrides) as driver:
        send(driver, 0, 8)
        driver.run()
        first = driver.read("out")
        assert first
        assert set(marks(first)) == {None}
        driver.startpoint("in", 2)
        driver.run()
        second = driver.read("out")
        assert second
        assert set(marks(second)) == {1}
        send(driver, 8, 8)
        driver.run()
        third = driver.read("out")
        assert third
        assert set(marks(third)) == {None}
        assert third[-1].value + third[-2].value == 8 + 6 + 8, "with the state kept what was read again counts twice"


@pytest.mark.parametrize("name", ["headrace.replay", "headrace-replay"])
def test_headers_of_a_record_stay_and_a_mark_that_it_came_with_gives_way(name: str) -> None:
    """Also one of the name that older versions wrote."""
    app, records = app_of()
    records.to("out")
    with Driver(app) as driver:
        send(driver, 0, 2, headers=[("a", b"1"), (name, b"9"), ("b", None)])
        driver.run()
        passed_on = (("a", b"1"), (name, b"9"), ("b", None))
        assert [record.headers for record in driver.read("out")] == [passed_on] * 2, "what came with an input is passed on"
        driver.startpoint("in", "earliest")
        driver.run()
        assert [record.headers for record in driver.read("out")] == [(("a", b"1"), ("b", None), ("headrace.replay", b"1"))] * 2


def test_dead_letters_of_a_replay_are_marked() -> None:
    app, records = app_of(dead_letter_stream="dead")

    def refuse(record: Any) -> int:
        raise ValueError(f"no {record.value}")

    records.map_values(refuse, value=hr.Long()).to("out")
    with Driver(app) as driver:
        send(driver, 0, 3, headers=[("headrace.replay", b"9")])
        driver.run()
        assert marks(driver.read("dead")) == [9] * 3, "a letter has the record's own headers"
        driver.startpoint("in", 1)
        send(driver, 3, 1)
        driver.run()
        assert marks(driver.read("dead")) == [1, 1, None]


def test_a_record_that_fits_without_the_mark_only_is_set_aside_in_a_replay() -> None:
    app, records = app_of(dead_letter_stream="dead")
    records.map_values(lambda record: b"x" * record.value, value=hr.Bytes()).to("out")
    most = 64 * 1024 * 1024 - len(b"k0")
    with Driver(app) as driver:
        send(driver, most, 1)
        driver.run()
        assert len(driver.read("out")) == 1
        driver.startpoint("in", "earliest")
        driver.run()
        assert driver.read("out") == []
        assert marks(driver.read("dead")) == [1]


def test_a_driver_that_comes_later_marks_the_rest_of_a_replay(tmp_path: Any) -> None:
    app, records = app_of()
    records.to("out")
    with Driver(app, directory=tmp_path, overrides=ONE_BY_ONE) as driver:
        send(driver, 0, 10)
        driver.run()
        driver.startpoint("in", "earliest")
    with Driver(app, directory=tmp_path, overrides=ONE_BY_ONE) as driver:
        driver.run()
        assert marks(driver.read("out")) == [None] * 10 + [1] * 10


def test_a_replay_that_takes_the_state_back_marks_what_it_writes_and_counts_nothing_twice() -> None:
    app, records = app_of(state_version_interval_s=0)
    records.group_by_key().count(store="n").to_stream(emit="each").to("out")
    with Driver(app) as driver:
        send(driver, 0, 8)
        driver.run()
        first = driver.read("out")
        driver.startpoint("in", "earliest", state="rewind")
        send(driver, 8, 4)
        driver.run()
        second = driver.read("out")
        assert marks(second) == [1] * 8 + [None] * 4
        assert [(record.key, record.value) for record in second[:8]] == [(record.key, record.value) for record in first]
        assert {record.value for record in second[8:]} == {3}
