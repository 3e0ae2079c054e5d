"""Windows: which a record falls into, which records are late, and when state goes; judged by the time before the round."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

MINUTE = 60_000_000
HOUR = 60 * MINUTE

WINDOWS = {
    "tumbling": (hr.Tumbling("10 us"), 10, 10, None, None),
    "tumbling, grace": (hr.Tumbling("10 us", grace="5 us"), 10, 10, 5, 5),
    "tumbling, both": (hr.Tumbling("10 us", grace="5 us", retention="21 us"), 10, 10, 5, 21),
    "hopping": (hr.Hopping("10 us", "5 us"), 10, 5, None, None),
    "hopping, grace": (hr.Hopping("10 us", "4 us", grace="0 us"), 10, 4, 0, 0),
    "hopping, both": (hr.Hopping("10 us", "4 us", grace="0 us", retention="13 us"), 10, 4, 0, 13),
    "hopping, uneven": (hr.Hopping("7 us", "3 us", retention="9 us"), 7, 3, 9, 9),
}
ROUNDS = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 60), st.integers(-9, 9)), min_size=1, max_size=6), max_size=6
)


class Model:
    """The plain way: every window a list of values; the watermark moves between rounds."""

    def __init__(self, size: int, advance: int, open_for: int | None, kept: int | None) -> None:
        self.size, self.advance = size, advance
        self.open_for, self.kept = (7 * 24 * HOUR if length is None else length for length in (open_for, kept))
        self.windows: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.results: dict[tuple[str, int], list[int]] = {}
        self.watermark: int | None = None
        self.late = 0

    def expired(self) -> list[tuple[str, int]]:
        """What the next record will not find any more. Whether the store still has it between two rounds is left open."""
        mark = self.watermark
        return [] if mark is None else [w for w in self.windows if w[1] + self.size + self.kept <= mark]

    def round(self, records: list[tuple[str, int, int]]) -> None:
        for window in self.expired():
            del self.windows[window]
        for key, time, value in records:
            starts = [s for s in range(-60, 100) if s % self.advance == 0 and s <= time < s + self.size]
            fresh = [s for s in starts if self.watermark is None or s + self.size + self.open_for > self.watermark]
            self.late += not fresh
            for start in fresh:
                self.windows[key, start].append(value)
                self.results[key, start] = list(self.windows[key, start])
        highest = max(time for _, time, _ in records)
        self.watermark = highest if self.watermark is None else max(self.watermark, highest)


def build(kind: str, grouped: Any) -> tuple[Any, Any]:
    """The table, and what a list of values becomes in it."""
    match kind:
        case "count":
            return grouped.count(store="s"), len
        case "named":
            named = {"f": hr.first("value"), "l": hr.last("value"), "t": hr.sum("value"), "n": hr.count()}
            return grouped.aggregate(store="s", **named), lambda v: {"f": v[0], "l": v[-1], "t": sum(v), "n": len(v)}
        case "reduce":
            return grouped.reduce(lambda a, b: 2 * a + b, store="s"), doubled
        case _:
            return grouped.aggregate(initial=list, function=lambda s, r: [*s, r.value], value=hr.Json(), store="s"), list


def doubled(values: list[int]) -> int:
    total = values[0]
    for value in values[1:]:
        total = 2 * total + value
    return total


@pytest.mark.parametrize("kind", ["count", "named", "reduce", "general"])
@pytest.mark.parametrize("windows", sorted(WINDOWS))
@settings(max_examples=8)
@given(rounds=ROUNDS)
def test_windows_as_in_plain_python(kind: str, windows: str, rounds: list[list[tuple[str, int, int]]]) -> None:
    given_windows, size, advance, open_for, kept = WINDOWS[windows]
    app = hr.App("windowed")
    grouped = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(given_windows)
    table, result = build(kind, grouped)
    table.to_stream().to("out")
    model = Model(size, advance, open_for, kept)
    with Driver(app) as d:
        for records in rounds:
            for key, time, value in records:
                d.send("in", key, value, at=time)
            d.run()
            model.round(records)
        found = {(r.key.key, r.key.start_us): r.value for r in d.read("out")}
        assert all(r.key.end_us - r.key.start_us == size for r in d.read("out", from_start=True))
        assert found == {window: result(values) for window, values in model.results.items()}
        stored = {window: result(values) for window, values in model.windows.items()}
        kept = d.store("s").all()
        assert {window: kept.pop(window, stored[window]) for window in model.expired()}.items() <= stored.items()
        assert kept == {window: value for window, value in stored.items() if window not in model.expired()}
        assert d.counters.get("late_records", 0) == model.late


def test_records_of_one_round_are_not_late_to_each_other() -> None:
    app = hr.App("round")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(
        hr.Tumbling("1 hour", grace="0 s")
    ).count(store="s").to("out")
    with Driver(app) as d:
        d.send("in", "a", 0, at=5 * HOUR)
        d.send("in", "a", 0, at=0)  # hours behind, but the watermark has not moved yet
        d.run()
        assert "late_records" not in d.counters
        d.send("in", "a", 0, at=HOUR)
        d.run()
        assert d.counters["late_records"] == 1


def test_a_window_that_has_closed_is_read_until_its_retention_is_over(tmp_path: Path) -> None:
    windows = hr.Tumbling("1 hour", grace="1 minute", retention="25 hours")
    app = hr.App("kept", system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    table = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(windows).count(store="s")
    table.to_stream(emit="closed").to("out")
    first = hr.WindowedKey("a", 0, HOUR)
    with Driver(app, directory=tmp_path) as d:
        d.send("in", "a", 1, at=0)
        d.run()
        d.send("in", "b", 1, at=HOUR + MINUTE)
        d.run()
        d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [(first, 1)], "the grace alone says when a window closes"
        d.send("in", "a", 1, at=HOUR - 1)
        d.run()
        assert d.counters["late_records"] == 1
        d.send("in", "b", 1, at=26 * HOUR - 1)
        d.run()
        d.send("in", "b", 1, at=26 * HOUR - 1)
        d.run()
        assert d.store("s").all()["a", 0] == 1
        assert app.state("s").get(first) == 1
    # a longer grace than before finds the window where it was: it is open again, and kept for as long as is said now
    app = hr.App("kept", system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    longer = hr.Tumbling("1 hour", grace="26 hours", retention="27 hours")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(longer).count(store="s").to_stream().to("o")
    with Driver(app, directory=tmp_path) as d:
        d.send("in", "a", 1, at=HOUR - 1)
        d.send("in", "b", 1, at=28 * HOUR - 1)
        d.run()
        assert app.state("s").get(first) == 2
        d.send("in", "b", 1, at=28 * HOUR)
        d.run()
        assert app.state("s").get(first) == 2
        d.send("in", "b", 1, at=28 * HOUR)
        d.run()
        assert app.state("s").get(first) is None


def test_late_records_are_dead_letters_where_a_stream_is_set() -> None:
    app = hr.App("late", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(
        hr.Tumbling("1 hour", grace="10 minutes")
    ).count(store="s").to("out")
    with Driver(app) as d:
        d.send("in", "a", 1, at=HOUR + 10 * MINUTE - 1)
        d.run()
        d.send("in", "a", 2, at=HOUR - 1)  # within the grace
        d.send("in", "a", 3, at=HOUR + 10 * MINUTE)
        d.run()
        d.send("in", "a", 4, at=HOUR - 1, headers={"h": "x"})  # beyond it
        d.run()
        (letter,) = d.read("dead")
        assert d.store("s").all() == {("a", HOUR): 2}  # the first hour has closed
    headers = dict(letter.headers)
    assert headers["h"] == b"x"
    assert headers["headrace.error-class"] == b"LateRecord"
    assert (headers["headrace.stream"], headers["headrace.partition"], headers["headrace.offset"]) == (b"in", b"0", b"3")
    assert letter.timestamp_us == HOUR - 1


def test_several_inputs_hold_each_other_back_until_one_is_idle() -> None:
    app = hr.App("inputs", idle_timeout_s=60.0)
    one = app.stream("one", key=hr.String(), value=hr.Long())
    two = app.stream("two", key=hr.String(), value=hr.Long())
    one.merge(two).group_by_key().windowed_by(hr.Tumbling("1 hour", grace="0 s")).count(store="s").to("out")
    with Driver(app) as d:
        d.send("one", "a", 0, at=10 * HOUR)
        d.send("two", "a", 0, at=0)
        d.run()
        d.send("two", "a", 0, at=1)  # `two` holds the task's time back: not late
        d.run()
        assert "late_records" not in d.counters
        d.advance("61 seconds")
        d.run()  # nothing has come: both are idle
        d.send("one", "a", 0, at=11 * HOUR)
        d.run()
        d.send("one", "a", 0, at=2)
        d.run()
        assert d.counters["late_records"] == 1


def test_windows_behind_a_repartition_go_by_the_time_above() -> None:
    app = hr.App("above")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by(lambda r: "all", key=hr.String()).windowed_by(
        hr.Tumbling("1 hour", grace="0 s")
    ).count(store="s").to("out")
    with Driver(app, partitions=2) as d:
        d.send("in", "a", 0, at=0, partition=0)
        d.send("in", "b", 0, at=9 * HOUR, partition=1)
        d.run()
        d.send("in", "a", 0, at=1, partition=0)  # partition 0 is as old as this: the lowest above counts
        d.run()
        assert d.store("s").all() == {("all", 0): 2, ("all", 9 * HOUR): 1}
        d.send("in", "a", 0, at=8 * HOUR, partition=0)
        d.run()
        d.run()
        d.send("in", "a", 0, at=2, partition=0)
        d.run()
        assert d.counters["late_records"] == 1


def test_results_are_found_by_their_windowed_key() -> None:
    app = hr.App("key")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("1 hour")).count(
        store="s"
    ).to("out")
    with Driver(app) as d:
        d.send("in", "a", 0, at=90 * MINUTE)
        d.run()
        (record,) = d.read("out")
        assert record.key == hr.WindowedKey("a", HOUR, 2 * HOUR)
        assert d.store("s").get(record.key) == d.store("s").get("a", at=HOUR) == 1
        with pytest.raises(hr.StateError, match="by time"):
            d.store("s").get("a")


def test_windowed_results_are_partitioned_by_their_inner_key() -> None:
    app = hr.App("spread")
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("1 hour")).count(
        store="s"
    ).to("out")
    with Driver(app, partitions=4) as d:
        for i in range(40):
            d.send("in", f"k{i % 8}", 0, at=i * HOUR)
        d.run()
        found = d.read("out")
    for name in {r.key.key for r in found}:
        assert len({r.partition for r in found if r.key.key == name}) == 1
    assert len({r.partition for r in found}) > 1
