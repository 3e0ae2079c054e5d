"""Streams that are merged right in front of an operator with state: a key's records must come to one task."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import TopologyError
from headrace.testing import Driver

KEYS = [f"key-{number}" for number in range(12)]


def application(grouper: Any = None, repartition: bool = False) -> hr.App:
    app = hr.App("merged") if grouper is None else hr.App("merged", ssp_grouper=grouper)
    both = app.stream("a", key=hr.String(), value=hr.String()).merge(app.stream("b", key=hr.String(), value=hr.String()))
    if repartition:
        both = both.repartition(name="together")
    both.group_by_key().reduce(lambda state, new: state + new, store="texts").to_stream().to("out")
    return app


def texts_of(app: hr.App, partitions: dict[str, int]) -> dict[Any, Any]:
    with Driver(app, partitions=partitions) as driver:
        for number, key in enumerate(KEYS):
            driver.send("a", key, "1", at=number * 10)
            driver.send("b", key, "2", at=number * 10 + 1)
            driver.send("a", key, "3", at=number * 10 + 2)
        driver.run()
        for key in KEYS:
            driver.send("b", key, "4")
        driver.run()
        return driver.store("texts").all()


def test_of_as_many_partitions_they_meet_in_the_order_of_time() -> None:
    assert texts_of(application(), {"a": 3, "b": 3}) == dict.fromkeys(KEYS, "1234")


def test_of_different_numbers_of_partitions_they_are_refused_and_the_way_out_works() -> None:
    words = r"'texts' keeps state.*streams 'a' \(2 partitions\) and 'b' \(3 partitions\): a key's records(.|\n)*repartition\(\)"
    with pytest.raises(TopologyError, match=words):
        texts_of(application(), {"a": 2, "b": 3})
    texts = texts_of(application(repartition=True), {"a": 2, "b": 3})
    assert {key: sorted(text) for key, text in texts.items()} == {key: list("1234") for key in KEYS}


def test_a_grouper_that_puts_them_into_different_tasks_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"their partitions 0 are in different tasks: .*log,a,0.* and .*log,b,0"):
        texts_of(application("system_stream_partition"), {"a": 2, "b": 2})


def test_without_state_any_streams_may_be_merged() -> None:
    app = hr.App("merged", ssp_grouper="system_stream_partition")
    app.stream("a", key=hr.String()).merge(app.stream("b", key=hr.String())).to("out")
    with Driver(app, partitions={"a": 2, "b": 3, "out": 1}) as driver:
        for key in KEYS:
            driver.send("a", key, b"v")
            driver.send("b", key, b"v")
        driver.run()
        assert sorted(record.key for record in driver.read("out", key=hr.String())) == sorted(KEYS * 2)
