"""`to_stream(emit="each")`: every update of a table, as a model has it that takes record by record, however rounds are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from operators.named import NAMED, named_result

RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.integers(-9, 9)), max_size=14)
PER_ROUND = st.sampled_from([1, 3, 1000])
Results = Callable[[list[int]], Any]  # what a table makes of the values of a key


def folded(values: list[int]) -> int:
    total = values[0]
    for value in values[1:]:
        total = 2 * total + value
    return total


def appended(state: list[int], record: hr.Record) -> list[int]:
    state.append(record.value)  # in place: what was given before must not change with it
    return state


TABLES: dict[str, tuple[Callable[[Any], Any], Results]] = {
    "count": (lambda grouped: grouped.count(store="s"), len),
    "named": (lambda grouped: grouped.aggregate(store="s", **NAMED), named_result),
    "reduce": (lambda grouped: grouped.reduce(lambda a, b: 2 * a + b, store="s"), folded),
    "general": (lambda grouped: grouped.aggregate(initial=list, function=appended, value=hr.Json(), store="s"), list),
}


def each_of(windows: Any, records: list[tuple[str, int, int]], result: Results) -> list[tuple[Any, Any]]:
    """Every update, record by record."""
    kept: dict[Any, list[int]] = {}
    updates = []
    for key, time, value in records:
        for start in [None] if windows is None else windows.starts_of(time):
            values = kept.setdefault((key, start), [])
            values.append(value)
            updates.append(((key, start), result(values)))
    return updates


def plain(record: hr.Record) -> tuple[Any, Any]:
    key = record.key
    return ((key.key, key.start_us) if isinstance(key, hr.WindowedKey) else (key, None)), record.value


@pytest.mark.parametrize("kind", sorted(TABLES))
@pytest.mark.parametrize(
    "windows", [None, hr.Tumbling("10 us"), hr.Hopping("10 us", "4 us")], ids=["none", "tumbling", "hopping"]
)
@settings(max_examples=6)
@given(records=RECORDS, per_round=PER_ROUND)
def test_each_gives_every_update_in_order(kind: str, windows: Any, records: list[tuple[str, int, int]], per_round: int) -> None:
    build, result = TABLES[kind]
    app = hr.App("each")
    grouped = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key()
    build(grouped if windows is None else grouped.windowed_by(windows)).to_stream(emit="each").to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, time, value in records:
            d.send("in", key, value, at=time)
        d.run()
        assert [plain(record) for record in d.read("out")] == each_of(windows, records, result)


@settings(max_examples=10)
@given(records=RECORDS, per_round=PER_ROUND)
def test_each_key_has_its_updates_in_order_over_several_partitions(
    records: list[tuple[str, int, int]], per_round: int
) -> None:
    app = hr.App("spread")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="s").to_stream(emit="each").to("out")
    with Driver(app, partitions=3, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, time, value in records:
            d.send("in", key, value, at=time)
        d.run()
        found = [plain(record) for record in d.read("out")]
    model = each_of(None, records, len)
    for key in "abc":
        assert [update for update in found if update[0][0] == key] == [update for update in model if update[0][0] == key]


@settings(max_examples=10)
@given(
    records=st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-9, 9))), max_size=12),
    per_round=PER_ROUND,
)
def test_of_a_table_every_update_comes_through_filters_and_maps(records: list[tuple[str, Any]], per_round: int) -> None:
    app = hr.App("table")
    table = app.table("in", key=hr.String(), value=hr.Long(), store="t")
    above = table.filter(lambda r: r.value > 0).map_values(lambda r: r.value * 2, value=hr.Long())
    above.to_stream(emit="each").to("each")
    above.to_stream().to("round")
    table.to_stream().to("all")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, value in records:
            d.send("in", key, value)
        d.run()
        outputs = {name: [(r.key, r.value) for r in d.read(name)] for name in ("each", "round", "all")}
    each = [(key, 2 * value if value is not None and value > 0 else None) for key, value in records]
    assert outputs["each"] == each
    rounds = [range(at, min(at + per_round, len(each))) for at in range(0, len(each), per_round)]
    last = [i for indices in rounds for i in indices if all(each[j][0] != each[i][0] for j in indices if j > i)]
    assert outputs["round"] == [each[i] for i in last], "a stream that did not ask is given the last of each round"
    assert outputs["all"] == [records[i] for i in last]


def test_a_record_that_is_refused_gives_no_update_and_the_others_go_on() -> None:
    app = hr.App("refused", dead_letter_stream="dead")
    grouped = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key()
    grouped.aggregate(t=hr.sum("value"), store="s").to_stream(emit="each").to("out")
    with Driver(app, partitions={"in": 1, "dead": 1}) as d:
        for value in (1, 2**63 - 1, 2):
            d.send("in", "a", value)
        d.run()
        assert [record.value for record in d.read("out")] == [{"t": 1}, {"t": 3}]
        assert len(d.read("dead")) == 1


def test_what_is_not_a_way_to_emit_is_refused() -> None:
    table = hr.App("ways").stream("in", key=hr.String(), value=hr.Long()).group_by_key().count()
    with pytest.raises(hr.TopologyError, match='expected "round", "each" or "closed"'):
        table.to_stream(emit="often")


def test_whole_numbers_and_floats_run_on_as_they_came() -> None:
    app = hr.App("mixed")
    grouped = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key()
    named = {kind: getattr(hr, kind)("value.v") for kind in ("count", "sum", "mean", "min", "last", "count_distinct")}
    grouped.aggregate(store="s", **named).to_stream(emit="each").to("out")
    with Driver(app) as d:
        for value in (2, 0.5, None, 3):
            d.send("in", "a", {"v": value})
        d.run()
        found = [record.value for record in d.read("out")]
    assert [one["count"] for one in found] == [1, 2, 2, 3]
    assert [one["sum"] for one in found] == [2, 2.5, 2.5, 5.5]
    assert [one["mean"] for one in found] == [2.0, 1.25, 1.25, 5.5 / 3]
    assert [one["min"] for one in found] == [2, 0.5, 0.5, 0.5]
    assert [one["last"] for one in found] == [2, 0.5, 0.5, 3]
    assert [one["count_distinct"] for one in found] == [1, 2, 2, 3]


VIEWS: dict[str, tuple[Callable[[hr.KTable], hr.KTable], list[int], list[int | None]]] = {
    "map_values": (lambda t: t.map_values(lambda r: 10 * r.value, value=hr.Long()), [0, 5], [None, 50]),
    "filter": (lambda t: t.filter(lambda r: r.value != 7), [7, 5, 0], [None, 5, None]),
}


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_views_keep_the_order_of_the_updates_that_come_of_one_record(view: str) -> None:
    over, values, updates = VIEWS[view]
    app = hr.App("views")
    parts = app.stream("in", key=hr.String(), value=hr.Json()).flat_map_values(lambda r: r.value, value=hr.Long())
    last = parts.group_by_key().aggregate(initial=0, function=lambda _, r: r.value or None, value=hr.Long(), store="s")
    over(last).to_stream(emit="each").to("each")
    over(last).to_stream(emit="round").to("round")
    with Driver(app) as d:
        d.send("in", "a", values)
        d.run()
        assert [r.value for r in d.read("each")] == updates
        assert [r.value for r in d.read("round")] == updates[-1:]
