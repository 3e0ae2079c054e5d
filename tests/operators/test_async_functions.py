"""Async functions in every operator that takes them: the results of the plain functions, whatever is late, fails or is cut."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from support.world import caught_up, started, waited

KEYS = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
RECORDS = st.lists(st.tuples(KEYS, st.integers(-50, 50)), max_size=30)
MILLISECOND = 0.001


def later(function: Callable[[hr.Record], Any]) -> Callable[[hr.Record], Any]:
    """The same as an async function, which takes longer for some values than for others."""

    async def call(record: hr.Record) -> Any:
        await asyncio.sleep(record.value % 3 * MILLISECOND)
        return function(record)

    return call


async def yielding(record: hr.Record) -> AsyncIterator[tuple[str, int]]:
    for i in range(abs(record.value) % 4):
        await asyncio.sleep(0)
        yield f"{record.key}", i


STEPS: dict[str, tuple[Any, Any]] = {
    "filter": (lambda s: s.filter(later(lambda r: r.value > 0)), lambda k, v: [(k, v)] if v > 0 else []),
    "filter_not": (lambda s: s.filter_not(later(lambda r: r.value > 0)), lambda k, v: [] if v > 0 else [(k, v)]),
    "map_values": (lambda s: s.map_values(later(lambda r: r.value * 2), value=hr.Long()), lambda k, v: [(k, v * 2)]),
    "map": (
        lambda s: s.map(later(lambda r: (f"{r.key}!", r.value + 1)), key=hr.String(), value=hr.Long()),
        lambda k, v: [(f"{k}!", v + 1)],
    ),
    "select_key": (
        lambda s: s.select_key(later(lambda r: None if r.value % 3 == 0 else "k"), key=hr.String()),
        lambda k, v: [(None if v % 3 == 0 else "k", v)],
    ),
    "flat_map": (
        lambda s: s.flat_map(later(lambda r: [(r.key, i) for i in range(abs(r.value) % 4)]), key=hr.String(), value=hr.Long()),
        lambda k, v: [(k, i) for i in range(abs(v) % 4)],
    ),
    "async generator": (
        lambda s: s.flat_map(hr.concurrent(yielding, order="none"), key=hr.String(), value=hr.Long()),
        lambda k, v: [(f"{k}", i) for i in range(abs(v) % 4)],
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(later(lambda r: (r.value - i for i in range(abs(r.value) % 3))), value=hr.Long()),
        lambda k, v: [(k, v - i) for i in range(abs(v) % 3)],
    ),
    "peek": (lambda s: s.peek(later(lambda r: None)), lambda k, v: [(k, v)]),
    "split": (
        lambda s: s.split(later(lambda r: r.value > 0), later(lambda r: r.value % 2 == 0))[1],
        lambda k, v: [(k, v)] if v <= 0 and v % 2 == 0 else [],
    ),
}


@settings(max_examples=6, deadline=None)
@given(RECORDS, st.integers(1, 7))
def test_each_operator_record_for_record_wherever_rounds_are_cut(records: list[tuple[Any, int]], per_round: int) -> None:
    app = hr.App("all")
    source = app.stream("in", key=hr.String(), value=hr.Long())
    for name, (build, _) in STEPS.items():
        build(source).to(name.replace(" ", "-"))
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, value in records:
            d.send("in", key, value)
        d.run()
        for name, (_, model) in STEPS.items():
            found = [(r.key, r.value) for r in d.read(name.replace(" ", "-"))]
            assert found == [pair for key, value in records for pair in model(key, value)], name


class Calls:
    """Records which calls ran at the same time."""

    def __init__(self) -> None:
        self.running: Counter[Any] = Counter()
        self.most = 0
        self.order: defaultdict[Any, list[int]] = defaultdict(list)
        self.same_key = 0

    async def __call__(self, record: hr.Record) -> int:
        self.running[record.key] += 1
        self.most = max(self.most, self.running.total())
        self.same_key = max(self.same_key, self.running[record.key])
        self.order[record.key].append(record.value)
        await asyncio.sleep(record.value % 4 * MILLISECOND)
        self.running[record.key] -= 1
        return int(record.value)


@pytest.mark.parametrize("order", ["key", "none"])
@pytest.mark.parametrize("threads", [1, 4])
def test_order_and_bound_with_one_thread_and_with_several(order: str, threads: int) -> None:
    calls = Calls()
    app = hr.App("order", elasticity_factor=4)
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    rows.map_values(hr.concurrent(calls, concurrency=6, order=order), value=hr.Long()).to("out")
    with Driver(app, overrides=[f"task_threads={threads}"]) as d:
        for number in range(400):
            d.send("in", f"k{number % 5}", number)
        d.run()
        assert [r.value for r in d.read("out")] == list(range(400))  # in the order of the records with both
    assert calls.most <= 6 and calls.most > 1
    assert (calls.same_key == 1) == (order == "key")
    if order == "key":
        assert all(values == sorted(values) for values in calls.order.values())


def test_pieces_of_slow_calls_stay_as_large_as_what_may_run_at_once() -> None:
    """The first piece has 256 records and takes 0.9 s: of a plain function the next one would have 56, then 20, then 8."""
    running, peak = 0, 0
    peaks = []

    async def slow(record: hr.Record) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.45)
        running -= 1
        if not running:
            peaks.append(peak)
            peak = 0
        return int(record.value)

    app = hr.App("slow")
    rows = app.stream("in", key=hr.String(), value=hr.Long())
    rows.map_values(hr.concurrent(slow, concurrency=128)).to("out")
    with Driver(app) as d:
        for number in range(512):
            d.send("in", f"k{number}", number)
        d.run()
        assert len(d.read("out")) == 512
    assert set(peaks) == {128}


def test_failures_timeouts_and_records_that_succeed_in_the_end() -> None:
    tries: Counter[int] = Counter()

    async def unreliable(record: hr.Record) -> int:
        tries[record.value] += 1
        match record.value % 5:
            case 1 if tries[record.value] < 3:
                raise ConnectionError("again")
            case 2:
                raise LookupError(f"no {record.value}")
            case 3:
                await asyncio.sleep(60)
        return int(record.value)

    app = hr.App("failing", dead_letter_stream="dead")
    asked = hr.concurrent(unreliable, timeout="20 ms", retries=2, backoff="1 ms")
    app.stream("in", key=hr.String(), value=hr.Long()).map_values(asked, name="ask", value=hr.Long()).to("out")
    with Driver(app) as d:
        for number in range(20):
            d.send("in", f"k{number}", number)
        d.run()
        assert [r.value for r in d.read("out")] == [n for n in range(20) if n % 5 not in (2, 3)]
        dead = [dict(r.headers) for r in d.read("dead")]
        assert d.counters["calls_retried"] == 4 * 2 + 8 * 2
    shown = {int(h["headrace.offset"]): (h["headrace.error-class"], h["headrace.error-message"]) for h in dead}
    late = b"operator 'ask': test_failures_timeouts_and_records_that_succeed_in_the_end.<locals>.unreliable "
    assert len(shown) == 8 and shown[7] == (b"LookupError", b"no 7")
    assert shown[8][0] == b"CallTimeoutError" and shown[8][1].startswith(late)
    assert b"did not end within 20 ms, 2 retries" in shown[8][1]
    assert tries == Counter({n: 1 if n % 5 in (0, 4) else 3 for n in range(20)})


def test_without_dead_letters_a_timeout_ends_the_job_with_the_line_where_it_waited() -> None:
    async def slow(record: hr.Record) -> int:
        await asyncio.sleep(60)
        return 1

    app = hr.App("late")
    app.stream("in", key=hr.String(), value=hr.Long()).map_values(hr.concurrent(slow, timeout="20 ms")).to("out")
    with Driver(app) as d:
        d.send("in", "k", 1)
        with pytest.raises(hr.RecordError) as found:
            d.run()
    assert found.value.error_class == "CallTimeoutError"
    assert "await asyncio.sleep(60)" in found.value.user_traceback
    assert "did not end within 20 ms" in str(found.value)


def test_a_stop_cancels_the_calls_and_drops_their_round_whole(tmp_path: Path) -> None:
    is_stopping, events = Event(), Counter[str]()

    async def slow(record: hr.Record) -> int:
        if record.value >= 5 and not is_stopping.is_set():
            events["waits"] += 1
            try:
                await asyncio.sleep(60)
            finally:
                events["waits"] -= 1
                events["cancelled"] += 1
        return int(record.value)

    def application() -> hr.App:
        app = hr.App("stopped", system=f"log:{tmp_path}", max_records_per_round=5)
        app.stream("in", key=hr.String(), value=hr.Long()).map_values(slow, value=hr.Long()).to("out")
        return app

    with hr.open_system(f"log:{tmp_path}") as system:
        for name in ("in", "out"):
            system.create_stream(name, partitions=1)
        system.produce("in", [hr.Record(f"k{n}", n) for n in range(10)], key=hr.String(), value=hr.Long())
        job = started(application())
        waited(lambda: events["waits"] == 5, job)
        job.stop()
        assert events == Counter(waits=0, cancelled=5)
        assert [r.value for r in system.consume("out", value=hr.Long())] == list(range(5))
        is_stopping.set()
        caught_up(application())
        assert [r.value for r in system.consume("out", value=hr.Long())] == list(range(10))


# --- processors -------------------------------------------------------------------------------------------------------


class Ledger(hr.Processor[str, Any, str, Any]):
    """Sums per key, and all other kinds of stores, written before and after it waits; every seventh record then fails."""

    stores: ClassVar = [
        hr.KeyValueStore("sums", value=hr.Json()),
        hr.KeyValueStore("short", value=hr.Json(), ttl="5 us"),
        hr.MapStore("seen", value=hr.Json(), sub=int),
        hr.WindowStore("times", value=hr.Json(), retention="1 hour"),
    ]

    def steps(self, record: hr.Record) -> Iterator[None]:
        """It waits where this yields."""
        context, value, time_us = self.context, record.value, record.timestamp_us
        assert time_us is not None
        sums, short, seen, times = (context.store(store) for store in self.stores)
        sums.put(sums.get(0) + value)
        seen.put(value, value)
        times.put(value, at=time_us)
        context.metrics.counter("begun")()
        context.forward(value=["begun", value])
        before = short.get(0)
        yield
        assert (context.key, context.offset, context.timestamp_us) == (record.key, record.offset, time_us)
        assert seen.get(value) == value  # it sees what it has written
        if value % 7 == 6:
            raise ValueError("a seventh")
        short.put(before + 1)
        yield
        if value % 4 == 3:
            sums.delete()
            seen.clear()
        elif value % 4 == 2:
            seen.delete(value - 1)
        if value % 5 == 0:
            context.timer("due", at=time_us + 7)
        elif value % 5 == 1:
            context.cancel_timer("due")
        recent = [at for at, _ in times.range(time_us - 5, time_us + 1)]
        context.forward(value=[sums.get(0), [sub for sub, _ in seen.range(reverse=True)], before, len(recent)])

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=["timer", timer.key, self.context.store("sums").get(0)])


class PlainLedger(Ledger):
    def process(self, record: hr.Record) -> None:
        for _ in self.steps(record):
            pass


class AsyncLedger(Ledger):
    async def process(self, record: hr.Record) -> None:
        for _ in self.steps(record):
            await asyncio.sleep(record.value % 3 * MILLISECOND)


SENT = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40), st.integers(0, 4)), max_size=40)


def ledger_outputs(kind: type, sent: Sequence[tuple[str, int, int]], rounds: Sequence[int], per_round: int) -> list[Any]:
    """What comes out where a round begins behind each of `rounds`, and where each takes `per_round` records at most."""
    app = hr.App("ledger", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Long()).process(kind, name="p", value=hr.Json()).to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        at = 0
        for number, (key, value, step) in enumerate(sent):
            if number in rounds:
                d.run()
            at += step
            d.send("in", key, value, at=at)
        d.run()
        stores = {name: d.store(name).all() for name in ("sums", "seen")}
        read = [[(r.key, r.value, r.timestamp_us) for r in d.read(name)] for name in ("out", "dead")]
        return [*read, stores, d.counters.get("p.begun")]


@settings(max_examples=6, deadline=None)
@given(SENT, st.sets(st.integers(0, 40), max_size=3), st.integers(3, 50))
def test_an_async_processor_gives_what_a_plain_one_gives(
    sent: list[tuple[str, int, int]], rounds: set[int], per_round: int
) -> None:
    """State, timers, expiry, outputs and dead letters, in rounds that are cut alike."""
    found = [ledger_outputs(kind, sent, sorted(rounds), per_round) for kind in (AsyncLedger, PlainLedger)]
    assert found[0] == found[1]


class Sums(hr.Processor[str, Any, str, Any]):
    stores: ClassVar = [hr.KeyValueStore("sums", value=hr.Json())]

    @hr.concurrent(concurrency=5, retries=2, backoff="1 ms")
    async def process(self, record: hr.Record) -> None:
        store, tries = self.context.store("sums"), self.context.resource(Counter)
        store.put(store.get(0) + record.value)
        self.context.forward(value=store.get())
        await asyncio.sleep(record.value % 3 * MILLISECOND)
        tries[record.key, record.offset] += 1
        if record.value % 3 == 0 and tries[record.key, record.offset] < 3:
            raise ConnectionError("again")


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=40), st.integers(1, 9))
def test_a_try_that_failed_leaves_nothing_wherever_rounds_are_cut(sent: list[tuple[str, int]], per_round: int) -> None:
    app = hr.App("sums")
    app.stream("in", key=hr.String(), value=hr.Long()).process(Sums, name="p", value=hr.Json()).to("out")
    with Driver(app, overrides=[f"max_records_per_round={per_round}"]) as d:
        for key, value in sent:
            d.send("in", key, value)
        d.run()
        sums: Counter[str] = Counter()
        expected = []
        for key, value in sent:
            sums[key] += value
            expected.append((key, sums[key]))
        assert [(r.key, r.value) for r in d.read("out")] == expected
        assert d.store("sums").all() == dict(sums)


async def above(record: hr.Record, least: int) -> bool:
    return bool(record.value > least)


class Forgets(hr.Processor[str, Any, str, Any]):
    def process(self, record: hr.Record) -> Any:
        return above(record, 0)


FORGETTING: dict[str, Callable[[hr.KStream], hr.KStream]] = {
    "filter": lambda s: s.filter(lambda r: above(r, 0)),
    "map": lambda s: s.map(lambda r: above(r, 0), key=hr.String(), value=hr.Long()),
    "process": lambda s: s.process(Forgets, value=hr.Json()),
}


@pytest.mark.parametrize("operator", sorted(FORGETTING))
def test_a_function_that_only_makes_a_coroutine_ends_the_job(operator: str) -> None:
    app = hr.App("forgets", dead_letter_stream="dead")
    FORGETTING[operator](app.stream("in", key=hr.String(), value=hr.Long())).to("out")
    with Driver(app) as d:
        d.send("in", "k", 1)
        with pytest.raises(hr.TopologyError, match=r"gave a coroutine, and is not an async function"):
            d.run()


class Misused(hr.Processor[str, Any, str, Any]):
    stores: ClassVar = [hr.KeyValueStore("s", value=hr.Json())]
    way = ""
    left: ClassVar[list[asyncio.Task[None]]] = []

    async def process(self, record: hr.Record) -> None:
        if self.way == "thread":
            await asyncio.to_thread(self.context.store("s").put, 1)
        elif self.way == "unknown":
            self.context.store("another")
        elif record.value == 0:
            self.left.append(asyncio.create_task(self.late()))
        else:
            await asyncio.wait(self.left)

    async def late(self) -> None:
        await asyncio.sleep(5 * MILLISECOND)
        self.context.store("s").put(1)


@pytest.mark.parametrize(
    ("way", "message"), [("thread", "used in another thread"), ("unknown", "has no store 'another'")]
)
def test_a_context_that_is_used_wrongly_ends_the_job(way: str, message: str) -> None:
    app = hr.App("misused", dead_letter_stream="dead")
    app.stream("in", key=hr.String(), value=hr.Long()).process(type("P", (Misused,), {"way": way}), value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("in", "k", 1)
        with pytest.raises(hr.TopologyError, match=message):
            d.run()


def test_what_a_record_leaves_behind_cannot_write_when_it_has_ended() -> None:
    app = hr.App("left")
    app.stream("in", key=hr.String(), value=hr.Long()).process(Misused, value=hr.Json()).to("out")
    with Driver(app) as d:
        d.send("in", "a", 0)
        d.send("in", "b", 1)
        d.run()
        assert d.store("s").all() == {}
    [left] = Misused.left
    assert "whose process() had ended" in str(left.exception())


def test_a_processor_keeps_its_client_over_rounds_and_closes_it() -> None:
    events: list[str] = []

    class Client:
        """It belongs to the loop that it was opened in, as sessions of HTTP clients do."""

        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()

        async def get(self, value: int) -> int:
            assert asyncio.get_running_loop() is self.loop
            await asyncio.sleep(MILLISECOND)
            return value + 1

        async def aclose(self) -> None:
            assert asyncio.get_running_loop() is self.loop
            events.append("closed")

    class Asks(hr.Processor[str, Any, str, Any]):
        async def init(self, context: Any) -> None:
            self.context, self.client = context, Client()
            events.append("opened")

        async def process(self, record: hr.Record) -> None:
            shared = self.context.resource(Client)
            self.context.forward(value=await self.client.get(record.value) + await shared.get(record.value))

        async def close(self) -> None:
            await self.client.aclose()

    app = hr.App("client")
    app.stream("in", key=hr.String(), value=hr.Long()).process(Asks, value=hr.Json()).to("out")
    with Driver(app) as d:
        for turn in range(2):
            d.send("in", "k", turn)
            d.run()
        assert [r.value for r in d.read("out")] == [2, 4]
    assert events == ["opened", "closed"]
