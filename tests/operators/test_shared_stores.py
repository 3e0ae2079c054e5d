"""Stores that processors share: each sees what the others have written, in the order in which a task takes its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.core.topology.description import description_of
from headrace.testing import Driver
from operators.taken import Result, Sent, by_key, outcome

LOG = hr.ListStore("log", value=hr.String())


class Writes(hr.Processor):
    """Appends each value, and gives what is there then."""

    stores: ClassVar[Any] = [LOG]
    mark = "w"

    def process(self, record: hr.Record) -> None:
        log = self.context.store(LOG)
        log.append(f"{self.mark}{record.value}")
        self.context.forward(value=list(log))


class Takes(hr.Processor):
    """Takes the first value out, and gives what is left; the store is one that is declared again, and equally."""

    stores: ClassVar[Any] = [hr.ListStore("log", value=hr.String())]

    def process(self, record: hr.Record) -> None:
        log = self.context.store("log")
        first = log.pop_first("none")
        self.context.forward(value=[first, *log])


class WritesToo(Writes):
    mark = "v"


def of_two_streams(**keys: Any) -> hr.App:
    app = hr.App("shared", **keys)
    for stream, processor in (("l", Writes), ("r", Takes)):
        read = app.stream(stream, key=hr.String(), value=hr.Long())
        read.process(processor, name=f"{stream}-log", value=hr.Json()).to("out")
    return app


def of_one_stream(**keys: Any) -> hr.App:
    """Three processors behind one stream, two of them one behind the other."""
    app = hr.App("shared", **keys)
    read = app.stream("l", key=hr.String(), value=hr.Long())
    app.stream("r", key=hr.String(), value=hr.Long()).to("other")
    read.process(Writes, name="first", value=hr.Json()).process(Takes, name="second", value=hr.Json()).to("out")
    read.filter(lambda record: record.value % 2 == 0).process(WritesToo, name="third", value=hr.Json()).to("out")
    return app


def model_of_two_streams(taken: list[list[Sent]]) -> list[Result]:
    logs: dict[str, list[str]] = {}
    found: list[Result] = []
    for stream, key, value, time in (record for one in taken for record in one):
        log = logs.setdefault(key, [])
        first = []
        if stream == "l":
            log.append(f"w{value}")
        else:
            first = [log.pop(0) if log else "none"]
        found.append((key, first + log, time))
    return found


def model_of_one_stream(taken: list[list[Sent]]) -> list[Result]:
    logs: dict[str, list[str]] = {}
    found: list[Result] = []
    for stream, key, value, time in (record for one in taken for record in one):
        if stream == "l":
            log = logs.setdefault(key, [])
            log.append(f"w{value}")
            found.append((key, [log.pop(0), *log], time))
            if value % 2 == 0:
                log.append(f"v{value}")
                found.append((key, list(log), time))
    return found


def of_a_join(**keys: Any) -> hr.App:
    """Two processors behind a join with a table, whose results all come when the round ends."""
    app = hr.App("shared", **keys)
    table = app.table("r", key=hr.String(), value=hr.Long())
    joined = app.stream("l", key=hr.String(), value=hr.Long()).left_join(table, lambda left, _: left, value=hr.Long())
    joined.process(Writes, name="first", value=hr.Json()).to("out")
    joined.process(Takes, name="second", value=hr.Json()).to("out")
    return app


def model_of_a_join(taken: list[list[Sent]]) -> list[Result]:
    logs: dict[str, list[str]] = {}
    found: list[Result] = []
    for stream, key, value, time in (record for one in taken for record in one):
        if stream == "l":
            log = logs.setdefault(key, [])
            log.append(f"w{value}")
            found.append((key, list(log), time))
            found.append((key, [log.pop(0), *log], time))
    return found


MODELS = {
    "two streams": (of_two_streams, model_of_two_streams),
    "one stream": (of_one_stream, model_of_one_stream),
    "a join": (of_a_join, model_of_a_join),
}
SENT = st.lists(st.tuples(st.sampled_from("lr"), st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 20)), max_size=25)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15)
@given(st.lists(st.tuples(st.booleans(), SENT), max_size=3), st.sampled_from([1, 3, 1000]), st.sampled_from([1, 4]))
def test_each_sees_the_writes_of_the_others(name: str, runs: Any, per_round: int, factor: int) -> None:
    make, model = MODELS[name]
    taken, found, _ = outcome(lambda: make(elasticity_factor=factor), runs, per_round, 2)
    assert by_key(found["out"]) == by_key(model(taken))


@pytest.mark.parametrize("make", [of_one_stream, of_a_join])
@settings(max_examples=8)
@given(SENT, st.sampled_from([1, 2, 7]))
def test_where_rounds_are_cut_does_not_matter(make: Any, sent: list[Sent], per_round: int) -> None:
    """Of one stream, in whose order all is done."""
    results = [outcome(make, [(False, sent)], size, 1)[1]["out"] for size in (per_round, 1000)]
    assert by_key(results[0]) == by_key(results[1])


def test_a_stream_grows_and_the_factor_changes(tmp_path: Path) -> None:
    sent: list[str] = []
    for factor in (1, 4, 2):
        with Driver(of_two_streams(elasticity_factor=factor), directory=tmp_path, partitions=2) as d:
            if factor == 4:
                d.expand("l", 4)
                d.expand("r", 4)
            for number in range(6):
                sent.append(f"w{number}")
                d.send("l", "k", number)
            d.run()
            d.send("r", "k", 0)
            d.run()
            assert list(d.read("out"))[-1].value == sent
            del sent[0]
    assert len(sent) == 15


def test_it_is_one_store_from_outside() -> None:
    with Driver(of_two_streams()) as d:
        d.send("l", "k", 1)
        d.run()
        assert d.store("log").all() == {("k", 0): "w1"}
    (sub,) = description_of(of_two_streams().topology())["sub_topologies"]
    assert [store["name"] for store in sub["stores"]] == ["log"]


@pytest.mark.spark
def test_through_spark() -> None:
    def of_expressions() -> hr.App:
        app = hr.App("shared")
        read = app.stream("l", key=hr.String(), value=hr.Long())
        read.filter("value >= 0").process(Writes, name="first", value=hr.Json()).to("out")
        read.filter("value % 2 = 0").process(Takes, name="second", value=hr.Json()).to("out")
        return app

    with Driver(of_expressions()) as d:
        for number in range(5):
            d.send("l", "k", number)
        d.run()
        found = [record.value for record in d.read("out")]
    assert found == [
        ["w0"], ["w0"], ["w1"], ["w1", "w2"], ["w1", "w2"], ["w2", "w3"], ["w2", "w3", "w4"], ["w2", "w3", "w4"]
    ]  # fmt: skip


def declared(first: Any, second: Any) -> None:
    """Two processors with one store each, on two streams."""
    app = hr.App("shared")
    for number, store in enumerate((first, second)):
        kind = type(f"P{number}", (hr.Processor,), {"stores": [store], "process": lambda self, record: None})
        app.stream(f"s{number}", key=hr.String(), value=hr.Long()).process(kind, name=f"p{number}", value=hr.Json())


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (LOG, hr.ListStore("log", value=hr.Long()), "its values were `string`, are `long`"),
        (LOG, hr.MapStore("log", value=hr.String()), "it held a ListStore's values, would hold a MapStore's values"),
        (
            hr.KeyValueStore("log", hr.Long(), ttl="1 day"),
            hr.KeyValueStore("log", hr.Long(), ttl="2 days"),
            "its entries lived for 1 day, live for 2 days",
        ),
        (hr.KeyValueStore("log", hr.Long()), hr.KeyValueStore("log", hr.Long(), ttl="2 days"), "now expire"),
    ],
)
def test_what_is_declared_differently_is_refused(first: Any, second: Any, text: str) -> None:
    declared(first, first)
    with pytest.raises(hr.TopologyError, match=text) as caught:
        declared(first, second)
    assert "'log' is shared by 'p0' and 'p1'" in str(caught.value)


def test_keys_of_two_serdes_are_refused() -> None:
    app = hr.App("shared")
    app.stream("l", key=hr.String(), value=hr.Long()).process(Writes, name="a", value=hr.Json())
    with pytest.raises(hr.TopologyError, match="its keys were `string`, are `long`"):
        app.stream("r", key=hr.Long(), value=hr.Long()).process(Takes, name="b", value=hr.Json())


def test_a_store_is_shared_within_a_sub_topology() -> None:
    app = hr.App("shared")
    read = app.stream("l", key=hr.String(), value=hr.Long())
    read.process(Writes, name="a", value=hr.Json()).to("out")
    behind = read.select_key(lambda record: str(record.value), key=hr.String()).repartition(name="by-value")
    with pytest.raises(hr.TopologyError, match="shared by 'a' and, behind the repartition stream 'by-value', by 'b'"):
        behind.process(Takes, name="b", value=hr.Json())
    behind.to("out")
    with Driver(app) as d:  # what was refused was not added
        d.send("l", "k", 1)
        d.run()


def test_two_sub_topologies_become_one() -> None:
    """Behind two repartition streams: both have the number of partitions of the larger input."""
    app = hr.App("shared")
    for stream, processor in (("l", Writes), ("r", Takes)):
        read = app.stream(stream, key=hr.String(), value=hr.Long())
        rekeyed = read.select_key(lambda record: record.key[0], key=hr.String()).repartition(name=f"by-{stream}")
        rekeyed.process(processor, name=f"{stream}-log", value=hr.Json()).to("out")
    with Driver(app, partitions={"l": 2, "r": 3}) as d:
        for number in range(10):
            d.send("l", f"{number}", number)
        d.run()
        assert len(list(d.read("out"))) == 10
        for number in range(10):
            d.send("r", f"{number}", number)
        d.run()
        left = [record.value for record in d.read("out")]
    assert sorted(left) == [[f"w{number}"] for number in range(10)]


def test_streams_that_are_not_co_partitioned_are_refused() -> None:
    with pytest.raises(hr.TopologyError, match="'l-log' shares store 'log' with 'r-log' and takes records"):
        Driver(of_two_streams(), partitions={"l": 2, "r": 3}).open()


def test_a_store_of_another_operator_is_not_shared() -> None:
    app = hr.App("shared")
    read = app.stream("l", key=hr.String(), value=hr.Long())
    read.group_by_key().count(store="log")
    with pytest.raises(hr.TopologyError, match="only processors share stores"):
        read.process(Writes, name="a", value=hr.Json())
