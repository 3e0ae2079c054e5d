"""Session windows, against a model that takes record by record and remembers every session's records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from operators.named import NAMED, named_result

GAP = 5
RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(-9, 9)), max_size=20)
PER_ROUND = st.sampled_from([1, 3, 1000])
Values = list[int]  # of a session: those of the joined sessions by time, then those of the record that joined them


def concatenated(state: Values, record: hr.Record) -> Values:
    state.append(record.value)  # in place, as users do
    return state


def extended(earlier: Values, later: Values) -> Values:
    earlier.extend(later)
    return earlier


KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Values], Any]]] = {
    "count": (lambda rows: rows.count(store="s"), len),
    "named": (lambda rows: rows.aggregate(store="s", **NAMED), named_result),
    "reduce": (lambda rows: rows.reduce(lambda a, b: a + b, store="s", value=hr.Long()), sum),
    "general": (
        lambda rows: rows.aggregate(
            initial=list, function=concatenated, merger=extended, value=hr.Json(), store="s"
        ),
        list,
    ),
}


class Model:
    """Record by record: the sessions of each key, every update, and what is late by the time before the round."""

    def __init__(self, kept: int = 7 * 86_400_000_000) -> None:
        self.kept = kept
        self.sessions: dict[str, list[tuple[int, int, Values]]] = {}
        self.updates: list[tuple[tuple[str, int, int], Values | None]] = []
        self.watermark: int | None = None
        self.late = 0

    def is_closed(self, end: int) -> bool:
        return self.watermark is not None and end + GAP + self.kept < self.watermark

    def is_kept(self, end: int, grace: int, longer: int | None) -> bool:
        return self.watermark is None or end + GAP + grace + (longer or 0) >= self.watermark

    def add(self, key: str, time: int, value: int) -> None:
        mine = self.sessions.setdefault(key, [])
        near = sorted(one for one in mine if one[0] - GAP <= time <= one[1] + GAP and not self.is_closed(one[1]))
        if not near and self.is_closed(time):
            self.late += 1
            return
        start, end = min([time, *(one[0] for one in near)]), max([time, *(one[1] for one in near)])
        values = [each for one in near for each in one[2]] + [value]
        for one in near:
            mine.remove(one)
            if one[:2] != (start, end):
                self.updates.append(((key, *one[:2]), None))
        mine.append((start, end, values))
        self.updates.append(((key, start, end), list(values)))

    def round_done(self, times: list[int]) -> None:
        self.watermark = max([*times, *([] if self.watermark is None else [self.watermark])])

    def table(self, result: Callable[[Values], Any]) -> dict[Any, Any]:
        return {(key, start, end): result(v) for key, mine in self.sessions.items() for start, end, v in mine}


def app_of(kind: str, windows: Any, emit: str = "round") -> hr.App:
    app = hr.App("sessions")
    grouped = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(windows)
    KINDS[kind][0](grouped).to_stream(emit=emit).to("out")
    return app


def plain(record: hr.Record) -> tuple[Any, Any]:
    return (record.key.key, record.key.start_us, record.key.end_us), record.value


def is_subsequence(short: list[Any], long: list[Any]) -> bool:
    rest = iter(long)
    return all(any(one == other for other in rest) for one in short)


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=8)
@given(records=RECORDS, per_round=PER_ROUND, restart=st.integers(0, 20))
def test_sessions_as_in_the_model_however_rounds_are_cut(
    kind: str, records: list[tuple[str, int, int]], per_round: int, restart: int
) -> None:
    result, model = KINDS[kind][1], Model()
    for key, time, value in records:
        model.add(key, time, value)
    updates: list[tuple[Any, Any]] = []
    with TemporaryDirectory() as folder:
        for part in (records[:restart], records[restart:]):
            with Driver(
                app_of(kind, hr.Session("5 us")),
                partitions=2,
                directory=Path(folder),
                overrides=[f"max_records_per_round={per_round}"],
            ) as d:
                d.read("out")
                for key, time, value in part:
                    d.send("in", key, value, at=time)
                d.run()
                updates += [plain(record) for record in d.read("out")]
                stored = d.store("s").all()
    table = model.table(result)
    assert {key: value for key, value in dict(updates).items() if value is not None} == table
    assert stored == {(key, start): value for (key, start, _), value in table.items()}
    for window in {key for key, _ in updates}:
        mine = [value for key, value in updates if key == window]
        assert is_subsequence(mine, [None if v is None else result(v) for key, v in model.updates if key == window])


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=5)
@given(records=RECORDS, per_round=PER_ROUND)
def test_each_update_of_each_session_comes_in_order(
    kind: str, records: list[tuple[str, int, int]], per_round: int
) -> None:
    result, model = KINDS[kind][1], Model()
    with Driver(app_of(kind, hr.Session("5 us"), "each"), overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, time, value in records:
            d.send("in", key, value, at=time)
            model.add(key, time, value)
        d.run()
        expected = [(key, None if values is None else result(values)) for key, values in model.updates]
        assert [plain(record) for record in d.read("out")] == expected


@settings(max_examples=25)
@given(
    rounds=st.lists(RECORDS.filter(bool), max_size=5),
    grace=st.sampled_from([0, 3, 20]),
    longer=st.sampled_from([None, 0, 1, 30]),
)
def test_late_records_are_those_of_closed_sessions_however_long_these_are_kept(
    rounds: list[list[tuple[str, int, int]]], grace: int, longer: int | None
) -> None:
    model = Model(grace)
    retention = None if longer is None else f"{grace + longer} us"
    with Driver(app_of("count", hr.Session("5 us", grace=f"{grace} us", retention=retention))) as d:
        for records in rounds:
            for key, time, value in records:
                d.send("in", key, value, at=time)
                model.add(key, time, value)
            d.run()
            expected = {(k, one[0]): len(one[2]) for k, mine in model.sessions.items() for one in mine}
            closed = {(k, one[0]) for k, mine in model.sessions.items() for one in mine if model.is_closed(one[1])}
            found = d.store("s").all()
            assert {key: found[key] for key in found.keys() - closed} == {
                key: expected[key] for key in expected.keys() - closed
            }
            kept = {(k, one[0]) for k, mine in model.sessions.items() for one in mine if model.is_kept(one[1], grace, longer)}
            assert {key: found.get(key) for key in kept} == {key: expected[key] for key in kept}
            model.round_done([time for _, time, _ in records])
        assert d.counters.get("late_records", 0) == model.late


def test_a_record_between_joins_two_sessions_and_takes_their_keys_back() -> None:
    with Driver(app_of("count", hr.Session("10 minutes"))) as d:
        for minute in (0, 15):
            d.send("in", "a", 1, at=minute * 60_000_000)
        d.run()
        assert sorted(plain(r) for r in d.read("out")) == [(("a", 0, 0), 1), (("a", 900_000_000, 900_000_000), 1)]
        d.send("in", "a", 1, at="1970-01-01T00:07:00Z")
        d.run()
        assert [plain(r) for r in d.read("out")] == [
            (("a", 0, 0), None),
            (("a", 900_000_000, 900_000_000), None),
            (("a", 0, 900_000_000), 3),
        ]


@pytest.mark.parametrize("another_asks", [False, True])
def test_a_session_that_came_and_went_within_a_round_is_not_spoken_of(another_asks: bool) -> None:
    app = hr.App("passing")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Session("5 us"))
    table = rows.count(store="s")
    table.filter(lambda r: r.value < 100).to_stream().to("out")
    if another_asks:
        table.to_stream(emit="each").to("each")
    with Driver(app) as d:
        for time in range(9):
            d.send("in", "a", 1, at=time)
        d.run()
        assert [plain(r) for r in d.read("out")] == [(("a", 0, 8), 9)]
        d.send("in", "a", 1, at=9)
        d.run()
        assert [plain(r) for r in d.read("out")] == [(("a", 0, 8), None), (("a", 0, 9), 10)]


def test_the_gap_belongs_to_the_session_and_what_comes_in_order_is_never_late() -> None:
    with Driver(app_of("count", hr.Session("5 us", grace="0 us"))) as d:
        for time in (0, 5, 10, 16):
            d.send("in", "a", 1, at=time)
            d.run()
        assert d.store("s").all() == {("a", 0): 3, ("a", 16): 1}
        d.send("in", "a", 1, at=11)  # the first session is closed, the second is not, and takes it
        d.run()
        assert "late_records" not in d.counters
        assert d.store("s").all() == {("a", 11): 2}
        d.send("in", "a", 1, at=5)
        d.run()
        assert d.counters["late_records"] == 1


def test_a_session_that_has_closed_is_read_until_its_retention_is_over_and_then_deleted(tmp_path: Path) -> None:
    minute = 60_000_000
    windows = hr.Session("10 minutes", grace="0 seconds", retention="25 hours")
    app = hr.App("kept", system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    table = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(windows).count(store="s")
    table.to_stream(emit="closed").to("out")
    first = hr.WindowedKey("a", 0, minute)
    with Driver(app, directory=tmp_path) as d:
        for at in (0, 1, 60, 61):
            d.send("in", "a", 1, at=at * minute)
            d.run()
        assert [(r.key, r.value) for r in d.read("out")] == [(first, 2)]
        d.send("in", "a", 1, at=5 * minute)  # near the closed session, which takes no record any more
        d.run()
        assert d.counters["late_records"] == 1
        d.send("in", "b", 1, at=(1 + 10 + 25 * 60) * minute)
        d.run()
        d.run()
        assert app.state("s").get(first) == 2
        d.send("in", "b", 1, at=(1 + 10 + 25 * 60) * minute + 1)
        d.run()
        d.send("in", "b", 1, at=(1 + 10 + 25 * 60) * minute + 1)  # what is due goes with the next round
        d.run()
        assert app.state("s").get(first) is None
        assert len(app.state("s").get("a")) == 1


def test_a_record_that_fails_leaves_the_sessions_as_they_were() -> None:
    def added(state: Values, record: hr.Record) -> Values:
        state.append(record.value)
        if record.value == 666:
            raise ValueError("no")
        return state

    app = hr.App("failing", dead_letter_stream="dead")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Session("5 us"))
    rows.aggregate(initial=list, function=added, merger=extended, value=hr.Json(), store="s").to("out")
    with Driver(app, partitions={"in": 1, "dead": 1}) as d:
        for time, value in ((0, 1), (8, 2), (4, 666), (1, 3)):
            d.send("in", "a", value, at=time)
        d.run()
        assert d.store("s").all() == {("a", 0): [1, 3], ("a", 8): [2]}
        assert len(d.read("dead")) == 1


def test_a_sum_that_would_go_too_far_refuses_the_record_that_joins() -> None:
    app = hr.App("too-far", dead_letter_stream="dead")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Session("5 us"))
    rows.aggregate(t=hr.sum("value"), store="s").to("out")
    with Driver(app, partitions={"in": 1, "dead": 1}) as d:
        for time, value in ((0, 2**62), (8, 2**62), (4, 0), (9, -1)):
            d.send("in", "a", value, at=time)
        d.run()
        assert d.store("s").all() == {("a", 0): {"t": 2**62}, ("a", 8): {"t": 2**62 - 1}}
        assert len(d.read("dead")) == 1


def test_none_ends_a_session() -> None:
    app = hr.App("ended")
    rows = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(hr.Session("5 us"))
    rows.reduce(lambda old, new: None if new == 0 else old + new, store="s").to("out")
    with Driver(app, overrides=["max_records_per_round=1"]) as d:
        for time, value in ((0, 1), (3, 2), (6, 0), (7, 5)):
            d.send("in", "a", value, at=time)
        d.run()
        assert d.store("s").all() == {("a", 7): 5}
        assert [plain(r) for r in d.read("out")][-2:] == [(("a", 0, 3), None), (("a", 7, 7), 5)]


def test_sessions_of_long_keys_are_found_again() -> None:
    with Driver(app_of("count", hr.Session("5 us")), overrides=["max_records_per_round=1"]) as d:
        for time in (0, 3, 20):
            d.send("in", "k" * 2_000, 1, at=time)
        d.run()
        assert d.store("s").all() == {("k" * 2_000, 0): 2, ("k" * 2_000, 20): 1}


def test_whole_numbers_and_floats_are_joined_as_they_came() -> None:
    app = hr.App("mixed")
    rows = app.stream("in", key=hr.String(), value=hr.Json()).group_by_key().windowed_by(hr.Session("5 us"))
    rows.aggregate(store="s", **{kind: getattr(hr, kind)("value.v") for kind in ("sum", "min", "first", "last")}).to("out")
    with Driver(app, overrides=["max_records_per_round=2"]) as d:
        for time, value in ((8, 2), (0, 0.5), (4, 3), (5, None)):
            d.send("in", "a", {"v": value}, at=time)
        d.run()
        assert d.store("s").all() == {("a", 0): {"sum": 5.5, "min": 0.5, "first": 0.5, "last": 3}}


@pytest.mark.parametrize("cut", [False, True])
def test_a_closed_session_stays_readable_where_an_open_one_comes_to_begin_with_it(tmp_path: Path, cut: bool) -> None:
    app = hr.App("kept", system=f"log:{tmp_path / 'log'}", state_uri=str(tmp_path / "state"))
    windows = hr.Session("10 us", grace="0 us", retention="1000 us")
    counted = app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().windowed_by(windows).count(store="s")
    counted.to_stream(emit="closed").to("closed")
    first, second = hr.WindowedKey("a", 0, 3), hr.WindowedKey("a", 0, 5)
    with Driver(app, directory=tmp_path) as d:
        for batch in ([("a", 0), ("a", 3)], [("z", 14)], [("a", 5)], [("a", 0)], [("z", 60)], [("z", 300)]):
            for key, time in batch:
                d.send("in", key, 1, at=time)
            if cut or batch[0][0] == "z":
                d.run()
        d.run()
        assert [(r.key, r.value) for r in d.read("closed") if r.key.key == "a"] == [(first, 2), (second, 2)]
        assert (d.store("s").get(first), d.store("s").get(second)) == (2, 2)
        assert app.state("s").get("a") == {first: 2, second: 2}
        d.send("in", "z", 1, at=5_000)
        for _ in range(2):
            d.send("in", "z", 1, at=5_000)
            d.run()
        assert app.state("s").get("a", {}) == {}
