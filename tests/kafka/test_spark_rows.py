"""What is on a topic reaches a job on Spark as it is, by expressions and without: transactions and aborted ones, holes of
compaction, null keys, tombstones, headers, times; and records that go while the job runs."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace as hr
from headrace.driver.rounds import round_planner
from headrace.errors import OffsetOutOfRangeError
from kafka.clients import QUIET, WAIT_S
from support import broker
from support.world import Place, World, caught_up_on_spark, source_of, waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
START_MS = int(time.time() * 1000) - 3_600_000  # a broker deletes what is older than its retention, by the time of records
Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


class Copied(World):
    """A topic of 2 partitions, and jobs that copy it in the shared session: `expected` is what a reader must find."""

    KEYS: ClassVar = {"trigger_interval_ms": 20}

    def __init__(self, folder: Path, place: Place, spark: Any) -> None:
        super().__init__(folder, place)
        self.spark, self.topic = spark, self.stream("in")
        self.expected: dict[int, list[Row]] = {0: [], 1: []}
        self.sent = 0

    def make(self, **settings: str) -> None:
        admin = AdminClient({**self.settings, **QUIET})
        admin.create_topics([NewTopic(self.topic, 2, 1, config=settings)])[self.topic].result(WAIT_S)

    def transact(self, rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, Any]]]], commit: bool = True) -> None:
        """One transaction; each row has a partition, key, value, headers."""
        producer = Producer({**self.settings, **QUIET, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for partition, key, value, headers in rows:
            self.sent += 1
            when = START_MS + self.sent * 7
            producer.produce(self.topic, value, key, partition, timestamp=when, headers=headers)
            if commit:
                stored = [(name, data.encode() if isinstance(data, str) else data) for name, data in headers]
                self.expected[partition].append((key, value, when * 1000, stored))
        producer.flush(WAIT_S)
        producer.commit_transaction(WAIT_S) if commit else producer.abort_transaction(WAIT_S)

    def app(self, name: str, **keys: Any) -> hr.App:
        return super().app(f"{self.name}-{name}", self.spark, **keys)

    def run(self, app: hr.App) -> Any:
        return caught_up_on_spark(app)

    @contextmanager
    def running_on_spark(self, app: hr.App) -> Iterator[Any]:
        job = app.start()
        try:
            yield job
        finally:
            job.stop()
        job.wait()

    def rows(self, stream: str) -> dict[int, list[Row]]:
        # A job has ended once its last transaction is decided; the broker shows it a moment later.
        waited(lambda: not broker.is_in_transaction(self.settings, [stream]))
        found: dict[int, list[Row]] = {0: [], 1: []}
        for r in self.system.consume(stream):
            found[r.partition].append((r.key, r.value, r.timestamp_us, list(r.headers)))
        return found


@pytest.fixture
def world(on_kafka: Place, spark: Any, tmp_path: Path) -> Iterator[Copied]:
    with Copied(tmp_path, on_kafka, spark) as made:
        yield made


def in_order(rows: dict[int, list[Row]]) -> list[Row]:
    """Of both partitions together, sorted by time: a copy may put a record into another partition."""
    return sorted((row for mine in rows.values() for row in mine), key=lambda row: row[2])


def filled(world: Copied) -> None:
    world.make()
    world.transact([(0, b"a", b'{"n": 1}', [("h", "x"), ("h", b"\xff"), ("none", None)]), (1, b"b", b'{"n": 2}', [])])
    world.transact([(0, b"never", b'{"n": 100}', []), (1, b"never", b"no json", [])], commit=False)
    world.transact([(0, None, b'{"n": 3}', []), (1, b"b", None, [("tombstone", "")]), (0, b"", b'{"n": 4}', [])])
    world.transact([(1, b"never", b"no json", [])] * 20, commit=False)


@pytest.fixture
def spark_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small rounds too: else their workers read, where no operator needs Spark."""
    monkeypatch.setattr(round_planner, "is_small_round", lambda records, few: False)


@pytest.fixture(params=["spark", "worker"])
def reader(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark_reads")
    return str(request.param)


def test_rows_without_expressions(world: Copied, reader: str) -> None:
    filled(world)
    app = world.app("plain")
    app.stream(world.topic).to(f"{world.name}-copy")
    job = world.run(app)
    assert in_order(world.rows(f"{world.name}-copy")) == in_order(world.expected)
    status = job.status()["sub_topologies"]["source"]
    assert (status["lag"], status["records_written"]) == (0, 5)
    assert world.run(app).status()["sub_topologies"]["source"]["records"] == 0  # markers and aborted records are passed


def test_a_count_looks_at_values_that_may_not_decode(world: Copied, reader: str) -> None:
    """What Spark leaves out is what nobody looks at: the same records are rejected whoever reads, and however much at once."""
    world.make()
    world.transact([(n % 2, b"k%d" % (n % 2), b"no json" if n % 10 == 0 else b'{"n": 1}', []) for n in range(60)])
    for value, expected in ((hr.Json("n int"), (54, 6)), (hr.Bytes(), (60, 0))):
        app = world.app(f"count-{expected[1]}", dead_letter_stream=f"{world.name}-dead")
        app.stream(world.topic, value=value).group_by_key().count(store="c").to_stream().to(f"{world.name}-{expected[0]}")
        status = world.run(app).status()["sub_topologies"]["source"]
        last = {r.key: r.value for r in world.system.consume(f"{world.name}-{expected[0]}", value=hr.Long())}
        assert (sum(last.values()), status["counters"].get("dead_letters", 0)) == expected


def test_rows_by_expressions(world: Copied) -> None:
    filled(world)
    app = world.app("sql")
    rows = app.stream(world.topic, value=hr.Json("n int"))
    rows.filter("value is null or value.n != 3").to(f"{world.name}-copy")
    rows.map_values("struct(value.n + 1 as n, size(headers) as h, unix_millis(timestamp) as t)", value=hr.Json()).to(
        f"{world.name}-seen"
    )
    world.run(app)
    kept = [row for row in in_order(world.expected) if row[1] != b'{"n": 3}']
    found = in_order(world.rows(f"{world.name}-copy"))
    assert [(row[0], row[1] and json.loads(row[1]), row[2], row[3]) for row in found] == [
        (row[0], row[1] and json.loads(row[1]), row[2], row[3]) for row in kept
    ]
    seen = [json.loads(row[1] or b"null") for row in in_order(world.rows(f"{world.name}-seen"))]
    assert [row["t"] for row in seen] == [row[2] // 1000 for row in in_order(world.expected)]
    assert [row["n"] for row in seen] == [2, 3, 4, None, 5]


def test_compacted_topics_have_holes(world: Copied, spark_reads: None) -> None:
    often = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "500"}
    world.make(**{"cleanup.policy": "compact", **often})
    for number in range(8):
        world.transact([(0, b"k", b"%d" % number, []), (0, b"only-%d" % number, b"x", [])])
        time.sleep(0.25)
    app = world.app("compact")
    app.stream(world.topic).to(f"{world.name}-copy")
    job = world.run(app)
    found = world.rows(f"{world.name}-copy")
    keys = [row[0] for row in in_order(found)]
    assert [key for key in keys if key != b"k"] == [b"only-%d" % number for number in range(8)]
    assert [row[1] for row in in_order(found) if row[0] == b"k"][-1] == b"7"
    assert job.status()["sub_topologies"]["source"]["lag"] == 0


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_what_a_reader_finds_gone_is_named_or_passed_over(
    world: Copied, reader: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and the reading."""
    filled(world)
    app = world.app("lost", on_lost_offsets=policy)
    app.stream(world.topic).to(f"{world.name}-copy")
    planned = round_planner.RoundPlanner._planned

    def purged_behind(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(round_planner.RoundPlanner, "_planned", planned)
        plan = planned(self, *arguments)
        world.system.purge(world.topic, {0: 1})
        return plan

    monkeypatch.setattr(round_planner.RoundPlanner, "_planned", purged_behind)
    if policy == "fail":
        with pytest.raises(OffsetOutOfRangeError, match=rf"{world.topic}' partition 0: .* were deleted .* \(0 to 0\)"):
            world.run(app)
        assert all(row in world.expected[1] for row in in_order(world.rows(f"{world.name}-copy")))  # another container's
        return
    status = world.run(app).status()["sub_topologies"]["source"]
    assert status["counters"]["lost_offsets"] == 1
    world.expected[0].pop(0)
    assert in_order(world.rows(f"{world.name}-copy")) == in_order(world.expected)


def test_a_later_job_of_this_process_reads_the_topic_that_was_recreated(world: Copied, spark_reads: None) -> None:
    """Executors fetch ahead of a round's end, and keep that for the next reader of a topic of this name."""
    world.make()
    world.transact([(0, b"k", b"old", [])] * 2_000)
    first = world.app("first", max_records_per_round=500, trigger_interval_ms=60_000, max_bytes_per_round=10**9)
    first.stream(world.topic, value=hr.String()).to(f"{world.name}-old")
    with world.running_on_spark(first) as job:
        waited(lambda: source_of(job)["records"] >= 500, job)
    assert len(list(world.system.consume(f"{world.name}-old"))) == 500
    world.system.delete_stream(world.topic)
    world.make()
    world.transact([(0, b"k", b"new", [])] * 2_000)
    second = world.app("second", max_records_per_round=500, max_bytes_per_round=10**9)
    second.stream(world.topic, value=hr.String()).to(f"{world.name}-new")
    world.run(second)
    assert Counter(record.value for record in world.system.consume(f"{world.name}-new")) == {b"new": 2_000}


@pytest.mark.parametrize("by", ["expression", "function"])
def test_event_times_that_are_far_from_the_records_own_are_named(
    world: Copied, reader: str, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Milliseconds taken as what they are, and as microseconds."""
    world.make()
    world.transact([(n % 2, b"k", b'{"ms": %d}' % (START_MS + n), []) for n in range(10)])
    time_of: Any = "value.ms" if by == "expression" else lambda r: r.value["ms"]
    for unit, found in (("ms", 0), ("us", 10)):
        app = world.app(f"{by}-{unit}")
        rows = app.stream(world.topic, value=hr.Json("ms bigint"), timestamp=time_of, timestamp_unit=unit)
        rows.map_values(lambda r: r.timestamp_us, value=hr.Long()).to(f"{world.name}-{unit}")
        rows.group_by_key().count(store="counts")
        status = world.run(app).status()["sub_topologies"]["source"]
        assert status["counters"].get("far_event_times", 0) == found
        times = sorted(record.value for record in world.system.consume(f"{world.name}-{unit}", value=hr.Long()))
        assert times == [(START_MS + n) * (1_000 if unit == "ms" else 1) for n in range(10)]
    (warning,) = [one.getMessage() for one in caplog.records if "the event time is" in one.getMessage()]
    assert f"stream '{world.topic}' partition " in warning and "timestamp_unit='ms'" in warning


@pytest.mark.parametrize("chained", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_container_with_nothing_of_one_stream_takes_all_of_the_other(world: Copied, spark_reads: None, chained: int) -> None:
    """The numbers of Spark's partitions say whose rows they have: of what reads nothing, too."""
    streams, expected = [world.stream(name) for name in ("left", "right")], dict[str, set[str]]()
    for stream in streams:
        world.system.create_stream(stream, 4)
    every = range(4)
    for turn, partitions in enumerate([(every, every), ((1,), every), (every, (1,)), ((), every), ((0, 2), (3,)), ((3,), ())]):
        producer = Producer({**world.settings, **QUIET})
        for stream, wanted in zip(streams, partitions, strict=True):
            for partition, n in ((partition, n) for partition in wanted for n in range(7_000)):
                key = f"{turn}-{partition}-{n}"
                producer.produce(stream, json.dumps({"n": n}).encode(), key, partition)
                if n % 3:
                    expected.setdefault(stream, set()).add(key)
        assert producer.flush(WAIT_S) == 0
        app = world.app("both", containers=2)
        for number, stream in enumerate(streams):
            rows = app.stream(stream, key=hr.String(), value=hr.Json("n int"))
            kept = rows.filter("value.n % 3 != 0") if number < chained else rows.filter(lambda row: row.value["n"] % 3)
            kept.to(f"{stream}-copy")
        world.run(app)
        for stream in streams:
            found = [record.key for record in world.system.consume(f"{stream}-copy", key=hr.String())]
            assert len(found) == len(set(found))
            assert set(found) == expected[stream], f"turn {turn}: {stream}"
