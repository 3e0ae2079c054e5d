"""Joins behind Spark expressions: rows that come out of the engine meet those that never were in it, in the same order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import Driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def text(left: Any, right: Any) -> str:
    return f"{left}&{right}"


@hr.batch
def texts(batch: pa.RecordBatch) -> pa.Array:
    pairs = zip(batch.column("left").to_pylist(), batch.column("right").to_pylist(), strict=True)
    return pa.array([text(left["a"], right) for left, right in pairs])


def test_rows_that_were_in_the_engine_are_joined_like_others() -> None:
    app = hr.App("engine-joins")
    rows = app.stream("rows", key=hr.String(), value=hr.Json("a int, b string")).filter("value.a > 0")
    table = app.table("names", key=hr.String(), value=hr.String())
    others = app.stream("others", key=hr.String(), value=hr.Long()).filter("value <> 13")
    rows.join(table, texts, value=hr.String(), name="table").to("with-table")
    rows.map_values("value.a").join(others, text, within="2 us", value=hr.String(), name="near").to("near")
    rows.select_key("value.b").left_join(table, lambda a, b: b, value=hr.String(), name="named").to("named")
    with Driver(app) as d:
        d.send("names", "k", "old", at=1)
        d.send("names", "other", "o", at=1)
        d.send("names", "k", "new", at=5)
        for a, at in ((1, 0), (2, 3), (-1, 4), (3, 5)):
            d.send("rows", "k", {"a": a, "b": "other" if a == 2 else "k"}, at=at)
        for value, at in ((10, 2), (13, 3), (20, 6)):
            d.send("others", "k", value, at=at)
        d.run()
        assert [r.value for r in d.read("with-table")] == ["2&old", "3&new"]
        near = [(r.value, r.timestamp_us) for r in d.read("near")]
        assert sorted(near) == [("1&10", 2), ("2&10", 3), ("3&20", 6)]
        named = {(r.key, r.value, r.timestamp_us) for r in d.read("named")}
        assert named == {("k", None, 0), ("other", "o", 3), ("k", "new", 5)}
