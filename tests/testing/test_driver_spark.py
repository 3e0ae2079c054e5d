"""The driver with Spark expressions: one shared session, and the same results as with functions."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Alarm(hr.Processor[str, Any, str, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        self.context.timer("t", at=record.timestamp_us + 10)

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=f"{timer.key} at {timer.timestamp_us}")


def test_expressions_run_in_one_shared_session() -> None:
    sessions = []
    for number in (1, 2):
        app = hr.App(f"shared-{number}", dead_letter_stream="dead")
        rows = app.stream("in", key=hr.String(), value=hr.Json("a int, b string")).filter("value.a > 1")
        rows.select_key("value.b").group_by_key().count(store="counts").to("counts-out")
        rows.process(Alarm, name="p", value=hr.String()).to("alarms")  # its keys come out of Spark's engine
        with Driver(app, partitions=2) as d:
            d.send("in", b"k", b"no json", at=0, raw=True)
            for i in range(6):
                d.send("in", "k", {"a": i, "b": "odd" if i % 2 else "even"}, at=i, partition=0)
            d.run()
            assert d.store("counts").all() == {"odd": 2, "even": 2}
            assert {r.key: r.value for r in d.read("counts-out")} == {"odd": 2, "even": 2}
            assert [r.value for r in d.read("dead")] == [b"no json"]
            d.send("in", "j", {"a": 9, "b": "late"}, at=20, partition=0)
            d.run()
            assert [r.value for r in d.read("alarms")] == ["k at 15"]
        sessions.append(app.spark.sparkContext.applicationId)
    assert len(set(sessions)) == 1


def test_sessions_and_final_results_of_keys_whose_type_spark_says() -> None:
    app = hr.App("typed", dead_letter_stream="dead")
    rows = app.stream("in", key=hr.String(), value=hr.Json("a int, b string")).select_key("upper(value.b)").group_by_key()
    visits = rows.windowed_by(hr.Session("5 us", grace="0 us"))
    visits.aggregate(n=hr.count(), most=hr.max("value.a"), store="visits").to_stream(emit="closed").to("visits-out")
    sums = visits.reduce(lambda old, new: {"a": old["a"] + new["a"], "b": new["b"]}, store="sums")
    sums.to_stream(emit="closed").to("sums-out")
    rows.count(store="counts").to_stream(emit="each").to("counts-out")
    with Driver(app) as d:
        for time, a in ((0, 1), (8, 2), (4, 3), (20, 9)):
            d.send("in", "k", {"a": a, "b": "x"}, at=time)
        d.run()
        visit = hr.WindowedKey("X", 0, 8)
        assert [(r.key, r.value) for r in d.read("visits-out")] == [(visit, {"n": 3, "most": 3})]
        assert [(r.key, r.value) for r in d.read("sums-out")] == [(visit, {"a": 6, "b": "x"})]
        assert [r.value for r in d.read("counts-out")] == [1, 2, 3, 4]
        assert d.store("visits-suppress").all() == {("X", 20): {"n": 1, "most": 9}}
