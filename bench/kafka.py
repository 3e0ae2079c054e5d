"""Figures on Kafka on this machine, each beside its peers on the same topics of the same broker, in one run.

    .venv/bin/python bench/kafka.py [count|map|latency|all] [--records N] [--keys N] [--repeat N] [--without PEER]

count    the durable keyed count, its changed keys written to an output topic, beside Structured Streaming (RocksDB
         provider), Kafka Streams (exactly_once_v2) and Quix Streams (exactly-once)
map      a stateless map from topic to topic, beside the same without Quix Streams
latency  a round of one record, transaction included, from the producer's call to the committed result

A broker is started for it. Kafka Streams' jars are fetched at first use as the connector's are, and Quix Streams is
installed into an environment of its own; `--without` leaves a peer out. Of `--repeat` runs the best of each counts: in
the first, the JVM that Spark's two contestants share compiles. Figures are of one machine at one time: the ratios are
what can be compared, and CPU seconds where others use the machine too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from common import PEERS, QUIX_VERSION, kafka_streams_program, python_with
from confluent_kafka import Producer

import headrace as hr
from headrace.testing.kafka_server import KafkaServer
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

VALUE = b"v" * 40
OURS, SPARK, STREAMS, QUIX = "Headrace", "Structured Streaming", "Kafka Streams", "Quix Streams"
PROMISE = {OURS: "exactly once", SPARK: "at least once", STREAMS: "exactly once", QUIX: "exactly once"}
ROUND_RECORDS = 1_000_000  # Headrace's default, given to Structured Streaming too
COMMIT_MS = (100, 1000)  # Kafka Streams' default with exactly_once_v2, and one that suits a keyed count better


@dataclass(frozen=True, slots=True)
class Bench:
    """What all contestants share. `key` of a run makes its names unique."""

    servers: str
    root: Path
    records: int
    spark: Any

    @property
    def url(self) -> str:
        return f"kafka://{self.servers}"

    def output(self, name: str) -> str:
        with hr.open_system(self.url) as system:
            system.create_stream(name, 4)
        return name


@dataclass(frozen=True, slots=True)
class Figure:
    records_per_s: float
    cpu_s: float  # of all processes of the contestant, the broker's not


# --- the contestants ------------------------------------------------------------------------------------------------


def ours(bench: Bench, name: str, what: str) -> Figure:
    """From the start of the job to its end, the taking of the application and its first plan included."""
    app = hr.App(
        name,
        system=bench.url,
        local_store_dir=str(bench.root / name / "stores"),
        state_uri=str(bench.root / name / "state"),
        spark=bench.spark,
        max_records_per_round=ROUND_RECORDS,
    )
    records = app.stream("in", key=hr.Bytes(), value=hr.Bytes())
    if what == "count":
        records.group_by_key().count().to_stream().to(bench.output(f"{name}-out"))
    else:
        records.map_values(hr.batch(_marked), value=hr.Bytes()).to(bench.output(f"{name}-out"))
    before, began = cpu_of_family(), time.monotonic()
    job = app.start(until="caught-up")
    job.wait(3600)
    seconds = time.monotonic() - began
    figure = Figure(bench.records / seconds, cpu_of_family() - before)
    check(bench, f"{name}-out", what)
    return figure


def check(bench: Bench, output: str, what: str) -> None:
    """Ends the run if Headrace has not written what it should have: a speed of wrong results is none."""
    with hr.open_system(bench.url) as system:
        if what == "count":
            last = {record.key: record.value for record in system.consume(output, key=hr.Bytes(), value=hr.Long())}
            found = sum(last.values())
        else:
            found = sum(1 for record in system.consume(output) if record.value == VALUE + b"!")
    if found != bench.records:
        raise SystemExit(f"{output}: its records tell of {found:,} inputs, expected {bench.records:,}")


def _marked(batch: Any) -> Any:
    return pc.binary_join_element_wise(batch.column("value"), pa.scalar(b"!", pa.binary()), pa.scalar(b"", pa.binary()))


def structured_streaming(bench: Bench, name: str, what: str) -> Figure:
    """From the start of the query to its end, in the session that the others have warmed too."""
    session = bench.spark.newSession()
    session.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    session.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    session.conf.set("spark.sql.shuffle.partitions", "4")
    read = session.readStream.format("kafka").option("kafka.bootstrap.servers", bench.servers)
    rows = read.option("subscribe", "in").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROUND_RECORDS)
    if what == "count":
        made = rows.load().groupBy("key").count().selectExpr("key", "cast(count AS string) AS value")
    else:
        made = rows.load().selectExpr("key", "concat(value, X'21') AS value")
    write = made.writeStream.format("kafka").outputMode("update" if what == "count" else "append")
    write = write.option("kafka.bootstrap.servers", bench.servers).option("kafka.compression.type", "lz4")
    write = write.option("topic", bench.output(f"{name}-out")).option("checkpointLocation", str(bench.root / name))
    before, began = cpu_of_family(), time.monotonic()
    write.trigger(availableNow=True).start().awaitTermination()
    seconds = time.monotonic() - began
    return Figure(bench.records / seconds, cpu_of_family() - before)


def kafka_streams(bench: Bench, name: str, what: str) -> Figure:
    """From its first record to the commit of the last; the better of two commit intervals."""
    return max((_kafka_streams(bench, f"{name}-{ms}", what, ms) for ms in COMMIT_MS), key=lambda one: one.records_per_s)


def _kafka_streams(bench: Bench, name: str, what: str, commit_ms: int) -> Figure:
    command = kafka_streams_program("KafkaStreamsPeer", bench.root)
    arguments = ["in", bench.output(f"{name}-out"), name, str(bench.root / name), what, str(commit_ms)]
    said, cpu_s = answer_of([*command, bench.servers, *arguments], "seconds")
    return Figure(bench.records / said, cpu_s)


def quix_streams(bench: Bench, name: str, what: str) -> Figure:
    """From its first record on, over a tenth of the records: it takes long."""
    records = max(1, bench.records // 10)
    arguments = ["in", bench.output(f"{name}-out"), name, str(bench.root / name), str(records)]
    command = [str(python_with("quixstreams", QUIX_VERSION)), str(PEERS / "quix_streams.py"), bench.servers, *arguments]
    rate, cpu_s = answer_of(command, "records_per_s")
    return Figure(rate, cpu_s * bench.records / records)


def answer_of(command: list[str], word: str) -> tuple[float, float]:
    """The number behind `word` in what a peer prints, and the CPU seconds that it took."""
    before = os.times()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    after = os.times()
    line = next(line for line in done.stdout.splitlines() if line.startswith(f"{word} "))
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return float(line.split()[1]), used_s


Contestant = Callable[[Bench, str, str], Figure]
CONTESTANTS: dict[str, Contestant] = {
    OURS: ours,
    SPARK: structured_streaming,
    STREAMS: kafka_streams,
    QUIX: quix_streams,
}


# --- the comparison -------------------------------------------------------------------------------------------------


def compare(bench: Bench, what: str, repeat: int, left_out: set[str]) -> None:
    names = [name for name in CONTESTANTS if name not in left_out and not (what == "map" and name == QUIX)]
    best: dict[str, Figure] = {}
    for turn in range(repeat):
        for number, name in enumerate(names):
            if name == QUIX and turn:
                continue
            figure = CONTESTANTS[name](bench, f"bench-{what}-{number}-{turn}", what)
            rate = f"{figure.records_per_s:,.0f} records/s, {figure.cpu_s:.1f} CPU s"
            print(f"  {what}, run {turn + 1}: {name} {rate}", flush=True)
            if name not in best or figure.records_per_s > best[name].records_per_s:
                best[name] = figure
    print(f"\n| {what} | promise | records/s | Headrace against it | CPU s | in CPU s |\n|---|---|---|---|---|---|")
    for name, figure in best.items():
        ratio = best[OURS].records_per_s / figure.records_per_s
        cpu = figure.cpu_s / best[OURS].cpu_s
        print(f"| {name} | {PROMISE[name]} | {figure.records_per_s:,.0f} | {ratio:.1f} | {figure.cpu_s:.1f} | {cpu:.1f} |")
    print(flush=True)


def latency(bench: Bench, rounds: int = 40) -> None:
    name = "bench-latency"
    app = hr.App(
        name,
        system=bench.url,
        local_store_dir=str(bench.root / name / "stores"),
        state_uri=str(bench.root / name / "state"),
        spark=bench.spark,
        trigger_interval_ms=5,
    )
    with hr.open_system(bench.url) as system:
        system.create_stream("one", 4)
        system.create_stream(f"{name}-out", 4)
        app.stream("one", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count().to_stream().to(f"{name}-out")
        job = app.start()
        times = []
        for number in range(rounds):
            before = job.status()["sub_topologies"]["source"]["round"]
            began = time.monotonic()
            system.produce("one", [(b"k%d" % (number % 4), b"v")])
            job.wake()
            while job.status()["sub_topologies"]["source"]["round"] == before:
                if not job.is_running:
                    job.wait()
                time.sleep(0.001)
            times.append((time.monotonic() - began) * 1e3)
        timings = job.status()["sub_topologies"]["source"]["timings_ms"]
        job.stop()
    ordered = sorted(times[rounds // 4 :])
    print(f"a round of one record, transaction included: median {ordered[len(ordered) // 2]:.0f} ms, least {ordered[0]:.0f} ms")
    print(f"  of the last: {timings}", flush=True)


def fill(bench: Bench, keys: int) -> None:
    """Records of some 60 bytes over `keys` keys, in random order, partitioned as Java does; no transaction marks them."""
    bench.output("in")
    settings = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 20, "partitioner": "murmur2_random"}
    producer = Producer({"bootstrap.servers": bench.servers, **settings})
    names = [b"key-%012d" % number for number in range(keys)]
    for number in np.random.default_rng(7).integers(0, keys, bench.records).tolist():
        while True:
            try:
                producer.produce("in", VALUE, names[number])
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the records could not be written")


def cpu_of_family() -> float:
    """CPU seconds of this process and all below it that live."""
    parents: dict[int, int] = {}
    used_s: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        used_s[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    brokers = set(BROKERS)
    return sum(used for pid, used in used_s.items() if pid not in brokers and _is_ours(pid, parents))


BROKERS: list[int] = []


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def spark_of(bench_root: Path, servers: str) -> Any:
    """The session that all of Spark's contestants share, with its Python workers started."""
    app = hr.App("bench-session", system=f"kafka://{servers}", local_store_dir=str(bench_root / "session"))
    session_of(app, config_of(app))
    cores = app.spark.sparkContext.defaultParallelism
    for _ in range(3):
        app.spark.range(0, cores, 1, cores).mapInArrow(_nothing, "id long").collect()
    return app.spark


def _nothing(batches: Any) -> Any:
    import headrace.wiring.worker.entry
    import headrace.wiring.worker.kafka_worker  # noqa: F401  (its imports are part of a worker's start)

    yield from batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=["count", "map", "latency", "all"])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--without", action="append", default=[], choices=[SPARK, STREAMS, QUIX])
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with KafkaServer(folder=root / "broker", heap_mb=1024) as kafka:
            BROKERS.extend(kafka.pids.values())
            spark = spark_of(root, kafka.bootstrap)
            bench = Bench(kafka.bootstrap, root, given.records, spark)
            if given.what != "latency":
                fill(bench, given.keys)
            for what in ("count", "map"):
                if given.what in (what, "all"):
                    compare(bench, what, given.repeat, set(given.without))
            if given.what in ("latency", "all"):
                latency(bench)
            spark.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
