"""`@hr.batch` functions: what they are given, what they may give, and the record that fails in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.testing import Driver


def run(build: Callable[[hr.KStream], hr.KStream], records: list[Any], value: Any = None) -> tuple[list[Any], list[int]]:
    """(key, value) of what is written, and the offsets of the dead letters."""
    app = hr.App("batches", dead_letter_stream="dead")
    build(app.stream("in", key=hr.String(), value=value or hr.Long())).to("out")
    with Driver(app) as d:
        for item in records:
            d.send("in", "k", item)
        d.run()
        dead = [int(dict(r.headers)["headrace.offset"]) for r in d.read("dead")]
        return [(r.key, r.value) for r in d.read("out")], dead


@hr.batch
def positive(batch: pa.RecordBatch) -> pa.Array:
    return pc.greater(batch.column("value"), 0)


@hr.batch
def doubled(batch: pa.RecordBatch) -> pa.Array:
    return pc.multiply(batch.column("value"), 2)


@hr.batch
def named(batch: pa.RecordBatch) -> pa.Array:
    return pc.binary_join_element_wise(batch.column("key"), pc.cast(batch.column("value"), pa.string()), "-")


@hr.batch
def swapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": pc.cast(batch.column("value"), pa.string()), "value": pc.add(batch.column("value"), 100)}
    )


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s.filter(positive), [("k", 1), ("k", 3)]),
        (lambda s: s.filter_not(positive), [("k", -2), ("k", None)]),
        (lambda s: s.map_values(doubled, value=hr.Long()), [("k", 2), ("k", -4), ("k", None), ("k", 6)]),
        (lambda s: s.select_key(named, key=hr.String()), [("k-1", 1), ("k--2", -2), (None, None), ("k-3", 3)]),
        (lambda s: s.map(swapped, key=hr.String(), value=hr.Long()), [("1", 101), ("-2", 98), (None, None), ("3", 103)]),
        (lambda s: s.peek(doubled), [("k", 1), ("k", -2), ("k", None), ("k", 3)]),
    ],
    ids=["filter", "filter_not", "map_values", "select_key", "map", "peek"],
)
def test_each_operator(build: Any, expected: list[Any]) -> None:
    assert run(build, [1, -2, None, 3]) == (expected, [])


def test_a_batch_has_all_columns_of_the_naming_rule() -> None:
    seen: list[pa.RecordBatch] = []

    @hr.batch
    def look(batch: pa.RecordBatch) -> pa.Array:
        seen.append(batch)
        return batch.column("value")

    app = hr.App("columns")
    app.stream("in", key=hr.String(), value=hr.Json("a int, b string")).map_values(look, value=hr.Json("a int, b string")).to(
        "out"
    )
    with Driver(app, partitions=2) as d:
        d.send("in", "x", {"a": 1, "b": "one"}, at=1_000_000, headers={"h": "v"}, partition=1)
        d.send("in", "y", {"a": 2, "b": None}, at=2_000_000, partition=1)
        d.run()
        assert [r.value for r in d.read("out")] == [{"a": 1, "b": "one"}, {"a": 2, "b": None}]
    (batch,) = seen
    assert batch.schema.names == ["key", "value", "timestamp", "partition", "offset", "headers"]
    assert batch.column("key").to_pylist() == ["x", "y"]
    assert batch.column("value").field("a").to_pylist() == [1, 2]
    assert batch.column("timestamp").type == pa.timestamp("us", tz="UTC")
    assert batch.column("partition").to_pylist() == [1, 1]
    assert batch.column("offset").to_pylist() == [0, 1]
    assert batch.column("headers").to_pylist() == [[{"name": "h", "value": b"v"}], None]


@pytest.mark.parametrize("bad", [[0], [4], [9], [0, 3, 4, 9], list(range(10))], ids=str)
def test_the_records_that_fail_are_found_by_halving(bad: list[int]) -> None:
    calls: list[int] = []

    @hr.batch
    def fails(batch: pa.RecordBatch) -> pa.Array:
        calls.append(batch.num_rows)
        return pc.divide(pa.array([100] * batch.num_rows), batch.column("value"))

    values = [0 if i in bad else i + 1 for i in range(10)]
    out, dead = run(lambda s: s.map_values(fails, value=hr.Long()), values)
    assert dead == bad
    assert [value for _, value in out] == [100 // v for v in values if v]
    assert len(calls) <= 2 * 10


def test_parts_of_a_batch_may_differ_in_type() -> None:
    @hr.batch
    def odd(batch: pa.RecordBatch) -> pa.Array:
        if 0 in batch.column("value").to_pylist():
            raise ValueError("zero")
        return pa.array([v if v > 2 else v / 2 for v in batch.column("value").to_pylist()])

    out, dead = run(lambda s: s.map_values(odd, value=hr.Double()), [3, 4, 5, 0, 1, 2])
    assert dead == [3]
    assert [value for _, value in out] == [3.0, 4.0, 5.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s, f: s.map_values(f(lambda b: b.column("value").slice(1)), value=hr.Long()), b"same number"),
        (lambda s, f: s.map_values(f(lambda b: None), value=hr.Long()), b"NoneType"),
        (lambda s, f: s.map_values(f(lambda b: b.select(["key"])), value=hr.Long()), b"without the column 'value'"),
        (lambda s, f: s.filter(f(lambda b: b.column("value"))), b"booleans"),
        (lambda s, f: s.filter(f(lambda b: b)), b"booleans"),
        (lambda s, f: s.map(f(lambda b: b.column("value")), key=hr.String(), value=hr.Long()), b"key and value"),
        (lambda s, f: s.map_values(f(lambda b: b.column("key")), value=hr.Long()), b"long"),
    ],
)
def test_results_that_do_not_fit_name_the_record_and_what_was_expected(build: Any, words: bytes) -> None:
    app = hr.App("wrong", dead_letter_stream="dead")
    build(app.stream("in", key=hr.String(), value=hr.Long()), hr.batch).to("out")
    with Driver(app) as d:
        d.send("in", "k", 5)
        d.run()
        assert d.read("out") == []
        (letter,) = d.read("dead")
    assert words in dict(letter.headers)["headrace.error-message"]


def test_values_without_one_type_are_the_records_fault() -> None:
    @hr.batch
    def same(batch: pa.RecordBatch) -> pa.Array:
        return batch.column("value")

    out, dead = run(lambda s: s.map_values(same, value=hr.Json()), [{"a": 1}, "text", {"a": 2}, 7], hr.Json())
    assert dead == [1, 3]
    assert [value for _, value in out] == [{"a": 1}, {"a": 2}]


def test_batch_and_record_functions_in_one_chain() -> None:
    out, dead = run(
        lambda s: s.map_values(doubled, value=hr.Long())
        .map_values(lambda r: r.value + 1, value=hr.Long())
        .filter(positive)
        .select_key(lambda r: str(r.value), key=hr.String())
        .map_values(doubled, value=hr.Long()),
        [1, -5, 3],
    )
    assert (out, dead) == ([("3", 6), ("7", 14)], [])
