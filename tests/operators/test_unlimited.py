"""The window without an end: what a key's records from its beginning on come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import TopologyError
from headrace.testing import Driver
from operators.named import NAMED, named_result

START, END = 1_000, 253_402_300_799_999_999
KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[list[int]], Any]]] = {
    "count": (lambda rows: rows.count(store="s"), len),
    "named": (lambda rows: rows.aggregate(store="s", **NAMED), named_result),
    "reduce": (lambda rows: rows.reduce(lambda a, b: a + b, store="s", value=hr.Long()), sum),
    "cogroup": (lambda rows: rows.aggregate(initial=list, value=hr.Json(), store="s"), list),
}


def app_of(kind: str, folder: Path) -> hr.App:
    app = hr.App("unlimited", system=f"log:{folder / 'log'}", state_uri=str(folder / "state"))
    grouped: Any = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key()
    if kind == "cogroup":
        grouped = grouped.cogroup(lambda state, r: [*state, r.value])
    KINDS[kind][0](grouped.windowed_by(hr.Unlimited(start=START))).to("out")
    return app


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_window_takes_all_records_from_its_start_on(kind: str, tmp_path: Path) -> None:
    sent = [("a", 1_000, 1), ("b", 999, 2), ("a", 999, 3), ("a", 9_000, 4), ("b", 1_500, 5), ("a", 1_001, 6)]
    for part, factor in ((sent[:3], 1), (sent[3:], 4)):
        app = app_of(kind, tmp_path)
        with Driver(app, directory=tmp_path, overrides=["max_records_per_round=2", f"elasticity_factor={factor}"]) as d:
            for key, time, value in part:
                d.send("in", key, value, at=time)
            d.run()
            found = {r.key: r.value for r in d.read("out")}
            counters = d.counters
    view = app_of(kind, tmp_path).state("s").get("a")
    expected: dict[Any, Any] = {}
    for key in "ab":
        values = [value for each, time, value in sent if each == key and time >= START]
        expected[hr.WindowedKey(key, START, END)] = KINDS[kind][1](values)
    assert found == expected
    assert "late_records" not in counters
    assert view == {hr.WindowedKey("a", START, END): expected[hr.WindowedKey("a", START, END)]}


@pytest.mark.parametrize("start", ["2026-01-01T00:00:00Z", START, 0])
def test_a_start_is_a_time(start: Any) -> None:
    assert hr.Unlimited(start=start).starts_of(END - 1)
    assert hr.Unlimited().starts_of(-1) == []


@pytest.mark.parametrize("start", ["yesterday", "2026-01-01T00:00:00", 1.5, 1 << 62, None])
def test_what_is_no_time_is_refused(start: Any) -> None:
    with pytest.raises(TopologyError, match="Unlimited"):
        hr.Unlimited(start=start)


@pytest.mark.parametrize("close", [lambda t: t.suppress(hr.until_window_closes()), lambda t: t.to_stream(emit="closed")])
def test_it_has_no_final_result(close: Callable[[Any], Any]) -> None:
    app = hr.App("unlimited")
    table = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Unlimited()).count(store="s")
    with pytest.raises(TopologyError, match="an unlimited window never closes"):
        close(table)
