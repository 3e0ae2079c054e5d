"""What an elasticity factor is worth, and what it costs, on this machine.

    .venv/bin/python bench/elasticity.py [slices|buckets|all] [--seconds N]

`slices`: a function that computes (some 40 µs of Python a record) on ONE partition of the embedded log: factor 1, which is one
container, beside factor 2 in two, on two slots of Spark. Throughput of the rounds themselves, as they report it, without the
start. Asked for: 1.8 times.

`buckets`: what the key buckets of a batch cost a container, beside all that it does for a counted record: factor 8 and factor 2
in one container, beside factor 1. Asked for: under 10 % at factor 8. At factor 1 nothing is computed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

KEYS = 10_000
STEP = 100_000
SLICES_TIMES = 1.8
BUCKETS_SHARE = 0.10
SPINS = 1_000  # of a loop in Python: some 40 µs
POLL_S = 0.02


def computed(record: Any) -> Any:
    total = 0
    for number in range(SPINS):
        total += number
    return record.value


def filled(folder: Path, records: int) -> str:
    """A log with one partition of records of `KEYS` keys, drawn at random; its URL."""
    url = f"log:{folder / 'log'}"
    names = [b"key-%012d" % number for number in range(KEYS)]
    draw = np.random.default_rng(7)
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
        for start in range(0, records, STEP):
            numbers = draw.integers(0, KEYS, min(STEP, records - start)).tolist()
            system.produce("in", [(names[number], b"v" * 40) for number in numbers])
    return url


def job_of(folder: Path, url: str, name: str, spark: Any, computing: bool, **keys: Any) -> hr.App:
    stores, state = str(folder / name / "stores"), str(folder / name / "state")
    app = hr.App(name, system=url, spark=spark, local_store_dir=stores, state_uri=state, **keys)
    rows = app.stream("in", key=hr.Bytes(), value=hr.Bytes())
    if computing:
        rows.map_values(computed, value=hr.Bytes()).to(f"{name}-out")
    else:
        rows.group_by_key().count(store="counts").to_stream().to(f"{name}-out", value=hr.Long())
    return app


def rate_of(app: hr.App, records: int) -> float:
    """Records per second from the end of the first round on, in which workers start and load; ends the benchmark if records
    are missing."""
    job = app.start(until="caught-up")
    began_s, before = 0.0, 0
    while job.is_running:
        source = job.status()["sub_topologies"]["source"]
        if not before and source["round"] >= 1:
            began_s, before = time.monotonic(), source["records"]
        time.sleep(POLL_S)
    ended_s = time.monotonic()
    job.wait(60)
    read = job.status()["sub_topologies"]["source"]["records"]
    if read != records:
        raise SystemExit(f"{app.name} has read {read:,} records, expected {records:,}")
    return (records - before) / (ended_s - began_s)


def compared(root: Path, records: int, computing: bool, cases: dict[str, dict[str, Any]], repeat: int) -> dict[str, float]:
    """The best rate of each case, in turns: others use the machine too."""
    url, best = filled(root, records), dict[str, float]()
    first = job_of(root, url, "session", None, computing)
    session_of(first, config_of(first))
    try:
        for turn in range(repeat):
            for case, keys in cases.items():
                name = f"{case.replace(' ', '-')}-{turn}"
                rate = rate_of(job_of(root, url, name, first.spark, computing, **keys), records)
                best[case] = max(rate, best.get(case, 0.0))
                print(f"  {case}, run {turn + 1}: {rate:,.0f} records/s", flush=True)
    finally:
        first.spark.stop()
    return best


def slices(root: Path, seconds: float) -> None:
    """Factor 2 in two containers beside factor 1 in one, on one partition."""
    records = int(seconds * 20_000)
    common = {"max_records_per_round": records // 4}
    cases = {"factor 1": {"elasticity_factor": 1, **common}, "factor 2": {"elasticity_factor": 2, "containers": 2, **common}}
    best = compared(root, records, True, cases, 2)
    times = best["factor 2"] / best["factor 1"]
    rates = f"{best['factor 1']:,.0f} and {best['factor 2']:,.0f} records/s"
    print(f"slices: {rates}: {times:.2f} times (asked for: {SLICES_TIMES})")


def buckets(root: Path, seconds: float) -> None:
    """The cost of key buckets in one container."""
    records = int(seconds * 200_000)
    common = {"max_records_per_round": records // 4, "containers": 1}
    cases = {f"factor {factor}": {"elasticity_factor": factor, **common} for factor in (1, 2, 8)}
    best = compared(root, records, False, cases, 3)
    for factor in (2, 8):
        cost = best["factor 1"] / best[f"factor {factor}"] - 1
        asked = f" (asked for: under {BUCKETS_SHARE:.0%})" if factor == 8 else ""
        print(f"buckets, factor {factor}: {cost:+.1%} time per record{asked}")


PARTS: dict[str, Callable[[Path, float], None]] = {"slices": slices, "buckets": buckets}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long each measurement takes")
    given = parser.parse_args()
    for part in PARTS if given.part == "all" else [given.part]:
        root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        try:
            PARTS[part](root, given.seconds)
        finally:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
