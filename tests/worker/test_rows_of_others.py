"""Rows that came to a container which does not take them are no rows to pass: they would be lost with its commit."""

from __future__ import annotations

import pytest

from headrace.errors import TopologyError
from headrace.exchange.messages import ContainerPlan, InputRange
from headrace.wiring.worker.engine_rows import _taken


def plan(lane: int, *ssps: int) -> ContainerPlan:
    numbers = [("kafka", "orders", 0), ("kafka", "orders", 1), ("kafka", "payments", 0)]
    ranges = [InputRange(ssp, 0, 10) for ssp in ssps]
    return ContainerPlan("1:source:7", 1, lane, numbers, [], ranges, 0, 10.0, "", "", "", "kafka", 1)


def test_the_rows_of_all_containers_that_are_here_come_through() -> None:
    rows = [(0, 2, "a"), (0, 0, "b"), (0, 2, "c")]
    assert list(_taken([plan(0, 0), plan(1, 2)], rows)) == rows


def test_a_row_that_none_of_them_takes_stops_the_job() -> None:
    rows = _taken([plan(0, 0), plan(3, 2)], [(0, 0, "a"), (0, 1, "b")])
    assert next(rows) == (0, 0, "a")
    with pytest.raises(TopologyError, match=r"round 1:source:7: rows of stream 'orders' partition 1 .* containers \[0, 3\]"):
        next(rows)
