"""Which tables give every update, and which streams take the last of them again."""

from __future__ import annotations

import headrace as hr
from headrace.core.emission import Emission, emission_of


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
