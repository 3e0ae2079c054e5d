"""The virtual tasks of one partition in two containers, on Spark and on both systems: each record is fetched once, comes to the
container of its key bucket, and what fails is a dead letter once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

import headrace as hr
from headrace.adapters.spark import placement
from headrace.adapters.spark.engine import SparkEngine
from headrace.adapters.spark.routing import drop_exchanges, with_low_bits
from headrace.core.keys.hashing import key_bucket, null_key_bucket
from headrace.driver.rounds import round_planner
from headrace.exchange.messages import Summary, decoded_summary
from headrace.worker.batch_keys import key_lows
from kafka.clients import QUIET, WAIT_S
from support import broker
from support.world import Place, World, caught_up_on_spark, waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
FACTOR, CONTAINERS = 4, 2
KEYS = [f"k{number}" for number in range(12)]
ITEM = "n int, s string"


def is_bad(number: int) -> bool:
    return number % 20 == 13


class Sliced(World):
    """One partition; of each 20 records one does not decode, and of each 25 one has no key."""

    STREAMS: ClassVar = {"in": 1, "every": 1}
    KEYS: ClassVar = {"trigger_interval_ms": 20, "elasticity_factor": FACTOR, "containers": CONTAINERS}

    def __init__(self, folder: Path, place: Place, spark: Any) -> None:
        super().__init__(folder, place)
        self.spark, self.sent = spark, 0

    def application(self, is_column: bool, **keys: Any) -> hr.App:
        app = self.app(self.name, self.spark, dead_letter_stream=self.stream("dead"), **keys)
        rows = app.stream(self.stream("in"), key=hr.String(), value=hr.Json(ITEM))
        kept = rows.filter("value.n >= 0") if is_column else rows.filter(lambda r: r.value["n"] >= 0)
        kept.map_values(lambda r: r.value["n"], value=hr.Int()).to(self.stream("mapped"))
        kept.group_by_key().count(store="counts").to_stream(emit="each").to(self.stream("counts"), value=hr.Long())
        return app

    def send(self, count: int) -> None:
        records = []
        for number in range(self.sent, self.sent + count):
            value = b"{no json" if is_bad(number) else json.dumps({"n": number, "s": str(number)}).encode()
            records.append((KEYS[number % len(KEYS)].encode() if number % 25 else None, value))
        self.sent += count
        self.system.produce(self.stream("in"), records)

    def values(self, part: str, value: Any) -> list[tuple[Any, Any]]:
        if self.place.servers:
            waited(lambda: not broker.is_in_transaction(self.settings, [self.stream(part)]))
        return [(r.key, r.value) for r in self.system.consume(self.stream(part), key=hr.String(), value=value)]

    def dead(self) -> list[int]:
        """The offsets of the dead letters, which all are of the one input partition."""
        found = []
        if self.place.servers:
            waited(lambda: not broker.is_in_transaction(self.settings, [self.stream("dead")]))
        for record in self.system.consume(self.stream("dead")):
            headers = dict(record.headers)
            assert headers["headrace.stream"] == self.stream("in").encode()
            found.append(int(headers["headrace.offset"] or b""))
        return found

    def judge(self) -> None:
        """Each record was processed once, and those of a key in their order."""
        sent = [number for number in range(self.sent) if not is_bad(number)]
        mapped = self.values("mapped", hr.Int())
        expected = {key: [n for n in sent if n % 25 and KEYS[n % len(KEYS)] == key] for key in KEYS}
        assert {key: [n for of, n in mapped if of == key] for key in KEYS} == expected
        assert sorted(n for key, n in mapped if key is None) == [n for n in sent if not n % 25]
        counts = self.values("counts", hr.Long())
        assert {key: [n for of, n in counts if of == key] for key in KEYS} == {
            key: list(range(1, len(mine) + 1)) for key, mine in expected.items()
        }


class Seen:
    """What the rounds of this process did: their plans in Spark, and what their containers answered."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.summaries: list[Summary] = []

    def fetched(self) -> int:
        """The records that Spark's readers of topics gave, over all rounds."""
        leaves = [leaf for frame in self.frames for leaf in listed(frame._jdf.queryExecution().executedPlan().collectLeaves())]
        scans = [leaf for leaf in leaves if str(leaf.nodeName()).startswith("BatchScan")]
        return sum(scan.metrics().get("numOutputRows").get().value() for scan in scans)

    def exchanges(self) -> int:
        plans = [frame._jdf.queryExecution().executedPlan().toString() for frame in self.frames]
        return sum("REPARTITION_BY_ID" in plan or "Exchange" in plan for plan in plans)


def listed(java: Any) -> list[Any]:
    return [java.apply(number) for number in range(java.size())]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    made, run = SparkEngine._made, SparkEngine.run

    def noted(self: Any, *arguments: Any) -> Any:
        frame, is_routed = made(self, *arguments)
        found.frames.append(frame)
        return frame, is_routed

    def answered(self: Any, *arguments: Any) -> Any:
        answers = run(self, *arguments)
        found.summaries += map(decoded_summary, answers)
        return answers

    monkeypatch.setattr(SparkEngine, "_made", noted)
    monkeypatch.setattr(SparkEngine, "run", answered)
    return found


@pytest.fixture
def large_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of a Spark task per container, which Spark reads for; else such small ones are one, whose worker reads."""
    monkeypatch.setattr(round_planner, "is_small_round", lambda records, few: False)
    packed = round_planner.spark_tasks_of
    monkeypatch.setattr(round_planner, "spark_tasks_of", lambda weights, slots: packed(weights, slots, 0))


@pytest.fixture(params=["log", "kafka"])
def world(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Iterator[Sliced]:
    place = request.getfixturevalue("on_kafka") if request.param == "kafka" else Place()
    with Sliced(tmp_path, place, spark) as made:
        yield made


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest) -> str:
    if request.param == "large":
        request.getfixturevalue("large_rounds")
    return str(request.param)


HOSTILE = (
    *(b"x" * length for length in (0, 1, 31, 32, 33, 437, 438, 5_000)),
    *(b"%d" % number for number in range(100)),
    bytes(range(256)),
    "schlüssel".encode(),
)


def test_the_buckets_of_the_jvm_are_those_of_the_worker(spark: Any) -> None:
    alike = [b"a%d" % number for number in range(20_000) if key_bucket(b"a%d" % number, 1024) == 17]
    assert len(alike) > 5
    rows = [(key, number) for number, key in enumerate((*HOSTILE, *alike))]
    rows += [(None, number) for number in (0, 1, 2, 255, 2**31 - 1, 2**31, 2**40, 2**63 - 1)]
    frame = with_low_bits(spark.createDataFrame(rows, "key binary, offset bigint"))
    found = [row["low"] for row in frame.collect()]
    keys, offsets = pa.array([key for key, _ in rows], pa.binary()), np.array([offset for _, offset in rows])
    assert found == key_lows(keys, offsets).tolist()
    assert found == [null_key_bucket(o, 1024) if key is None else key_bucket(key, 1024) for key, o in rows]
    assert found.count(17) >= len(alike)


@pytest.mark.soak_on("log")
@pytest.mark.parametrize("is_column", [False, True], ids=["plain", "column"])
def test_each_record_is_fetched_once_and_processed_once_over_restarts(
    world: Sliced, size: str, is_column: bool, seen: Seen
) -> None:
    for _ in range(2):
        world.send(200)
        job = caught_up_on_spark(world.application(is_column))
        assert job.status()["sub_topologies"]["source"]["containers"] == CONTAINERS
    world.judge()
    assert sorted(world.dead()) == [place_of(world, number) for number in range(world.sent) if is_bad(number)]
    assert {summary.lane for summary in seen.summaries} == set(range(CONTAINERS))
    if world.place.servers:
        by_spark = size == "large" or is_column
        assert seen.fetched() == (world.sent if by_spark else 0)
        assert seen.exchanges() == (0 if size == "small" else len(seen.frames))
        judge_groups(world)


def place_of(world: Sliced, number: int) -> int:
    """The offset of a record: on Kafka each `send` was a transaction, which ends with a marker."""
    return number + (number // 200 if world.place.servers else 0)


def judge_groups(world: Sliced) -> None:
    """A position of each container, and no other group."""
    stored = broker.checkpoints_of(world.settings, world.name)
    stream = world.stream("in")
    for lane in range(CONTAINERS):
        mine = [stored[f"Partition_0-{b}-{FACTOR}"]["positions"][f"kafka.{stream}.0/{b}"] for b in (lane, lane + CONTAINERS)]
        assert committed(world, f"source/{lane}") == min(mine)
    assert committed(world, "source") < 0
    assert committed(world, "source.Partition_0") < 0


def committed(world: Sliced, group: str) -> int:
    consumer = Consumer({**world.settings, **QUIET, "group.id": f"{world.name}.{group}"})
    try:
        (found,) = consumer.committed([TopicPartition(world.stream("in"), 0)], timeout=WAIT_S)
        return int(found.offset)
    finally:
        consumer.close()


@pytest.mark.soak_on("log")
def test_a_column_that_raises_and_a_function_that_raises_give_one_dead_letter_each(world: Sliced) -> None:
    app = world.app(world.name, world.spark, dead_letter_stream=world.stream("dead"))
    rows = app.stream(world.stream("in"), key=hr.String(), value=hr.Json(ITEM))

    def checked(record: Any) -> int:
        if record.value == 42:
            raise ValueError("the answer")
        return int(record.value)

    rows.map_values("cast(value.s as int)").map_values(checked, value=hr.Int()).to(world.stream("mapped"))
    raising = {7, 35}  # 35 has no key
    records = [
        (KEYS[n % 12].encode() if n % 5 else None, json.dumps({"n": n, "s": "no number" if n in raising else str(n)}).encode())
        for n in range(60)
    ]
    undecodable = [(b"k0", b"{no json"), (None, b"{no json"), (b"k1", b"{no json")]
    world.system.produce(world.stream("in"), [*records[:20], *undecodable, *records[20:]])
    caught_up_on_spark(app)
    assert sorted(n for _, n in world.values("mapped", hr.Int())) == [n for n in range(60) if n not in {*raising, 42}]
    assert sorted(world.dead()) == [7, 20, 21, 22, 38, 45]


@pytest.fixture
def small_batches(spark: Any) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "20")
    yield
    spark.conf.set(name, before)


@pytest.mark.soak_on("log")
def test_rounds_that_are_cut_short_lose_nothing_behind_a_column(
    world: Sliced, large_rounds: None, small_batches: None, seen: Seen
) -> None:
    """One reader, cut in its midst: each container takes its cut, and none that of another reader."""
    for _ in range(30):
        world.send(20)
    app = world.application(True, max_round_ms=1)
    caught_up_on_spark(app)
    world.judge()
    assert any(summary.cut_short for summary in seen.summaries), "no round was cut short"
    bad = sum(map(is_bad, range(world.sent)))
    assert (len(set(world.dead())), len(world.dead())) == (bad, bad)


@pytest.mark.soak_on("log")
def test_a_container_whose_function_is_slow_falls_behind_and_nothing_is_lost(
    world: Sliced, large_rounds: None, seen: Seen
) -> None:
    """Positions of the two containers are apart; the one that is ahead skips what it has, and its dead letters come once."""
    slow = next(key for key in KEYS if key_bucket(key.encode(), FACTOR) % CONTAINERS == 0)

    def slowly(record: Any) -> int:
        if record.key == slow:
            time.sleep(0.01)
        return int(record.value["n"])

    app = world.app(world.name, world.spark, dead_letter_stream=world.stream("dead"), max_round_ms=50)
    rows = app.stream(world.stream("in"), key=hr.String(), value=hr.Json(ITEM))
    rows.map_values(slowly, value=hr.Int()).to(world.stream("mapped"))
    rows.group_by_key().count(store="counts").to_stream(emit="each").to(world.stream("counts"), value=hr.Long())
    for _ in range(30):
        world.send(20)
    caught_up_on_spark(app)
    world.judge()
    bad = sum(map(is_bad, range(world.sent)))
    assert (len(set(world.dead())), len(world.dead())) == (bad, bad)


@pytest.mark.soak_on("log")
def test_a_broadcast_stream_comes_to_all_containers_and_is_fetched_once(world: Sliced, size: str, seen: Seen) -> None:
    names = [(key.encode(), json.dumps({"name": key.upper()}).encode()) for key in KEYS]
    world.system.produce(world.stream("every"), names)
    app = world.app(world.name, world.spark)
    table = app.global_table(world.stream("every"), key=hr.String(), value=hr.Json())
    rows = app.stream(world.stream("in"), key=hr.String(), value=hr.Json())
    rows.join(table, lambda left, right: f"{left['n']} {right['name']}", value=hr.String()).to(world.stream("mapped"))
    caught_up_on_spark(app)  # the table is there before the stream
    records = [(KEYS[number % 12].encode(), json.dumps({"n": number}).encode()) for number in range(100)]
    world.system.produce(world.stream("in"), records)
    caught_up_on_spark(app)
    found = [text for _, text in world.values("mapped", hr.String())]
    assert Counter(found) == Counter(f"{number} {KEYS[number % 12].upper()}" for number in range(100))
    if world.place.servers and size == "large":
        assert seen.fetched() == len(names) + len(records)


@pytest.mark.soak_on("log")
def test_the_files_of_an_exchange_are_deleted_with_its_round(
    world: Sliced, large_rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = world.spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    folders, before = [Path(str(folder)) for folder in disk.localDirs()], list[int]()

    def files() -> list[Path]:
        return [path for folder in folders for path in folder.rglob("shuffle_*")]

    def drop(collected: Any) -> None:
        before.append(len(files()))
        drop_exchanges(collected)

    monkeypatch.setattr(placement, "drop_exchanges", drop)
    world.send(100)
    caught_up_on_spark(world.application(is_column=True))
    assert any(before), "no exchange has left files"
    waited(lambda: not files(), wait_s=20.0)
