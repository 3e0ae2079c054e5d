"""Which tables give every update, and which streams take the last of them again."""

from __future__ import annotations

import headrace as hr
from headrace.core.topology.emission import Emission, emission_of


def table_of(app: hr.App, store: str) -> hr.KTable:
    return app.stream(f"{store}-in", key=hr.String(), value=hr.Long()).group_by_key().count(store=store)


def test_nobody_asks_and_nothing_is_done() -> None:
    app = hr.App("none")
    table_of(app, "a").to_stream()
    assert emission_of(app.topology().nodes) == Emission()


def test_one_asks_and_all_behind_that_table_are_given_every_update() -> None:
    app = hr.App("one")
    table = table_of(app, "a")
    mapped = table.filter(lambda r: True, name="kept").map_values(lambda r: r.value, value=hr.Long(), name="same")
    mapped.to_stream(emit="each", name="every")
    mapped.to_stream(name="last-of-same")
    table.to_stream(name="last-of-a")
    table_of(app, "b").to_stream(name="last-of-b")
    assert emission_of(app.topology().nodes) == Emission(frozenset({"a"}), {"last-of-same": "a", "last-of-a": "a"})


def test_a_stream_behind_the_one_that_asks_takes_all_that_comes() -> None:
    app = hr.App("behind")
    every = table_of(app, "a").to_stream(emit="each", name="every")
    every.filter(lambda r: True).group_by_key().count(store="b").to_stream(name="last-of-b")
    assert emission_of(app.topology().nodes) == Emission(frozenset({"a"}), {})


def test_of_what_is_suppressed_the_table_need_not_give_more() -> None:
    app = hr.App("suppressed")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key()
    table = rows.windowed_by(hr.Tumbling("1 hour", grace="0 seconds")).count(store="a")
    table.suppress(hr.until_window_closes()).to_stream(emit="each", name="every")
    assert emission_of(app.topology().nodes) == Emission()


def test_both_sides_of_a_join_that_asks_give_every_update_and_so_does_what_they_are_made_of() -> None:
    app = hr.App("joined")
    one, other = table_of(app, "a"), app.table("b", key=hr.String(), value=hr.Long())
    joined = one.filter(lambda r: True).join(other, lambda left, right: left, value=hr.Long(), name="both")
    again = joined.join(joined, lambda left, right: left, value=hr.Long(), name="again")
    again.to_stream(emit="each", name="every")
    joined.to_stream(name="last-of-both")
    one.to_stream(name="last-of-a")
    other.join(table_of(app, "c"), lambda left, right: left, value=hr.Long(), name="beside").to_stream(name="last-of-beside")
    each = frozenset({"a", "both-left", "b-table", "both", "again-left", "again"})
    assert emission_of(app.topology().nodes) == Emission(each, {"last-of-both": "both", "last-of-a": "a"})


def test_a_side_that_comes_by_a_repartition_stream_is_written_with_every_update() -> None:
    app = hr.App("moved")
    one = table_of(app, "a")
    other = app.stream("b-in", key=hr.String(), value=hr.Long()).select_key(lambda r: "x", key=hr.String())
    counts = other.group_by_key().count(store="b")
    one.join(counts, lambda left, right: left, value=hr.Long(), name="both").to_stream(emit="each")
    assert emission_of(app.topology().nodes).each == {"a", "b", "both-left", "both-right", "both"}
