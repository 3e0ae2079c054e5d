"""Which partition a record is written to: by its key, or as a user's partitioner says, held against plain Python."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.core.keys.hashing import null_key_partition, partition_of
from headrace.core.topology.partitioning import chosen_partitions, same_partitioner
from headrace.dsl.repartitioned import checked_partitioner
from headrace.testing import Driver
from headrace.worker.operators import outputs

STREAM = "p-again-repartition"
Choice = Callable[..., Any]


def repartitioned(partitioner: Choice | None, count: int = 4) -> hr.App:
    """`in`, written anew by a partitioner into STREAM and from there to the same partitions of `out`, with their numbers."""
    app = hr.App("p", dead_letter_stream="dead")
    options = hr.Repartitioned(name="again", number_of_partitions=count, partitioner=partitioner)
    stream = app.stream("in", key=hr.String(), value=hr.Long()).repartition(options)
    stream.map_values(lambda r: [r.value, r.partition], value=hr.Json()).to("out", partitioner=lambda r, n: r.value[1])
    return app


def written_as(
    app: hr.App, records: Iterable[tuple[Any, Any]], per_round: int = 1000
) -> tuple[list[tuple[Any, Any, int]], dict[str, int], list[hr.Record]]:
    """(key, value, partition of STREAM), the counters, and the dead letters."""
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, value in records:
            d.send("in", key, value)
        d.run()
        found = [(r.key, *r.value) for r in d.read("out", from_start=True)]
        return found, d.counters, d.read("dead")


# --- what a partitioner may answer ----------------------------------------------------------------------------------

ANSWERS = st.one_of(
    st.none(), st.integers(-2, 6), st.lists(st.integers(-1, 5), max_size=4), st.frozensets(st.integers(0, 3))
)


@settings(max_examples=60)
@given(st.lists(ANSWERS, max_size=12), st.integers(1, 5), st.booleans())
def test_one_none_and_several_as_a_plain_model_says(answers: list[Any], per_round: int, in_batches: bool) -> None:
    def of_record(record: hr.Record, partitions: int) -> Any:
        assert partitions == 4
        return answers[record.value]

    @hr.batch
    def of_batch(batch: pa.RecordBatch, partitions: int) -> pa.Array:
        assert partitions == 4
        chosen = [answers[value.as_py()] for value in batch.column("value")]
        lists = [[one] if isinstance(one, int) else one if one is None else list(one) for one in chosen]
        return pa.array(lists, pa.list_(pa.int32()))

    records = [(f"k{i % 3}", i) for i in range(len(answers))]
    app = repartitioned(of_batch if in_batches else of_record)
    found, counters, dead = written_as(app, records, per_round)
    by_key = [{partition_of(key.encode(), 4)} for key, _ in records]
    as_sets = [by_key[i] if one is None else {one} if isinstance(one, int) else set(one) for i, one in enumerate(answers)]
    bad = {i for i, chosen in enumerate(as_sets) if not chosen <= {0, 1, 2, 3}}
    expected = [(records[i][0], i, p) for i, chosen in enumerate(as_sets) if i not in bad for p in chosen]
    assert sorted(found) == sorted(expected)
    assert found == sorted(found, key=lambda one: (one[2], one[1]))  # in each partition as they came
    assert len(dead) == len(bad) == counters.get("dead_letters", 0)
    assert counters.get("records_dropped_by_partitioner", 0) == sum(not chosen for chosen in as_sets)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (4, "partition 4, and the stream has 4: expected 0 to 3"),
        (-1, "partition -1, and the stream has 4: expected 0 to 3"),
        ([0, 9], "partition 9"),
        (True, "gave True: expected the number of a partition"),
        ([0, False], r"gave \[0, False\]: expected the number"),
        ([0, None], r"gave \[0, None\]: expected the number"),
        (1.0, "gave 1.0: expected the number"),
        ("1", "gave '1': expected the number"),
        (b"\1", "expected the number"),
        ({1: 2}, "expected the number"),
        (iter([1]), "expected the number of a partition, None for the one of its key, or a list of numbers"),
    ],
)
def test_an_answer_that_is_no_partition_is_an_error_of_its_record(answer: Any, message: str) -> None:
    app = repartitioned(lambda record, partitions: answer if record.value == 1 else 2)
    app.config_arguments.pop("dead_letter_stream")
    with Driver(app) as d:
        for value in range(3):
            d.send("in", "k", value)
        with pytest.raises(hr.RecordError, match=message) as error:
            d.run()
        assert (error.value.stream, error.value.partition, error.value.offset) == ("in", 0, 1)
        assert "again-repartition" in str(error.value)
        if "expected 0 to" in message:
            assert error.value.user_traceback == "", "the user's function did not raise: there is nothing of theirs to show"
        assert d.read(STREAM) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (pa.array([1, 2, 9]), "partition 9, and the stream has 4"),
        (pa.array([1, 2, -1], pa.int8()), "partition -1"),
        (pa.array([1, 2, 2**64 - 1], pa.uint64()), "18446744073709551615"),
        (pa.array([[1], [], [0, None]]), "a list with a null in it"),
        (pa.array([1.0, 2.0, 3.0]), "an array of double, expected one of integers"),
        (pa.array([True, False, True]), "an array of bool"),
        (pa.array([["a"], [], []]), "an array of list<item: string>|array of list<element: string>"),
        (pa.record_batch({"partition": [1, 2, 3]}), "a RecordBatch, expected one of integers"),
        (pa.array([1, 2]), "gave 2 rows for 3|gave 2 rows for 1"),
        ([1, 2, 3], "gave list"),
    ],
)
def test_a_batch_answer_that_is_none_names_the_record(answer: Any, message: str) -> None:
    """A function that is right for most of a batch has its records told apart, by calling it on parts."""

    @hr.batch
    def partitioner(batch: pa.RecordBatch, partitions: int) -> Any:
        if batch.num_rows == 3 or not isinstance(answer, pa.Array) or len(answer) < 3:
            return answer
        return answer.take(batch.column("value"))

    with Driver(repartitioned(partitioner)) as d:
        for value in range(3):
            d.send("in", "k", value)
        d.run()
        dead = d.read("dead")
        assert dead
        assert any(re.search(message, dict(record.headers)["headrace.error-message"].decode()) for record in dead)
        assert len(dead) + len(d.read(STREAM)) + d.counters.get("records_dropped_by_partitioner", 0) == 3


A, B, C = (partition_of(key, 4) for key in (b"a", b"b", b"c"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda n: np.arange(n) % 4, [0, 1, 2]),
        (lambda n: pa.array([3] * n, pa.uint8()), [3, 3, 3]),
        (lambda n: pa.chunked_array([[0], [1, None]]), [0, 1, C]),
        (pa.nulls, [A, B, C]),
        (lambda n: pa.array([[]] * n), []),
        (lambda n: pa.array([None] * n, pa.int32()), [A, B, C]),
        (lambda n: pa.array([[0, 1], None, [2, 2]], pa.large_list(pa.int64())), [0, 1, B, 2]),
        (lambda n: pa.array([None, [], [2, 2]], pa.list_(pa.uint8())), [A, 2]),
        (lambda n: pa.array([[0, 1], None, [1, 1]], pa.list_(pa.int16(), 2)), [0, 1, B, 1]),
        (lambda n: pa.array([[9], [0, 1], None, [3], [9]], pa.list_(pa.int64())).slice(1, 3), [0, 1, B, 3]),
        (lambda n: pa.array([[0, 1]] * n, pa.list_(pa.int16(), 2)), [0, 1] * 3),
    ],
)
def test_forms_of_a_batch_answer(answer: Callable[[int], Any], expected: list[int]) -> None:
    found, counters, dead = written_as(
        repartitioned(hr.batch(lambda batch, partitions: answer(batch.num_rows))), [("a", 0), ("b", 1), ("c", 2)]
    )
    assert sorted(p for _, _, p in found) == sorted(expected)
    assert (dead, counters.get("dead_letters", 0)) == ([], 0)


@pytest.mark.parametrize("in_batches", [False, True])
def test_none_is_by_the_key_and_a_null_key_by_its_offset_with_several_and_none_between(in_batches: bool) -> None:
    """As without a partitioner, each in its place among those that were sent to a partition by number."""

    def of_record(record: hr.Record, partitions: int) -> Any:
        return (None, [0, 3], [])[record.value % 3]

    @hr.batch
    def of_batch(batch: pa.RecordBatch, partitions: int) -> pa.Array:
        return pa.array([(None, [0, 3], [])[one.as_py() % 3] for one in batch.column("value")], pa.list_(pa.int64()))

    records = [(None if i % 5 == 0 else f"k{i}", i) for i in range(40)]
    found, counters, _ = written_as(repartitioned(of_batch if in_batches else of_record), records)
    plain = {value: p for _, value, p in written_as(repartitioned(None), records)[0]}
    expected = [(k, i, p) for k, i in records for p in {0: (plain[i],), 1: (0, 3), 2: ()}[i % 3]]
    assert found == sorted(expected, key=lambda one: (one[2], one[1]))
    assert counters["records_dropped_by_partitioner"] == 13


def test_of_a_windowed_key_none_is_the_key_within() -> None:
    with Driver(windowed(lambda record, partitions: None)) as d:
        for start in range(0, 20_000_000, 1_000_000):
            d.send("in", "a", 1, at=start)
        d.run()
        assert {r.partition for r in d.read(STREAM)} == {partition_of(b"a", 8)}


def test_numbers_that_are_like_ints_are_taken() -> None:
    answers = [np.int32(1), np.uint8(3), np.array([0, 2]), range(2), {3}]
    found, _, _ = written_as(repartitioned(lambda r, n: answers[r.value]), [("a", i) for i in range(5)])
    assert Counter((v, p) for _, v, p in found) == Counter([(0, 1), (1, 3), (2, 0), (2, 2), (3, 0), (3, 1), (4, 3)])


def test_a_partitioner_that_raises_is_an_error_of_its_record() -> None:
    def route(record: hr.Record, partitions: int) -> int:
        return 6 // record.value % partitions

    found, counters, (letter,) = written_as(repartitioned(route), [("a", 1), ("a", 0), ("a", 2)])
    assert [(value, p) for _, value, p in sorted(found)] == [(1, 2), (2, 3)]
    assert (letter.offset, dict(letter.headers)["headrace.error-class"]) == (0, b"ZeroDivisionError")
    assert counters["dead_letters"] == 1


def test_of_a_record_that_cannot_be_written_nothing_is() -> None:
    app = hr.App("p", dead_letter_stream="dead")
    numbers = app.stream("in", key=hr.String(), value=hr.Long()).map_values(lambda r: "no" if r.value == 1 else r.value)
    numbers.repartition(
        hr.Repartitioned(name="again", value_serde=hr.Long(), number_of_partitions=3, partitioner=lambda r, n: range(n))
    ).to("out")
    with Driver(app) as d:
        for value in range(3):
            d.send("in", "k", value)
        d.run()
        assert [(r.partition, r.value) for r in d.read(STREAM)] == [(p, v) for p in range(3) for v in (0, 2)]
        assert len(d.read("dead")) == 1


def test_copies_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "PIECE_BYTES", 40)
    found, _, _ = written_as(repartitioned(lambda r, n: range(r.value % 3)), [(f"key-{i}", i) for i in range(20)])
    assert sorted(found) == sorted((f"key-{i}", i, p) for i in range(20) for p in range(i % 3))
    assert found == sorted(found, key=lambda one: (one[2], one[1]))  # in each partition as they came


# --- what it is given -----------------------------------------------------------------------------------------------


def test_it_is_given_the_record_as_its_operator_gets_it_and_the_number_of_partitions_there_are() -> None:
    seen: list[tuple[Any, ...]] = []

    def route(record: hr.Record, partitions: int) -> int:
        seen.append((record.key, record.value, record.headers, record.offset, record.stream, partitions))
        return 0

    app = hr.App("p")
    numbers = app.stream("in", key=hr.String(), value=hr.Long())
    again = numbers.map(lambda r: (r.value, [r.key]), key=hr.Long(), value=hr.Json())
    again.repartition(hr.Repartitioned(name="again", key_serde=hr.Double(), partitioner=route)).to("out")
    with Driver(app, partitions=3) as d:
        d.send("in", "k", 7, headers=[("h", b"x")])
        d.run()
        assert seen == [(7, ["k"], (("h", b"x"),), 0, "in", 3)]
        assert [(r.key, r.value, r.headers) for r in d.read(STREAM)] == [(7.0, ["k"], (("h", b"x"),))]


def test_outputs_take_one_too_and_are_told_the_partitions_of_each() -> None:
    told: list[tuple[str, int]] = []

    def route(record: hr.Record, partitions: int) -> list[int]:
        told.append((record.key, partitions))
        return [0, partitions - 1]

    app = hr.App("p")
    app.stream("in", key=hr.String(), value=hr.Long()).to(lambda r: r.key, partitioner=route, headers=lambda r: [("a", b"b")])
    app.table("table", key=hr.String(), value=hr.Long()).to("changes", partitioner=lambda r, n: r.value)
    with Driver(app, partitions={"in": 1, "two": 2, "five": 5, "table": 2}) as d:
        for stream in ("two", "five"):
            d.send("in", stream, 1)
        d.send("table", "t", 1)
        d.run()
        assert sorted(told) == [("five", 5), ("two", 2)]
        assert [(r.partition, r.headers) for r in d.read("five")] == [(0, (("a", b"b"),)), (4, (("a", b"b"),))]
        assert [r.partition for r in d.read("two")] == [0, 1]
        assert [(r.partition, r.key, r.value) for r in d.read("changes")] == [(1, "t", 1)]


class Told:
    """Partitioners that are told their stream, in every way of asking for it; they note what they were told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Any]] = []

    def noted(self, partitions: int, stream: Any) -> int:
        self.told.append((partitions, stream))
        return 0

    def ways(self) -> list[Choice]:
        def third(record: hr.Record, partitions: int, topic: str) -> int:
            return self.noted(partitions, topic)

        def named(record: hr.Record, partitions: int, stream: str) -> int:
            return self.noted(partitions, stream)

        def behind_others(record: hr.Record, partitions: int, salt: int = 7, *, stream: str = "") -> int:
            assert salt == 7
            return self.noted(partitions, stream)

        @hr.batch
        def of_batch(batch: pa.RecordBatch, partitions: int, stream: str) -> pa.Array:
            return pa.array([self.noted(partitions, stream)] * batch.num_rows)

        return [third, named, behind_others, of_batch, self.of_method, partial(behind_others, salt=7)]

    def of_method(self, record: hr.Record, partitions: int, *, stream: str) -> int:
        return self.noted(partitions, stream)


@pytest.mark.parametrize("way", range(6))
def test_it_is_told_its_target_stream_if_it_asks(way: int) -> None:
    told = Told()
    route = told.ways()[way]
    app = hr.App("p")
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    rows.repartition(hr.Repartitioned(name="again", number_of_partitions=4, partitioner=route)).to("out", partitioner=route)
    rows.to(lambda record: record.key, partitioner=route)
    with Driver(app, partitions={"in": 1, "two": 2, "five": 5, "out": 3}) as d:
        for stream in ("two", "five"):
            d.send("in", stream, 1)
        d.run()
    assert set(told.told) == {(4, STREAM), (3, "out"), (2, "two"), (5, "five")}


def test_other_third_parameters_are_the_functions_own() -> None:
    kept = {}

    def route(record: hr.Record, partitions: int, kept: dict[str, int] = kept) -> int:
        return kept.setdefault(record.key, len(kept))

    found, _, _ = written_as(repartitioned(route), [("a", 1), ("b", 2), ("a", 3)])
    assert sorted(found) == [("a", 1, 0), ("a", 3, 0), ("b", 2, 1)]


# --- without one: by the key ----------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.integers(0, 9)), max_size=20), st.integers(1, 5))
def test_by_default_a_record_goes_by_its_key_and_a_null_key_by_its_offset(
    records: list[tuple[str | None, int]], count: int
) -> None:
    found, counters, _ = written_as(repartitioned(None, count), records)
    expected = [
        (key, value, null_key_partition(i, count) if key is None else partition_of(key.encode(), count))
        for i, (key, value) in enumerate(records)
    ]
    assert Counter(found) == Counter(expected)
    assert "null_keys_dropped" not in counters


@pytest.mark.parametrize("grouped_by", ["group_by_key", "group_by"])
def test_null_keys_pass_a_repartition_and_are_dropped_and_counted_by_a_grouping(grouped_by: str) -> None:
    app = hr.App("p")
    again = app.stream("in", key=hr.String(), value=hr.Long()).repartition(name="again")
    grouped = again.group_by_key() if grouped_by == "group_by_key" else again.group_by(lambda r: r.key, key=hr.String())
    grouped.count(store="n")
    with Driver(app, partitions=3) as d:
        for i, key in enumerate([None, "a", None, "a", "b"]):
            d.send("in", key, i)
        d.run()
        assert Counter(r.key for r in d.read(STREAM)) == {None: 2, "a": 2, "b": 1}
        assert d.store("n").all() == {"a": 2, "b": 1}
        assert d.counters["null_keys_dropped"] == 2


def windowed(partitioner: Choice | None) -> hr.App:
    app = hr.App("p")
    counts = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("1 second")).count()
    counts.to_stream().repartition(
        hr.Repartitioned(name="again", number_of_partitions=8, partitioner=partitioner)
    ).group_by_key().count(store="n")
    return app


def test_windowed_keys_go_by_the_key_within_unless_a_partitioner_is_given() -> None:
    starts = range(0, 20_000_000, 1_000_000)
    for partitioner in (None, lambda record, partitions: record.key.start_us // 1_000_000 % partitions):
        with Driver(windowed(partitioner)) as d:
            for start in starts:
                d.send("in", "a", 1, at=start)
            d.run()
            found = {(r.key.start_us, r.partition) for r in d.read(STREAM)}
            if partitioner is None:
                assert found == {(start, partition_of(b"a", 8)) for start in starts}
            else:
                assert found == {(start, start // 1_000_000 % 8) for start in starts}
            assert set(d.store("n").all().values()) == {1}


def test_a_custom_processor_behind_a_repartition_works_as_an_aggregation_does() -> None:
    """The motivation of KIP-221."""

    class Counting(hr.Processor[str, int, str, int]):
        stores = (hr.KeyValueStore("seen", value=hr.Long()),)

        def process(self, record: hr.Record) -> None:
            seen = self.context.store("seen")
            seen.put(seen.get(default=0) + 1)

    app = hr.App("p")
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    again = rows.repartition(lambda r: str(r.value % 5), hr.Repartitioned(name="again", key_serde=hr.String()))
    again.process(Counting, name="own")
    again.group_by_key().count(store="ours")
    with Driver(app, partitions=3, overrides=["max_records_per_round=7"]) as d:
        for i in range(40):
            d.send("in", f"k{i}", i)
        d.run()
        assert d.store("seen").all() == d.store("ours").all() == {str(i): 8 for i in range(5)}


# --- what is refused when it is written -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitioner", "message"),
    [
        (lambda record: 0, r"called with \(record, number_of_partitions\)"),
        (hr.batch(lambda batch: batch), r"called with \(batch, number_of_partitions\)"),
        (lambda stream, record, n, more: 0, r"called with \(record, number_of_partitions\)"),
        (lambda record, stream, n, more: 0, r"called with \(record, number_of_partitions\)"),
        ("key", "a Spark expression cannot be given here"),
        (3, "expected a function or an expression, found int 3"),
    ],
)
def test_what_is_no_partitioner(partitioner: Any, message: str) -> None:
    with pytest.raises(hr.TopologyError, match=f"Repartitioned: partitioner.*{message}"):
        hr.Repartitioned(partitioner=partitioner)
    stream = hr.App("p").stream("in", key=hr.String(), value=hr.Long())
    with pytest.raises(hr.TopologyError, match=rf"to\('out'\): partitioner.*{message}"):
        stream.to("out", partitioner=partitioner)


class Routes:
    def route(self, record: hr.Record, partitions: int) -> int:
        return 0


def test_two_partitioners_are_one_if_they_are_one_function() -> None:
    routes = Routes()
    made = {
        name: checked_partitioner("test", given)
        for name, given in {
            "none": None,
            "method": routes.route,
            "again": routes.route,
            "other": Routes().route,
            "part": partial(divmod),
        }.items()
    }
    alike = {(a, b) for a in made for b in made if a < b and same_partitioner(made[a], made[b])}
    assert alike == {("again", "method")}
    assert all(same_partitioner(one, one) for one in made.values())


@given(st.lists(st.integers(0, 6), min_size=1, max_size=9))
def test_several_are_each_taken_once(numbers: list[int]) -> None:
    assert chosen_partitions(numbers, 7) == tuple(dict.fromkeys(numbers))


@pytest.mark.parametrize("one", [None, lambda record, partitions: 0])
def test_streams_that_meet_under_state_must_be_partitioned_alike(one: Choice | None) -> None:
    app = hr.App("p")
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    other = hr.Repartitioned(name="b", number_of_partitions=2, partitioner=lambda record, partitions: 1)
    a = rows.repartition(hr.Repartitioned(name="a", number_of_partitions=2, partitioner=one))
    a.merge(rows.repartition(other), name="both").group_by_key().count(store="n")
    with pytest.raises(hr.TopologyError, match=r"'n' keeps .* 'p-a-repartition' .* 'p-b-repartition'") as error:
        Driver(app).open()
    assert "different tasks" in str(error.value)
    assert "test_partitioners.py" in str(error.value)


def test_streams_of_one_partitioner_may_meet() -> None:
    def route(record: hr.Record, partitions: int) -> int:
        return len(record.key) % partitions

    app = hr.App("p")
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    parts = [rows.repartition(hr.Repartitioned.with_(name, 2).with_stream_partitioner(route)) for name in ("a", "b")]
    parts[0].merge(parts[1]).group_by_key().count(store="n")
    with Driver(app) as d:
        for key in ("x", "xy", "xyz"):
            d.send("in", key, 1)
        d.run()
        assert d.store("n").all() == {"x": 2, "xy": 2, "xyz": 2}
