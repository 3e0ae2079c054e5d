"""Grouped tables: a row leaves its old group and comes into the new one; a group is what its rows say, and no more."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

ROWS = st.tuples(st.sampled_from("XYZ"), st.one_of(st.none(), st.integers(-9, 9), st.floats(-1e300, 1e300, allow_nan=False)))
CHANGES = st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), ROWS)), max_size=25)
PER_ROUND = st.sampled_from([1, 3, 1000])
FACTORS = st.sampled_from([1, 4])


def city_of(record: hr.Record) -> str | None:
    return record.value["city"]


def app_of(build: Any, **keys: Any) -> hr.App:
    app = hr.App("groups", **keys)
    build(app.table("in", key=hr.String(), value=hr.Json(), store="t").group_by(city_of, key=hr.String()))
    return app


def row(city: str | None, x: Any = 1) -> dict[str, Any]:
    return {"city": city, "x": x}


def values(driver: Driver, stream: str = "out") -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for record in driver.read(stream):
        found[record.key].append(record.value)
    return dict(found)


def total_of(xs: list[Any]) -> Any:
    """The sum of numbers as it is defined: exact, rounded once, whole where all are."""
    if not xs:
        return None
    return sum(xs) if all(isinstance(x, int) for x in xs) else float(sum(map(Fraction, xs)))


@settings(max_examples=60)
@given(CHANGES, PER_ROUND, FACTORS)
def test_named_aggregates_are_those_of_the_rows_that_are_there(changes: Any, per_round: int, factor: int) -> None:
    """However rows came and went, whatever was there before, and wherever rounds are cut."""

    def build(rows: Any) -> None:
        rows.aggregate(n=hr.count(), xs=hr.count("value.x"), total=hr.sum("value.x"), mean=hr.mean("value.x"), store="s")

    app = app_of(build, max_records_per_round=per_round, elasticity_factor=factor)
    with Driver(app, partitions={"in": 2}) as d:
        rows: dict[str, Any] = {}
        met = set()
        for key, given_row in changes:
            d.send("in", key, None if given_row is None else row(*given_row))
            rows[key] = given_row
            met |= set() if given_row is None else {given_row[0]}
        d.run()
        expected = {}
        for city in met:
            there = [one for one in rows.values() if one is not None and one[0] == city]
            xs = [x for _, x in there if x is not None]
            mean = float(sum(map(Fraction, xs)) / len(xs)) if xs else None
            expected[city] = {"n": len(there), "xs": len(xs), "total": total_of(xs), "mean": mean}
        found = d.store("s").all()
        passing = met - found.keys()  # rows that came and went within a round, of which no group was told
        assert found == {city: one for city, one in expected.items() if city not in passing}
        assert all(expected[city]["n"] == 0 for city in passing)


def test_every_update_is_the_count_before_with_one_row_moved() -> None:
    """As Kafka Streams: the row that goes is taken out of its group before another is put in."""
    with Driver(app_of(lambda rows: rows.count(store="s").to_stream(emit="each").to("out"))) as d:
        for key, city in (("A", "green"), ("B", "green"), ("A", "blue"), ("C", "yellow"), ("D", "green")):
            d.send("in", key, row(city))
        d.send("in", "B", None)
        d.run()
        assert values(d) == {"green": [1, 2, 1, 2, 1], "blue": [1], "yellow": [1]}


def test_a_row_that_stays_in_its_group_is_one_step() -> None:
    """No reader sees the group without it, though rounds take one record each."""

    def build(rows: Any) -> None:
        rows.aggregate(n=hr.count(), total=hr.sum("value.x"), store="s").to_stream(emit="each").to("out")

    app = app_of(build, max_records_per_round=1)
    with Driver(app) as d:
        for x in (1, 5, 3):
            d.send("in", "a", row("X", x))
        d.send("in", "b", row("X", 10))
        d.run()
        assert values(d)["X"] == [{"n": 1, "total": 1}, {"n": 1, "total": 5}, {"n": 1, "total": 3}, {"n": 2, "total": 13}]


def test_folds_of_ones_own() -> None:
    """The subtractor is given the row as it was; a state of None deletes the group, and the next row starts over."""

    def build(rows: Any) -> None:
        rows.aggregate(
            initial=dict,
            adder=lambda state, record: {**state, str(record.value["x"]): record.key},
            subtractor=lambda state, record: {k: v for k, v in state.items() if k != str(record.value["x"])} or None,
            value=hr.Json(),
            store="s",
        ).to_stream(emit="each").to("out")

    with Driver(app_of(build)) as d:
        for key, given_row in (("a", row("X", 1)), ("b", row("X", 2)), ("a", row("Y", 1)), ("b", None), ("b", row("X", 7))):
            d.send("in", key, given_row)
        d.run()
        assert values(d) == {"X": [{"1": "X"}, {"1": "X", "2": "X"}, {"2": "X"}, None, {"7": "X"}], "Y": [{"1": "Y"}]}
        assert d.store("s").all() == {"X": {"7": "X"}, "Y": {"1": "Y"}}


def test_a_reduction_takes_the_first_value_as_it_is() -> None:
    def build(app: hr.App) -> None:
        rows = app.table("in", key=hr.String(), value=hr.Long(), store="t").group_by(lambda r: "all", key=hr.String())
        rows.reduce(lambda state, value: state + value, lambda state, value: state - value, store="s").to("out")

    app = hr.App("groups", max_records_per_round=1)
    build(app)
    with Driver(app) as d:
        for key, number in (("a", 5), ("b", 2), ("a", 1), ("b", None)):
            d.send("in", key, number)
        d.run()
        assert values(d)["all"] == [5, 7, 3, 1]


def test_a_row_whose_group_is_none_is_in_no_group() -> None:
    with Driver(app_of(lambda rows: rows.count(store="s").to("out"), max_records_per_round=1)) as d:
        for city in (None, "X", None, "Y"):
            d.send("in", "a", row(city))
        d.run()
        assert values(d) == {"X": [1, 0], "Y": [1]}


def test_what_fails_leaves_the_row_where_it_was() -> None:
    """A selector that raises, and a group's key that has no bytes; the rest goes on, and nothing is taken out twice."""

    def selector(record: hr.Record) -> Any:
        return 1 / 0 if record.value["x"] == "raise" else b"\xff" if record.value["x"] == "key" else record.value["city"]

    app = hr.App("groups", dead_letter_stream="dead")
    rows = app.table("in", key=hr.String(), value=hr.Json(), store="t").group_by(selector, key=hr.String())
    rows.count(store="s").to_stream(emit="each").to("out")
    with Driver(app) as d:
        for x in (1, "raise", "key", 2):
            d.send("in", "a", row("X" if x != 2 else "Y", x))
            d.run()
        assert values(d) == {"X": [1, 0], "Y": [1]}
        assert len(list(d.read("dead"))) == 2


def test_a_total_beyond_64_bits_is_an_error_of_the_record() -> None:
    app = app_of(lambda rows: rows.aggregate(total=hr.sum("value.x"), store="s").to("out"), dead_letter_stream="dead")
    with Driver(app) as d:
        for key, x in (("a", 2**63 - 1), ("b", 1), ("c", -5), ("d", "text")):
            d.send("in", key, row("X", x))
            d.run()
        assert d.store("s").all() == {"X": {"total": 2**63 - 6}}
        assert len(list(d.read("dead"))) == 2


@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize("windows", [hr.Tumbling("10 seconds", grace="0 seconds"), hr.Session("4 seconds", grace="0 seconds")])
def test_results_of_windows_are_grouped_and_forgotten(windows: Any, factor: int) -> None:
    """By the number of visits of a user in a window: how many windows have as many. The store forgets a window that is gone."""
    app = hr.App("groups", max_records_per_round=1, elasticity_factor=factor)
    visits = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key().windowed_by(windows).count(store="visits")
    visits.group_by(lambda r: f"{r.value} visits", key=hr.String()).count(store="s")
    with Driver(app, partitions={"in": 1}) as d:
        for second, key in enumerate("aabacb"):
            d.send("in", key, {}, at=second * 1_000_000)
        d.run()
        assert d.store("s").all() == {"1 visits": 1, "2 visits": 1, "3 visits": 1}
        d.send("in", "z", {}, at=3_600_000_000)
        d.send("in", "z", {}, at=2 * 3_600_000_000)
        d.run()
        assert d.store("s").all() == {"1 visits": 3, "2 visits": 1, "3 visits": 1}
        assert set(d.store("s-rows").all()) == {("z", 3_600_000_000), ("z", 7_200_000_000)}, "of windows that are kept"


def test_final_results_are_grouped_and_not_remembered() -> None:
    app = hr.App("groups")
    windows = hr.Tumbling("10 seconds", grace="0 seconds")
    visits = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key().windowed_by(windows).count(store="visits")
    visits.suppress(hr.until_window_closes()).group_by(lambda r: str(r.value), key=hr.String()).count(store="s")
    with Driver(app) as d:
        for second in (1, 2, 11, 25):
            d.send("in", "a", {}, at=second * 1_000_000)
            d.run()
        assert d.store("s").all() == {"1": 1, "2": 1}
        assert d.store("s-rows").all() == {}


def test_an_edited_selector_takes_rows_out_of_where_they_are(tmp_path: Path) -> None:
    """What a group was told to put in is what it is told to take out, though the function says something else by now."""

    def app(selector: Any) -> hr.App:
        built = hr.App("groups")
        rows = built.table("in", key=hr.String(), value=hr.Json(), store="t").group_by(selector, key=hr.String())
        rows.count(store="s")
        return built

    with Driver(app(city_of), directory=tmp_path) as d:
        d.send("in", "a", row("X"))
        d.send("in", "b", row("X"))
        d.run()
    with Driver(app(lambda r: f"new {r.value['city']}"), directory=tmp_path) as d:
        d.send("in", "a", row("X"))
        d.run()
        assert d.store("s").all() == {"X": 1, "new X": 1}


def test_several_aggregates_share_one_repartition_stream() -> None:
    def build(rows: Any) -> None:
        rows.count(store="n").to("out")
        rows.aggregate(total=hr.sum("value.x"), store="s").to("out-2")

    app = app_of(build)
    assert [node.stream for node in app.topology().repartitions] == ["groups-n-repartition"]
    with Driver(app) as d:
        d.send("in", "a", row("X", 3))
        d.send("in", "b", row("X", 4))
        d.run()
        assert d.store("n").all() == {"X": 2}
        assert d.store("s").all() == {"X": {"total": 7}}


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda rows: rows.aggregate(least=hr.min("value.x")), "taken out of a min"),
        (lambda rows: rows.aggregate(at=hr.sum("timestamp")), "no timestamp of its own"),
        (lambda rows: rows.aggregate(initial=0, adder=lambda s, r: s), "adder= and subtractor="),
        (lambda rows: rows.aggregate(initial=0, adder=lambda s, r: s, subtractor=len, n=hr.count()), "the one or the"),
        (lambda rows: rows.reduce(lambda s, v: s, lambda s: s), "called with"),
    ],
)
def test_what_cannot_be_aggregated_is_refused(build: Any, text: str) -> None:
    with pytest.raises(hr.TopologyError, match=text):
        app_of(build)
