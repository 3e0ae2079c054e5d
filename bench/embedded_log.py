"""Figures of the embedded log on this machine, each beside what it is to be compared with, in one run.

    .venv/bin/python bench/embedded_log.py [read|count|split|latency|memory|all] [--records N] [--keys N]

read     the log through `mapInArrow` into a function that only counts rows
count    the durable keyed count, beside Structured Streaming's groupBy().count() with the RocksDB provider on the same data
split    two counts, each of half the keys: chosen by SQL expressions (in the JVM), and by batch functions (in the worker)
latency  a round of one record, from the producer's call to the committed result
memory   10 million records in rounds of 500,000 with 5 million keys of state: the peak of all processes together

Figures are of one machine at one time: the ratios are what can be compared.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import headrace as hr
from headrace.codec.record_batches import RECORD_SCHEMA
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

VALUE = b"v" * 40


def records(count: int, keys: int, seed: int = 7) -> pa.RecordBatch:
    """`count` records of some 60 bytes over `keys` keys, in random order."""
    numbers = np.random.default_rng(seed).integers(0, keys, count)
    names = pa.array([f"key-{number:012d}".encode() for number in range(keys)], pa.binary())
    return pa.RecordBatch.from_arrays(
        [
            names.take(pa.array(numbers)),
            pa.repeat(pa.scalar(VALUE, pa.binary()), count),
            pa.array(np.arange(count, dtype=np.int64) + 1_700_000_000_000_000),
            pa.nulls(count, RECORD_SCHEMA.field("headers").type),
        ],
        schema=RECORD_SCHEMA,
    )


def produced(root: Path, count: int, keys: int, partitions: int = 4) -> str:
    """A log with the stream `in`; its URL."""
    url = f"log:{root / 'data'}"
    with hr.open_system(url) as system:
        system.create_stream("in", partitions)
        step = 1_000_000
        for start in range(0, count, step):
            batch = records(min(step, count - start), keys, seed=start)
            pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            system.produce("in", pairs)
    return url


def counting_app(url: str, root: Path, **keys: Any) -> hr.App:
    app = hr.App("bench-count", system=url, local_store_dir=str(root / "stores"), state_uri=str(root / "state"), **keys)
    app.stream("in").group_by_key().count(store="counts")
    return app


def timed_run(app: hr.App) -> float:
    """Seconds from the first round's plan to the end, Spark's start not counted."""
    session_of(app, config_of(app))
    warm(app)
    began = time.monotonic()
    job = app.start(until="caught-up")
    job.wait(3600)
    return time.monotonic() - began


def warm(app: hr.App) -> None:
    """Start the Python workers: what is measured is a job that runs, not one that starts."""
    import headrace.wiring.launch  # noqa: F401  (its imports are part of a start too)

    cores = app.spark.sparkContext.defaultParallelism
    for _ in range(3):
        app.spark.range(0, cores, 1, cores).mapInArrow(_nothing, "id long").collect()


def _nothing(batches: Any) -> Any:
    import headrace.wiring.worker.entry  # noqa: F401  (its imports are part of a worker's start)

    yield from batches


def bench_read(root: Path, count: int, keys: int) -> None:
    url = produced(root, count, keys)
    app = hr.App("bench-read", system=url, local_store_dir=str(root / "stores"))
    app.stream("in").filter(hr.batch(_none)).to("out")
    seconds = timed_run(app)
    print(f"read: {count / seconds:,.0f} records/s through mapInArrow, rounds and commits included")
    app.spark.stop()


def _none(batch: Any) -> Any:
    return pa.array(np.zeros(batch.num_rows, bool))


def bench_count(root: Path, count: int, keys: int) -> None:
    url = produced(root, count, keys)
    app = counting_app(url, root)
    ours = timed_run(app)
    status_rounds = count / ours
    print(f"keyed count, durable: {status_rounds:,.0f} records/s")
    theirs = structured_streaming(app.spark, root, count, keys)
    print(f"Structured Streaming, RocksDB provider with changelog: {count / theirs:,.0f} records/s")
    print(f"ratio: {theirs / ours:.2f}")
    app.spark.stop()


def bench_split(root: Path, count: int, keys: int) -> None:
    url = produced(root, count, keys)
    halves = {"expressions": ("substring(key, 16, 1) < X'35'", "substring(key, 16, 1) >= X'35'"),
              "batch functions": (hr.batch(_low), hr.batch(_high))}
    rates: dict[str, float] = {}
    runs = [(f"{number}-{turn}", *item) for turn in (1, 2) for number, item in enumerate(halves.items())]
    for name, kind, (low, high) in runs:
        stores, state = str(root / name / "stores"), str(root / name / "state")
        app = hr.App(f"bench-split-{name}", system=url, local_store_dir=stores, state_uri=state)
        stream = app.stream("in")
        stream.filter(low).group_by_key().count(store="low")
        stream.filter(high).group_by_key().count(store="high")
        rates[kind] = count / timed_run(app)
        print(f"two counts of halves, by {kind}, run {name[-1]}: {rates[kind]:,.0f} records/s")
    print(f"ratio, once the JVM has compiled: {rates['expressions'] / rates['batch functions']:.2f}")
    app.spark.stop()


def _low(batch: Any) -> Any:
    return pc.less(pc.binary_slice(batch.column("key"), 15, 16), pa.scalar(b"5", pa.binary()))


def _high(batch: Any) -> Any:
    return pc.invert(_low(batch))


def structured_streaming(spark: Any, root: Path, count: int, keys: int) -> float:
    """The same records, from Parquet files (its fastest source here), counted by key, to a sink that keeps nothing."""
    files = root / "parquet"
    files.mkdir()
    step = 1_000_000
    for number, start in enumerate(range(0, count, step)):
        batch = records(min(step, count - start), keys, seed=start)
        quarter = -(-batch.num_rows // 4)
        for part in range(4):
            table = pa.Table.from_batches([batch.slice(part * quarter, quarter)]).select(["key", "value"])
            pq.write_table(table, files / f"{number:04d}-{part}.parquet")
    session = spark.newSession()
    session.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    session.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    session.conf.set("spark.sql.shuffle.partitions", "4")
    stream = session.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", "4").parquet(str(files))
    writer = stream.groupBy("key").count().writeStream.outputMode("update").format("noop")
    began = time.monotonic()
    query = writer.option("checkpointLocation", str(root / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return time.monotonic() - began


def bench_latency(root: Path, rounds: int = 40) -> None:
    url = f"log:{root / 'data'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 4)
        app = counting_app(url, root, trigger_interval_ms=5)
        session_of(app, config_of(app))
        warm(app)
        job = app.start()
        times = []
        for number in range(rounds):
            before = job.status()["sub_topologies"]["source"]["round"]
            began = time.monotonic()
            system.produce("in", [(b"k%d" % (number % 4), b"v")])
            job.wake()
            while job.status()["sub_topologies"]["source"]["round"] == before:
                time.sleep(0.001)
            times.append((time.monotonic() - began) * 1e3)
        timings = job.status()["sub_topologies"]["source"]["timings_ms"]
        job.stop()
    ordered = sorted(times[rounds // 4 :])
    print(f"a round of one record, commit included: median {ordered[len(ordered) // 2]:.0f} ms, least {ordered[0]:.0f} ms")
    print(f"  of the last: {timings}")
    app.spark.stop()


def bench_memory(root: Path, count: int, keys: int) -> None:
    url = produced(root, count, keys)
    app = counting_app(url, root, max_records_per_round=500_000)
    peak = Peak()
    with peak:
        seconds = timed_run(app)
    print(f"memory: {count:,} records, {keys:,} keys in rounds of 500,000: {count / seconds:,.0f} records/s, "
          f"peak {peak.bytes / 2**30:.2f} GiB of all processes (proportional set size)")
    app.spark.stop()


class Peak:
    """The highest sum of the proportional set sizes of this process and all below it, looked at twice a second."""

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        import os

        while not self._ended.wait(0.5):
            total = 0
            for pid in family(os.getpid()):
                try:
                    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                except OSError:
                    continue
                lines = dict(line.split(":", 1) for line in text.splitlines()[1:] if ":" in line)
                shares = int(lines.get("Pss", "0 kB").split()[0])
                total += shares * 1024
            self.bytes = max(self.bytes, total)


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found, ahead = [], [pid]
    while ahead:
        number = ahead.pop()
        found.append(number)
        for task in Path(f"/proc/{number}/task").glob("*/children"):
            try:
                ahead.extend(int(child) for child in task.read_text().split())
            except OSError:
                continue
    return found


def main() -> None:
    names = ["read", "count", "split", "latency", "memory"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=["all", *names])
    parser.add_argument("--records", type=int)
    parser.add_argument("--keys", type=int)
    given = parser.parse_args()
    for name in names if given.what == "all" else [given.what]:
        root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        try:
            if name == "latency":
                bench_latency(root)
            elif name == "memory":
                bench_memory(root, given.records or 10_000_000, given.keys or 5_000_000)
            else:
                bench = {"read": bench_read, "count": bench_count, "split": bench_split}[name]
                bench(root, given.records or 2_000_000, given.keys or 100_000)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
