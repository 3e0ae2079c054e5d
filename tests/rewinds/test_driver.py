"""`Driver.startpoint` of an application with a repartition stream: the counts behind it go back too, and come out exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

TEXT = "a stream of words that is counted by how long each of them is here"
WORDS = TEXT.split()


def by_length(record: Any) -> int:
    return len(record.value)


def words() -> hr.App:
    app = hr.App("words")
    records = app.stream("lines", key=hr.String(), value=hr.String())
    records.group_by(by_length, key=hr.Int()).count(store="lengths").to_stream().to("lengths")
    return app


@pytest.fixture
def driver() -> Iterator[Driver]:
    """One that has read all words but the last three, three at a time, and kept a version after each."""
    with Driver(words(), partitions=2, overrides=["state_version_interval_s=0", "keep_state_versions=10"]) as made:
        for start in range(0, len(WORDS) - 3, 3):
            send(made, *WORDS[start : start + 3])
            made.run()
        yield made


def send(driver: Driver, *some: str) -> None:
    for word in some:
        driver.send("lines", word, word, partition=len(word) % 2)  # some to each


def counted(*some: str) -> dict[int, int]:
    return dict(Counter(len(word) for word in some))


def assert_exact(driver: Driver) -> None:
    """In the store, and in what was written last; with words that come after going back."""
    send(driver, *WORDS[-3:])
    driver.run()
    assert driver.store("lengths").all() == counted(*WORDS)
    assert {record.key: record.value for record in driver.read("lengths", from_start=True)} == counted(*WORDS)
    assert driver.run() == 0


@pytest.mark.parametrize(("startpoint", "partition"), [("earliest", None), ("earliest", 0), (3, 1), (1, None)])
def test_counts_behind_a_grouping_are_exact_after_a_rewind(driver: Driver, startpoint: Any, partition: int | None) -> None:
    read = counted(*WORDS[:-3])
    assert driver.store("lengths").all() == read
    driver.read("lengths")
    driver.startpoint("lines", startpoint, partition, state="rewind")
    assert driver.run() > 0
    assert driver.store("lengths").all() == read
    again = driver.read("lengths")
    assert again, "nothing went back behind the repartition stream"
    assert {record.key: record.value for record in again}.items() <= read.items()
    assert_exact(driver)


def test_with_one_after_the_other(driver: Driver) -> None:
    for startpoint in (4, 2, "earliest", 3):
        driver.startpoint("lines", startpoint, 1, state="rewind")
        driver.run()
        assert driver.store("lengths").all() == counted(*WORDS[:-3])
    assert_exact(driver)
