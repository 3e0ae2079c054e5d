"""A program as a careful user writes it: every definition has types, and what the API returns has the type that is asserted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import headrace as hr
from headrace.testing import Driver, StoredView


@dataclass
class Flight:
    carrier: str
    delay: float


class Late(TypedDict):
    late: int


class Streak(hr.Processor[str, Flight, str, Late]):
    """Stores by their declarations: their values have types."""

    late = hr.KeyValueStore("late", value=hr.Long(), ttl="30 days")
    last = hr.KeyValueStore("last", value=hr.Json(Flight))
    delays = hr.WindowStore("delays", value=hr.Double())
    recent = hr.ListStore("recent", value=hr.Json(Flight))
    by_number = hr.MapStore("by-number", value=hr.Json(Flight), sub=int)
    stores = (late, last, delays, recent, by_number)

    def init(self, context: hr.ProcessorContext[str]) -> None:
        self.context = context
        self.counts = context.store(self.late)
        self.flights = context.store(self.last)
        self.by_time = context.store(self.delays)
        self.listed = context.store(self.recent)
        self.hourly = context.schedule("1 hour", self.on_hour, clock="wall")
        assert_type(self.hourly, hr.Schedule)
        assert_type(self.listed, hr.ListStoreView[Flight])
        assert_type(context.store(self.by_number), hr.MapStoreView[Flight])
        self.model = context.resource(lambda: {"ua": 1.5})
        assert_type(self.counts, hr.KeyValueStoreView[int])
        assert_type(self.flights, hr.KeyValueStoreView[Flight])
        assert_type(self.by_time, hr.WindowStoreView[float])
        assert_type(self.model, dict[str, float])

    def process(self, record: hr.Record) -> None:
        count = self.counts.get(0) + 1
        assert_type(count, int)
        assert_type(self.counts.get(), int | None)
        assert_type(self.counts.get("none", sub="a"), int | str)
        assert_type(self.counts.get_many([b"k"]), list[int | None])
        assert_type(self.flights.get(), Flight | None)
        assert_type(self.by_time.range(0, 10), list[tuple[int, float]])
        assert_type(self.by_time.get(0, 0.0), float)
        assert_type(self.context.key, str)
        assert_type(self.context.partition, int | None)
        self.counts.put(count)
        self.counts.put(None, sub=b"old")
        self.flights.put(Flight("UA", 2.0))
        self.by_time.put(2.5, at=self.context.timestamp_us)
        self.context.metrics.counter("late")(1)
        self.context.timer("silent", after="1 hour", clock="wall")
        self.context.forward(value={"late": count}, to="after")

    def on_hour(self, at_us: int) -> None:
        for key, count in self.counts.all():
            assert_type(count, int)
            self.context.set_key(key)
            self.listed.append(Flight("UA", 1.0))
            assert_type(self.listed.pop_first(), Flight | None)
            assert_type(self.listed.range(-2, reverse=True), list[Flight])
            assert_type([flight.carrier for flight in self.listed], list[str])
        self.hourly.cancel()

    def on_timer(self, timer: hr.Timer[str]) -> None:
        assert_type(timer.key, str)
        assert_type(timer.timestamp_us, int)


class ByName(hr.Processor):
    """Stores by their names, for any value; or with a type that the user says."""

    stores = (hr.KeyValueStore("counts", value=hr.Long()), hr.WindowStore("times", value=hr.Json()))

    def init(self, context: hr.ProcessorContext) -> None:
        self.store = context.store("counts")
        self.counts: hr.KeyValueStoreView[int] = context.store("counts")
        self.times: hr.WindowStoreView[dict[str, int]] = context.store("times")

    def process(self, record: hr.Record) -> None:
        self.store.put(self.store.get(default=0) + 1)
        assert_type(self.counts.get(0), int)
        assert_type(self.times.get(0), dict[str, int] | None)


class Async(hr.Processor[str, Flight, str, Late]):
    """Methods that may wait, with options and without."""

    async def init(self, context: hr.ProcessorContext[str]) -> None:
        self.context = context

    @hr.concurrent(concurrency=10, timeout="1 second", retries=2, backoff="10 ms", order="none")
    async def process(self, record: hr.Record) -> None:
        assert_type(await late_of(record), bool)
        self.context.forward(value={"late": 1})

    async def close(self) -> None: ...


@hr.concurrent
async def late_of(record: hr.Record) -> bool:
    return bool(record.value.delay > 0)


class Upper:
    """A serde of a user's own is one by its methods."""

    form = "upper"
    spark_type: str | None = None

    def encode(self, value: str) -> bytes:
        return value.upper().encode()

    def decode(self, data: bytes) -> str:
        return data.decode()

    def encode_many(self, values: Any) -> tuple[Any, list[tuple[int, Exception]]]:
        raise NotImplementedError

    def decode_many(self, data: Any) -> tuple[list[str | None], list[tuple[int, Exception]]]:
        raise NotImplementedError

    def encode_arrow(self, values: Any) -> tuple[Any, list[tuple[int, Exception]]]:
        raise NotImplementedError

    def decode_arrow(self, data: Any) -> tuple[Any, list[tuple[int, Exception]]]:
        raise NotImplementedError


def serdes() -> None:
    assert_type(hr.String().decode(b""), str)
    assert_type(hr.Bytes().decode(b""), bytes)
    assert_type(hr.Long().decode(b""), int)
    assert_type(hr.Int().decode(b""), int)
    assert_type(hr.Double().decode(b""), float)
    assert_type(hr.Json(Flight).decode(b""), Flight)
    assert_type(hr.Json(Late).decode(b""), Late)
    assert_type(hr.Json(), hr.Json[Any])
    assert_type(hr.Json("carrier string, delay double"), hr.Json[Any])
    assert_type(hr.Windowed(hr.String()).decode(b"").key, str)
    assert_type(hr.WindowedKey(1, 0, 10).key, int)
    assert_type(hr.KeyValueStore("late", value=hr.Json(Flight)), hr.KeyValueStore[Flight])
    assert_type(hr.KeyValueStore("own", value=Upper()), hr.KeyValueStore[str])
    as_declared: tuple[hr.Serde[str], hr.Serde[Flight], hr.Serde[str], hr.Serde] = (
        hr.String(),
        hr.Json(Flight),
        Upper(),
        hr.Windowed(hr.Long()),
    )
    assert len(as_declared) == 4


def declare(app: hr.App) -> None:
    flights = app.stream("flights", key=hr.String(), value=hr.Json(Flight))
    assert_type(flights, hr.KStream)
    assert_type(flights.filter("value.delay > 0").select_key("value.carrier"), hr.KStream)
    grouped = flights.group_by_key()
    assert_type(grouped, hr.KGrouped)
    assert_type(grouped.windowed_by(hr.Tumbling("1 hour")), hr.KGrouped)
    assert_type(grouped.count(store="counts"), hr.KTable)
    assert_type(grouped.count().to_stream(), hr.KStream)
    assert_type(app.table("carriers", key=hr.String()), hr.KTable)
    assert_type(app.global_table("airports"), hr.GlobalTable)
    assert_type(app.describe(), str)
    assert_type(app.describe("mermaid"), str)
    assert_type(app.describe("dict"), hr.TopologyDescription)
    for sub in app.describe("dict")["sub_topologies"]:
        assert_type(sub["reads"], list[str])
        for operator in sub["operators"]:
            assert_type(operator["parents"], list[str])


def run(app: hr.App) -> None:
    status = app.run(until="caught-up", progress=False)
    assert_type(status, hr.RunStatus)
    assert_type(status["signal"], int | None)
    assert_type(status["stopped"], bool)
    assert_type(status["sub_topologies"]["source"]["records"], int)
    assert_type(status["sub_topologies"]["source"]["counters"], dict[str, int])
    job = app.start()
    assert_type(job, hr.Job)
    assert_type(job.status(), hr.JobStatus)
    assert_type(job.is_running, bool)


def look(app: hr.App) -> None:
    counts: hr.StateView[int] = app.state("counts")
    assert_type(counts.get("UA"), int | None)
    assert_type(counts.get("UA", 0), int)
    flights: int = (app.state("delays").get("UA") or {})["flights"]  # a view that is not annotated has values of any type
    assert flights == 2
    assert_type([record.key for record in app.preview(5).records], list[Any])


def systems() -> None:
    with hr.open_system("log:./data") as log:
        assert_type(log, hr.Streams)
        created = log.create_stream("flights", partitions=4)
        assert_type(created.partitions, int)
        assert_type(log.produce("flights", [("a", 1)], key=hr.String(), value=hr.Long()), int)
        assert_type(list(log.consume("flights", key=hr.String())), list[hr.Record])
        assert_type(log.end_offsets("flights"), dict[int, int])
        assert_type(log.applications(), list[str])
        log.purge("flights", {0: 10})


def in_a_test(app: hr.App) -> None:
    with Driver(app) as d:
        assert_type(d.run(), int)
        assert_type(d.read("delays"), list[hr.Record])
        counts: StoredView[str, int] = d.store("counts")
        assert_type(counts.get("a"), int | None)
        assert_type(counts.get("a", 0), int)
        assert_type(counts.all(), dict[str, int])
        assert_type(counts.items(), list[tuple[str, int]])
        flights: int = (d.store("sums").get("a") or {})["flights"]
        assert flights == 2
