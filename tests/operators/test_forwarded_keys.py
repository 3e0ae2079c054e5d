"""A processor without key= forwards the keys that it is given, wherever an operator behind it meets records by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.core.topology.keyed_behind import keyed_behind
from headrace.testing import Driver

TEXT, NUMBER = hr.String(), hr.Long()
KEYS = [f"k{n}" for n in range(8)]
REFUSED = r"forward\(key='all'\), but it is (not given that key|given the key 'k\d'), and '.*' behind it meets records by key"


class Each(hr.Processor[str, int, str, int]):
    def process(self, record: Any) -> None:
        self.context.forward(key="all", value=record.value)


class Awaited(hr.Processor[str, int, str, int]):
    async def process(self, record: Any) -> None:
        self.context.forward(key="all", value=record.value)


class Batched(hr.Processor[str, int, str, int]):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        for value in batch.column("value").to_pylist():
            self.context.forward(key="all", value=value)


class Timed(hr.Processor[str, int, str, int]):
    def process(self, record: Any) -> None:
        self.context.timer("t", at=0)

    def on_timer(self, timer: Any) -> None:
        self.context.forward(key="all", value=1)


class Own(hr.Processor[str, int, str, int]):
    """Says the key that it is given, and no key."""

    def process(self, record: Any) -> None:
        self.context.forward(key="".join(record.key), value=record.value)
        self.context.forward(key=None, value=record.value)


class OwnBatched(hr.Processor[str, int, str, int]):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            self.context.forward(key=key, value=value)


class Storing(hr.Processor[str, int, str, int]):
    stores = [hr.KeyValueStore("last", value=NUMBER)]  # noqa: RUF012

    def process(self, record: Any) -> None:
        self.context.store("last").put(record.value)


def read(app: hr.App) -> hr.KStream:
    return app.stream("in", key=TEXT, value=NUMBER)


def ran(app: hr.App) -> list[tuple[Any, Any]]:
    """What is in the output of the application."""
    with Driver(app, partitions=4) as d:
        for key in KEYS:
            d.send("in", key, 1)
        d.run()
        d.advance("1 minute")
        d.run()
        return [(r.key, r.value) for r in d.read("out")]


BEHIND: dict[str, Callable[[hr.App, hr.KStream], Any]] = {
    "count": lambda app, s: s.group_by_key().count().to("out"),
    "behind a filter": lambda app, s: s.filter(lambda r: True).peek(print).group_by_key().count().to("out"),
    "table": lambda app, s: s.to_table(store="t").to("out"),
    "join with a table": lambda app, s: s.join(app.table("t", TEXT, NUMBER), lambda a, b: a, value=NUMBER).to("out"),
    "join of streams": lambda app, s: s.join(app.stream("s", TEXT, NUMBER), lambda a, b: a, within="1 s", value=NUMBER),
    "processor with state": lambda app, s: s.process(Storing, name="p", value=NUMBER).to("out"),
    "one of two": lambda app, s: (s.to("out"), s.group_by_key().count().to("counts")),
}


@pytest.mark.parametrize("processor", [Each, Awaited, Batched, Timed])
def test_another_key_in_front_of_a_count_ends_the_job(processor: Any) -> None:
    app = hr.App("forwarding", dead_letter_stream="dead")
    BEHIND["count"](app, read(app).process(processor, value=NUMBER))
    with pytest.raises(hr.TopologyError, match=REFUSED) as found:
        ran(app)
    assert found.value.hint and "process(..., key=...)" in found.value.hint


@pytest.mark.parametrize("behind", sorted(BEHIND))
def test_another_key_in_front_of_what_meets_records_by_key_ends_the_job(behind: str) -> None:
    app = hr.App("forwarding", dead_letter_stream="dead")
    BEHIND[behind](app, read(app).process(Each, value=NUMBER))
    with pytest.raises(hr.TopologyError, match=REFUSED):
        ran(app)


@pytest.mark.parametrize("processor", [Each, Awaited, Batched])
def test_with_the_serde_of_the_new_keys_they_come_together(processor: Any) -> None:
    app = hr.App("forwarding")
    read(app).process(processor, key=TEXT, value=NUMBER).group_by_key().count().to("out")
    assert ran(app) == [("all", 8)]


@pytest.mark.parametrize("processor", [Own, OwnBatched])
def test_the_key_that_is_given_may_be_said(processor: Any) -> None:
    app = hr.App("forwarding")
    read(app).process(processor, value=NUMBER).group_by_key().count().to("out")
    assert sorted(ran(app)) == [(key, 1) for key in KEYS]


def test_other_keys_go_to_outputs_and_to_what_is_rekeyed_before_it_is_grouped() -> None:
    app = hr.App("forwarding")
    forwarded = read(app).process(Each, value=NUMBER)
    forwarded.map_values(lambda r: r.value, value=NUMBER).to("out")
    forwarded.select_key(lambda r: "other", key=TEXT).group_by_key().count().to("counts")
    forwarded.repartition().group_by_key().count(store="n").to("counts")
    assert ran(app) == [("all", 1)] * 8


class ToOne(hr.Processor[str, int, str, int]):
    def process(self, record: Any) -> None:
        self.context.forward(key="all", value=record.value, to="unkeyed")
        self.context.forward(value=record.value, to="kept")


def test_a_record_to_one_operator_is_judged_by_what_is_behind_that_one() -> None:
    app = hr.App("forwarding")
    forwarded = read(app).process(ToOne, name="p", value=NUMBER)
    forwarded.filter(lambda r: True, name="unkeyed").to("out")
    forwarded.filter(lambda r: True, name="kept").group_by_key().count(store="n").to("counts")
    assert keyed_behind(app.topology().nodes) == {"p": {"kept": "n"}}
    assert ran(app) == [("all", 1)] * 8
