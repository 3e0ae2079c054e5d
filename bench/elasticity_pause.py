"""How long a stateful job commits nothing while its elasticity factor changes, under a constant load, on Spark.

    .venv/bin/python bench/elasticity_pause.py [PART|all] [--keys 1] [--factors 8,1] [--rate 2500]

PART: log, kafka, stateless, structured-streaming, flink.

A count of so many million keys (`--keys 1,5,20`) in one partition, while the factor goes from 1 to 8 and back. Printed of each
change: the longest time without a commit that a consumer sees, the phases that the job has on record, and how long records of
that time took from being written to being counted (p99, and of the seconds before it). Asked for: under 1 s on the log and
1.5 s on Kafka, whatever the size of the state.

`stateless`: a map on the log in place of the count. Asked for: no longer without a commit than a round; printed beside it is
the longest time without one in the seconds before the change.

`structured-streaming`: the same change of the same counts in Spark's own engine with RocksDB, which has to be stopped for it:
stop, repartition of the checkpoint, start, up to the first batch that is committed. It reads files; they are there when it
starts. `flink`: the same in Flink's table engine with RocksDB, in one process: stop with a savepoint, start from it with
another parallelism, up to the first record that is counted. PyFlink (in an environment of its own) is fetched at first use.
Run with ours in one go both print the ratio.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from common import python_with, system_of

import headrace as hr

ASKED_S = {"log": 1.0, "kafka": 1.5}
STATELESS = "stateless"
EVERY_S = 0.02
LOOK_S = 0.005
BESIDE_S = 8.0  # of load before a change and behind it
WAIT_S = 600.0
VALUE = bytes(8)
STREAMING, FLINK = "structured-streaming", "flink"
FLINK_VERSION = "2.3.0"
PEERS = Path(__file__).with_name("peers")


def names_from(start: int, stop: int) -> list[bytes]:
    return [b"key-%09d" % number for number in range(start, stop)]


class Load:
    """Writes records of random keys until it is ended; when so many had been written."""

    def __init__(self, url: str, keys: int, rate: int) -> None:
        self.url, self.keys, self.count = url, keys, max(1, int(rate * EVERY_S))
        self.written: list[tuple[int, float]] = [(0, time.monotonic())]
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.write)
        self.thread.start()

    def write(self) -> None:
        draw = np.random.default_rng(7)
        with hr.open_system(self.url) as system:
            while not self.ending.wait(EVERY_S):
                numbers = draw.integers(0, self.keys, self.count).tolist()
                system.produce("in", [hr.Record(b"key-%09d" % number, VALUE, 0) for number in numbers])
                self.written.append((self.written[-1][0] + self.count, time.monotonic()))

    def end(self) -> None:
        self.ending.set()
        self.thread.join()


class Watch:
    """Looks at what a consumer can read: how many records at which time."""

    def __init__(self, url: str) -> None:
        self.url, self.seen = url, list[tuple[int, float]]()
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self) -> None:
        with hr.open_system(self.url) as system:
            before = system.end_offsets("out")[0]
            self.seen.append((0, time.monotonic()))
            while not self.ending.wait(LOOK_S):
                end, at_s = system.end_offsets("out")[0], time.monotonic()
                if end != before:  # on Kafka there are marks among the records, too
                    count = sum(1 for _ in system.consume("out", start=before))
                    self.seen.append((self.seen[-1][0] + count, at_s))
                    before = end

    def end(self) -> None:
        self.ending.set()
        self.thread.join()

    def gap_s(self, since_s: float, until_s: float) -> float:
        times = [at_s for _, at_s in self.seen if since_s < at_s < until_s]
        return max((after - before for before, after in pairwise(times)), default=float("nan"))

    def p99_s(self, load: Load, since_s: float, until_s: float) -> float:
        """Of the records that were written in that time: until the count of each could be read."""
        counts, times = [count for count, _ in self.seen], [at_s for _, at_s in self.seen]
        took = []
        for count, at_s in load.written:
            index = bisect_left(counts, count)
            if since_s <= at_s < until_s and index < len(times):
                took.append(times[index] - at_s)
        return float(np.percentile(took, 99)) if took else float("nan")


def ours(kind: str, keys: int, factors: Sequence[int], rate: int, root: Path) -> list[float]:
    """The pauses."""
    pauses = []
    has_state = kind != STATELESS
    with system_of(kind if has_state else "log", root) as url:
        folders: dict[str, Any] = {"state_uri": str(root / "state"), "local_store_dir": str(root / "stores")}
        app = hr.App("paused", system=url, trigger_interval_ms=20, **folders)
        rows = app.stream("in", key=hr.Bytes(), value=hr.Bytes())
        if has_state:
            rows.group_by_key().count(store="counts").to_stream(emit="each").to("out", value=hr.Long())
        else:
            rows.map_values(lambda record: record.value, value=hr.Bytes()).to("out")
        with hr.open_system(url) as system:
            system.create_stream("in", 1)
            system.create_stream("out", 1)
            for start in range(0, keys if has_state else 1, 200_000):
                system.produce("in", [hr.Record(name, VALUE, 0) for name in names_from(start, min(keys, start + 200_000))])
        app.run(until="caught-up", progress=False)
        job = app.start()
        wait_for(lambda: job.status()["sub_topologies"]["source"]["waiting_for"] == "new records")
        watch, load = Watch(url), Load(url, keys, rate)
        marks = []
        try:
            for factor in factors:
                time.sleep(BESIDE_S)
                marks.append((factor, time.monotonic()))
                job.set_elasticity(factor)
                wait_for(partial(has_factor, job, factor))
                time.sleep(BESIDE_S)
        finally:
            load.end()
            wait_for(lambda: watch.seen[-1][0] >= load.written[-1][0])
            watch.end()
            job.stop()
            app.spark.stop()
        with hr.elasticity(app) as scales:
            history = [one for one in scales.history() if one.pause_us is not None][-len(factors) :]
        ends = [at_s for _, at_s in marks[1:]] + [load.written[-1][1]]
        for (factor, at_s), end_s, change in zip(marks, ends, history, strict=True):
            pauses.append(watch.gap_s(at_s, end_s))
            before, during = watch.p99_s(load, at_s - BESIDE_S / 2, at_s), watch.p99_s(load, at_s, end_s)
            round_s = watch.gap_s(at_s - BESIDE_S / 2, at_s)
            what, asked_s = (f"{keys / 1e6:g} million keys", ASKED_S[kind]) if has_state else ("no state", round_s)
            print(
                f"{kind}, {what}, to factor {factor}: {pauses[-1]:.2f} s without a commit (asked for: {asked_s:.2f} s), "
                f"before it {round_s:.2f} s; p99 {during:.2f} s, before it {before:.2f} s"
            )
            print("  " + ", ".join(f"{name} {phase_us / 1e6:.2f} s" for name, phase_us in change.phases_us.items()), flush=True)
    return pauses


def has_factor(job: Any, factor: int) -> bool:
    return bool(job.status()["sub_topologies"]["source"]["elasticity_factor"] == factor)


def wait_for(what: Callable[[], Any]) -> None:
    began_s = time.monotonic()
    while not what():
        if time.monotonic() - began_s > WAIT_S:
            raise SystemExit(f"not within {WAIT_S:g} s")
        time.sleep(0.02)


# --- Spark's own engine ---------------------------------------------------------------------------------------------------


class Query:
    """A running count of keys, in Structured Streaming."""

    def __init__(self, root: Path) -> None:
        from pyspark.sql import SparkSession

        provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        settings = {
            "spark.sql.streaming.stateStore.providerClass": provider,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
        self.spark = SparkSession.builder.master("local[2]").appName("peer").config(map=settings).getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self.inputs, self.aside, self.checkpoint = root / "inputs", root / "aside", root / "checkpoint"
        self.inputs.mkdir()

    def write_aside(self, keys: int) -> None:
        """A file with each key once, which the query does not see yet."""
        from pyspark.sql import functions

        names = functions.format_string("key-%09d", "id").alias("key")
        self.spark.range(0, keys, 1, 1).select(names).write.parquet(str(self.aside))

    def publish(self) -> None:
        for file in self.aside.glob("*.parquet"):
            file.rename(self.inputs / file.name)
        shutil.rmtree(self.aside)

    def start(self) -> None:
        rows = self.spark.readStream.schema("key string").parquet(str(self.inputs))
        writer = rows.groupBy("key").count().writeStream.outputMode("update").format("noop")
        self.running = writer.option("checkpointLocation", str(self.checkpoint)).start()

    def stop(self) -> None:
        self.running.stop()

    def catch_up(self) -> None:
        self.running.processAllAvailable()

    def repartition(self, partitions: int) -> None:
        self.spark._streamingCheckpointManager.repartition(str(self.checkpoint), partitions)


def structured_streaming(keys: int, factors: Sequence[int], root: Path) -> list[float]:
    """The times from the stop of the query to the first batch that is committed after its repartitioning."""
    query = Query(root)
    pauses = []
    try:
        query.write_aside(keys)
        query.publish()
        query.start()
        query.catch_up()
        for factor in factors:
            query.write_aside(1_000)
            query.publish()
            query.catch_up()
            query.write_aside(1_000)
            times_s = [time.monotonic()]
            for step in (query.stop, partial(query.repartition, factor), query.start, query.catch_up):
                if step == query.start:
                    query.publish()  # a batch that the stop ends halfway cannot be repartitioned
                step()
                times_s.append(time.monotonic())
            pauses.append(times_s[-1] - times_s[0])
            names = ("stop", "repartition", "start", "first batch")
            parts = ", ".join(f"{name} {then - now:.2f} s" for name, (now, then) in zip(names, pairwise(times_s), strict=True))
            print(f"structured streaming, {keys / 1e6:g} million keys, to {factor} partitions: {pauses[-1]:.2f} s ({parts})")
        query.stop()
    finally:
        query.spark.stop()
    return pauses


def flink(keys: int, factors: Sequence[int], root: Path) -> list[float]:
    """The times from the stop of the job to the first record that is counted after its start from the savepoint."""
    python = python_with("apache-flink", FLINK_VERSION)
    command = [str(python), str(PEERS / "flink_rescale.py"), str(root), str(keys), ",".join(map(str, factors))]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3600, check=True).stdout
    pauses = []
    for words in (line.split() for line in answer.splitlines() if line.startswith("changed ")):
        stop_s, start_s, first_s = map(float, words[2:])
        pauses.append(stop_s + start_s + first_s)
        parts = f"stop {stop_s:.2f} s, start {start_s:.2f} s, first record {first_s:.2f} s"
        print(f"flink, {keys / 1e6:g} million keys, to parallelism {words[1]}: {pauses[-1]:.2f} s ({parts})", flush=True)
    return pauses


OTHERS: dict[str, Callable[[int, Sequence[int], Path], list[float]]] = {STREAMING: structured_streaming, FLINK: flink}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="all", choices=["log", "kafka", STATELESS, *OTHERS, "all"])
    parser.add_argument("--keys", default="1", help="millions, several with commas")
    parser.add_argument("--factors", default="8,1")
    parser.add_argument("--rate", type=int, default=2_500, help="records per second")
    given = parser.parse_args()
    factors = [int(factor) for factor in given.factors.split(",")]
    parts = ["log", "kafka", STATELESS, *OTHERS] if given.part == "all" else [given.part]
    for millions in given.keys.split(","):
        keys, found = int(float(millions) * 1e6), dict[str, list[float]]()
        for part in parts:
            root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
            try:
                if part in OTHERS:
                    found[part] = OTHERS[part](keys, factors, root)
                else:
                    found[part] = ours(part, keys, factors, given.rate, root)
            finally:
                shutil.rmtree(root, ignore_errors=True)
        for part, other in product(found.keys() - {STATELESS, *OTHERS}, found.keys() & OTHERS.keys()):
            ratios = [f"{theirs / mine:.1f}" for theirs, mine in zip(found[other], found[part], strict=True)]
            print(f"{part}, {millions} million keys: {', '.join(ratios)} times shorter than {other}")


if __name__ == "__main__":
    main()
