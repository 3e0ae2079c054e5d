"""What an elasticity factor is worth, and what it costs, on this machine.

    .venv/bin/python bench/elasticity.py [waiting|all] [--factors 1,2,4,8,16] [--seconds N]

`waiting`: a function that sleeps for 1 ms at each record (a look-up in a service, say) on ONE partition of the embedded log
with 10,000 keys drawn at random. Throughput by factor, from the end of the first round, in which the job finds out that its
tasks wait, to the end of the stream. Asked for: 0.85 of the factor times the throughput at factor 1, up to 16. Keys must be
many: with 10,000 the fullest of 16 buckets has 1.07 times the mean, with 1,000 it has 1.25 times, and the others wait for it
at the end.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

WAITED_S = 0.001
WAITING_KEYS = 10_000
WAITING_SHARE = 0.85
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


def fill_one_partition(url: str, records: int) -> None:
    names = [b"key-%06d" % number for number in range(WAITING_KEYS)]
    draw = np.random.default_rng(7)
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
        system.create_stream("out", 1)
        for start in range(0, records, 100_000):
            numbers = draw.integers(0, WAITING_KEYS, min(100_000, records - start)).tolist()
            system.produce("in", [(names[number], b"v" * 40) for number in numbers])


def rate_from_the_second_round(app: hr.App, url: str, records: int) -> float:
    """Records per second, from when the first round was committed to the end; ends the benchmark if what came out is wrong."""
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


PARTS: dict[str, Callable[[Path, Sequence[int], float], None]] = {"waiting": waiting}


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
