"""Joins with tables, against plain Python models that are told in which order the tasks took their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from operators.taken import Result, by_key, outcome

# stream, key, value (None deletes a table's), time; runs of them, and a restart before some of the runs
SENT = st.tuples(st.sampled_from(["l", "r"]), st.sampled_from("abc"), st.none() | st.integers(0, 9), st.integers(0, 20))
RUNS = st.lists(st.tuples(st.booleans(), st.lists(SENT, max_size=12)), min_size=1, max_size=4)
CUTS = st.sampled_from([1, 3, 1000])
Rounds = list[list[tuple[str, str, Any, int]]]


def text(left: Any, right: Any) -> str:
    return f"{left}&{right}"


def text_of(key: Any, left: Any, right: Any) -> str:
    return f"{key}:{left}&{right}"


@hr.batch
def texts(batch: pa.RecordBatch) -> pa.Array:
    assert batch.schema.names == ["key", "left", "right", "timestamp"]
    columns = (batch.column(name).to_pylist() for name in ("key", "left", "right"))
    return pa.array([text_of(*values) for values in zip(*columns, strict=True)], pa.string())


# --- a stream with a table ------------------------------------------------------------------------------------------


def stream_and_table() -> hr.App:
    app = hr.App("joined")
    left = app.stream("l", key=hr.String(), value=hr.Long())
    right = app.table("r", key=hr.String(), value=hr.Long())
    left.join(right, text, value=hr.String(), name="inner").to("inner")
    left.left_join(right, text_of, value=hr.String(), name="left").to("left")
    left.left_join(right, texts, value=hr.String(), name="batch").to("batch")
    return app


def stream_table_model(rounds: Rounds) -> tuple[list[Result], list[Result]]:
    table: dict[str, Any] = {}
    inner, left = [], []
    for records in rounds:
        for stream, key, value, time in records:
            if stream == "r":
                table[key] = value
                continue
            if value is None:
                continue
            if table.get(key) is not None:
                inner.append((key, text(value, table[key]), time))
            left.append((key, text_of(key, value, table.get(key)), time))
    return inner, left


@settings(max_examples=15)
@given(runs=RUNS, per_round=CUTS, partitions=st.integers(1, 3))
def test_a_record_is_joined_with_the_value_that_came_before_it(runs: Any, per_round: int, partitions: int) -> None:
    rounds, outs, _ = outcome(stream_and_table, runs, per_round, partitions, ("inner", "left", "batch"))
    inner, left = stream_table_model(rounds)
    assert by_key(outs["inner"]) == by_key(inner)
    assert by_key(outs["left"]) == by_key(left) == by_key(outs["batch"])
    if partitions == 1:
        assert (outs["inner"], outs["left"]) == (inner, left)


def stream_and_count() -> hr.App:
    app = hr.App("joined")
    left = app.stream("l", key=hr.String(), value=hr.Long())
    counts = app.stream("r", key=hr.String(), value=hr.Long()).group_by_key().count()
    even = counts.filter(lambda r: r.value % 2 == 0).map_values(lambda r: r.value * 10, value=hr.Long())
    left.left_join(even, text, value=hr.String()).to("out")
    return app


@settings(max_examples=15)
@given(runs=RUNS, per_round=CUTS)
def test_an_aggregations_table_changes_once_per_round_at_the_last_record_of_each_key(runs: Any, per_round: int) -> None:
    rounds, outs, _ = outcome(stream_and_count, runs, per_round, 1)
    counts: dict[str, int] = {}
    table: dict[str, int | None] = {}
    expected = []
    for records in rounds:
        last = {key: number for number, (stream, key, value, _) in enumerate(records) if stream == "r" and value is not None}
        for number, (stream, key, value, time) in enumerate(records):
            if value is None:
                continue
            if stream == "l":
                expected.append((key, text(value, table.get(key)), time))
                continue
            counts[key] = counts.get(key, 0) + 1
            if last[key] == number:
                table[key] = counts[key] * 10 if counts[key] % 2 == 0 else None
    assert outs["out"] == expected


@pytest.mark.parametrize("per_round", [1, 2, 1000])
def test_a_record_does_not_see_what_it_does_to_a_table_itself(per_round: int) -> None:
    app = hr.App("joined")
    stream = app.stream("l", key=hr.String(), value=hr.Long())
    stream.left_join(stream.to_table(store="last"), text, value=hr.String(), name="last-join").to("last-out")
    stream.left_join(stream.group_by_key().count(), text, value=hr.String(), name="counted").to("counted-out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for number, key in enumerate("aabab"):
            d.send("l", key, number, at=number)
        d.run()
        assert [r.value for r in d.read("last-out")] == ["0&None", "1&0", "2&None", "3&1", "4&2"]
        counts = {  # as they stood when the round began
            1: ["0&None", "1&1", "2&None", "3&2", "4&1"],
            2: ["0&None", "1&None", "2&None", "3&2", "4&1"],
            1000: ["0&None", "1&None", "2&None", "3&None", "4&None"],
        }
        assert [r.value for r in d.read("counted-out")] == counts[per_round]


def test_headers_and_time_are_the_records_own_and_what_is_null_is_counted() -> None:
    with Driver(stream_and_table()) as d:
        d.send("r", "a", 7, at=1, headers={"h": "table"})
        d.send("l", "a", 1, at=5, headers={"h": "stream"})
        d.send("l", None, 1, at=6)
        d.send("l", "a", None, at=7)
        d.run()
        (record,) = d.read("inner")
        assert (record.key, record.value, record.timestamp_us) == ("a", "1&7", 5)
        assert record.headers == (("h", b"stream"),)
        assert [(r.key, r.value) for r in d.read("left")] == [("a", "a:1&7"), (None, "None:1&None")]
        assert d.counters["null_keys_dropped"] == 1  # of the inner join alone
        assert d.counters["null_values_dropped"] == 3  # of each of the three joins


def test_a_joiner_that_raises_is_the_records_fault_and_the_rest_goes_on() -> None:
    app = hr.App("joined", dead_letter_stream="dead")
    left, right = app.stream("l", key=hr.String(), value=hr.Long()), app.table("r", key=hr.String(), value=hr.Long())
    left.join(right, lambda a, b: a // b, value=hr.Long()).to("out")
    with Driver(app) as d:
        for key, value in (("a", 0), ("b", 2)):
            d.send("r", key, value, at=1)
            d.send("l", key, 10, at=2)
        d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [("b", 5)]
        (dead,) = d.read("dead")
        assert dict(dead.headers)["headrace.operator"] == b"l-join"
        assert dict(dead.headers)["headrace.offset"] == b"0"


def test_a_key_that_was_changed_is_written_anew_and_so_is_a_table_that_is_read_elsewhere() -> None:
    app = hr.App("joined")
    left = app.stream("l", key=hr.String(), value=hr.Long())
    right = app.table("r", key=hr.String(), value=hr.String())
    left.select_key(lambda r: str(r.value), key=hr.String()).left_join(right, text, value=hr.String()).to("out")
    with Driver(app, partitions={"l": 2, "r": 3}) as d:
        for key, value, at in (("1", "one", 1), ("2", "two", 1), ("1", "uno", 10), ("2", None, 10)):
            d.send("r", key, value, at=at)
        for number, (value, at) in enumerate([(1, 1), (1, 9), (1, 10), (2, 5), (2, 20), (3, 5)]):
            d.send("l", f"k{number}", value, at=at)
        d.run()
        found = by_key([(r.key, r.value, r.timestamp_us) for r in d.read("out")])
    # every update of the table counts, and at equal times it comes first, behind repartition streams as well
    assert found == {
        "1": [("1&one", 1), ("1&one", 9), ("1&uno", 10)],
        "2": [("2&two", 5), ("2&None", 20)],
        "3": [("3&None", 5)],
    }


# --- two tables -----------------------------------------------------------------------------------------------------


def two_tables() -> hr.App:
    app = hr.App("joined")
    left, right = (app.table(name, key=hr.String(), value=hr.Long()) for name in ("l", "r"))
    left.join(right, text, value=hr.String(), name="inner").to("inner")
    left.left_join(right, texts_of_two, value=hr.String(), name="left").to("left")
    left.outer_join(right, text_of, value=hr.String(), name="outer").to("outer")
    left.join(left, text, value=hr.String(), name="itself").to("itself")
    return app


@hr.batch
def texts_of_two(batch: pa.RecordBatch) -> pa.Array:
    pairs = zip(batch.column("left").to_pylist(), batch.column("right").to_pylist(), strict=True)
    return pa.array([text(*pair) for pair in pairs], pa.string())


def tables_model(rounds: Rounds, is_there: Callable[[bool, bool], bool], joiner: Any) -> list[Result]:
    tables: dict[str, dict[str, Any]] = {"l": {}, "r": {}}
    times: dict[tuple[str, str], int] = {}
    found = []
    for records in rounds:
        before = {side: dict(table) for side, table in tables.items()}
        last: dict[str, int] = {}
        for stream, key, value, time in records:
            tables[stream][key], times[stream, key] = value, time
            last.pop(key, None)
            last[key] = time
        for key, time in last.items():
            time = max([time, *(times[side, key] for side in "lr" if tables[side].get(key) is not None)])
            was = is_there(*(before[side].get(key) is not None for side in "lr"))
            left, right = (tables[side].get(key) for side in "lr")
            if is_there(left is not None, right is not None):
                found.append((key, joiner(key, left, right), time))
            elif was:
                found.append((key, None, time))
    return found


@settings(max_examples=15)
@given(runs=RUNS, per_round=CUTS, partitions=st.integers(1, 2))
def test_two_tables_give_what_both_have_of_each_changed_key(runs: Any, per_round: int, partitions: int) -> None:
    names = ("inner", "left", "outer", "itself")
    rounds, outs, _ = outcome(two_tables, runs, per_round, partitions, names)
    pair = lambda key, left, right: text(left, right)  # noqa: E731
    expected = {
        "inner": tables_model(rounds, lambda left, right: left and right, pair),
        "left": tables_model(rounds, lambda left, right: left, pair),
        "outer": tables_model(rounds, lambda left, right: left or right, text_of),
    }
    only_left = [[record for record in records if record[0] == "l"] for records in rounds]
    expected["itself"] = tables_model(only_left, lambda left, right: left, lambda key, left, right: text(left, left))
    for name in names:
        assert by_key(outs[name]) == by_key(expected[name]), name
        if partitions == 1:
            assert outs[name] == expected[name], name


def test_what_two_tables_give_is_a_table() -> None:
    app = hr.App("joined")
    left, right = (app.table(name, key=hr.String(), value=hr.Long()) for name in ("l", "r"))
    both = left.join(right, lambda a, b: a + b, value=hr.Long()).filter(lambda r: r.value > 5)
    stream = app.stream("s", key=hr.String(), value=hr.Long())
    stream.left_join(both, text, value=hr.String()).to("out")
    both.join(left, text, value=hr.String(), name="again").to("again")
    with Driver(app) as d:
        d.send("l", "a", 4, at=1)
        d.send("r", "a", 3, at=2)
        d.run()
        d.send("s", "a", 1, at=3)
        d.run()
        d.send("r", "a", 1, at=4)
        d.run()
        d.send("s", "a", 2, at=5)
        d.run()
        assert [r.value for r in d.read("out")] == ["1&7", "2&None"]
        assert [r.value for r in d.read("again")] == ["7&4", None]


def test_a_key_that_no_joiner_takes_leaves_the_others_alone() -> None:
    app = hr.App("joined", dead_letter_stream="dead")
    left, right = (app.table(name, key=hr.String(), value=hr.Long()) for name in ("l", "r"))
    left.join(right, lambda a, b: a // b, value=hr.Long()).to("out")
    with Driver(app) as d:
        for key, value in (("a", 0), ("b", 2)):
            d.send("l", key, 10, at=1)
            d.send("r", key, value, at=2)
        d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [("b", 5)]
        assert len(d.read("dead")) == 1


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_a_global_table_is_asked_for_any_key_wherever_the_record_is(kind: str) -> None:
    app = hr.App("joined")
    stream = app.stream("l", key=hr.String(), value=hr.Long())
    table = app.global_table("r", key=hr.String(), value=hr.String())
    getattr(stream, kind)(table, text, value=hr.String(), key=lambda r: None if r.value < 0 else str(r.value)).to("out")
    with Driver(app, partitions={"l": 3, "r": 2}) as d:
        for number in range(5):
            d.send("r", str(number), f"n{number}", at=1)
        for number in range(-1, 7):
            d.send("l", f"k{number}", number, at=1)
        d.run()
        d.send("r", "2", None, at=3)
        d.send("l", "k2", 2, at=2)  # the same round: before the deletion
        d.run()
        d.send("l", "k2", 2, at=2)
        d.run()
        found = {r.key: [] for r in d.read("out")}
        for record in d.read("out", from_start=True):
            found[record.key].append(record.value)
        expected = {f"k{n}": [f"{n}&n{n}"] for n in range(5)}
        expected["k2"].append("2&n2")
        if kind == "left_join":
            expected |= {"k-1": ["-1&None"], "k5": ["5&None"], "k6": ["6&None"]}
            expected["k2"].append("2&None")
        assert found == expected
        assert d.store("r").all() == {str(n): f"n{n}" for n in range(5) if n != 2}


def test_a_global_table_is_read_by_every_sub_topology_that_joins_with_it() -> None:
    app = hr.App("joined")
    stream = app.stream("l", key=hr.String(), value=hr.Long())
    table = app.global_table("r", key=hr.String(), value=hr.String())
    by_value = lambda r: str(r.value)  # noqa: E731
    stream.join(table, text, value=hr.String(), key=by_value).to("here")
    there = stream.repartition(hr.Repartitioned(name="there", number_of_partitions=2))
    there.join(table, text, value=hr.String(), key=by_value).to("there")
    counts = stream.select_key(by_value, key=hr.String()).group_by_key().count(store="n")
    counts.to_stream().left_join(table, text, value=hr.String()).to("counted")
    with Driver(app, partitions={"l": 1, "r": 3}) as d:
        for number in range(4):
            d.send("r", str(number), f"n{number}", at=1)
        d.run()
        for number in range(6):
            d.send("l", f"k{number}", number, at=2)
        d.run()
        joined = {(f"k{n}", f"{n}&n{n}") for n in range(4)}
        assert {(r.key, r.value) for r in d.read("here")} == {(r.key, r.value) for r in d.read("there")} == joined
        assert {(r.key, r.value) for r in d.read("counted")} == {(str(n), f"1&{f'n{n}' if n < 4 else None}") for n in range(6)}


def test_a_task_that_is_new_reads_a_global_table_from_its_beginning(tmp_path: Any) -> None:
    def make(more: bool) -> hr.App:
        app = hr.App("joined")
        table = app.global_table("r", key=hr.String(), value=hr.String())
        streams = [app.stream(name, key=hr.String(), value=hr.Long()) for name in (("l", "m") if more else ("l",))]
        for number, stream in enumerate(streams):
            joined = stream.left_join(table, text, value=hr.String(), name=f"join-{number}", key=lambda r: "x")
            joined.to(f"out-{number}")
        return app

    with Driver(make(False), partitions={"l": 1, "r": 2}, directory=tmp_path) as d:
        d.send("r", "x", "old", at=1)
        d.send("l", "a", 1, at=2)
        d.run()
        assert [r.value for r in d.read("out-0")] == ["1&old"]
    with Driver(make(True), partitions={"m": 4}, directory=tmp_path) as d:
        d.run()
        for number in range(4):
            d.send("m", "a", number, at=5, partition=number)
        d.run()
        assert {r.value for r in d.read("out-1")} == {f"{n}&old" for n in range(4)}


def test_windowed_tables_meet_by_key_and_window() -> None:
    app = hr.App("joined")
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()).group_by_key() for name in ("l", "r"))
    windows = hr.Tumbling("10 us")
    counts = left.windowed_by(windows).count(store="n"), right.windowed_by(windows).count(store="m")
    counts[0].join(counts[1], text, value=hr.String(), name="both").to("out")
    with Driver(app, partitions={"l": 2, "r": 3}) as d:
        for key in "abc":
            for at in (1, 2, 11):
                d.send("l", key, 0, at=at)
            d.send("r", key, 0, at=13)
        d.send("r", "a", 0, at=5)
        d.run()
        found = {(r.key.key, r.key.start_us): r.value for r in d.read("out")}
        assert found == {("a", 0): "2&1", ("a", 10): "1&1", ("b", 10): "1&1", ("c", 10): "1&1"}
