"""`suppress` and `emit="closed"`: the final value of each window, once, when it has closed; against a plain model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver

RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(-9, 9)), max_size=24)
PER_ROUND = st.sampled_from([1, 3, 1000])
GRACE = 3


def windowed_app(windows: Any, *, name: str = "closed", **keys: Any) -> hr.App:
    app = hr.App(name, **keys)
    grouped = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key()
    grouped.windowed_by(windows).count(store="s").to_stream(emit="closed").to("out")
    return app


def plain(record: hr.Record) -> tuple[Any, Any, Any]:
    return (record.key.key, record.key.start_us, record.key.end_us), record.value, record.timestamp_us


class Model:
    """Takes record by record; windows close between the rounds, which `cut` tells it of."""

    def __init__(self, windows: Any) -> None:
        self.windows = windows
        self.open: dict[tuple[str, int, int], tuple[int, int]] = {}  # key, start, end -> count, highest time
        self.watermark: int | None = None
        self.highest: int | None = None

    def add(self, key: str, time: int) -> None:
        for start in self.windows.starts_of(time):
            if not self.windows.is_late(start, self.watermark):
                window = (key, start, start + self.windows.size_us)
                count, latest = self.open.get(window, (0, time))
                self.open[window] = (count + 1, max(time, latest))
        self.highest = time if self.highest is None else max(self.highest, time)

    def cut(self) -> list[tuple[Any, Any, Any]]:
        self.watermark = self.highest
        closed = [w for w in self.open if self.watermark is not None and self.windows.closes_us(w[2]) <= self.watermark]
        return [(w, *self.open.pop(w)) for w in sorted(closed, key=lambda w: (w[2], w[0], w[1]))]


@pytest.mark.parametrize(
    "windows",
    [hr.Tumbling("10 us", grace="3 us"), hr.Hopping("10 us", "4 us", grace="0 us")],
    ids=["tumbling", "hopping"],
)
@settings(max_examples=10)
@given(records=RECORDS, per_round=PER_ROUND, restart=st.integers(0, 24))
def test_each_window_is_given_once_when_it_has_closed(
    windows: Any, records: list[tuple[str, int, int]], per_round: int, restart: int
) -> None:
    model, found, expected = Model(windows), [], []
    with TemporaryDirectory() as folder:
        for part in (records[:restart], records[restart:]):
            with Driver(
                windowed_app(windows), directory=Path(folder), overrides=[f"max_records_per_round={per_round}"]
            ) as d:
                d.read("out")
                for key, time, value in part:
                    d.send("in", key, value, at=time)
                d.run()
                found += [plain(record) for record in d.read("out")]
            for at in range(0, len(part), per_round):
                for key, time, _ in part[at : at + per_round]:
                    model.add(key, time)
                expected += model.cut()
    assert found == expected
    assert len({window for window, *_ in found}) == len(found)


@settings(max_examples=15)
@given(records=RECORDS, per_round=PER_ROUND)
def test_over_several_partitions_each_task_closes_its_own(records: list[tuple[str, int, int]], per_round: int) -> None:
    windows = hr.Tumbling("10 us", grace="1 minute")  # nothing is late, so that the result does not depend on the rounds
    with Driver(windowed_app(windows), partitions=3, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, time, value in records:
            d.send("in", key, value, at=time)
        d.run()
        assert d.read("out") == []
        for partition in range(3):  # the last record of each partition is far ahead
            d.send("in", "end", 0, at="2026-01-01T00:00:00Z", partition=partition)
        d.run()
        found = [plain(record) for record in d.read("out")]
    model = Model(windows)
    for key, time, _ in records:
        model.add(key, time)
    assert {window: value for window, value, _ in found} == {window: count for window, (count, _) in model.open.items()}
    assert len({window for window, *_ in found}) == len(found)


@settings(max_examples=20)
@given(records=RECORDS, per_round=PER_ROUND)
def test_sessions_are_given_once_when_no_record_can_join_them(
    records: list[tuple[str, int, int]], per_round: int
) -> None:
    with Driver(
        windowed_app(hr.Session("4 us", grace="1 minute")), overrides=[f"max_records_per_round={per_round}"]
    ) as d:
        for key, time, value in records:
            d.send("in", key, value, at=time)
        d.run()
        assert d.read("out") == []
        d.send("in", "end", 0, at="2026-01-01T00:00:00Z")
        d.run()
        found = [plain(record)[:2] for record in d.read("out")]
    expected = []
    for key in sorted({key for key, *_ in records}):
        times = sorted(time for other, time, _ in records if other == key)
        groups: list[list[int]] = []
        for time in times:
            if groups and time - groups[-1][-1] <= 4:
                groups[-1].append(time)
            else:
                groups.append([time])
        expected += [((key, group[0], group[-1]), len(group)) for group in groups]
    assert found == sorted(expected, key=lambda one: (one[0][2], one[0][0]))


def test_a_round_runs_for_windows_that_close_without_a_record() -> None:
    app = windowed_app(hr.Tumbling("10 us", grace="0 us"))
    with Driver(app) as d:
        d.send("in", "a", 1, at=5)
        d.send("in", "a", 1, at=10)
        assert d.run() == 2, "one for the records, one for the window that they have closed"
        assert [plain(r) for r in d.read("out")] == [(("a", 0, 10), 1, 5)]
        assert d.counters["windows_closed"] == 1
        assert d.run() == 0


def test_a_window_that_has_not_closed_stays_open_until_the_job_goes_on(tmp_path: Path) -> None:
    windows = hr.Tumbling("10 us", grace="0 us")
    with Driver(windowed_app(windows), directory=tmp_path) as d:
        d.send("in", "a", 1, at=5)
        d.run()
        assert d.read("out") == []
    with Driver(windowed_app(windows), directory=tmp_path) as d:
        d.send("in", "b", 1, at=11)
        d.run()
        assert [plain(r)[:2] for r in d.read("out")] == [(("a", 0, 10), 1)]


def test_a_window_that_closed_stays_closed_when_an_idle_input_goes_on() -> None:
    app = hr.App("idle", idle_timeout_s=60.0)
    one = app.stream("one", key=hr.String(), value=hr.Long())
    two = app.stream("two", key=hr.String(), value=hr.Long())
    hours = one.merge(two).group_by_key().windowed_by(hr.Tumbling("10 us", grace="0 us")).count(store="s")
    hours.to_stream(emit="closed").to("out")
    with Driver(app) as d:
        d.send("two", "a", 0, at=1)
        d.send("one", "a", 0, at=2)
        d.run()
        d.advance("61 seconds")
        d.send("one", "a", 0, at=100)  # `two` is idle, and holds nothing back
        d.run()
        d.run()
        assert [plain(r)[:2] for r in d.read("out")] == [(("a", 0, 10), 2)]
        d.send("two", "a", 0, at=3)  # the watermark goes back to 3, and the window is closed all the same
        d.run()
        d.send("two", "a", 0, at=101)
        d.run()
        d.run()
        assert d.read("out") == []
        assert d.counters["late_records"] == 1


def test_a_grace_that_an_edit_made_longer_holds_for_windows_that_are_open(tmp_path: Path) -> None:
    with Driver(windowed_app(hr.Tumbling("10 us", grace="0 us")), directory=tmp_path) as d:
        d.send("in", "a", 1, at=5)
        d.run()
    with Driver(windowed_app(hr.Tumbling("10 us", grace="20 us")), directory=tmp_path) as d:
        d.send("in", "a", 1, at=12)
        d.send("in", "a", 1, at=29)
        d.run()
        assert d.read("out") == []
        d.send("in", "a", 1, at=6)
        d.send("in", "a", 1, at=30)
        d.run()
        assert [plain(r)[:2] for r in d.read("out")] == [(("a", 0, 10), 2)]


def test_suppress_gives_a_table_whose_filters_see_final_values_only() -> None:
    app = hr.App("final")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("10 us", grace="0 us"))
    table = rows.reduce(lambda old, new: old + new, store="s")
    seen: list[int] = []
    final = table.suppress(hr.until_window_closes(), store="pending")
    final.map_values(lambda r: seen.append(r.value) or r.value, value=hr.Long()).filter(lambda r: r.value > 1).to("out")
    with Driver(app, overrides=["max_records_per_round=1"]) as d:
        for key, value, time in (("b", 1, 1), ("a", 1, 2), ("b", 2, 3), ("b", 5, 15)):
            d.send("in", key, value, at=time)
        d.run()
        assert seen == [1, 3]  # in the order of ends, then of keys
        assert [plain(r)[:2] for r in d.read("out")] == [(("a", 0, 10), None), (("b", 0, 10), 3)]
        assert d.store("pending").all() == {("b", 10): 5}


def test_a_window_whose_value_is_gone_gives_nothing() -> None:
    app = hr.App("gone")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("10 us", grace="0 us"))
    table = rows.reduce(lambda old, new: None if new == 0 else old + new, store="s")
    table.filter(lambda r: r.value != 7).to_stream(emit="closed").to("out")
    with Driver(app, overrides=["max_records_per_round=1"]) as d:
        for key, value, time in (("a", 1, 1), ("a", 0, 2), ("b", 3, 3), ("b", 4, 4), ("c", 3, 5), ("d", 1, 50)):
            d.send("in", key, value, at=time)
        d.run()
        assert [plain(r)[:2] for r in d.read("out")] == [(("c", 0, 10), 3)]


@pytest.mark.parametrize("emit", ["round", "each"])
def test_results_of_closed_windows_go_on_into_other_sub_topologies(emit: str) -> None:
    app = hr.App("further")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("10 us", grace="0 us"))
    closed = rows.count(store="s").suppress(hr.until_window_closes()).to_stream(emit=emit)
    closed.group_by(lambda r: "all", key=hr.String()).reduce(lambda a, b: a + b, store="total").to("out")
    with Driver(app, partitions=2) as d:
        for i in range(20):
            d.send("in", f"k{i % 4}", 1, at=i)
        for partition in range(2):
            d.send("in", "end", 1, at=100, partition=partition)
        d.run()
        assert d.store("total").all() == {"all": 20}


def test_a_round_that_fails_on_a_result_closes_nothing_and_the_next_one_gives_it() -> None:
    broken = [True]

    def checked(record: hr.Record) -> int:
        if broken[0]:
            raise ValueError("not now")
        return int(record.value)

    app = hr.App("failing")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Tumbling("10 us", grace="0 us"))
    rows.count(store="s").to_stream(emit="closed").map_values(checked, value=hr.Long()).to("out")
    with Driver(app) as d:
        d.send("in", "a", 1, at=5)
        d.send("in", "a", 1, at=10)
        with pytest.raises(hr.RecordError, match="not now"):
            d.run()
        assert d.read("out") == []
        broken[0] = False
        d.run()
        assert [plain(r) for r in d.read("out")] == [(("a", 0, 10), 1, 5)]


def test_windows_behind_a_repartition_close_by_the_time_above_without_a_record_of_their_own() -> None:
    app = hr.App("above")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by(lambda r: r.key.upper(), key=hr.String())
    rows.windowed_by(hr.Tumbling("10 us", grace="0 us")).count(store="s").to_stream(emit="closed").to("out")
    with Driver(app, partitions=2) as d:
        for key in "abcdefgh":
            d.send("in", key, 1, at=5)
        d.run()
        assert d.read("out") == []
        for partition in range(2):  # one key, which goes to one task below
            d.send("in", "z", 1, at=12, partition=partition)
        d.run()
        assert sorted(plain(r)[:2] for r in d.read("out")) == [((key, 0, 10), 1) for key in "ABCDEFGH"]


def test_a_window_that_closed_stays_closed_behind_a_restart(tmp_path: Path) -> None:
    app = hr.App("restarted", idle_timeout_s=60.0)
    one, two = (app.stream(name, key=hr.String(), value=hr.Long()) for name in ("one", "two"))
    tens = one.merge(two).group_by_key().windowed_by(hr.Tumbling("10 us", grace="0 us"))
    tens.count(store="s").to_stream(emit="closed").to("out")
    with Driver(app, directory=tmp_path) as d:
        d.send("two", "a", 0, at=1)
        d.send("one", "a", 0, at=2)
        d.run()
        d.advance("61 seconds")
        d.send("one", "a", 0, at=100)
        d.run()
        d.run()
        assert [plain(r)[:2] for r in d.read("out")] == [(("a", 0, 10), 2)]
    with Driver(app, directory=tmp_path) as d:
        d.send("two", "a", 0, at=3)
        d.run()
        assert d.counters["late_records"] == 1
