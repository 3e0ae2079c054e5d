"""Keyed operators against plain Python: count, reduce, named aggregates and the general form, whatever the rounds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from headrace.worker.operators.keyed import copied

KEYS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.one_of(st.none(), st.integers(-1000, 1000), st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3)))
TEXTS = st.one_of(st.none(), st.text("abcé", max_size=3))
VALUES = st.fixed_dictionaries({"n": NUMBERS, "s": TEXTS, "i": st.integers(-9, 9)})


def last_of(records: list[hr.Record]) -> dict[Any, Any]:
    return {r.key: r.value for r in records}


def run_grouped(
    build: Callable[[Any], Any],
    records: list[tuple[Any, Any]],
    value: Any,
    per_round: int = 1000,
    partitions: int = 1,
) -> tuple[list[hr.Record], dict[Any, Any]]:
    app = hr.App("grouped")
    build(app.stream("in", key=hr.String(), value=value).group_by_key()).to_stream().to("out")
    with Driver(app, partitions=partitions, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, item in records:
            d.send("in", key, item)
        d.run()
        return d.read("out"), d.store("s").all()


def is_close(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-6)
    return bool(found == expected)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.one_of(st.none(), KEYS), st.integers()), max_size=30), st.integers(1, 9), st.integers(1, 3))
def test_count(records: list[tuple[Any, int]], per_round: int, partitions: int) -> None:
    records = [(k, v % 7) for k, v in records]
    out, stored = run_grouped(lambda g: g.count(store="s"), records, hr.Long(), per_round, partitions)
    expected: dict[Any, int] = defaultdict(int)
    updates: dict[Any, list[int]] = defaultdict(list)
    for key, _ in records:
        if key is not None:
            expected[key] += 1
            updates[key].append(expected[key])
    assert stored == last_of(out) == dict(expected)
    for key, every in updates.items():
        found = [r.value for r in out if r.key == key]
        assert set(found) <= set(every)
        assert found == sorted(set(found)), "an update twice, or out of order"
        assert found[-1] == every[-1]


def test_null_keys_are_dropped_and_counted() -> None:
    app = hr.App("nulls")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="s").to("out")
    with Driver(app) as d:
        for key in ("a", None, None):
            d.send("in", key, 1)
        d.run()
        assert d.store("s").all() == {"a": 1}
        assert d.counters["null_keys_dropped"] == 2


@pytest.mark.parametrize("serde", [hr.Json(), hr.Json("n double, s string, i int")], ids=["free", "ddl"])
@settings(max_examples=25)
@given(records=st.lists(st.tuples(KEYS, VALUES), max_size=25), per_round=st.integers(1, 9))
def test_all_named_aggregates(serde: Any, records: list[tuple[str, Any]], per_round: int) -> None:
    named = {
        "all": hr.count(),
        "present": hr.count("value.n"),
        "sum": hr.sum("value.n"),
        "mean": hr.mean("value.n"),
        "least": hr.min("value.n"),
        "most": hr.max("value.n"),
        "first": hr.first("value.n"),
        "last": hr.last("value.n"),
        "different": hr.count_distinct("value.n"),
        "least_text": hr.min("value.s"),
        "most_text": hr.max("value.s"),
        "first_text": hr.first("value.s"),
        "last_text": hr.last("value.s"),
        "different_texts": hr.count_distinct("value.s"),
        "whole": hr.sum("value.i"),
        "latest_offset": hr.max("offset"),
        "lowest_partition": hr.min("partition"),
        "last_key": hr.last("key"),
    }
    out, stored = run_grouped(lambda g: g.aggregate(store="s", **named), records, serde, per_round)
    groups: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for offset, (key, value) in enumerate(records):
        groups[key].append((offset, value))
    assert set(stored) == set(last_of(out)) == set(groups)
    for key, rows in groups.items():
        expected = named_in_python(key, rows)
        for found in (stored[key], last_of(out)[key]):
            wrong = {name: (found[name], value) for name, value in expected.items() if not is_close(found[name], value)}
            assert not wrong


def named_in_python(key: str, rows: list[tuple[int, Any]]) -> dict[str, Any]:
    numbers = [float(v["n"]) for _, v in rows if v["n"] is not None]
    texts = [v["s"] for _, v in rows if v["s"] is not None]
    return {
        "all": len(rows),
        "present": len(numbers),
        "sum": math.fsum(numbers) if numbers else None,
        "mean": math.fsum(numbers) / len(numbers) if numbers else None,
        "least": min(numbers, default=None),
        "most": max(numbers, default=None),
        "first": numbers[0] if numbers else None,
        "last": numbers[-1] if numbers else None,
        "different": len(set(numbers)),
        "least_text": min(texts, default=None),
        "most_text": max(texts, default=None),
        "first_text": texts[0] if texts else None,
        "last_text": texts[-1] if texts else None,
        "different_texts": len(set(texts)),
        "whole": sum(v["i"] for _, v in rows),
        "latest_offset": rows[-1][0],
        "lowest_partition": 0,
        "last_key": key,
    }


def test_aggregates_of_plain_values() -> None:
    records = [("a", 3), ("a", None), ("a", -1)]
    named = {"n": hr.count(), "s": hr.sum("value"), "m": hr.mean("value"), "f": hr.first("value")}
    _, stored = run_grouped(lambda g: g.aggregate(store="s", **named), records, hr.Long())
    assert stored == {"a": {"n": 2, "s": 2, "m": 1.0, "f": 3}}  # a record without a value is skipped


def test_what_is_no_number_is_the_records_fault_to_a_sum_and_what_is_no_scalar_to_all() -> None:
    app = hr.App("kinds", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Json()).group_by_key().aggregate(
        total=hr.sum("value.n"), least=hr.min("value.m"), store="s"
    ).to("out")
    with Driver(app) as d:
        for n, m in ((1, "x"), ("two", "y"), (True, "z"), (4, 5), (5, {"deep": 1}), (6, "a")):
            d.send("in", "a", {"n": n, "m": m})
        d.run()
        assert d.store("s").get("a") == {"total": 11, "least": 5}
        assert [dict(r.headers)["headrace.offset"] for r in d.read("dead")] == [b"1", b"2", b"4"]


MIXED = st.lists(st.tuples(KEYS, st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 2.0, "", "x", "é"])))


@pytest.mark.parametrize("emit", ["round", "each"])
@pytest.mark.parametrize("windows", [None, hr.Session("1 hour")], ids=["none", "session"])
@settings(max_examples=20)
@given(records=MIXED, per_round=st.sampled_from([1, 2, 5, 1000]))
def test_values_of_several_kinds_are_taken_alike_in_one_round_and_in_several(
    emit: str, windows: Any, records: list[tuple[str, Any]], per_round: int
) -> None:
    kinds = ("min", "max", "first", "last", "count_distinct", "count")
    app = hr.App("kinds")
    grouped = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key()
    grouped = grouped if windows is None else grouped.windowed_by(windows)
    grouped.aggregate(store="s", **{kind: getattr(hr, kind)("value.v") for kind in kinds}).to_stream(emit=emit).to("out")
    by_key: dict[str, list[Any]] = {}
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, value in records:
            d.send("in", key, {"v": value}, at=0)
            by_key.setdefault(key, []).append(value)
        d.run()
        found = {key if windows is None else key[0]: value for key, value in d.store("s").all().items()}
    order = lambda v: ("bool" if isinstance(v, bool) else "str" if isinstance(v, str) else "number", v)  # noqa: E731
    expected = {}
    for key, values in by_key.items():
        there = [value for value in values if value is not None]
        ends = {}
        if there:
            ends = {"min": min(there, key=order), "max": max(there, key=order), "first": there[0], "last": there[-1]}
        counts = {"count_distinct": len({order(value) for value in there}), "count": len(there)}
        expected[key] = {**dict.fromkeys(kinds[:4]), **ends, **counts}
    assert {key: {k: (type(v), v) for k, v in one.items() if k not in ("min", "max")} for key, one in found.items()} == {
        key: {k: (type(v), v) for k, v in one.items() if k not in ("min", "max")} for key, one in expected.items()
    }
    assert found == expected  # of equal numbers either is the least: 2 and 2.0


def test_count_takes_values_of_any_kind() -> None:
    values = [1, "x", {"deep": 1}, None, 2**70, True]
    _, stored = run_grouped(
        lambda g: g.aggregate(store="s", n=hr.count("value.v"), all=hr.count()), [("a", {"v": v}) for v in values], hr.Json()
    )
    assert stored == {"a": {"n": 5, "all": 6}}


# --- reduce and the general form ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(st.tuples(KEYS, st.integers(-99, 99)), max_size=25), st.integers(1, 9))
def test_reduce(records: list[tuple[str, int]], per_round: int) -> None:
    out, stored = run_grouped(lambda g: g.reduce(lambda a, b: 3 * a - b, store="s"), records, hr.Long(), per_round)
    expected: dict[str, int] = {}
    for key, value in records:
        expected[key] = 3 * expected[key] - value if key in expected else value
    assert stored == last_of(out) == expected


@settings(max_examples=25)
@given(st.lists(st.tuples(KEYS, st.integers(-5, 5)), max_size=25), st.integers(1, 9))
def test_general_form_with_deletions(records: list[tuple[str, int]], per_round: int) -> None:
    """A state of None deletes the key: what follows begins anew, in the same round or in another."""

    def folded(state: list[int], record: hr.Record) -> list[int] | None:
        state.append(record.value)  # in place
        return None if record.value == 0 else state

    out, stored = run_grouped(
        lambda g: g.aggregate(initial=list, function=folded, value=hr.Json(), store="s"), records, hr.Long(), per_round
    )
    expected: dict[str, Any] = {}
    for key, value in records:
        expected[key] = None if value == 0 else [*(expected.get(key) or []), value]
    assert last_of(out) == expected
    assert stored == {key: value for key, value in expected.items() if value is not None}


@pytest.mark.parametrize("initial", [{"n": 0, "seen": []}, lambda: {"n": 0, "seen": []}], ids=["value", "function"])
@pytest.mark.parametrize("per_round", [1, 2, 100])
def test_a_function_that_raises_leaves_the_state_as_it_was(initial: Any, per_round: int) -> None:
    def folded(state: Any, record: hr.Record) -> Any:
        state["n"] += 1
        state["seen"].append(record.value)
        if record.value % 3 == 0:
            raise ValueError(f"{record.value} will not do")
        return state

    app = hr.App("raises", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().aggregate(
        initial=initial, function=folded, value=hr.Json(), store="s"
    ).to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for value in (0, 1, 2, 3, 4, 6):
            d.send("in", "a", value)
        d.run()
        assert d.store("s").all() == {"a": {"n": 3, "seen": [1, 2, 4]}}
        assert [dict(r.headers)["headrace.error-message"] for r in d.read("dead")] == [
            b"0 will not do", b"3 will not do", b"6 will not do",
        ]  # fmt: skip


def test_a_reducer_that_changes_its_state_and_raises() -> None:
    def joined(state: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        state.update(new)
        if "bad" in new:
            raise ValueError("bad")
        return state

    app = hr.App("reducer", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Json()).group_by_key().reduce(joined, store="s").to("out")
    with Driver(app) as d:
        for value in ({"a": 1}, {"bad": 1}, {"b": 2}):
            d.send("in", "k", value)
        d.run()
        assert d.store("s").get("k") == {"a": 1, "b": 2}
        assert len(d.read("dead")) == 1


def test_a_state_that_cannot_be_encoded_is_the_records_fault() -> None:
    app = hr.App("encode", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().aggregate(
        initial=0, function=lambda s, r: "text" if r.value == 2 else s + r.value, value=hr.Long(), store="s"
    ).to("out")
    with Driver(app, overrides=["max_records_per_round=1"]) as d:
        for value in (1, 2, 3):
            d.send("in", "a", value)
        d.run()
        assert d.store("s").get("a") == 4
        assert [dict(r.headers)["headrace.offset"] for r in d.read("dead")] == [b"1"]


@pytest.mark.parametrize("state", [1, "a", None, [1, 2], {"a": 1}, {"a": [1]}, [[1], {"b": {2}}]])
def test_a_copy_is_equal_and_apart(state: Any) -> None:
    copy = copied(state)
    assert copy == state
    for part, other in ((copy, state), *zip(getattr(copy, "values", list)(), getattr(state, "values", list)(), strict=True)):
        assert part is not other or not isinstance(part, (list, dict, set))


def test_grouping_by_another_key_repartitions_by_itself() -> None:
    app = hr.App("regroup")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by(lambda r: f"g{r.value % 3}", key=hr.String()).count(
        store="s"
    ).to("out")
    with Driver(app, partitions=3, overrides=["max_records_per_round=5"]) as d:
        for i in range(30):
            d.send("in", f"k{i}", i)
        d.run()
        assert d.store("s").all() == {"g0": 10, "g1": 10, "g2": 10}


def test_equal_dicts_are_one_key_in_whatever_order_they_were_made() -> None:
    def place_of(record: hr.Record) -> dict[str, Any]:
        fields = [("seat", 1), ("row", {"b": 2, "a": record.value % 2})]
        return dict(fields if record.value < 4 else reversed(fields))

    app = hr.App("dicts")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by(place_of, key=hr.Json()).count(store="s").to("out")
    with Driver(app, partitions=3) as d:
        for number in range(8):
            d.send("in", f"k{number}", number)
            if number % 3 == 0:
                d.run()
        d.run()
        assert len(d.store("s")) == 2
        for a in (0, 1):
            assert d.store("s").get({"row": {"a": a, "b": 2}, "seat": 1}) == 4
            assert d.store("s").get({"seat": 1, "row": {"b": 2, "a": a}}) == 4
        assert [max(r.value for r in d.read("out", from_start=True) if r.key["row"]["a"] == a) for a in (0, 1)] == [4, 4]


def test_long_keys_are_found_again() -> None:
    app = hr.App("long")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="s").to("out")
    key = "x" * 5_000
    with Driver(app) as d:
        for _ in range(2):
            d.send("in", key, 1)
            d.send("in", key + "y", 1)
            d.run()
        assert (d.store("s").get(key), d.store("s").get(key + "y"), d.store("s").get(key + "z")) == (2, 2, None)
        assert last_of(d.read("out")) == {key: 2, key + "y": 2}
