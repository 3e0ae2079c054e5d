"""When timers and expiring entries are due: always at the minimum over a dict, after any history of puts and removals."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.core.keys.key_layout import SLOTS, reversed_hash, state_key, time_bytes
from headrace.testing import Driver
from headrace.worker.operators.expiry import delete_expired, expire, forget_expiry, move_old_marks
from headrace.worker.operators.processing.timer_store import Timers
from headrace.worker.state.task_state import Database, Journal

SECOND = 1_000_000


def slot_of(key: bytes) -> int:
    """Counted here again: the top 10 bits of the reversed hash."""
    return int.from_bytes(reversed_hash(key)[:2], "big") >> 6


def one_key_per_slot() -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < SLOTS:
        found.setdefault(slot_of(b"%d" % number), b"%d" % number)
        number += 1
    return found


KEYS = one_key_per_slot()
# Slots that are neighbours, that are far apart, and both ends.
keys = st.sampled_from([KEYS[slot] for slot in (0, 1, 2, 62, 63, 64, 65, 127, 128, 500, 960, 1022, 1023)])
times = st.integers(-3, 12)


class Store:
    """The committed state of a task, in dicts."""

    def __init__(self) -> None:
        self.databases_: dict[str, dict[bytes, bytes]] = {}

    def get(self, db: str, key: bytes) -> bytes | None:
        return self.databases_.get(db, {}).get(key)

    def scan(self, db: str, low: bytes | None = None, high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for key, value in sorted(self.databases_.get(db, {}).items()):
            if (low is None or key >= low) and (high is None or key < high):
                yield key, value

    def first_keys(self, db: str, prefix_bytes: int) -> Iterator[bytes]:
        stored = sorted(self.databases_.get(db, {}), reverse=True)
        yield from {key[:prefix_bytes]: key for key in stored}.values()


class Rounds:
    """One round after the other on one state: a view of databases for each, committed at its end."""

    def __init__(self) -> None:
        self._store = Store()
        self._open: dict[str, Database] = {}
        self.times_us: dict[str, int | None] = {"expiry": None, "closed": None}

    def context(self) -> Any:
        return SimpleNamespace(database=self._database, times_us=self.times_us)

    def _database(self, name: str) -> Database:
        return self._open.setdefault(name, Database(name, self._store, Journal()))  # type: ignore[arg-type]

    def commit(self) -> None:
        for name, database in self._open.items():
            stored = self._store.databases_.setdefault(name, {})
            for key, value in zip(*(array.to_pylist() for array in database.stored_changes()), strict=True):
                stored.pop(key, None) if value is None else stored.update({key: value})
        self._open = {}


timer_step = st.one_of(
    st.tuples(st.just("set"), keys, st.sampled_from("ab"), times),
    st.tuples(st.just("delete"), keys, st.sampled_from("ab"), st.none()),
)


@given(st.lists(st.tuples(times, st.lists(timer_step, max_size=12)), min_size=1, max_size=6))
def test_the_next_timer_is_the_earliest_of_all(history: list[tuple[int, list[tuple[Any, ...]]]]) -> None:
    rounds, expected, earliest = Rounds(), dict[tuple[bytes, str], int](), None
    for until_us, steps in history:
        timers = Timers(rounds.context(), {"event": earliest, "wall": None})
        fired = [entry for operator in list(timers.due("event", until_us)) for entry in timers.take(operator)]
        due = {each: at_us for each, at_us in expected.items() if at_us <= until_us}
        assert fired == sorted((at_us, key, name, "event") for (key, name), at_us in due.items())
        expected = {each: at_us for each, at_us in expected.items() if each not in due}
        for action, key, name, at_us in steps:
            if action == "set":
                timers.set("op", key, name, "event", at_us)
                expected[key, name] = at_us
            else:
                timers.delete("op", key, name, "event")
                expected.pop((key, name), None)
        timers.settle()
        earliest = timers.earliest["event"]
        assert earliest == min(expected.values(), default=None)
        rounds.commit()


@given(st.lists(st.tuples(times, st.lists(st.tuples(st.booleans(), keys, times), max_size=12)), min_size=1, max_size=6))
def test_what_expires_next_is_the_earliest_of_all(history: list[tuple[int, list[tuple[bool, bytes, int]]]]) -> None:
    rounds, expected = Rounds(), dict[bytes, int]()
    for watermark_us, steps in history:
        context = rounds.context()
        database = context.database("books")
        due = {layout for layout, at_us in expected.items() if at_us <= watermark_us}
        assert delete_expired(context, watermark_us, {}) == len(due)
        expected = {layout: at_us for layout, at_us in expected.items() if layout not in due}
        assert {layout for layout, _ in database.scan()} == set(expected)
        if due:
            assert rounds.times_us["expiry"] == min(expected.values(), default=None)
        for is_put, key, at_us in steps:
            layout = state_key(key)
            if layout in expected:
                forget_expiry(context, "books", key, layout, expected.pop(layout))
                database.delete(layout)
            if is_put:
                database.put(layout, b"x")
                expire(context, "books", [(key, layout, at_us)])
                expected[layout] = at_us
        next_us = rounds.times_us["expiry"]
        assert not expected or next_us is not None and next_us <= min(expected.values())
        rounds.commit()


def test_marks_of_an_older_version_are_moved_out_of_the_state() -> None:
    rounds = Rounds()
    hints = rounds.context().database("~hints")
    hints.put(b"next", time_bytes(-7))
    hints.put(b"closed", time_bytes(9))
    rounds.commit()
    move_old_marks(rounds.context())
    rounds.commit()
    assert rounds.times_us == {"expiry": -7, "closed": 9}
    assert list(rounds.context().database("~hints").scan()) == []


class Alarm(hr.Processor[str, Any, str, Any]):
    stores: ClassVar = [hr.KeyValueStore("set", value=hr.Long())]

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        self.context.timer("t", clock=record.value["clock"], after=f"{record.value['s']} seconds")

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=timer.timestamp_us)


def alarms() -> hr.App:
    app = hr.App("alarms")
    app.stream("in", key=hr.String(), value=hr.Json()).process(Alarm, name="p", value=hr.Json()).to("out")
    return app


@pytest.mark.parametrize("slots", [(3, 62, 5), (5, 3, 62), (3, 5, 62), (700, 5, 3)])
def test_each_wall_clock_timer_fires_at_its_time(slots: tuple[int, ...]) -> None:
    waits = (1, 60, 3600)
    with Driver(alarms()) as d:
        for slot, seconds in zip(slots, waits, strict=True):
            d.send("in", KEYS[slot].decode(), {"clock": "wall", "s": seconds})
        d.run()
        for number, step in enumerate(("1 second", "59 seconds", "3540 seconds"), start=0):
            d.advance(step)
            d.run()
            assert [r.key for r in d.read("out")] == [KEYS[slots[number]].decode()], f"after {step}"


def test_each_event_timer_fires_at_its_time() -> None:
    count = 20
    with Driver(alarms()) as d:
        for number in range(count):  # the later, the lower the slot
            d.send("in", KEYS[count - number].decode(), {"clock": "event", "s": number + 1}, at=0)
        d.run()
        for number in range(1, count + 1):
            d.send("in", "tick", {"clock": "event", "s": 10_000}, at=number * SECOND)
            d.run()
            d.run()
            assert [r.value for r in d.read("out")] == [number * SECOND]


@pytest.mark.parametrize("step", [1, -1])
def test_suppressed_windows_close_at_their_time(step: int) -> None:
    app = hr.App("suppressed")
    events, clock = (app.stream(name, key=hr.String(), value=hr.Json()) for name in ("events", "clock"))
    windows = events.merge(clock).group_by_key().windowed_by(hr.Tumbling("1 second", grace="0 seconds"))
    windows.count(store="counts").suppress(hr.until_window_closes()).to_stream().filter(
        lambda r: r.key.key != "tick"
    ).to("out", key=hr.Windowed(hr.String()), value=hr.Json())
    with Driver(app) as d:
        d.send("clock", "tick", 1, at=0)
        for number in range(20):
            d.send("events", KEYS[40 + step * number].decode(), 1, at=number * SECOND)
        d.run()
        for number in range(20):
            d.send("clock", "tick", 1, at=(number + 1) * SECOND)
            d.run()
            d.run()
            expected = [] if number == 19 else [(KEYS[40 + step * number].decode(), number * SECOND)]  # `events` ends at 19 s
            assert [(r.key.key, r.timestamp_us) for r in d.read("out")] == expected


@pytest.mark.parametrize("step", [1, -1])
def test_sides_of_a_join_without_a_match_are_given_at_their_time(step: int) -> None:
    app = hr.App("joined")
    a, b = (app.stream(name, key=hr.String(), value=hr.String()) for name in "ab")
    join = a.left_join(b, lambda x, y: f"{x}-{y}", within="1 second", grace="0 seconds", value=hr.String())
    join.to("out")
    with Driver(app) as d:
        d.send("b", "tick", "x", at=0)
        for number in range(20):
            d.send("a", KEYS[40 + step * number].decode(), f"{number}", at=number * 3 * SECOND)
        d.run()
        for number in range(19):
            d.send("b", "tick", "x", at=(number * 3 + 2) * SECOND)
            d.run()
            d.run()
            assert [r.value for r in d.read("out")] == [f"{number}-None"]


def test_stored_values_expire_at_their_time() -> None:
    class Keeps(hr.Processor[str, Any, str, Any]):
        stores: ClassVar = [hr.KeyValueStore("kept", value=hr.Long(), ttl="1 second")]

        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: hr.Record) -> None:
            if record.key != "tick":
                self.context.store("kept").put(1)

    app = hr.App("expiring")
    events, clock = (app.stream(name, key=hr.String(), value=hr.Json()) for name in ("events", "clock"))
    events.merge(clock).process(Keeps, name="p", value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("clock", "tick", 1, at=0)
        for number in range(20):
            d.send("events", KEYS[20 - number].decode(), 1, at=number * SECOND)
        d.run()
        for number in range(19):
            assert len(d.store("kept").all()) == 20 - number
            d.send("clock", "tick", 1, at=(number + 1) * SECOND)
            d.run()
            d.send("clock", "tick", 1, at=(number + 1) * SECOND)
            d.run()
