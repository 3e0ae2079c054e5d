"""Rewinds of an application whose inputs change, or that other startpoints are set beside: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

import headrace as hr
from headrace.client.job_look import JobLook
from headrace.client.startpoints import Startpoints
from headrace.errors import StateError
from headrace.testing import Driver

EACH_ROUND = ["state_version_interval_s=0"]


def app_of(*streams: str) -> hr.App:
    """The streams merged, counted by key, and behind a repartition stream by value."""
    app = hr.App("changing")
    first, *others = (app.stream(name, key=hr.String(), value=hr.String()) for name in streams)
    for other in others:
        first = first.merge(other)
    first.group_by_key().count(store="keys")
    first.select_key(value_of, key=hr.String()).repartition(name="by-value").group_by_key().count(store="values")
    return app


def value_of(record: hr.Record) -> str:
    return str(record.value)


@pytest.fixture
def numbers() -> Iterator[int]:
    return count()


def send(driver: Driver, stream: str, numbers: Iterator[int], records: int, partitions: int = 1) -> None:
    for number, _ in zip(numbers, range(records), strict=False):
        driver.send(stream, f"k{number % partitions}", f"v{number % 4}", partition=number % partitions)


def counted(driver: Driver) -> tuple[int, int]:
    return sum(driver.store("keys").all().values()), sum(driver.store("values").all().values())


def points(driver: Driver) -> Startpoints:
    return Startpoints("changing", driver._config(), driver.app.topology(), driver._system)


@pytest.mark.parametrize("then", ["deleted", "replaced"])
def test_a_rewind_is_not_undone_when_its_task_has_got_other_partitions(then: str) -> None:
    with Driver(app_of("a"), partitions=2, overrides=EACH_ROUND) as driver:
        for _ in range(3):
            send(driver, "a", count(), 6, 2)
            driver.run()
        ids = driver.startpoint("a", 4, state="rewind")
        driver._replan()  # taken up, and the job is killed before its first round
        driver.expand("a", 4)
        if then == "deleted":
            with points(driver) as known:
                known.delete(*ids)
        else:
            for partition in range(2):
                driver.startpoint("a", 3, partition, state="rewind")
        driver.run()
        send(driver, "a", count(), 8, 4)
        driver.run()
        assert counted(driver) == (26, 26)


def test_what_came_of_an_input_that_was_taken_out_is_not_forgotten(tmp_path: Path, numbers: Iterator[int]) -> None:
    with Driver(app_of("a", "b"), directory=tmp_path, overrides=EACH_ROUND) as driver:
        for _ in range(4):
            send(driver, "a", numbers, 5)
            send(driver, "b", numbers, 5)
            driver.run()
            driver.advance("1 second")
    with Driver(app_of("a"), directory=tmp_path, overrides=EACH_ROUND, partitions=1) as driver:
        send(driver, "a", numbers, 5)
        driver.run()
        with pytest.raises(StateError, match="no kept version of its state"):
            driver.startpoint("a", 10, state="rewind")
        assert counted(driver) == (45, 45)
    with Driver(app_of("a", "b"), directory=tmp_path, overrides=EACH_ROUND) as driver:
        driver.run()
        assert counted(driver) == (45, 45)


@pytest.mark.parametrize("order", [("rewind", "keep"), ("keep", "rewind"), ("rewind all", "plan", "keep")])
def test_a_partition_that_goes_back_with_another_is_not_set_forward_again(order: Sequence[str], numbers: Iterator[int]) -> None:
    with Driver(app_of("a"), partitions=2, overrides=EACH_ROUND) as driver:
        for _ in range(4):
            send(driver, "a", numbers, 20, 2)
            driver.run()
            driver.advance("1 second")
        with points(driver) as known:
            for what in order:
                if what == "plan":
                    driver._replan()
                elif what == "keep":
                    known.set("a", "latest", partition=0)
                else:
                    known.set("a", 20, partition=1 if what == "rewind" else None, state="rewind")
        driver.run()
        assert counted(driver) == (80, 80)


def test_what_will_be_passed_over_is_no_lag(numbers: Iterator[int]) -> None:
    with Driver(app_of("a"), overrides=EACH_ROUND) as driver:
        for _ in range(4):
            send(driver, "a", numbers, 10)
            driver.run()
            driver.advance("1 second")
        driver.startpoint("a", 20, state="rewind")
        driver._replan()
        checkpoints = driver._system.job_store("changing").checkpoints()
        positions = {ssp.stream: (ssp, at) for one in checkpoints.values() for ssp, at in one.positions.items()}
        look = JobLook(driver._system, "changing")
        assert {stream: look.lag(ssp, at) for stream, (ssp, at) in positions.items()} == {
            "a": 20,
            "changing-by-value-repartition": 0,
        }
        assert {at for _, at in positions.values()} == {20}
