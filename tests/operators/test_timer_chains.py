"""Timers that set timers: in which order they fire, how far a round follows them, and that none runs for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.rounds import timer_chains
from headrace.errors import EndlessTimersError
from headrace.testing import Driver
from headrace.worker.operators.processing import timer_store as firing
from support.world import caught_up, started

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Base(hr.Processor[str, Any, str, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        if record.value is not None:
            self.context.timer(**record.value)


class Ticks(Base):
    """Repeats each minute."""

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=timer.timestamp_us)
        self.context.timer(timer.name, at=timer.timestamp_us + MINUTE, clock=timer.clock)


def app_of(processor: type, **keys: Any) -> hr.App:
    app = hr.App("chains", **keys)
    app.stream("in", key=hr.String(), value=hr.Json()).process(processor, name="p", value=hr.Json()).to("out")
    return app


def values(d: Driver) -> list[Any]:
    return [record.value for record in d.read("out")]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So few firings of a key in a round that a test can have more."""
    for module in (timer_chains, firing):
        monkeypatch.setattr(module, "FIRINGS_MAX", 50)
    return 50


# --- chains that end ------------------------------------------------------------------------------------------------


class Silent(Base):
    """Tells of a key that has had no record for 10 s, and of how many it had."""

    stores = (hr.KeyValueStore("seen", value=hr.Long()),)

    def process(self, record: hr.Record) -> None:
        seen = self.context.store("seen")
        seen.put(seen.get(0) + 1)
        self.context.timer("silent", at=record.timestamp_us + 10 * SECOND)

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=self.context.store("seen").get())


class Behind(Silent):
    stores = (hr.KeyValueStore("behind", value=hr.Long()),)

    def process(self, record: hr.Record) -> None:
        self.context.store("behind").put(record.value)
        self.context.timer("silent", at=record.timestamp_us + 10 * SECOND)

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=[timer.timestamp_us // SECOND, self.context.store("behind").get()])


def test_what_comes_of_the_timers_of_one_comes_to_the_next_before_its_own_fire() -> None:
    """At 10 s the first one tells of its two records; the second one, with a timer that is due at 10 s too, is told of it
    before, and so has its timer at 20 s alone."""
    app = hr.App("chains")
    lines = app.stream("in", key=hr.String(), value=hr.Long())
    silent = lines.process(Silent, name="b", value=hr.Long())
    first = lines.filter(lambda record: record.value == 7)
    silent.merge(first).process(Behind, name="a", value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("in", "x", 7, at=0)
        d.send("in", "x", 8, at=0)
        d.run()
        d.send("in", "y", 1, at=60 * SECOND)
        d.run()
        d.run()
        assert [record.value for record in d.read("out") if record.key == "x"] == [[20, 2]]


def test_a_timer_that_repeats_catches_up_a_day_in_one_round() -> None:
    with Driver(app_of(Ticks)) as d:
        d.send("in", "a", {"name": "tick", "at": 0}, at=0)
        d.run()
        d.send("in", "b", None, at=DAY)
        assert d.run() == 2, "one round for the record, the next by the watermark that it has moved"
        assert values(d) == [number * MINUTE for number in range(DAY // MINUTE + 1)]
        assert d.counters["timers_fired"] == DAY // MINUTE + 1
        assert d.run() == 0


def test_a_timer_of_the_wall_clock_catches_up_alike() -> None:
    with Driver(app_of(Ticks), start=0) as d:
        d.send("in", "a", {"name": "tick", "after": "1 minute", "clock": "wall"})
        d.run()
        d.advance("1 day")
        assert d.run() == 1
        assert values(d) == [number * MINUTE for number in range(1, DAY // MINUTE + 1)]


def test_what_is_left_of_a_long_chain_fires_in_the_next_rounds_in_order(few: int) -> None:
    with Driver(app_of(Ticks)) as d:
        d.send("in", "a", {"name": "tick", "at": 0}, at=0)
        d.send("in", "a", {"name": "other", "at": 10 * SECOND}, at=0)
        d.send("in", "z", {"name": "tick", "at": 30 * SECOND}, at=0)
        d.run()
        d.send("in", "b", None, at=3 * HOUR)
        assert d.run() > 4, "180 minutes of two timers, 50 firings a round"
        found = [(record.key, record.value) for record in d.read("out")]
    mine = [time for key, time in found if key == "a"]
    assert mine == sorted([n * MINUTE for n in range(181)] + [n * MINUTE + 10 * SECOND for n in range(180)])
    assert [time for key, time in found if key == "z"] == [n * MINUTE + 30 * SECOND for n in range(180)]


def test_many_timers_of_one_key_are_no_chain(few: int) -> None:
    class Many(Base):
        def process(self, record: hr.Record) -> None:
            for number in range(3 * few):
                self.context.timer(f"order-{number}", at=5)

        def on_timer(self, timer: Any) -> None:
            self.context.forward(value=timer.name)

    with Driver(app_of(Many)) as d:
        d.send("in", "a", None, at=7)
        assert d.run() == 2
        assert len(values(d)) == 3 * few


def test_a_timer_may_be_set_again_at_its_own_time_a_few_times() -> None:
    class Tries(Base):
        stores = (hr.KeyValueStore("tries", value=hr.Long()),)

        def on_timer(self, timer: Any) -> None:
            tries = self.context.store("tries")
            tries.put(tries.get(default=0) + 1)
            if tries.get() < 5:
                self.context.timer(timer.name, at=timer.timestamp_us)

    with Driver(app_of(Tries)) as d:
        d.send("in", "a", {"name": "t", "at": 3}, at=9)
        d.run()
        assert d.store("tries").get("a") == 5


# --- their order ----------------------------------------------------------------------------------------------------


class Script(Base):
    """Its timers do what the record said: `{timer: [[name, time or None to cancel], ...]}`."""

    stores = (hr.KeyValueStore("script", value=hr.Json()),)

    def process(self, record: hr.Record) -> None:
        if record.value is not None:
            self.context.store("script").put(record.value)
            self._do("begin", record.value)

    def on_timer(self, timer: Any) -> None:
        script = self.context.store("script").get()
        self.context.forward(value=[timer.name, timer.timestamp_us])
        self._do(timer.name, script)
        if timer.name.startswith("bad"):
            raise ValueError("will not")

    def _do(self, name: str, script: Any) -> None:
        for other, at, *clock in script.pop(name, []):
            if at is None:
                self.context.cancel_timer(other, *clock)
            else:
                self.context.timer(other, at=at, clock=clock[0] if clock else "event")
        self.context.store("script").put(script)


SCRIPTS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "what is set meanwhile takes its turn": (
        {"begin": [["a", 1], ["z", 9]], "a": [["b", 4], ["c", 3]]},
        [["a", 1], ["c", 3], ["b", 4], ["z", 9]],
    ),
    "what is cancelled does not fire": ({"begin": [["a", 1], ["b", 2], ["z", 9]], "a": [["b", None]]}, [["a", 1], ["z", 9]]),
    "what is moved fires once": (
        {"begin": [["a", 1], ["b", 2], ["z", 9]], "a": [["b", 12]]},
        [["a", 1], ["z", 9], ["b", 12]],
    ),
    "what is moved into the future waits": (
        {"begin": [["a", 1], ["b", 2], ["z", 9]], "a": [["b", 2_000]]},
        [["a", 1], ["z", 9]],
    ),
    "what is set to a time before fires next": (
        {"begin": [["a", 5], ["z", 9]], "a": [["b", 2]]},
        [["a", 5], ["b", 2], ["z", 9]],
    ),
    "the other clock's fire too": (
        {"begin": [["a", 1], ["z", 9]], "a": [["w", 2, "wall"]], "w": [["e", 4]], "e": [["v", 7, "wall"]]},
        [["a", 1], ["z", 9], ["w", 2], ["e", 4], ["v", 7]],
    ),
}


@pytest.mark.parametrize("case", sorted(SCRIPTS))
def test_timers_fire_by_time_as_they_are_set_and_cancelled(case: str) -> None:
    script, expected = SCRIPTS[case]
    with Driver(app_of(Script), start=1_000) as d:
        d.send("in", "a", script, at=1_000)
        d.run()
        assert values(d) == expected


def test_what_a_failing_timer_set_or_cancelled_is_as_it_was() -> None:
    script = {"begin": [["bad", 1], ["b", 2], ["z", 9]], "bad": [["b", None], ["z", 5_000], ["new", 3]]}
    with Driver(app_of(Script, dead_letter_stream="dead")) as d:
        d.send("in", "a", script, at=1_000)
        d.run()
        assert values(d) == [["b", 2], ["z", 9]]
        assert len(d.read("dead")) == 1


def test_what_a_timer_forwards_may_set_timers_that_are_due() -> None:
    class Behind(Base):
        def process(self, record: hr.Record) -> None:
            self.context.timer("behind", at=record.value)

        def on_timer(self, timer: Any) -> None:
            self.context.forward(value=["behind", timer.timestamp_us])

    app = hr.App("behind")
    first = app.stream("in", key=hr.String(), value=hr.Json()).process(Ticks, name="first", value=hr.Json())
    first.process(Behind, name="second", value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("in", "a", {"name": "tick", "at": 0}, at=3 * MINUTE)
        d.run()
        assert values(d) == [["behind", 3 * MINUTE]], "of one name and key: the last one counts"


# --- chains without an end ------------------------------------------------------------------------------------------


class AtOnce(Base):
    def on_timer(self, timer: Any) -> None:
        self.context.timer(timer.name, at=timer.timestamp_us, clock=timer.clock)


class Backwards(Base):
    def on_timer(self, timer: Any) -> None:
        self.context.timer(timer.name, at=timer.timestamp_us - 1, clock=timer.clock)


class NewNames(Base):
    def on_timer(self, timer: Any) -> None:
        self.context.timer(f"{timer.name}x"[-30:], at=timer.timestamp_us, clock=timer.clock)


class NoTime(Base):
    def on_timer(self, timer: Any) -> None:
        self.context.timer(timer.name, after="0 seconds", clock=timer.clock)


class TwoOfThem(Base):
    def on_timer(self, timer: Any) -> None:
        other = "tock" if timer.name == "tick" else "tick"
        self.context.timer(other, at=max(0, timer.timestamp_us + (-5 if other == "tick" else 5)), clock=timer.clock)


class BothClocks(Base):
    def on_timer(self, timer: Any) -> None:
        self.context.timer(timer.name, at=timer.timestamp_us, clock="wall" if timer.clock == "event" else "event")


class EachMicrosecond(Base):
    def on_timer(self, timer: Any) -> None:
        self.context.timer(timer.name, at=timer.timestamp_us + 1, clock=timer.clock)


@pytest.mark.parametrize("clock", ["event", "wall"])
@pytest.mark.parametrize("processor", [AtOnce, Backwards, NewNames, NoTime, TwoOfThem, BothClocks, EachMicrosecond])
def test_a_timer_that_has_no_end_stops_the_job_and_is_named(processor: type, clock: str) -> None:
    with Driver(app_of(processor, dead_letter_stream="dead"), start=DAY) as d:
        at = DAY if processor is NoTime else 7  # by the wall clock `after` begins at the present, however late the timer is
        d.send("in", "k-1", {"name": "tick", "at": at, "clock": clock}, at=DAY)
        with pytest.raises(EndlessTimersError) as raised:
            d.run()
        text = str(raised.value)
        for said in ("operator 'p'", "10,000 timers of key 'k-1'", "task Partition_0, which reads in partition 0", "hint: "):
            assert said in text
        assert d.counters.get("timers_fired", 0) == 0, "nothing of that round counts"
        assert d.read("dead") == []


def test_nothing_is_lost_once_it_is_fixed(tmp_path: Path) -> None:
    with Driver(app_of(AtOnce), directory=tmp_path) as d:
        d.send("in", "a", {"name": "t", "at": 3}, at=5)
        with pytest.raises(EndlessTimersError):
            d.run()
        d.send("in", "b", {"name": "t", "at": 4}, at=6)
    with Driver(app_of(Ticks), directory=tmp_path) as d:
        d.run()
        assert values(d) == [3, 4]


def test_a_slow_chain_leaves_the_rest_to_the_next_round_when_the_time_is_over() -> None:
    """With max_round_ms a round is cut that catches up, but not what would begin at the same time again."""
    with Driver(app_of(Ticks), overrides=["max_round_ms=1"]) as d:
        d.send("in", "a", {"name": "tick", "at": 0}, at=0)
        d.send("in", "b", None, at=5 * DAY)
        assert d.run() > 3
        assert values(d) == [number * MINUTE for number in range(5 * DAY // MINUTE + 1)]
    with Driver(app_of(AtOnce), overrides=["max_round_ms=1"]) as d:
        d.send("in", "a", {"name": "tick", "at": 0}, at=5)
        with pytest.raises(EndlessTimersError, match="due at once"):
            d.run()


def test_a_job_ends_with_the_error_at_its_first_try_and_commits_nothing_of_the_round(tmp_path: Path) -> None:
    app = app_of(AtOnce, system=f"log:{tmp_path}/data", config={"local_store_dir": str(tmp_path / "stores")})
    with hr.open_system(f"log:{tmp_path}/data") as system:
        system.create_stream("in", 1)
        system.create_stream("out", 1)
        record = hr.Record("a", {"name": "t", "at": 3}, 5)
        system.produce("in", [record], key=hr.String(), value=hr.Json())
    job = started(app, "caught-up")
    with pytest.raises(EndlessTimersError, match="operator 'p' has not caught up after 10,000 timers of key 'a'"):
        job.wait(60)
    assert job.status()["sub_topologies"]["source"]["round"] == 1, "the one that read the record"


def test_a_job_catches_up_as_the_driver_does(tmp_path: Path) -> None:
    app = app_of(Ticks, system=f"log:{tmp_path}/data", config={"local_store_dir": str(tmp_path / "stores")})
    with hr.open_system(f"log:{tmp_path}/data") as system:
        system.create_stream("in", 1)
        system.create_stream("out", 1)
        records = [hr.Record("a", {"name": "t", "at": 0}, 0), hr.Record("b", None, DAY)]
        system.produce("in", records, key=hr.String(), value=hr.Json())
        job = caught_up(app)
        found = [record.value for record in system.consume("out", hr.String(), hr.Json())]
    assert found == [number * MINUTE for number in range(DAY // MINUTE + 1)]
    assert job.status()["sub_topologies"]["source"]["round"] == 2
