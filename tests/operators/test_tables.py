"""Tables: the last value of each key, deletions, and what is derived from a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-9, 9))), max_size=20)


def app_of(build: Any, **keys: Any) -> hr.App:
    app = hr.App("tables", **keys)
    build(app.table("in", key=hr.String(), value=hr.Long(), store="t")).to_stream().to("out")
    return app


def updates_of(rounds: list[list[tuple[str, Any]]]) -> list[tuple[str, Any]]:
    """Per round the last value of each changed key, in the order of these last changes."""
    found = []
    for records in rounds:
        last = {key: i for i, (key, _) in enumerate(records)}
        found += [pair for i, pair in enumerate(records) if last[pair[0]] == i]
    return found


@settings(max_examples=30)
@given(st.lists(CHANGES, max_size=4))
def test_a_table_keeps_and_emits_the_last_value_of_each_key(rounds: list[list[tuple[str, Any]]]) -> None:
    with Driver(app_of(lambda t: t)) as d:
        state: dict[str, Any] = {}
        for records in rounds:
            for key, value in records:
                d.send("in", key, value)
                state[key] = value
            d.run()
            assert d.store("t").all() == {key: value for key, value in state.items() if value is not None}
        assert [(r.key, r.value) for r in d.read("out")] == updates_of(rounds)


@hr.batch
def plus_one(batch: pa.RecordBatch) -> pa.Array:
    assert batch.column("value").null_count == 0
    return pc.add(batch.column("value"), 1)


@hr.batch
def above_zero(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater(batch.column("value"), 0)


@pytest.mark.parametrize(
    ("build", "model"),
    [
        (lambda t: t.map_values(lambda r: r.value + 1, value=hr.Long()), lambda v: v + 1),
        (lambda t: t.map_values(plus_one, value=hr.Long()), lambda v: v + 1),
        (lambda t: t.filter(lambda r: r.value > 0), lambda v: v if v > 0 else None),
        (lambda t: t.filter(above_zero), lambda v: v if v > 0 else None),
        (lambda t: t.filter_not(lambda r: r.value > 0), lambda v: None if v > 0 else v),
        (lambda t: t.filter_not(above_zero), lambda v: None if v > 0 else v),
    ],
    ids=["map_values", "map_values, batch", "filter", "filter, batch", "filter_not", "filter_not, batch"],
)
@settings(max_examples=10)
@given(rounds=st.lists(CHANGES, max_size=3))
def test_deletions_pass_and_never_reach_a_function(build: Any, model: Any, rounds: list[list[tuple[str, Any]]]) -> None:
    with Driver(app_of(build)) as d:
        for records in rounds:
            for key, value in records:
                d.send("in", key, value)
            d.run()
        expected = [(key, None if value is None else model(value)) for key, value in updates_of(rounds)]
        assert [(r.key, r.value) for r in d.read("out")] == expected


def test_functions_over_tables_that_raise_are_the_records_fault() -> None:
    app = app_of(
        lambda t: t.filter(lambda r: 1 // r.value >= 0).map_values(lambda r: 6 // (r.value - 2), value=hr.Long()),
        dead_letter_stream="dead",
    )
    with Driver(app) as d:
        for key, value in (("a", 0), ("b", 2), ("c", 3), ("d", None), ("e", -1)):
            d.send("in", key, value)
        d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [("c", 6), ("d", None), ("e", None)]
        assert [dict(r.headers)["headrace.offset"] for r in d.read("dead")] == [b"0", b"1"]


def test_null_keys_of_a_table_are_dropped_and_counted() -> None:
    with Driver(app_of(lambda t: t)) as d:
        d.send("in", None, 1)
        d.send("in", "a", 1)
        d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [("a", 1)]
        assert d.counters["null_keys_dropped"] == 1


def test_an_aggregate_is_a_table_too() -> None:
    app = hr.App("aggregate")
    counts = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="n")
    counts.filter(lambda r: r.value >= 2).map_values(lambda r: f"{r.value} times", value=hr.String()).to("out")
    with Driver(app) as d:
        for key in ("a", "b", "a"):
            d.send("in", key, 0)
        d.run()
        assert {r.key: r.value for r in d.read("out")} == {"a": "2 times", "b": None}
        d.send("in", "b", 0)
        d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [("b", "2 times")]
