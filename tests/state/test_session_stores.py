"""Stores whose windows have ends of their own, sessions and suppressed windows, as read from outside."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

MINUTE = 60_000_000
GAP = hr.Session("10 minutes", grace="1 hour")


def ran(folder: Path) -> hr.App:
    """Key `a` with sessions [0, 5] and [30, 30] minutes, one store per kind of aggregate."""
    app = hr.App("stores", system=f"log:{folder / 'log'}", state_uri=str(folder / "state"))
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(GAP)
    rows.count(store="count").to_stream(emit="closed").to("out")
    rows.aggregate(n=hr.count(), t=hr.sum("value"), store="named")
    rows.reduce(lambda old, new: old + new, store="reduce")
    rows.aggregate(
        initial=list, function=lambda s, r: [*s, r.value], merger=lambda a, b: a + b, value=hr.Json(), store="general"
    )
    with Driver(app, directory=folder, partitions=2) as d:
        for minute, value in ((0, 1), (5, 2), (30, 4)):
            d.send("in", "a", value, at=minute * MINUTE)
        d.send("in", "b", 7, at=0)
        d.run()
    return app


@pytest.mark.parametrize(
    ("store", "first", "second"),
    [
        ("count", 2, 1),
        ("named", {"n": 2, "t": 3}, {"n": 1, "t": 4}),
        ("reduce", 3, 4),
        ("general", [1, 2], [4]),
        ("count-suppress", 2, 1),
    ],
)
def test_sessions_are_read_with_their_ends(tmp_path: Path, store: str, first: Any, second: Any) -> None:
    state = ran(tmp_path).state(store)
    one, two = hr.WindowedKey("a", 0, 5 * MINUTE), hr.WindowedKey("a", 30 * MINUTE, 30 * MINUTE)
    assert state.get("a") == {one: first, two: second}
    assert state.get(one) == first
    assert state.get("nobody") is None
    table = state.to_arrow()
    assert table.column_names == ["key", "window_start", "window_end", "value"]
    rows = sorted((row for row in table.to_pylist() if row["key"] == "a"), key=lambda row: row["window_start"])
    assert [row["value"] for row in rows] == [first, second]
    times = [(row["window_start"], row["window_end"]) for row in rows]
    assert times[0] == (datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 5, tzinfo=UTC))
    assert times[1][0] == times[1][1]


def test_another_gap_is_another_form_of_the_store(tmp_path: Path) -> None:
    ran(tmp_path)
    app = hr.App("stores", system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Session("11 minutes"))
    rows.count(store="count")
    with pytest.raises(hr.IncompatibleChangeError, match="store 'count': its gap was 10 minutes, is 11 minutes: "):
        Driver(app, directory=tmp_path, partitions=2).open()
