"""Streams that grow under state: whichever grouper shares them out, a key finds its state, and what is joined still meets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

KEYS = [f"key-{number}" for number in range(24)]
SERDES: dict[str, Any] = {"key": hr.String(), "value": hr.Long()}


class Halves(hr.SystemStreamPartitionGrouper):
    """Two tasks: the even partitions in one, the odd ones in the other."""

    def group(self, previous_assignment: Any, ssps: Iterable[hr.SystemStreamPartition]) -> Any:
        tasks: dict[hr.TaskName, set[hr.SystemStreamPartition]] = {}
        for ssp in ssps:
            tasks.setdefault(hr.TaskName.parse(f"Partition_{ssp.partition % 2}"), set()).add(ssp)
        return tasks


class OlderByPartition:
    def group(self, ssps: Iterable[hr.SystemStreamPartition]) -> Any:
        return {hr.TaskName.parse(f"Partition_{ssp.partition}"): [ssp] for ssp in ssps}


def counted(grouper: Any = None) -> hr.App:
    app = hr.App("grown") if grouper is None else hr.App("grown", ssp_grouper=grouper)
    app.stream("in", **SERDES).group_by_key().count(store="c").to("out")
    return app


def send_all(driver: Driver, stream: str = "in", value: int = 1) -> None:
    for key in KEYS:
        driver.send(stream, key, value)


def task_names(driver: Driver) -> list[str]:
    return [str(task.name) for task in driver._prepared.plan.model.tasks]


@pytest.mark.parametrize(
    "grouper",
    [None, "GroupByPartitionFixedTaskNum", "system_stream_partition", Halves],
    ids=["unset", "fixed", "ssp", "own"],
)
def test_a_key_finds_its_state_through_a_chain_of_expansions_and_a_new_start(tmp_path: Path, grouper: Any) -> None:
    with Driver(counted(grouper), partitions=2, directory=tmp_path) as d:
        names = task_names(d)
        for partitions in (4, 12):
            send_all(d)
            d.expand("in", partitions)
            assert task_names(d) == names
        send_all(d)
        d.run()
        assert d.store("c").all() == dict.fromkeys(KEYS, 3)
    with Driver(counted(grouper), directory=tmp_path) as d:
        assert task_names(d) == names
        send_all(d)
        d.run()
        assert d.store("c").all() == dict.fromkeys(KEYS, 4)


@pytest.mark.filterwarnings("ignore:.*OlderByPartition.group:DeprecationWarning")
def test_an_older_grouper_that_knows_nothing_of_before_is_refused_when_a_stream_grows() -> None:
    words = "ssp_grouper OlderByPartition: partition 2 of stream 'in' is new, and its keys were in partition 0"
    with Driver(counted(OlderByPartition), partitions=2) as d:
        send_all(d)
        d.run()
        with pytest.raises(hr.IncompatibleChangeError, match=words):
            d.expand("in", 4)


def joined() -> hr.App:
    app = hr.App("grown")
    prices = app.table("prices", store="prices", **SERDES)
    app.stream("in", **SERDES).join(prices, lambda record, price: record + price, value=hr.Long()).to("out")
    return app


@pytest.mark.parametrize("grows", ["in", "prices"])
def test_what_is_joined_meets_though_one_side_grew(tmp_path: Path, grows: str) -> None:
    with Driver(joined(), partitions={"in": 2, "prices": 2}, directory=tmp_path) as d:
        send_all(d, "prices", 100)
        d.run()
        d.expand(grows, 8)
        for number, key in enumerate(KEYS):
            d.send("prices", key, 1000 * number)
        d.run()
        send_all(d, "in", 7)
        d.run()
        expected = sorted(1000 * number + 7 for number in range(len(KEYS)))
        assert sorted(record.value for record in d.read("out")) == expected
    with Driver(joined(), directory=tmp_path) as d:
        send_all(d, "in", 8)
        d.run()
        assert sorted(record.value for record in d.read("out"))[1::2] == [value + 1 for value in expected]


def repartitioned(partitions: int | None) -> hr.App:
    app = hr.App("grown")
    apart = app.stream("in", **SERDES).repartition(hr.Repartitioned(name="apart", number_of_partitions=partitions))
    apart.group_by_key().count(store="c")
    return app


def test_an_expanded_repartition_stream_may_be_asked_for_as_it_was_or_as_it_is(tmp_path: Path) -> None:
    stream = "grown-apart-repartition"
    with Driver(repartitioned(2), partitions=1, directory=tmp_path) as d:
        send_all(d)
        d.run()
        d.expand(stream, 4)
        d.expand(stream, 8)
        send_all(d)
        d.run()
    for number, asked in enumerate((2, 4, 8, None)):
        with Driver(repartitioned(asked), directory=tmp_path) as d:
            send_all(d)
            d.run()
            assert d.store("c").all() == dict.fromkeys(KEYS, 3 + number)
    words = r"exists with 8 partitions \(it was expanded from 2, 4\), but the application requests 6"
    with pytest.raises(hr.IncompatibleChangeError, match=words):
        Driver(repartitioned(6), directory=tmp_path).open()


def test_what_inherited_its_number_keeps_it_when_its_source_grows(tmp_path: Path) -> None:
    with Driver(repartitioned(None), partitions=2, directory=tmp_path) as d:
        send_all(d)
        d.expand("in", 6)
        send_all(d)
        d.run()
        assert d._prepared.plan.model.partition_counts == {"in": 6, "grown-apart-repartition": 2}
    with Driver(repartitioned(None), directory=tmp_path) as d:
        send_all(d)
        d.run()
        assert d.store("c").all() == dict.fromkeys(KEYS, 3)


def test_the_ways_out_of_a_growth_that_nobody_can_follow(tmp_path: Path) -> None:
    """What the refusal says to do, done: without state it may be declared otherwise; anybody follows the first count."""

    def copied(partitioning: str) -> hr.App:
        app = hr.App("grown")
        app.stream("in", **SERDES, partitioning=partitioning).to("out")
        return app

    with Driver(copied("hash"), partitions=4, directory=tmp_path) as d:
        send_all(d)
        d.run()
        d._system.expand_stream("in", 6)
    with pytest.raises(hr.IncompatibleChangeError, match="and might overtake them") as raised:
        Driver(copied("hash"), directory=tmp_path).open()
    assert 'declare the stream with partitioning="other"' in str(raised.value)
    assert "headrace stream expand in --partitions 12 --system " in str(raised.value)
    with Driver(copied("other"), directory=tmp_path) as d:
        send_all(d)
        d.run()
        assert len(d.read("out")) == 2 * len(KEYS)
        d._system.expand_stream("in", 12)
    with Driver(copied("hash"), directory=tmp_path / "anew", partitions=4) as d:
        send_all(d)
        d.run()
        d._system.expand_stream("in", 6)
        d._system.expand_stream("in", 12)
    with Driver(copied("hash"), directory=tmp_path / "anew") as d:
        send_all(d)
        d.run()
        assert len(d.read("out")) == 2 * len(KEYS)


def test_a_stream_that_comes_back_grown_finds_its_tasks_and_one_that_was_made_anew_begins_afresh(tmp_path: Path) -> None:
    def counting(**stores: str) -> hr.App:
        app = hr.App("back")
        for stream, store in stores.items():
            app.stream(stream, **SERDES).group_by_key().count(store=store).to(f"out-{stream}")
        return app

    def owners(driver: Driver, stream: str) -> dict[int, str]:
        tasks = driver._prepared.plan.model.tasks
        return {ssp.partition: str(task.name) for task in tasks for ssp in task.ssps if ssp.stream == stream}

    with Driver(counting(a="of-a", b="of-b"), partitions=2, directory=tmp_path) as d:
        send_all(d, "b")
        d.run()
    with Driver(counting(a="of-a"), directory=tmp_path) as d:
        d._system.expand_stream("b", 4)
        d.run()
    with Driver(counting(a="of-a", b="again"), directory=tmp_path) as d:
        assert owners(d, "b") == {0: "Partition_0", 1: "Partition_1", 2: "Partition_0", 3: "Partition_1"}
    with Driver(counting(a="of-a"), directory=tmp_path) as d:
        d._system.delete_stream("b")
        d._system.create_stream("b", 3)
    with Driver(counting(a="of-a", b="anew"), directory=tmp_path) as d:
        assert owners(d, "b") == {0: "Partition_0", 1: "Partition_1", 2: "Partition_2"}
        send_all(d, "b")
        d.run()
        assert {record.key: record.value for record in d.read("out-b")} == dict.fromkeys(KEYS, 1)
