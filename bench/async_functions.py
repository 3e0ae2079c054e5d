"""Enrichment calls that wait 10 ms for each record, in one container on Spark: async, beside the same as a plain function.

    .venv/bin/python bench/async_functions.py [--records N] [--keys N] [--concurrency N ...] [--wait-ms N] [--repeat N]

All read the same stream of one partition on the embedded log, and write to an output of it. The upper bound is a plain program:
`asyncio` with a semaphore, which keeps nothing. Seconds are from the start of a job to its end, in a session that runs; the
best of `--repeat` runs counts. A plain function makes one call at a time, so it has a hundredth of the records.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

TARGET = 3_000  # records/s of one container


def asynchronous(stream: hr.KStream, wait_s: float, concurrency: int) -> hr.KStream:
    async def enrich(record: hr.Record) -> bytes:
        await asyncio.sleep(wait_s)
        return bytes(record.value) + b"!"

    return stream.map_values(hr.concurrent(enrich, concurrency=concurrency), value=hr.Bytes())


def with_a_store(stream: hr.KStream, wait_s: float, concurrency: int) -> hr.KStream:
    class Enrich(hr.Processor[bytes, bytes, bytes, bytes]):
        stores: ClassVar = [hr.KeyValueStore("counts", value=hr.Long())]

        @hr.concurrent(concurrency=concurrency)
        async def process(self, record: hr.Record) -> None:
            counts = self.context.store("counts")
            await asyncio.sleep(wait_s)
            counts.put(counts.get(0) + 1)
            self.context.forward(value=record.value + b"!")

    return stream.process(Enrich, name="enrich", value=hr.Bytes())


def plain(stream: hr.KStream, wait_s: float, concurrency: int) -> hr.KStream:
    def enrich(record: hr.Record) -> bytes:
        time.sleep(wait_s)
        return bytes(record.value) + b"!"

    return stream.map_values(enrich, value=hr.Bytes())


WAYS = {"async function": asynchronous, "async Processor": with_a_store, "plain function": plain}


def fill(url: str, stream: str, records: int, keys: int) -> None:
    with hr.open_system(url) as system:
        system.create_stream(stream, 1)
        system.produce(stream, [(b"key-%06d" % (number % keys), b"v" * 40) for number in range(records)])


def rate_of(way: str, root: Path, stream: str, records: int, name: str, spark: Any, options: tuple[float, int]) -> float:
    """Records/s of one job; ends the benchmark if what it wrote is wrong."""
    url = f"log:{root / 'log'}"
    stores, state = str(root / name / "stores"), str(root / name / "state")
    app = hr.App(name, system=url, spark=spark, containers=1, local_store_dir=stores, state_uri=state)
    WAYS[way](app.stream(stream, key=hr.Bytes(), value=hr.Bytes()), *options).to(f"{name}-out")
    began_s = time.monotonic()
    app.start(until="caught-up").wait(3600)
    seconds = time.monotonic() - began_s
    with hr.open_system(url) as system:
        found = [r.key for r in system.consume(f"{name}-out", key=hr.Bytes(), value=hr.Bytes())]
        expected = [r.key for r in system.consume(stream, key=hr.Bytes(), value=hr.Bytes())]
    if found != expected:
        raise SystemExit(f"{name} wrote {len(found):,} records, or in another order than the {records:,} that it read")
    return records / seconds


async def bound_of(records: int, wait_s: float, concurrency: int) -> float:
    """Records/s of a plain program."""
    room = asyncio.Semaphore(concurrency)

    async def call() -> None:
        async with room:
            await asyncio.sleep(wait_s)

    began_s = time.monotonic()
    await asyncio.gather(*(call() for _ in range(records)))
    return records / (time.monotonic() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[50, 100, 300])
    parser.add_argument("--wait-ms", type=float, default=10)
    parser.add_argument("--repeat", type=int, default=2)
    given = parser.parse_args()
    wait_s, few = given.wait_ms / 1e3, max(given.records // 100, 1)
    with tempfile.TemporaryDirectory() as folder:
        root, url = Path(folder), f"log:{Path(folder) / 'log'}"
        fill(url, "many", given.records, given.keys)
        fill(url, "few", few, given.keys)
        first = hr.App("session", system=url)
        session_of(first, config_of(first))
        try:
            slowest = max(
                rate_of("plain function", root, "few", few, f"plain-{turn}", first.spark, (wait_s, 1))
                for turn in range(given.repeat)
            )
            print(f"plain function: {slowest:,.0f} records/s", flush=True)
            for concurrency in given.concurrency:
                bound = asyncio.run(bound_of(given.records, wait_s, concurrency))
                print(f"asyncio alone, {concurrency} at once: {bound:,.0f} records/s", flush=True)
                for way in ("async function", "async Processor"):
                    rate = max(
                        rate_of(
                            way, root, "many", given.records, f"{way.split()[1].lower()}-{concurrency}-{turn}",
                            first.spark, (wait_s, concurrency),
                        )
                        for turn in range(given.repeat)
                    )  # fmt: skip
                    ratios = f"{rate / slowest:.0f} times the plain function, {rate / bound:.2f} of asyncio alone"
                    print(f"{way}, {concurrency} at once: {rate:,.0f} records/s ({ratios}; target {TARGET:,})", flush=True)
        finally:
            first.spark.stop()


if __name__ == "__main__":
    main()
