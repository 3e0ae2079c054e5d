"""Operators beside Kafka Streams and Quix Streams, both exactly once, on the same topics of one broker, in one run.

    .venv/bin/python bench/operators.py [windows|join|foreign|all] [--records N] [--repeat N] [--without PEER]

windows  the sum of a number per key and minute of event time, its updates written to an output topic
join     two streams, of which records of one key meet that are at most 5 s apart
foreign  a table of orders joined with one of customers, by a foreign key: a change of either gives results anew

Kafka Streams has the better of two commit intervals, and a cache that holds all keys. Quix Streams has no join by foreign
keys, and takes part in `windows` alone, with a tenth of the records. What each wrote is checked where it can be known.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from common import PEERS, QUIX_VERSION, python_with
from confluent_kafka import Producer
from contest import (
    BROKERS,
    OURS,
    QUIX,
    ROUND_RECORDS,
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

START_MS = 1_700_000_000_000
KEYS = 10_000
CUSTOMERS = 1_000  # of the orders of `foreign`
WITHIN_S = 5
INPUTS = {"windows": ("numbers",), "join": ("left", "right"), "foreign": ("customers", "orders")}

Sent = tuple[bytes, bytes, int]  # key, value, time in ms


def numbers(records: int) -> Iterator[Sent]:
    """A record a ms: a key has one every ten seconds, and a minute six."""
    keys = np.random.default_rng(7).integers(0, KEYS, records).tolist()
    return ((b"key-%06d" % key, (at % 100).to_bytes(8, "big"), START_MS + at) for at, key in enumerate(keys))


def sides(seed: int, records: int) -> Iterator[Sent]:
    """A record of one side each ms; so a left record meets one right one, on average."""
    keys = np.random.default_rng(seed).integers(0, KEYS, records).tolist()
    return ((b"key-%06d" % key, b"%d" % at, START_MS + at) for at, key in enumerate(keys))


def orders(records: int) -> Iterator[Sent]:
    """Half of them new orders, then half that change what their order is, and for every other one whose."""
    count = records // 2
    for at in range(2 * count):
        customer = (at * 7919 + at // count) % CUSTOMERS
        yield b"order-%08d" % (at % count), b"%06d %d" % (customer, at), START_MS + at


def customers(records: int) -> Iterator[Sent]:
    return ((b"%06d" % at, b"customer %d" % at, START_MS) for at in range(CUSTOMERS))


MADE: dict[str, Callable[[int], Iterable[Sent]]] = {
    "numbers": numbers,
    "left": lambda records: sides(1, records),
    "right": lambda records: sides(2, records),
    "orders": orders,
    "customers": customers,
}


# --- the contestants ------------------------------------------------------------------------------------------------


def both(rows: Any) -> Any:
    return pc.binary_join_element_wise(rows.column("left"), rows.column("right"), b" ")


def build(app: hr.App, what: str, output: str) -> None:
    key, value = hr.Bytes(), hr.Bytes()
    if what == "windows":
        windows = hr.Tumbling("1 minute", grace="10 seconds")
        sums = app.stream("numbers", key=key, value=hr.Long()).group_by_key().windowed_by(windows)
        sums.aggregate(total=hr.sum("value"), value=hr.MessagePack()).to_stream().to(output)
    elif what == "join":
        left, right = (app.stream(name, key=key, value=value) for name in ("left", "right"))
        left.join(right, hr.batch(both), within=f"{WITHIN_S} seconds", grace="1 second", value=value).to(output)
    else:
        rows, whose = app.table("orders", key=key, value=value), app.table("customers", key=key, value=value)
        rows.join(whose, hr.batch(both), foreign_key=lambda r: r.value[:6], value=value).to_stream().to(output)


def ours(bench: Bench, name: str, what: str) -> Figure:
    """From the start of the job to its end, the taking of the application and its first plan included."""
    folder, output = bench.root / name, bench.output(f"{name}-out")
    keys: dict[str, Any] = {"local_store_dir": str(folder / "stores"), "state_uri": str(folder / "state")}
    app = hr.App(name, system=bench.url, spark=bench.spark, max_records_per_round=ROUND_RECORDS, **keys)
    build(app, what, output)
    before, began = cpu_of_family(), time.monotonic()
    app.start(until="caught-up").wait(3600)
    seconds = time.monotonic() - began
    figure = Figure(bench.records / seconds, cpu_of_family() - before)
    check(bench, output, what)
    return figure


def check(bench: Bench, output: str, what: str) -> None:
    """Ends the run if Headrace has not written what it should have: a speed of wrong results is none."""
    with hr.open_system(bench.url) as system:
        if what == "windows":
            last = {one.key: one.value for one in system.consume(output, key=hr.Bytes(), value=hr.MessagePack())}
            found = sum(one["total"] for one in last.values())
            expected = sum(int.from_bytes(value, "big") for _, value, _ in numbers(bench.records))
        elif what == "join":
            found = sum(1 for _ in system.consume(output))
            expected = pairs(list(sides(1, bench.records // 2)), list(sides(2, bench.records // 2)))
        else:
            rows = {one.key: one.value for one in system.consume(output)}
            newest = {key: value for key, value, _ in orders(bench.records)}
            expected, found = len(newest), sum(rows[key].startswith(value + b" ") for key, value in newest.items())
    if found != expected:
        raise SystemExit(f"{what}, {output}: found {found:,}, expected {expected:,}")


def pairs(left: list[Sent], right: list[Sent]) -> int:
    """How many records of one key are near enough."""
    times: dict[bytes, list[int]] = {}
    for key, _, at in right:
        times.setdefault(key, []).append(at)
    count = 0
    for key, _, at in left:
        mine = np.array(times.get(key, []))
        count += int(((mine >= at - WITHIN_S * 1000) & (mine <= at + WITHIN_S * 1000)).sum())
    return count


def of_kafka_streams(bench: Bench, name: str, what: str) -> Figure:
    return kafka_streams(bench, name, what, ",".join(INPUTS[what]))


def quix_streams(bench: Bench, name: str, what: str) -> Figure:
    """From its first record on, over a tenth of the records: it takes long."""
    records = max(1, bench.records // 10)
    arguments = ["numbers", bench.output(f"{name}-out"), name, str(bench.root / name), str(records), what]
    command = [str(python_with("quixstreams", QUIX_VERSION)), str(PEERS / "quix_streams.py"), bench.servers, *arguments]
    rate, cpu_s = answer_of(command, "records_per_s")
    return Figure(rate, cpu_s * bench.records / records)


CONTESTANTS: dict[str, dict[str, Contestant]] = {
    "windows": {OURS: ours, STREAMS: of_kafka_streams, QUIX: quix_streams},
    "join": {OURS: ours, STREAMS: of_kafka_streams},
    "foreign": {OURS: ours, STREAMS: of_kafka_streams},
}


def fill(bench: Bench, what: str) -> None:
    """The inputs, of `records` records together but for the customers, partitioned as Java does. No transaction marks them."""
    settings = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 20, "partitioner": "murmur2_random"}
    producer, sent = Producer({"bootstrap.servers": bench.servers, **settings}), Counter[str]()
    for stream in INPUTS[what]:
        bench.output(stream)
        for key, value, at in MADE[stream](bench.records // 2 if what == "join" else bench.records):
            while True:
                try:
                    producer.produce(stream, value, key, timestamp=at)
                    sent[stream] += 1
                    break
                except BufferError:
                    producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the records could not be written")
    print(f"{what}: {', '.join(f'{count:,} records in {stream}' for stream, count in sent.items())}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=[*INPUTS, "all"])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--without", action="append", default=[], choices=[STREAMS, QUIX])
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with KafkaServer(folder=root / "broker", heap_mb=1024) as kafka:
            BROKERS.extend(kafka.pids.values())
            bench = Bench(kafka.bootstrap, root, given.records, spark_of(root, kafka.bootstrap))
            for what in INPUTS if given.what == "all" else (given.what,):
                fill(bench, what)
                left = {name: run for name, run in CONTESTANTS[what].items() if name not in given.without}
                compare(bench, what, given.repeat, left)
            bench.spark.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
