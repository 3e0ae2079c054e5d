"""Tables with a history: a record is joined with the version of its own time, wherever rounds are cut."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

SECOND = 1_000_000
NOTHING = "nothing"


def app_of(history: str = "100 seconds", grace: str | None = None, kind: str = "left_join", **keys: Any) -> hr.App:
    app = hr.App("versions", **keys)
    prices = app.table("prices", key=hr.String(), value=hr.Long(), history=history)
    orders = app.stream("orders", key=hr.String(), value=hr.Long())
    joined = getattr(orders, kind)(prices, lambda order, price: [order, price], value=hr.Json(), grace=grace, name="j")
    joined.to("out")
    prices.to_stream(emit="each").to("newest")
    return app


def results(driver: Driver, stream: str = "out") -> list[tuple[str, Any, int]]:
    return [(r.key, r.value, (r.timestamp_us or 0) // SECOND) for r in driver.read(stream)]


@pytest.mark.parametrize("per_round", [1, 1000])
def test_a_record_finds_the_version_of_its_own_time(per_round: int) -> None:
    with Driver(app_of(max_records_per_round=per_round)) as d:
        for value, second in ((1, 10), (2, 20), (None, 30), (4, 40)):
            d.send("prices", "tea", value, at=second * SECOND)
        d.run()
        for number, second in enumerate((40, 39, 30, 29, 20, 15, 10, 9)):
            d.send("orders", "tea", number, at=second * SECOND)
        d.run()
        found = {value[0]: value[1] for _, value, _ in results(d)}
        assert found == {0: 4, 1: None, 2: None, 3: 2, 4: 2, 5: 1, 6: 1, 7: None}
        assert d.store("prices").all() == {"tea": 4}
        history = d.store("prices-versions").all()
        assert history == {("tea", s * SECOND): v for s, v in ((10, 1), (20, 2), (30, None), (40, 4))}


@pytest.mark.parametrize("per_round", [1, 1000])
def test_an_older_version_changes_what_records_of_its_time_find_and_is_no_update(per_round: int) -> None:
    with Driver(app_of(max_records_per_round=per_round)) as d:
        for value, second in ((1, 10), (4, 40), (2, 20), (5, 40)):
            d.send("prices", "tea", value, at=second * SECOND)
            d.run()
        assert results(d, "newest") == [("tea", 1, 10), ("tea", 4, 40), ("tea", 5, 40)]
        for number, second in enumerate((19, 20, 39, 40)):
            d.send("orders", "tea", number, at=second * SECOND)
        d.run()
        assert [value for _, value, _ in results(d)] == [[0, 1], [1, 2], [2, 2], [3, 5]]


def test_versions_are_kept_as_long_as_the_history_says() -> None:
    with Driver(app_of("100 seconds")) as d:
        for value, second in ((1, 10), (2, 20), (None, 30), (4, 40)):
            d.send("prices", "tea", value, at=second * SECOND)
        d.send("prices", "milk", 1, at=5 * SECOND)
        d.send("prices", "milk", None, at=15 * SECOND)
        d.run()
        for _ in range(2):  # what is due is deleted in the next round
            d.send("orders", "x", 0, at=130 * SECOND)
            d.send("prices", "x", 0, at=130 * SECOND)
            d.run()
        assert sorted(d.store("prices-versions").all()) == [("tea", 30 * SECOND), ("tea", 40 * SECOND), ("x", 130 * SECOND)]
        assert d.store("prices").all() == {"tea": 4, "x": 0}
        d.send("prices", "tea", 9, at=29 * SECOND)  # older than the history
        d.send("prices", "tea", 3, at=30 * SECOND)
        d.run()
        assert d.counters["late_records"] == 1
        d.send("orders", "tea", 1, at=35 * SECOND)
        d.send("orders", "tea", 2, at=29 * SECOND)
        d.run()
        assert [value for key, value, _ in results(d) if key == "tea"] == [[1, 3], [2, None]]


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_with_a_grace_a_record_waits_for_the_table(kind: str) -> None:
    with Driver(app_of(grace="5 seconds", kind=kind)) as d:
        d.send("orders", "tea", 1, at=10 * SECOND, headers=[("who", b"ada")])
        d.send("prices", "x", 0, at=15 * SECOND)
        d.run()
        assert results(d) == []
        assert d.store("j-waiting").all() == {("tea", 10 * SECOND): 1}
        d.send("prices", "tea", 7, at=9 * SECOND)  # late, and in time
        d.send("orders", "x", 2, at=16 * SECOND)
        d.send("prices", "x", 0, at=16 * SECOND)
        d.run()
        d.run()
        (joined,) = d.read("out")
        assert (joined.key, joined.value, joined.timestamp_us) == ("tea", [1, 7], 10 * SECOND)
        assert joined.headers == (("who", b"ada"),)
        assert d.store("j-waiting").all() == {("x", 16 * SECOND): 2}
        d.send("orders", "tea", 3, at=9 * SECOND)  # its time is over: it is joined at once
        d.run()
        assert results(d) == [("tea", [3, 7], 9)]


def test_what_waits_finds_its_version_though_that_expires_in_the_same_round() -> None:
    with Driver(app_of("20 seconds", "5 seconds")) as d:
        for value, second in ((1, 8), (2, 11)):
            d.send("prices", "tea", value, at=second * SECOND)
        d.send("orders", "tea", 0, at=10 * SECOND)
        d.run()
        for stream in ("prices", "orders"):
            d.send(stream, "milk", 0, at=1000 * SECOND)
        d.run()
        d.send("orders", "tea", 1, at=10 * SECOND)
        d.run()
        assert [value for key, value, _ in results(d) if key == "tea"] == [[0, 1], [1, None]]


ROWS = st.lists(
    st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 60), st.one_of(st.none(), st.integers(0, 9))), max_size=40
)


def model(rows: list[tuple[bool, str, int, int | None]], kind: str) -> list[tuple[str, Any, int]]:
    versions: dict[str, dict[int, int | None]] = defaultdict(dict)
    for is_price, key, second, value in rows:
        if is_price:
            versions[key][second] = value
    found: list[tuple[str, Any, int]] = []
    for number, (is_price, key, second, _) in enumerate(rows):
        if not is_price:
            earlier = [at for at in versions[key] if at <= second]
            price = versions[key][max(earlier)] if earlier else None
            if kind == "left_join" or price is not None:
                found.append((key, [number, price], second))
    return sorted(found, key=repr)


@pytest.mark.parametrize(("kind", "factor"), [("join", 1), ("left_join", 4)])
@settings(max_examples=15)
@given(rows=ROWS, cuts=st.sets(st.integers(0, 40)), per_round=st.sampled_from([1, 3, 1000]))
def test_what_waits_is_joined_as_of_its_time_in_whatever_order_both_sides_come(
    kind: str, factor: int, rows: list[Any], cuts: set[int], per_round: int
) -> None:
    """Records come up to a minute out of order, which is the grace: none is late."""
    with Driver(app_of("1 hour", "1 minute", kind, max_records_per_round=per_round, elasticity_factor=factor)) as d:
        for number, (is_price, key, second, value) in enumerate(rows):
            if is_price:
                d.send("prices", key, value, at=second * SECOND)
            else:
                d.send("orders", key, number, at=second * SECOND)
            if number in cuts:
                d.run()
        d.run()
        for stream in ("prices", "orders"):
            d.send(stream, NOTHING, -1, at=200 * SECOND)
        d.run()
        assert sorted((row for row in results(d) if row[0] != NOTHING), key=repr) == model(rows, kind)


def test_the_versions_of_a_stream_that_is_partitioned_by_something_else_are_kept_too() -> None:
    app = hr.App("versions")
    prices = app.table("prices", key=hr.String(), value=hr.Long(), history="1 hour", partitioning="other")
    orders = app.stream("orders", key=hr.String(), value=hr.Long())
    orders.join(prices, lambda order, price: [order, price], value=hr.Json(), grace="0 seconds", name="j").to("out")
    with Driver(app, partitions=2) as d:
        for partition, (value, second) in enumerate(((1, 10), (2, 20))):
            d.send("prices", "tea", value, at=second * SECOND, partition=partition)
        for second in (10, 19, 20):
            d.send("orders", "tea", second, at=second * SECOND)
        d.run()
        for partition in range(2):
            for stream in ("prices", "orders"):
                d.send(stream, "end", 0, at=100 * SECOND, partition=partition)
        for _ in range(3):
            d.run()
        assert sorted(value for key, value, _ in results(d) if key == "tea") == [[10, 1], [19, 1], [20, 2]]


@pytest.mark.parametrize("emit", ["round", "each"])
def test_tables_of_versions_are_joined_by_their_newest_ones(emit: str) -> None:
    app = hr.App("versions")
    left, right = (
        app.stream(name, key=hr.String(), value=hr.Long()).to_table(store=f"{name}s", history="1 hour")
        for name in ("left", "right")
    )
    left.outer_join(right, lambda x, y: [x, y], value=hr.Json()).to_stream(emit=emit).to("out")
    left.filter(lambda r: r.value % 2 == 0).to_stream(emit=emit).to("even")
    with Driver(app) as d:
        for stream, value, second in (("left", 2, 20), ("right", 7, 10), ("left", 4, 15), ("right", 8, 11), ("right", 6, 9)):
            d.send(stream, "tea", value, at=second * SECOND)
            d.run()
        assert [value for _, value, _ in results(d)] == [[2, None], [2, 7], [2, 8]]
        assert [value for _, value, _ in results(d, "even")] == [2]


def test_state_of_a_table_without_versions_is_refused_by_one_with_them(tmp_path: Any) -> None:
    def app(history: str | None) -> hr.App:
        app = hr.App("versions")
        app.table("prices", key=hr.String(), value=hr.Long(), history=history).to_stream().to("out")
        return app

    with Driver(app(None), directory=tmp_path) as d:
        d.send("prices", "tea", 1)
        d.run()
    with (
        pytest.raises(hr.HeadraceError, match="newest values of a table with a history"),
        Driver(app("1 hour"), directory=tmp_path) as d,
    ):
        d.run()


def declared(history: str | None, grace: str, make: str = "table") -> None:
    app = hr.App("versions")
    orders = app.stream("orders", key=hr.String(), value=hr.Long())
    if make == "global":
        orders.join(app.global_table("prices", key=hr.String()), lambda x, y: x, value=hr.Json(), grace=grace)
        return
    prices = app.table("prices", key=hr.String(), value=hr.Long(), history=history)
    orders.join(
        prices.filter(lambda r: True) if make == "filter" else prices, lambda x, y: x, value=hr.Json(), grace=grace
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, "1 minute"), "keeps its newest values alone"),
        (("1 hour", "1 minute", "filter"), "keeps its newest values alone"),
        (("1 hour", "2 hours"), "above the history of 1 hour"),
        (("1 hour", "soon"), "grace"),
        (("long", "1 minute"), "history"),
        ((None, "1 minute", "global"), "grace= and retention= are for two streams"),
    ],
)
def test_what_has_no_meaning_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(hr.TopologyError, match=words):
        declared(*arguments)
