"""What an elasticity factor is worth, and what it costs, on this machine.

    .venv/bin/python bench/elasticity.py [PART|all] [--factors 1,2,4,8,16] [--seconds N]

`waiting`: a function that sleeps for 1 ms at each record (a look-up in a service, say) on ONE partition of the embedded log
with 10,000 keys drawn at random. Throughput by factor, from the end of the first round, in which the job finds out that its
tasks wait, to the end of the stream. Asked for: 0.85 of the factor times the throughput at factor 1, up to 16. Keys must be
many: with 10,000 the fullest of 16 buckets has 1.07 times the mean, with 1,000 it has 1.25 times, and the others wait for it
at the end.

`slices`: a function that computes (some 40 µs of Python a record) on ONE partition of the embedded log: factor 1, which is one
container, beside factor 2 in two, on two slots of Spark. Throughput from the end of the first round on. Asked for: 1.8 times.

`buckets`: what key buckets cost in one container: factor 2 and 8 beside factor 1, where nothing is computed for them. Of a
keyed count of bytes, the least that a job can do to a record, and of a sum in hourly windows of a field of JSON. Asked for:
under 10 % at factor 8.

`planning`: a plan of 10,000 partitions at factor 1 and at factor 16 on the embedded log, part by part, in seconds of the
processor (and by the clock): what is stored is read, a plan is made of it, encoded, committed. Without an engine, and without
records. Asked for: under 5 s together. `planning-on-kafka`: the same on a broker of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.core.job_plan.planner import STEPS
from headrace.driver.planning.job_plan import Backend
from headrace.driver.planning.job_planner import JobPlanner, uncollected
from headrace.driver.planning.observe import observe, terms_of
from headrace.model.commits import DriverLease
from headrace.testing.kafka_server import KafkaServer
from headrace.wiring import config_of, opened_system
from headrace.wiring.spark_sessions import session_of

WAITED_S = 0.001
KEYS = 10_000
WAITING_SHARE = 0.85
SPINS = 1_000  # of a loop in Python: some 40 µs
SLICES_TIMES = 1.8
BUCKETS_SHARE = 0.10
JSON_VALUE = b'{"amount": 17, "of": "eine-sendung"}'
ROUND_S = 5.0
POLL_S = 0.02


def after_a_wait(record: Any) -> Any:
    time.sleep(WAITED_S)
    return record.value


def waiting(root: Path, factors: Sequence[int], seconds: float) -> None:
    """Throughput of a function that waits, by factor."""
    session: Any = None
    rates: dict[int, float] = {}
    try:
        for factor in factors:
            folder = root / f"waiting-{factor}"
            url = f"log:{folder / 'log'}"
            records = int((ROUND_S + seconds * factor) / WAITED_S)
            fill_one_partition(url, records)
            stores, state = str(folder / "stores"), str(folder / "state")
            keys: dict[str, Any] = {"elasticity_factor": factor, "max_round_ms": int(ROUND_S * 1_000)}
            app = hr.App("waiting", system=url, spark=session, local_store_dir=stores, state_uri=state, **keys)
            rows = app.stream("in", key=hr.Bytes(), value=hr.Bytes()).map_values(after_a_wait, value=hr.Bytes())
            rows.to("out")
            if session is None:
                session = session_of(app, config_of(app)) and app.spark
            rates[factor] = rate_from_the_second_round(app, url, records)
            share = rates[factor] / (rates[factors[0]] / factors[0]) / factor
            asked = f" (asked for: {WAITING_SHARE})" if factor > 1 else ""
            print(f"waiting, factor {factor}: {rates[factor]:,.0f} records/s, {share:.2f} of the factor{asked}", flush=True)
    finally:
        if session is not None:
            session.stop()


def fill_one_partition(url: str, records: int, value: bytes = b"v" * 40) -> None:
    names = [b"key-%06d" % number for number in range(KEYS)]
    draw = np.random.default_rng(7)
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
        system.create_stream("out", 1)
        for start in range(0, records, 100_000):
            numbers = draw.integers(0, KEYS, min(100_000, records - start)).tolist()
            system.produce("in", [(names[number], value) for number in numbers])


def rate_from_the_second_round(app: hr.App, url: str, records: int) -> float:
    """Records per second, from when the first round was committed to the end; ends the benchmark if what came out is wrong:
    `records` records in the stream `out`, or their count."""
    job = app.start(until="caught-up")
    began_s, before = 0.0, 0
    while job.is_running:
        source = job.status()["sub_topologies"]["source"]
        if not before and source["round"] >= 1:
            began_s, before = time.monotonic(), source["records"]
        time.sleep(POLL_S)
    ended_s = time.monotonic()
    job.wait(60)
    with hr.open_system(url) as system:
        written = sum(1 for _ in system.consume("out", key=hr.Bytes(), value=hr.Bytes()))
    if written != records:
        raise SystemExit(f"{written:,} records were written, expected {records:,}")
    return (records - before) / (ended_s - began_s)


def computed(record: Any) -> Any:
    total = 0
    for number in range(SPINS):
        total += number
    return record.value


def compute(app: hr.App) -> None:
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).map_values(computed, value=hr.Bytes()).to("out")


def count(app: hr.App) -> None:
    keys = app.stream("in", key=hr.Bytes(), value=hr.Bytes()).group_by_key()
    keys.count().to_stream(emit="each").to("out", value=hr.Long())


def sum_in_windows(app: hr.App) -> None:
    windows = app.stream("in", key=hr.Bytes(), value=hr.Json()).group_by_key().windowed_by(hr.Tumbling("1 hour"))
    windows.aggregate(total=hr.sum("value.amount")).to_stream(emit="each").to("out", value=hr.Json())


def slices(root: Path, factors: Sequence[int], seconds: float) -> None:
    """Factor 2 in two containers beside factor 1 in one, on one partition."""
    records = int(seconds * 20_000)
    cases = {factor: {"elasticity_factor": factor, "containers": factor, "task_threads": 1} for factor in (1, 2)}
    best = best_rates(root, records, cases, compute)
    print(f"slices: {best[1]:,.0f} and {best[2]:,.0f} records/s: {best[2] / best[1]:.2f} times (asked for: {SLICES_TIMES})")
    print(f"two processes that only compute: {two_of_one():.2f} times one")


def two_of_one() -> float:
    """What two processes compute at once, of what one does: two cores may be one that takes turns."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(turns_in, [0.1, 0.1])
        alone = pool.apply(turns_in, (2.0,))
        return sum(pool.map(turns_in, [2.0, 2.0], chunksize=1)) / alone


def turns_in(seconds: float) -> int:
    end_s, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end_s:
        sum(range(1_000))
        turns += 1
    return turns


def buckets(root: Path, factors: Sequence[int], seconds: float) -> None:
    """The cost of key buckets in one container."""
    cases = {factor: {"elasticity_factor": factor, "containers": 1, "task_threads": 1} for factor in (1, 2, 8)}
    a_second = {count: 200_000, sum_in_windows: 40_000}
    for flow, records in a_second.items():
        best = best_rates(root, int(seconds * records), cases, flow, JSON_VALUE)
        for factor in (2, 8):
            asked = f" (asked for: under {BUCKETS_SHARE:.0%})" if factor == 8 else ""
            print(f"buckets of {flow.__name__}, factor {factor}: {best[1] / best[factor] - 1:+.1%} time per record{asked}")


def best_rates(
    root: Path,
    records: int,
    cases: Mapping[int, Mapping[str, Any]],
    flow: Callable[[hr.App], None],
    value: bytes = b"v" * 40,
) -> dict[int, float]:
    """Of each case the best rate of three, in turns: others may use the machine too. `flow` reads the stream `in` and writes a
    record for each of its records to `out`."""
    session: Any = None
    best: dict[int, float] = {}
    try:
        for turn in range(3):
            for case, keys in cases.items():
                folder = root / f"{case}-{turn}"
                url = f"log:{folder / 'log'}"
                fill_one_partition(url, records, value)
                stores, state = str(folder / "stores"), str(folder / "state")
                given = {"max_records_per_round": records // 4, **keys}
                app = hr.App("rates", system=url, spark=session, local_store_dir=stores, state_uri=state, **given)
                flow(app)
                if session is None:
                    session = session_of(app, config_of(app)) and app.spark
                rate = rate_from_the_second_round(app, url, records)
                best[case] = max(rate, best.get(case, 0.0))
                print(f"  factor {case}, run {turn + 1}: {rate:,.0f} records/s", flush=True)
                shutil.rmtree(folder)
    finally:
        if session is not None:
            session.stop()
    return best


# --- planning -----------------------------------------------------------------------------------------------------------------

PLANNED_PARTITIONS = 10_000
PLANNED_FACTORS = (1, 16)
PLANNED_S = 5.0


@dataclass
class Watch:
    """The seconds of named parts, in their order: of the processor (all threads), and by the clock."""

    parts: dict[str, tuple[float, float]] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        cpu_s, clock_s = time.process_time(), time.monotonic()
        yield
        self.parts[name] = time.process_time() - cpu_s, time.monotonic() - clock_s

    def show(self, what: str, asked: str = "") -> None:
        for name, (cpu_s, clock_s) in self.parts.items():
            print(f"  {name:24} {cpu_s:7.2f} s of the processor {clock_s:7.2f} s by the clock")
        cpu_s, clock_s = (sum(each) for each in zip(*self.parts.values(), strict=True))
        print(f"{what}: {cpu_s:.2f} s of the processor, {clock_s:.2f} s by the clock{asked}", flush=True)


def planning(root: Path, factors: Sequence[int], seconds: float) -> None:
    """Plans on the embedded log."""
    for factor in PLANNED_FACTORS:
        plan_twice(f"log:{root / f'planning-{factor}'}", factor)


def planning_on_kafka(root: Path, factors: Sequence[int], seconds: float) -> None:
    """Plans on a broker."""
    with KafkaServer(folder=root / "broker", heap_mb=1024) as kafka:
        for factor in PLANNED_FACTORS:
            plan_twice(f"kafka://{kafka.bootstrap}", factor)


def plan_twice(url: str, factor: int) -> None:
    """A first plan, and the next one, which reads what the first has stored."""
    name = f"planned-{factor}"
    app = hr.App(name, system=url, config={"elasticity_factor": factor})
    rows = app.stream(f"{name}-in", key=hr.Bytes(), value=hr.Bytes())
    rows.group_by_key().count(store="counts").to_stream().to(f"{name}-out")
    with opened_system(url) as system:
        # in two steps: Kafka's controller takes less than 10,000 records at once, and one is a partition
        system.create_stream(f"{name}-in", PLANNED_PARTITIONS // 2)
        system.expand_stream(f"{name}-in", PLANNED_PARTITIONS)
        system.create_stream(f"{name}-out", 1)
        for turn in ("first", "next"):
            watch = Watch()
            tasks = plan_and_commit(app, system, watch)
            asked = f" (asked for: {PLANNED_S:g} s)" if factor > 1 else ""
            place = url.partition(":")[0]
            watch.show(f"planning on {place}, {PLANNED_PARTITIONS:,} x {factor}, the {turn} plan of {tasks:,} tasks", asked)


@uncollected()
def plan_and_commit(app: hr.App, system: Any, watch: Watch) -> int:
    """Plan as the driver does, and commit it; how many tasks there are."""
    config, topology = config_of(app), app.topology()
    terms = terms_of(topology, config, system.name, slots=4)
    store = system.job_store(app.name)
    lease = DriverLease(f"run-{time.time_ns()}", "bench", 1, "", "", time.time_ns() // 1000)
    with watch.part("acquire"):
        epoch = store.acquire(lease, time.time_ns() // 1000)
    with watch.part("read what is stored"):
        snapshot = observe(terms, system, store, epoch=epoch, now_us=time.time_ns() // 1000)
    draft = terms.draft(snapshot.offsets)
    for step in STEPS:
        with watch.part(f"step {step.__name__}"):
            draft = step(draft, draft.past or snapshot)
    backend = Backend(system, store, system.processor_store(app.name), engine=None)  # type: ignore[arg-type]  # nothing runs
    with watch.part("encode and commit"):
        made = JobPlanner(topology, {}, config, backend, lambda line: None).commit(draft, snapshot)
    store.release(epoch)
    return len(made.checkpoints)


PARTS: dict[str, Callable[[Path, Sequence[int], float], None]] = {
    "waiting": waiting,
    "slices": slices,
    "buckets": buckets,
    "planning": planning,
    "planning-on-kafka": planning_on_kafka,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--factors", default="1,2,4,8,16")
    parser.add_argument("--seconds", type=float, default=15.0, help="about how long each measurement takes")
    given = parser.parse_args()
    factors = [int(factor) for factor in given.factors.split(",")]
    for part in PARTS if given.part == "all" else [given.part]:
        root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        try:
            PARTS[part](root, factors, given.seconds)
        finally:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
