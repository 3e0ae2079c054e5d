"""What a processor schedules for its task: when it is called, what it sees and may do, that none is lost or repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.core.topology.sub_topologies import has_state, sub_topologies_of
from headrace.testing import Driver
from operators.taken import Sent, outcome

SUMS = hr.KeyValueStore("sums", value=hr.Long())
SECOND = 1_000_000


class Sums(hr.Processor):
    """Sums by key; each 10 µs and each 25 µs it gives all of them, and each 25 µs it deletes those above 20."""

    stores: ClassVar[Any] = [SUMS]

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule("10 us", self.tell)
        context.schedule("25 us", self.tell_and_delete)

    def process(self, record: hr.Record) -> None:
        sums = self.context.store(SUMS)
        sums.put(sums.get(0) + record.value)

    def tell(self, at_us: int) -> None:
        self.context.forward(key="10", value=dict(self.context.store(SUMS).all()))
        assert self.context.timestamp_us == at_us

    def tell_and_delete(self, at_us: int) -> None:
        sums = self.context.store(SUMS)
        self.context.forward(key="25", value=dict(sums.all()))
        for key, value in sums.all():
            if value > 20:
                self.context.set_key(key)
                sums.delete()
                self.context.forward(value={"deleted": value})


def sums_app(**keys: Any) -> hr.App:
    app = hr.App("ticks", **keys)
    app.stream("l", key=hr.String(), value=hr.Long()).process(Sums, name="sums", value=hr.Json()).to("out")
    app.stream("r", key=hr.String(), value=hr.Long()).to("other")
    return app


def model(taken: list[list[Sent]], watermarks: list[int | None]) -> list[tuple[str, Any, int]]:
    """One task: what it took in each round, and the watermark before that."""
    sums: dict[str, int] = {}
    found: list[tuple[str, Any, int]] = []
    is_made, done_us = False, -(2**62)
    for records, watermark_us in zip(taken, watermarks, strict=True):
        if is_made and watermark_us is not None:
            due = [(watermark_us // interval * interval, interval) for interval in (10, 25)]
            for at_us, interval in sorted((at_us, interval) for at_us, interval in due if at_us > done_us):
                found.append((str(interval), dict(sums), at_us))
                for key in sorted(sums) if interval == 25 else ():
                    if sums[key] > 20:
                        found.append((key, {"deleted": sums.pop(key)}, at_us))
            done_us = max(done_us, watermark_us)
        for stream, key, value, _ in records:
            if stream == "l":
                if not is_made and watermark_us is not None:
                    done_us = watermark_us
                is_made = True
                sums[key] = sums.get(key, 0) + value
    return found


SENT = st.lists(
    st.tuples(st.sampled_from("llr"), st.sampled_from("xyz"), st.integers(0, 12), st.integers(-30, 90)), max_size=25
)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.booleans(), SENT), max_size=3), st.sampled_from([1, 3, 1000]))
def test_it_is_called_as_the_model_says(runs: Any, per_round: int) -> None:
    """By event time, wherever rounds and runs end: what is called when follows from the watermark before each round."""
    taken, found, watermarks = outcome(sums_app, runs, per_round, 1)
    order = lambda result: (result[2], str(result[:2]))  # noqa: E731
    assert sorted(found["out"], key=order) == sorted(model(taken, watermarks), key=order)
    times = [at_us for key, _, at_us in found["out"] if key == "10"]
    assert times == sorted(set(times)), "repeated"


@settings(max_examples=8)
@given(st.lists(SENT, max_size=3))
def test_virtual_tasks_each_call_it_for_their_keys(sent: list[list[Sent]]) -> None:
    """What follows for a key from its own state is the same."""
    by_factor = []
    for factor in (1, 4):
        runs = [(False, sorted(records, key=lambda one: one[3])) for records in sent]
        _, found, _ = outcome(lambda factor=factor: sums_app(elasticity_factor=factor), runs, 1000, 1)  # type: ignore[misc]
        by_factor.append(sorted((key, value["deleted"]) for key, value, _ in found["out"] if key in "xyz"))
    assert by_factor[0] == by_factor[1]


class Clock(hr.Processor):
    """Has no store: says when it is called, by the wall clock."""

    interval: Any = "10 seconds"

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(self.interval, lambda at_us: context.forward(key="tick", value=at_us), clock="wall")

    def process(self, record: hr.Record) -> None:
        self.context.forward(value=record.value)


def clock_app(processor: Any = Clock, **keys: Any) -> hr.App:
    app = hr.App("clock", **keys)
    read = app.stream("in", key=hr.String(), value=hr.Long()).select_key(lambda record: "other", key=hr.String())
    read.process(processor, name="clock", value=hr.Long()).to("out")
    return app


def ticks(d: Driver, start_us: int) -> list[float]:
    return [(record.value - start_us) / SECOND for record in d.read("out") if record.key == "tick"]


def test_the_wall_clock_calls_an_idle_job_without_catching_up(tmp_path: Path) -> None:
    """It is no operator with state: it may follow `select_key` at once."""
    assert not any(map(has_state, sub_topologies_of(clock_app().topology())))
    with Driver(clock_app(), directory=tmp_path) as d:
        start_us = d.now_us
        d.advance("5 seconds")
        d.run()
        assert ticks(d, start_us) == []  # no record has come yet
        d.send("in", "k", 1)
        d.run()
        for length in ("4 seconds", "1 second", "9 seconds", "36 seconds", "0 seconds"):
            d.advance(length)
            d.run()
        assert ticks(d, start_us) == [10, 50]
    with Driver(clock_app(), start=start_us + 58 * SECOND, directory=tmp_path) as d:
        d.run()
        d.advance("3 seconds")
        d.run()
        d.advance("1 seconds")
        d.run()
        assert ticks(d, start_us)[-1] == 60


def test_a_factor_that_changes_and_a_stream_that_grows(tmp_path: Path) -> None:
    for factor, seconds, partitions in ((1, 10, 1), (4, 20, 1), (2, 30, 2)):
        with Driver(clock_app(elasticity_factor=factor), directory=tmp_path, start=seconds * SECOND) as d:
            if partitions == 2:
                d.expand("in", 2)
            for key in "abcdefghijklmnop":
                d.send("in", key, 1)
            d.run()
            d.advance("10 seconds")
            d.run()
            found = ticks(d, 0)
            assert set(found) <= {20, 30, 40}
            assert found.count(seconds + 10) == factor * partitions


def test_a_round_that_fails_is_done_again(tmp_path: Path) -> None:
    class Fails(Sums):
        has_failed = False

        def process(self, record: hr.Record) -> None:
            if record.value == 7 and not Fails.has_failed:
                Fails.has_failed = True
                raise ValueError("once")
            super().process(record)

    def app() -> hr.App:
        made = hr.App("ticks")
        made.stream("l", key=hr.String(), value=hr.Long()).process(Fails, name="sums", value=hr.Json()).to("out")
        return made

    results = []
    for folder in ("fails", "does-not"):
        with Driver(app(), directory=tmp_path / folder) as d:
            d.send("l", "x", 30, at=5)
            d.run()
            d.send("l", "x", 1, at=33)
            d.run()
            d.send("l", "y", 7, at=61)
            if not Fails.has_failed:
                with pytest.raises(hr.RecordError, match="once"):
                    d.run()
        with Driver(app(), directory=tmp_path / folder) as d:
            d.run()
            results.append([(r.key, r.value, r.timestamp_us) for r in d.read("out", from_start=True)])
    assert results[0] == results[1]
    assert [(key, at_us) for key, _, at_us in results[0]] == [
        ("10", 0), ("25", 0), ("x", 0), ("25", 25), ("10", 30), ("25", 50), ("10", 60)
    ]  # fmt: skip


def test_what_a_punctuation_that_fails_did_is_taken_back() -> None:
    class Fails(Sums):
        def tell_and_delete(self, at_us: int) -> None:
            super().tell_and_delete(at_us)
            raise ValueError("none of it counts")

    app = hr.App("ticks", dead_letter_stream="dead")
    app.stream("l", key=hr.String(), value=hr.Long()).process(Fails, name="sums", value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("l", "x", 30, at=5)
        d.run()
        assert d.store("sums").all() == {"x": 30}
        assert [record.key for record in d.read("out")] == ["10"]
        (letter,) = d.read("dead")
        assert b"punctuation at 1970-01-01T00:00:00Z (event clock)" in b"".join(value for _, value in letter.headers)


def test_all_kinds_of_stores_name_their_keys_and_set_key_gives_timers() -> None:
    stores_of = [
        hr.KeyValueStore("v", value=hr.Long(), ttl="100 us"),
        hr.MapStore("m", value=hr.Long()),
        hr.ListStore("l", value=hr.Long()),
        hr.WindowStore("w", value=hr.Long()),
    ]
    seen: list[Any] = []

    class Every(hr.Processor):
        stores: ClassVar[Any] = stores_of

        def init(self, context: Any) -> None:
            self.context = context
            context.schedule("10 us", self.tick)

        def process(self, record: hr.Record) -> None:
            context = self.context
            context.store("v").put(record.value)
            context.store("v").put(1, sub="s")
            context.store("m").put("a", record.value)
            context.store("m").put("b", record.value)
            context.store("l").extend([record.value] * 3)
            context.store("w").put(record.value, record.timestamp_us)

        def tick(self, at_us: int) -> None:
            context = self.context
            seen.append((at_us, sorted(context.store("v").all()), *(sorted(context.store(name).keys()) for name in "vmlw")))
            for key in list(context.store("l").keys()):
                context.set_key(key)
                context.timer("later", at=at_us + 20)
                context.forward(value=list(context.store("l")))

        def on_timer(self, timer: Any) -> None:
            self.context.forward(value=["timer", timer.timestamp_us])

    app = hr.App("every")
    app.stream("in", key=hr.String(), value=hr.Long()).process(Every, name="every", value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("in", "x", 1, at=11)
        d.send("in", "y", 2, at=12)
        d.run()
        d.send("in", "z", 3, at=31)
        d.run()
    keys = ["x", "y"]
    assert seen[0] == (10, [("x", 1), ("y", 2)], keys, keys, keys, keys)
    assert seen[1] == (30, [("x", 1), ("y", 2), ("z", 3)], *[["x", "y", "z"]] * 4)


def test_a_schedule_is_cancelled() -> None:
    class Once(hr.Processor):
        def init(self, context: Any) -> None:
            self.context = context
            self.schedule = context.schedule("10 us", self.tick)

        def process(self, record: hr.Record) -> None:
            pass

        def tick(self, at_us: int) -> None:
            self.schedule.cancel()
            self.context.forward(key="tick", value=at_us)

    with Driver(clock_app(Once)) as d:
        for at in (15, 35, 55):
            d.send("in", "k", 1, at=at)
            d.run()
        assert [record.value for record in d.read("out")] == [10]


def failing(use: Any, in_init: bool = False) -> None:
    """Run `use(context, store)` in a punctuation, or in `init`."""

    class Fails(hr.Processor):
        stores: ClassVar[Any] = [SUMS]

        def init(self, context: Any) -> None:
            self.context = context
            if in_init:
                use(context, None)
            else:
                context.schedule("10 us", lambda at_us: use(context, context.store(SUMS)))

        def process(self, record: hr.Record) -> None:
            pass

    app = hr.App("fails")
    app.stream("in", key=hr.String(), value=hr.Long()).process(Fails, name="p", value=hr.Long()).to("out")
    with Driver(app) as d:
        d.send("in", "k", 1, at=15)
        d.run()


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda context, store: store.get(), "a punctuation has no current key"),
        (lambda context, store: context.forward(value=1), "forward in a punctuation has no current key"),
        (lambda context, store: context.schedule("1 s", print), "outside of init"),
    ],
)
def test_what_a_punctuation_cannot_do_ends_the_job(use: Any, text: str) -> None:
    with pytest.raises(hr.TopologyError, match=text):
        failing(use)


def test_a_key_without_state_is_not_of_the_task() -> None:
    with pytest.raises(hr.HeadraceError, match="key 'k' has no state in task"):
        failing(lambda context, store: context.set_key("k"))


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda context: context.schedule("1 s", print, clock="sun"), "expected 'event' or 'wall'"),
        (lambda context: context.schedule("1 s", None), "None is no function"),
        (lambda context: context.schedule("soon", print), "interval 'soon'"),
        (lambda context: context.schedule("0 s", print), "no length of time above 0"),
    ],
)
def test_what_is_no_schedule_is_refused(use: Any, text: str) -> None:
    with pytest.raises(hr.TopologyError, match=text):
        failing(lambda context, store: use(context), in_init=True)


@pytest.mark.parametrize(
    "use", [lambda c: list(c.store(SUMS).keys()), lambda c: list(c.store(SUMS).all()), lambda c: c.set_key("k")]
)
def test_records_see_their_own_key_only(use: Any) -> None:
    class Looks(hr.Processor):
        stores: ClassVar[Any] = [SUMS]

        def process(self, record: hr.Record) -> None:
            use(self.context)

    app = hr.App("looks")
    app.stream("in", key=hr.String(), value=hr.Long()).process(Looks, name="p", value=hr.Long()).to("out")
    with Driver(app) as d:
        d.send("in", "k", 1)
        with pytest.raises(hr.TopologyError, match="punctuation"):
            d.run()


@pytest.mark.spark
def test_through_spark() -> None:
    app = hr.App("ticks")
    read = app.stream("l", key=hr.String(), value=hr.Long()).filter("value > 0")
    read.process(Sums, name="sums", value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("l", "x", 0, at=95)
        d.run()
        d.send("l", "x", 21, at=99)
        d.run()
        assert [(r.key, r.value, r.timestamp_us) for r in d.read("out")] == [
            ("25", {"x": 21}, 75), ("x", {"deleted": 21}, 75), ("10", {}, 90)
        ]  # fmt: skip
