"""`Processor`: its life, its context, stores, timers and what it forwards."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import Driver

MINUTE = 60_000_000
HOUR = 60 * MINUTE
SENT = ("a", "b", "a")


class Base(hr.Processor[str, Any, str, Any]):
    def init(self, context: Any) -> None:
        self.context = context


def app_of(processor: type, stream: str = "in", **keys: Any) -> hr.App:
    app = hr.App("processors", **keys)
    app.stream(stream, key=hr.String(), value=hr.Json()).process(processor, name="p", value=hr.Json()).to("out")
    return app


def values(d: Driver, stream: str = "out") -> list[Any]:
    return [r.value for r in d.read(stream)]


# --- life and context -----------------------------------------------------------------------------------------------


def test_init_once_per_task_and_close_at_the_end() -> None:
    events: list[str] = []

    class Life(Base):
        stores: ClassVar = [hr.KeyValueStore("seen", value=hr.Json())]

        def init(self, context: Any) -> None:
            self.context, self.store, self.calls = context, context.store("seen"), 0
            self.count = context.metrics.counter("calls")
            events.append(f"init {context.task}")

        def process(self, record: hr.Record) -> None:
            self.calls += 1
            self.count()
            self.store.put((self.store.get(0)) + 1)
            self.context.forward(value=[self.calls, self.store.get()])

        def close(self) -> None:
            events.append("close")

    with Driver(app_of(Life), partitions=2) as d:
        for _ in range(3):  # what `init` keeps works in every later round
            for partition in (0, 1):
                d.send("in", f"k{partition}", None, partition=partition)
            d.run()
        assert sorted(events) == ["init Partition_0", "init Partition_1"]
        assert [r.value for r in d.read("out") if r.key == "k0"] == [[1, 1], [2, 2], [3, 3]]
        assert d.store("seen").all() == {"k0": 3, "k1": 3}
        assert d.counters["p.calls"] == 6
    assert events[2:] == ["close", "close"]


def test_the_context_says_what_is_at_work() -> None:
    class Where(Base):
        def process(self, record: hr.Record) -> None:
            c = self.context
            c.forward(value=[c.key, c.stream, c.partition, c.offset, c.timestamp_us, c.task])
            with pytest.raises(AttributeError, match="no 'colour'"):
                _ = c.colour

    with Driver(app_of(Where), partitions=2) as d:
        d.send("in", "k", None, at=7, partition=1)
        d.run()
        assert values(d) == [["k", "in", 1, 0, 7, "Partition_1"]]


def test_forward_sets_key_value_time_headers_and_child() -> None:
    class Forward(Base):
        def process(self, record: hr.Record) -> None:
            self.context.forward(value="kept")
            self.context.forward(key="other", value="all", timestamp=5, headers={"h": "x"})
            self.context.forward(key=None, value="one", to="only-b")

    app = hr.App("forward")
    out = app.stream("in", key=hr.String(), value=hr.Json()).process(Forward, name="p", key=hr.String(), value=hr.String())
    out.filter(lambda r: True, name="only-a").to("a")
    out.filter(lambda r: True, name="only-b").to("b")
    with Driver(app) as d:
        d.send("in", "k", None, at=9)
        d.run()
        first = [("k", "kept", 9, ()), ("other", "all", 5, (("h", b"x"),))]
        for stream, expected in (("a", first), ("b", [*first, (None, "one", 9, ())])):
            found = [(r.key, r.value, r.timestamp_us, r.headers) for r in d.read(stream)]
            assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_timer_that_nobody_answers_stops_the_job() -> None:
    class Forgets(Base):
        def process(self, record: hr.Record) -> None:
            self.context.timer("t", after="1 minute")

    with Driver(app_of(Forgets)) as d:
        d.send("in", "k", None)
        with pytest.raises(hr.errors.TopologyError, match=r"timer 't': Forgets defines no on_timer"):
            d.run()


def test_a_bare_number_is_no_time_to_wait() -> None:
    class Waits(Base):
        def process(self, record: hr.Record) -> None:
            self.context.timer("t", after=10)

        def on_timer(self, timer: Any) -> None: ...

    with Driver(app_of(Waits)) as d:
        d.send("in", "k", None)
        with pytest.raises(hr.errors.TopologyError, match=r"timer 't': after=10 is a bare number"):
            d.run()


def test_a_resource_is_loaded_once_per_process() -> None:
    loaded: list[str] = []

    class Uses(Base):
        def init(self, context: Any) -> None:
            self.context = context
            self.model = context.resource(lambda: loaded.append("model") or "model")
            self.other = context.resource(lambda: loaded.append("other") or ["other"])

        def process(self, record: hr.Record) -> None:
            self.context.forward(value=str(self.model))

    with Driver(app_of(Uses), partitions=3) as d:
        for partition in range(3):
            d.send("in", "k", None, partition=partition)
        d.run()
    assert loaded == ["model", "other"]


# --- stores -----------------------------------------------------------------------------------------------------------


class Books(Base):
    stores: ClassVar = [hr.KeyValueStore("books", value=hr.Json())]

    def process(self, record: hr.Record) -> None:
        store, (verb, sub, value) = self.context.store("books"), record.value
        match verb:
            case "put":
                store.put(value, sub=sub)
            case "delete":
                store.delete(sub=sub)
            case "raise":
                store.put("half done", sub=sub)
                self.context.forward(value="half done")
                raise ValueError("after a put")
        self.context.forward(value=[store.get("none"), store.get("none", sub="x")])


def test_stores_are_scoped_to_key_and_sub_key() -> None:
    with Driver(app_of(Books)) as d:
        for key, command in (
            ("a", ["put", "", 1]), ("a", ["put", "x", 2]), ("b", ["get", "", None]),
            ("a", ["delete", "", None]), ("a", ["put", "x", None]), ("a", ["put", "", 5]),
        ):  # fmt: skip
            d.send("in", key, command)
            d.run()
        assert values(d) == [[1, "none"], [1, 2], ["none", "none"], ["none", 2], ["none", "none"], [5, "none"]]
        assert d.store("books").get("a") == 5
        assert d.store("books").get("a", sub="x") is None


def test_a_record_that_fails_takes_back_all_it_did() -> None:
    with Driver(app_of(Books, dead_letter_stream="dead")) as d:
        d.send("in", "a", ["put", "", 1])
        d.send("in", "a", ["raise", "", None])
        d.send("in", "b", ["raise", "x", None])
        d.send("in", "a", ["get", "", None])
        d.run()
        assert values(d) == [[1, "none"], [1, "none"]]
        assert d.store("books").all() == {"a": 1}
        assert [dict(r.headers)["headrace.offset"] for r in d.read("dead")] == [b"1", b"2"]


def test_a_null_key_has_no_state() -> None:
    with Driver(app_of(Books, dead_letter_stream="dead")) as d:
        d.send("in", None, ["put", "", 1])
        d.run()
        (letter,) = d.read("dead")
    assert dict(letter.headers)["headrace.error-class"] == b"StateError"
    assert b"null key" in dict(letter.headers)["headrace.error-message"]


def test_sub_keys_have_a_limit_and_unknown_stores_are_named() -> None:
    class Bad(Base):
        stores: ClassVar = [hr.KeyValueStore("books", value=hr.Json())]

        def process(self, record: hr.Record) -> None:
            self.context.store("bokos" if record.value else "books").put(1, sub="x" * 65)

    with Driver(app_of(Bad, dead_letter_stream="dead")) as d:
        d.send("in", "a", 0)
        d.run()
        (letter,) = d.read("dead")
        assert b"65 bytes" in dict(letter.headers)["headrace.error-message"]
        d.send("in", "a", 1)
        with pytest.raises(hr.TopologyError, match="no store 'bokos'; it declares: books"):
            d.run()


class Remembers(Base):
    stores: ClassVar = [hr.KeyValueStore("recent", value=hr.Json(), ttl="1 hour")]

    def process(self, record: hr.Record) -> None:
        store = self.context.store("recent")
        before = store.get()
        if record.value is not None:
            store.put(record.value)
        self.context.forward(value=[before, store.get()])


def test_an_entry_lives_for_its_ttl_after_the_last_put() -> None:
    with Driver(app_of(Remembers)) as d:
        for key, value, at in (
            ("a", 1, 0), ("a", 2, 30 * MINUTE), ("b", None, HOUR + 20 * MINUTE),  # an hour after the first put of `a`
            ("a", None, HOUR + 20 * MINUTE), ("b", None, 2 * HOUR), ("a", None, 2 * HOUR),
        ):  # fmt: skip
            d.send("in", key, value, at=at)
            d.run()
        assert values(d) == [[None, 1], [1, 2], [None, None], [2, 2], [None, None], [None, None]]
        assert len(d.store("recent")) == 0, "what has expired is deleted, not only hidden"
        assert d.counters["entries_expired"] == 1


class RemembersUnlessBad(Remembers):
    def process(self, record: hr.Record) -> None:
        super().process(record)
        if record.value == "bad":
            raise ValueError("bad")


def test_what_expires_next_is_in_the_checkpoint_and_taken_back_with_a_record_that_fails(tmp_path: Path) -> None:
    def expiry_us() -> int | None:
        with closing(sqlite3.connect(tmp_path / "log" / "catalog.sqlite")) as catalog:
            ((text,),) = catalog.execute("SELECT checkpoint FROM checkpoints").fetchall()
            found: int | None = json.loads(text).get("expiry_us")
            return found

    app = app_of(RemembersUnlessBad, dead_letter_stream="dead")
    with Driver(app, directory=tmp_path) as d:
        d.send("in", "a", "bad", at=0)
        d.run()
        assert expiry_us() is None
        d.send("in", "a", 1, at=MINUTE)
        d.send("in", "b", "bad", at=2)
        d.run()
        assert expiry_us() == HOUR + MINUTE
    with Driver(app, directory=tmp_path) as d:
        d.send("in", "b", 2, at=HOUR + MINUTE)
        d.run()
        d.run()
        d.send("in", "b", None, at=HOUR + 2 * MINUTE)
        d.run()
        assert d.counters["entries_expired"] == 1
        assert expiry_us() == 2 * HOUR + MINUTE


class Times(Base):
    stores: ClassVar = [hr.WindowStore("times", value=hr.Json(), retention="1 hour")]

    def process(self, record: hr.Record) -> None:
        store = self.context.store("times")
        if record.value == "delete":
            store.delete(record.timestamp_us)
        else:
            store.put(record.value, record.timestamp_us)
        self.context.forward(value=[store.range(-5, 100), store.get(10), store.get(11, "none")])


def test_a_window_store_gives_ranges_of_time() -> None:
    with Driver(app_of(Times)) as d:
        for key, value, at in (("a", "x", 10), ("a", "y", -5), ("b", "z", 10), ("a", "w", 100), ("a", "delete", 10)):
            d.send("in", key, value, at=at)
        d.run()
        assert values(d) == [
            [[[10, "x"]], "x", "none"],
            [[[-5, "y"], [10, "x"]], "x", "none"],
            [[[10, "z"]], "z", "none"],
            [[[-5, "y"], [10, "x"]], "x", "none"],
            [[[-5, "y"]], None, "none"],
        ]
        assert d.store("times").get("b", at=10) == "z"
        d.send("in", "c", "late", at=2 * HOUR)
        d.run()
        d.send("in", "c", "later", at=2 * HOUR + 1)
        d.run()
        assert d.store("times").all() == {("c", 2 * HOUR): "late", ("c", 2 * HOUR + 1): "later"}


# --- timers -----------------------------------------------------------------------------------------------------------


class Alarms(Base):
    stores: ClassVar = [hr.KeyValueStore("fired", value=hr.Json())]

    def process(self, record: hr.Record) -> None:
        for name, command in (record.value or {}).items():
            if command is None:
                for clock in ("event", "wall"):
                    self.context.cancel_timer(name, clock)
            else:
                self.context.timer(name, **command)

    def on_timer(self, timer: Any) -> None:
        store = self.context.store("fired")
        store.put([*store.get([]), timer.name])
        if timer.name == "bad":
            raise ValueError("will not")
        self.context.forward(value=[timer.name, timer.key, timer.timestamp_us, timer.clock, self.context.offset])


def test_event_timers_fire_in_order_once_time_has_passed_them() -> None:
    with Driver(app_of(Alarms)) as d:
        d.send("in", "a", {"late": {"at": 50}, "early": {"at": 20}, "after": {"after": "25 us"}}, at=10)
        d.send("in", "b", {"early": {"at": 21}}, at=10)
        d.run()
        assert values(d) == []
        d.send("in", "c", None, at=35)
        d.run()
        expected = [["early", "a", 20, "event", None], ["early", "b", 21, "event", None], ["after", "a", 35, "event", None]]
        assert values(d) == expected
        d.advance("1 day")
        assert d.run() == 0, "the wall clock does not move event time"
        d.send("in", "c", None, at=50)
        d.run()
        assert values(d) == [["late", "a", 50, "event", None]]
        assert d.store("fired").get("a") == ["early", "after", "late"]


def test_wall_timers_fire_without_input() -> None:
    with Driver(app_of(Alarms), start=0) as d:
        d.send("in", "a", {"t": {"after": "1 hour", "clock": "wall"}, "u": {"at": HOUR + 1, "clock": "wall"}}, at=5)
        d.run()
        d.advance("59 minutes")
        assert d.run() == 0
        d.advance("1 minute")
        assert d.run() == 1
        assert values(d) == [["t", "a", HOUR, "wall", None]]
        d.advance("1 hour")
        d.run()
        assert values(d) == [["u", "a", HOUR + 1, "wall", None]]


def test_a_timer_is_replaced_and_cancelled() -> None:
    with Driver(app_of(Alarms)) as d:
        d.send("in", "a", {"t": {"at": 20}, "gone": {"at": 20}, "u": {"at": 90}}, at=1)
        d.run()
        d.send("in", "a", {"t": {"at": 60}, "gone": None, "u": {"at": 30}}, at=2)
        d.run()
        d.send("in", "b", None, at=40)
        d.run()
        assert values(d) == [["u", "a", 30, "event", None]]
        d.send("in", "b", None, at=100)
        d.run()
        assert values(d) == [["t", "a", 60, "event", None]]


def test_timers_outlive_a_restart(tmp_path: Path) -> None:
    with Driver(app_of(Alarms), start=0, directory=tmp_path) as d:
        d.send("in", "a", {"event": {"at": 20}, "wall": {"after": "1 hour", "clock": "wall"}}, at=1)
        d.run()
    with Driver(app_of(Alarms), start=2 * HOUR, directory=tmp_path) as d:
        d.run()
        assert values(d) == [["wall", "a", HOUR, "wall", None]]
        d.send("in", "b", None, at=30)
        d.run()
        assert values(d) == [["event", "a", 20, "event", None]]


def test_a_timer_that_raises_takes_back_what_it_did_and_is_named() -> None:
    with Driver(app_of(Alarms, dead_letter_stream="dead")) as d:
        d.send("in", "a", {"bad": {"at": 20}, "good": {"at": 21}}, at=30)
        d.run()
        assert values(d) == [["good", "a", 21, "event", None]]
        assert d.store("fired").get("a") == ["good"]
        (letter,) = d.read("dead")
    assert b"timer 'bad' of key 'a'" in dict(letter.headers)["headrace.operator"]
    assert (letter.key, letter.value) == (None, None)


def test_a_timer_that_raises_stops_a_job_without_dead_letters() -> None:
    with Driver(app_of(Alarms)) as d:
        d.send("in", "a", {"bad": {"at": 20}}, at=30)
        with pytest.raises(hr.RecordError, match="timer 'bad' of key 'a'"):
            d.run()
        assert d.store("fired").get("a") is None


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"at": 1, "after": 1}, "either `at` or `after`"),
        ({}, "either `at` or `after`"),
        ({"at": 1, "clock": "sun"}, "expected 'event' or 'wall'"),
    ],
)
def test_calls_that_set_no_timer_are_mistakes(command: dict[str, Any], message: str) -> None:
    with Driver(app_of(Alarms)) as d:
        d.send("in", "a", {"t": command})
        with pytest.raises(hr.TopologyError, match=message):
            d.run()


def test_a_time_that_is_none_is_the_records_fault() -> None:
    with Driver(app_of(Alarms)) as d:
        d.send("in", "a", {"t": {"after": "1 moon"}})
        with pytest.raises(hr.RecordError, match="unit of time"):
            d.run()


def test_a_null_key_can_set_no_timer() -> None:
    with Driver(app_of(Alarms)) as d:
        d.send("in", None, {"t": {"at": 1}})
        with pytest.raises(hr.RecordError, match="null key"):
            d.run()


def test_timers_of_an_operator_behind_others_know_their_key() -> None:
    app = hr.App("behind")
    stream = app.stream("in", key=hr.Long(), value=hr.Json()).filter(lambda r: True).peek(lambda r: None)
    stream.process(Alarms, name="p", value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("in", 7, {"t": {"at": 3}}, at=5)
        d.run()
        assert values(d) == [["t", 7, 3, "event", None]]


def test_what_a_timer_forwards_is_merged_and_counted() -> None:
    """A round in which nothing but timers happens goes through all that follows."""
    app = hr.App("downstream")
    fired = app.stream("in", key=hr.String(), value=hr.Json()).process(Alarms, name="p", value=hr.Json())
    other = app.stream("other", key=hr.String(), value=hr.Json())
    fired.merge(other).group_by_key().count(store="n").to("out")
    with Driver(app, start=0) as d:
        d.send("in", "a", {"t": {"after": "1 minute", "clock": "wall"}})
        d.run()
        d.advance("1 minute")
        d.run()
        assert d.store("n").get("a") == 1


# --- batches ----------------------------------------------------------------------------------------------------------


class Batches(Base):
    stores: ClassVar = [hr.KeyValueStore("totals", value=hr.Json())]

    def process_batch(self, batch: pa.RecordBatch) -> None:
        store = self.context.store("totals")
        keys = [key.encode() for key in batch.column("key").to_pylist()]
        totals = dict(zip(keys, store.get_many(keys), strict=True))
        for key, value in zip(keys, batch.column("value").to_pylist(), strict=True):
            totals[key] = (totals[key] or 0) + 12 // value
        store.put_many(list(totals), list(totals.values()))
        self.context.forward(key=None, value=batch.num_rows)


def test_batches_read_and_write_many_keys_and_find_who_fails() -> None:
    with Driver(app_of(Batches, dead_letter_stream="dead")) as d:
        for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 0), ("b", 4)):
            d.send("in", key, value)
        d.run()
        assert d.store("totals").all() == {"a": 16, "b": 9}
        assert sum(values(d)) == 4, "what a half that failed had forwarded is taken back"
        (letter,) = d.read("dead")
    assert dict(letter.headers)["headrace.offset"] == b"3"


def test_a_batch_reaches_the_keys_of_its_records_only() -> None:
    class Peeks(Base):
        stores: ClassVar = [hr.KeyValueStore("totals", value=hr.Json())]

        def process_batch(self, batch: pa.RecordBatch) -> None:
            self.context.store("totals").get_many([b"another"])

    with Driver(app_of(Peeks)) as d:
        d.send("in", "a", 1)
        with pytest.raises(hr.RecordError, match="no key of this batch"):
            d.run()
