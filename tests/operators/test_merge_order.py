"""The order in which a task that reads several SSPs takes its records: by timestamp, at equal times tables first, then by
stream, partition and offset, and never past a smaller offset of the same SSP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from headrace.worker.task import TaskRun

# "zones" is the last by name and is a table; "birds" is declared before "apples"
STREAMS = ("apples", "birds", "zones")
RECORDS = st.lists(
    st.tuples(st.sampled_from(STREAMS), st.integers(0, 1), st.integers(-3, 3)), max_size=14
)  # stream, partition, time
Place = tuple[str, int, int]  # stream, partition, offset


class OneTask(hr.SystemStreamPartitionGrouper):
    def group(self, previous_assignment: Any, ssps: Iterable[hr.SystemStreamPartition]) -> Any:
        return {hr.TaskName.parse("Partition_0"): frozenset(ssps)}


class Seen(hr.Processor[str, int, str, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        self.context.forward(key="all", value=[record.stream, record.partition, record.offset])


def app_of() -> hr.App:
    app = hr.App("merge", ssp_grouper=OneTask)
    birds = app.stream("birds", key=hr.String(), value=hr.Long())
    apples = app.stream("apples", key=hr.String(), value=hr.Long())
    app.table("zones", key=hr.String(), value=hr.Long(), store="zones").to_stream().to("zones-out")
    birds.merge(apples).process(Seen, key=hr.String(), value=hr.Json()).to("seen")
    return app


def expected_order(records: list[tuple[str, int, int]]) -> list[Place]:
    """The plain way: again and again take the first record of the SSP whose turn it is."""
    queues: dict[tuple[str, int], list[tuple[int, int]]] = {}  # SSP: (time, offset)
    for stream, partition, time in records:
        queue = queues.setdefault((stream, partition), [])
        queue.append((time, len(queue)))
    order: list[Place] = []
    held = dict.fromkeys(queues, -(10**9))  # an SSP's time does not go back
    while any(queues.values()):
        turns = [
            (max(held[ssp], queue[0][0]), ssp[0] != "zones", *ssp) for ssp, queue in queues.items() if queue
        ]
        time, _, stream, partition = min(turns)
        _, offset = queues[stream, partition].pop(0)
        held[stream, partition] = time
        order.append((stream, partition, offset))
    return order


def taken_and_seen(records: list[tuple[str, int, int]]) -> tuple[list[Place], list[Place]]:
    """The order that the task gives its records, and that in which a processor behind a merge is given the streams'."""
    ranked: dict[int, Place] = {}
    feed_ranked = TaskRun.feed_ranked

    def noted(self: TaskRun, endpoint: int, rows: Any, prepared: bool) -> None:
        assert (np.diff(rows.rank) > 0).all()
        for rank, ssp, offset in zip(rows.rank.tolist(), rows.ssp.tolist(), rows.offset.tolist(), strict=True):
            assert rank not in ranked
            ranked[rank] = (*self.streams[ssp], offset)
        feed_ranked(self, endpoint, rows, prepared)

    with mock.patch.object(TaskRun, "feed_ranked", noted), Driver(app_of(), partitions=2) as d:
        for number, (stream, partition, time) in enumerate(records):
            d.send(stream, f"k{number}", number, at=time, partition=partition)
        assert d.run() <= 1
        seen = [tuple(r.value) for r in d.read("seen")]  # of one key, and so of one partition
        return [ranked[rank] for rank in sorted(ranked)], seen


@settings(max_examples=40)
@given(records=RECORDS)
def test_records_are_taken_in_the_order_of_the_plain_way(records: list[tuple[str, int, int]]) -> None:
    taken, seen = taken_and_seen(records)
    assert taken == expected_order(records)
    assert seen == [place for place in taken if place[0] != "zones"]


@pytest.mark.parametrize("first", STREAMS)
def test_tables_before_streams_at_equal_times(first: str) -> None:
    """Whatever was written first, and though the table's name is the last."""
    names = [first, *(name for name in STREAMS if name != first)]
    taken, _ = taken_and_seen([(name, partition, 7) for name in names for partition in (1, 0)])
    assert taken == [("zones", 0, 0), ("zones", 1, 0), ("apples", 0, 0), ("apples", 1, 0), ("birds", 0, 0), ("birds", 1, 0)]


def test_a_later_table_comes_after_and_a_record_out_of_order_waits_for_those_before_it() -> None:
    taken, _ = taken_and_seen([("zones", 0, 2), ("birds", 0, 3), ("birds", 0, 1), ("apples", 0, 2), ("zones", 0, 3)])
    assert taken == [("zones", 0, 0), ("apples", 0, 0), ("zones", 0, 1), ("birds", 0, 0), ("birds", 0, 1)]


def test_a_stream_that_is_merged_with_itself_has_each_record_twice() -> None:
    app = hr.App("twice")
    read = app.stream("in", key=hr.String(), value=hr.Long())
    both = read.filter(lambda r: r.value > 0)
    both.merge(both, read, both).map_values(lambda r: r.value, value=hr.Long()).to("out")
    read.merge(read).group_by_key().count(store="n")
    with Driver(app) as d:
        for value in (1, 0, 2):
            d.send("in", "k", value)
        d.run()
        assert [r.value for r in d.read("out")] == [1, 1, 1, 1, 0, 2, 2, 2, 2]
        assert d.store("n").all() == {"k": 6}
