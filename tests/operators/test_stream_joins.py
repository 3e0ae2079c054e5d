"""Joins of two streams, against plain Python models that are told in which order the tasks took their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from operators.taken import Result, Sent, by_key, outcome

SENT = st.tuples(st.sampled_from(["l", "r"]), st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(0, 30))
RUNS = st.lists(st.tuples(st.booleans(), st.lists(SENT, max_size=12)), min_size=1, max_size=5)
CUTS = st.sampled_from([1, 3, 1000])
WITHIN, GRACE = 4, 3
SIDES = "lr"


def text(left: Any, right: Any) -> str:
    return f"{left}&{right}"


@hr.batch
def texts(batch: pa.RecordBatch) -> pa.Array:
    columns = (batch.column(name).to_pylist() for name in ("key", "left", "right", "timestamp"))
    return pa.array([f"{key}:{left}&{right}@{time.microsecond}" for key, left, right, time in zip(*columns, strict=True)])


def application(kind: str, lengths: tuple[int, int] = (WITHIN, WITHIN), **keys: Any) -> Callable[[], hr.App]:
    def make() -> hr.App:
        app = hr.App("near", **keys)
        left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in SIDES)
        before, after = (f"{length} us" for length in lengths)
        getattr(left, kind)(right, text, before=before, after=after, grace=f"{GRACE} us", value=hr.String()).to("out")
        return app

    return make


def model(
    rounds: list[list[Sent]], marks: list[int | None], emitting: str, lengths: tuple[int, int]
) -> tuple[list[Result], int]:
    """The results, and how many records were late."""
    before, after = lengths
    window = {"l": after, "r": before}  # how long after a record of each side its window ends
    waiting: list[list[Any]] = []  # side, key, value, time, whether it was matched
    found: list[Result] = []
    late = 0
    for records, mark in zip(rounds, marks, strict=True):
        if mark is not None:
            closed = [entry for entry in waiting if entry[3] + window[entry[0]] + GRACE < mark]
            waiting = [entry for entry in waiting if entry not in closed]
            for side, key, value, time, is_matched in sorted(closed, key=lambda e: (e[3], e[1], e[0])):
                if side in emitting and not is_matched:
                    found.append((key, text(value, None) if side == "l" else text(None, value), time))
        for side, key, value, time in records:
            if value is None:
                continue
            if mark is not None and time + window[side] + GRACE < mark:
                late += 1
                continue
            reach = (before, after) if side == "l" else (after, before)
            near = [e for e in waiting if e[0] != side and e[1] == key and -reach[0] <= e[3] - time <= reach[1]]
            for entry in sorted(near, key=lambda e: e[3]):
                entry[4] = True
                pair = (value, entry[2]) if side == "l" else (entry[2], value)
                found.append((key, text(*pair), max(time, entry[3])))
            waiting.append([side, key, value, time, bool(near)])
    return found, late


@pytest.mark.parametrize("lengths", [(WITHIN, WITHIN), (6, 0), (0, 3)])
@pytest.mark.parametrize(("kind", "emitting"), [("join", ""), ("left_join", "l"), ("outer_join", "lr")])
@settings(max_examples=15)
@given(runs=RUNS, per_round=CUTS, partitions=st.integers(1, 2))
def test_records_near_to_each_other_are_joined_until_their_windows_close(
    kind: str, emitting: str, lengths: tuple[int, int], runs: Any, per_round: int, partitions: int
) -> None:
    rounds, outs, marks = outcome(application(kind, lengths), runs, per_round, partitions)
    expected, _ = model(rounds, marks, emitting, lengths)
    assert by_key(outs["out"]) == by_key(expected)
    if partitions == 1:
        assert outs["out"] == expected


def kept_long() -> hr.App:
    app = hr.App("near")
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in SIDES)
    left.outer_join(right, texts, within=f"{WITHIN} us", value=hr.String()).to("out")
    left.join(left, text, within=f"{WITHIN} us", value=hr.String(), name="itself").to("itself")
    left.join(left, text, after=f"{WITHIN} us", value=hr.String(), name="later").to("later")
    return app


@settings(max_examples=15)
@given(runs=RUNS, per_round=CUTS, partitions=st.integers(1, 2))
def test_without_a_grace_every_pair_is_found_once_wherever_rounds_are_cut(runs: Any, per_round: int, partitions: int) -> None:
    _, outs, _ = outcome(kept_long, runs, per_round, partitions, ("out", "itself", "later"))
    taken = [record for _, records in runs for record in records if record[2] is not None]
    sent = {side: [record[1:] for record in taken if record[0] == side] for side in SIDES}

    def near(others: str) -> list[tuple[str, Any, Any, int]]:
        pairs = [(one, two) for one in sent["l"] for two in sent[others] if one[0] == two[0] and abs(one[2] - two[2]) <= WITHIN]
        return [(one[0], one[1], two[1], max(one[2], two[2])) for one, two in pairs]

    assert sorted(outs["out"]) == sorted((key, f"{key}:{a}&{b}@{time}", time) for key, a, b, time in near("r"))
    assert sorted(outs["itself"]) == sorted((key, text(a, b), time) for key, a, b, time in near("l"))
    pairs = [(one, two) for one in sent["l"] for two in sent["l"] if one[0] == two[0] and 0 <= two[2] - one[2] <= WITHIN]
    assert sorted(outs["later"]) == sorted((one[0], text(one[1], two[1]), two[2]) for one, two in pairs)


def test_late_records_are_counted_and_go_to_the_dead_letters() -> None:
    with Driver(application("outer_join", dead_letter_stream="dead")()) as d:
        for stream in SIDES:
            d.send(stream, "x", 0, at=100)
        d.run()
        d.send("l", "a", 1, at=92)  # its window ends at 96, and is closed when the watermark is more than 3 past that
        d.send("l", "a", 2, at=93)
        d.run()
        assert d.counters["late_records"] == 1
        (dead,) = d.read("dead")
        assert dict(dead.headers)["headrace.error-class"] == b"LateRecord"
        for stream in SIDES:
            d.send(stream, "x", 0, at=200)
        d.run()
        d.run()
        assert [(r.key, r.value, r.timestamp_us) for r in d.read("out") if r.key == "a"] == [("a", "2&None", 93)]


def test_a_result_without_a_match_comes_without_further_records_and_its_entry_goes() -> None:
    with Driver(application("left_join")()) as d:
        d.send("l", "a", 1, at=1)
        d.send("l", "b", 2, at=50)
        d.send("r", "b", 3, at=50)
        assert d.run() == 2  # the second for what the first one's watermark has closed
        assert [(r.key, r.value, r.timestamp_us) for r in d.read("out")] == [("b", "2&3", 50), ("a", "1&None", 1)]
        assert d.store("l-left_join-left").all() == {("b", 50): 2}
        assert d.store("l-left_join-right").all() == {("b", 50): 3}


def test_a_joiner_that_raises_spoils_its_pair_alone() -> None:
    app = hr.App("near", dead_letter_stream="dead")
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in SIDES)
    left.left_join(right, lambda a, b: 12 // b, within="10 us", grace="0 us", value=hr.Long()).to("out")
    with Driver(app) as d:
        d.send("l", "a", 1, at=1)
        d.send("r", "a", 0, at=2)
        d.send("r", "a", 4, at=3)
        d.send("l", "alone", 1, at=1)
        d.run()
        assert [r.value for r in d.read("out")] == [3]
        for stream in SIDES:
            d.send(stream, "z", 5, at=50)
        d.run()
        d.run()
        assert [r.value for r in d.read("out")] == [2]  # 12 // 5; `alone` has None, which cannot be divided by
        assert {dict(r.headers)["headrace.offset"] for r in d.read("dead")} == {b"0", b"-1"}


@pytest.mark.parametrize("cut", [False, True])
def test_records_without_a_key_give_their_results_in_their_order(cut: bool) -> None:
    app = hr.App("joined")
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in "lr")
    left.outer_join(right, lambda one, other: [one, other], within="3 s", value=hr.Json()).to("out")
    with Driver(app, partitions=1) as d:
        for at, (stream, value) in enumerate([("r", 1), ("l", 2), ("r", 3), ("l", 4)]):
            d.send(stream, None, value, at=at)
            if cut:
                d.run()
        d.run()
        found = sorted(d.read("out"), key=lambda record: record.offset or 0)
        assert [record.value for record in found] == [[None, 1], [2, None], [None, 3], [4, None]]


def test_keys_that_were_changed_meet_behind_repartition_streams() -> None:
    app = hr.App("near")
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in SIDES)
    by_value = left.select_key(lambda r: str(r.value), key=hr.String())
    by_value.join(right, text, within="1 hour", value=hr.String()).to("out")
    with Driver(app, partitions={"l": 2, "r": 3}) as d:
        for number in range(6):
            d.send("l", f"k{number}", number, at=number)
            d.send("r", str(number), number * 10, at=100 - number)
        d.run()
        expected = {(str(n), f"{n}&{n * 10}", 100 - n) for n in range(6)}
        assert {(r.key, r.value, r.timestamp_us) for r in d.read("out")} == expected


@pytest.mark.parametrize("per_round", [1, 1000])
def test_equal_times_of_one_key_are_kept_apart(per_round: int) -> None:
    app = hr.App("near")
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in SIDES)
    twice = left.flat_map_values(lambda r: [r.value, r.value + 1], value=hr.Long())
    twice.join(right, text, within="1 s", value=hr.String()).to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for value in (1, 3):
            d.send("l", "a", value, at=5)
        d.run()
        d.send("r", "a", 0, at=5)
        d.run()
        assert [r.value for r in d.read("out")] == ["1&0", "2&0", "3&0", "4&0"]


@pytest.mark.parametrize("length", [3, 600], ids=["short keys", "keys too long for the local store"])
def test_what_is_kept_is_found_under_its_own_key_alone(length: int) -> None:
    keys = [letter * length for letter in "ab"] + ["a" * (length + 1)]
    with Driver(application("outer_join")()) as d:
        for number, key in enumerate(keys):
            d.send("l", key, number, at=10)
        d.run()
        for number, key in enumerate(keys[1:]):
            d.send("r", key, number, at=12)
        d.run()
        for stream in SIDES:
            d.send(stream, "end", 9, at=100)
        d.run()
        found = {(r.key, r.value) for r in d.read("out") if r.key != "end"}
        assert found == {(keys[0], "0&None"), (keys[1], "1&0"), (keys[2], "2&1")}
        assert {key for key, _ in d.store("l-outer_join-left").all()} == {"end"}


class Echo(hr.Processor[str, int, str, int]):
    """Forwards the number of its timers so far, again and again at one time."""

    stores = [hr.KeyValueStore("n", value=hr.Long())]  # noqa: RUF012 - as users write it

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        self.context.timer("t", after="1 s", clock="wall")

    def on_timer(self, timer: Any) -> None:
        count = self.context.store("n").get(0) + 1
        self.context.store("n").put(count)
        self.context.forward(value=count, timestamp=5)


def test_what_timers_give_is_kept_apart_though_it_has_no_origin() -> None:
    app = hr.App("near")
    left, right = (app.stream(name, key=hr.String(), value=hr.Long()) for name in SIDES)
    left.process(Echo, value=hr.Long()).join(right, text, within="1 s", value=hr.String()).to("out")
    with Driver(app) as d:
        for _ in range(3):
            d.send("l", "a", 0, at=5)
            d.run()
            d.advance("2 seconds")
            d.run()
        d.send("r", "a", 7, at=5)
        d.run()
        assert sorted(r.value for r in d.read("out")) == ["1&7", "2&7", "3&7"]


@pytest.mark.parametrize("cut", [False, True])
def test_records_exactly_within_apart_are_joined_wherever_the_round_is_cut(cut: bool) -> None:
    app = hr.App("near")
    a, b = (app.stream(name, key=hr.String(), value=hr.String()) for name in "ab")
    a.outer_join(b, text, within="4 s", grace="0 s", value=hr.String()).to("out")
    second = 1_000_000
    with Driver(app) as d:
        d.send("b", "k", "x", at=0)
        d.send("a", "other", "p", at=4 * second)
        d.send("b", "other", "q", at=4 * second)
        if cut:
            d.run()
        d.send("a", "k", "y", at=4 * second)
        d.run()
        assert sorted(r.value for r in d.read("out")) == ["p&q", "y&x"]
