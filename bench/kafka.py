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
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from common import PEERS, QUIX_VERSION, python_with
from confluent_kafka import Producer
from contest import (
    BROKERS,
    OURS,
    QUIX,
    ROUND_RECORDS,
    SPARK,
    STREAMS,
    Bench,
    Contestant,
    Figure,
    answer_of,
    compare,
    cpu_of_family,
    kafka_streams,
    spark_of,
)

import headrace as hr
from headrace.testing.kafka_server import KafkaServer

VALUE = b"v" * 40


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


def quix_streams(bench: Bench, name: str, what: str) -> Figure:
    """From its first record on, over a tenth of the records: it takes long."""
    records = max(1, bench.records // 10)
    arguments = ["in", bench.output(f"{name}-out"), name, str(bench.root / name), str(records)]
    command = [str(python_with("quixstreams", QUIX_VERSION)), str(PEERS / "quix_streams.py"), bench.servers, *arguments]
    rate, cpu_s = answer_of(command, "records_per_s")
    return Figure(rate, cpu_s * bench.records / records)


CONTESTANTS: dict[str, Contestant] = {
    OURS: ours,
    SPARK: structured_streaming,
    STREAMS: kafka_streams,
    QUIX: quix_streams,
}


# --- the comparison -------------------------------------------------------------------------------------------------


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
                    left_out = {*given.without, *([QUIX] if what == "map" else [])}
                    compare(bench, what, given.repeat, {n: run for n, run in CONTESTANTS.items() if n not in left_out})
            if given.what in ("latency", "all"):
                latency(bench)
            spark.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
