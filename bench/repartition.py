"""What a repartition costs on this machine: a keyed count behind one, beside the same count without it, in one run.

    .venv/bin/python bench/repartition.py [log|kafka|all] [--records N] [--keys N] [--repeat N] [--cpu]

Both jobs read the same stream of 4 partitions and write the changed keys to an output; one of them writes each record
into a repartition stream first, and reads it back in another sub-topology. The best of `--repeat` runs counts: in the
first the JVM compiles. With `--cpu` each run also says how many seconds of a processor it took, by kind of process (Linux):
where others use the machine too, that is what can be compared.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from common import system_of

import headrace as hr
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

VALUE = b"v" * 40
STEP = 500_000
ASKED = {"log": 1.6, "kafka": 2.0}


def fill(url: str, records: int, keys: int) -> None:
    names = [b"key-%012d" % number for number in range(keys)]
    draw = np.random.default_rng(7)
    with hr.open_system(url) as system:
        system.create_stream("in", 4)
        for start in range(0, records, STEP):
            numbers = draw.integers(0, keys, min(STEP, records - start)).tolist()
            system.produce("in", [(names[number], VALUE) for number in numbers])


def counting(url: str, root: Path, name: str, repartitioned: bool, spark: Any = None) -> hr.App:
    stores, state = str(root / name / "stores"), str(root / name / "state")
    app = hr.App(name, system=url, spark=spark, local_store_dir=stores, state_uri=state)
    records = app.stream("in", key=hr.Bytes(), value=hr.Bytes())
    if repartitioned:
        records = records.repartition(name="anew")
    records.group_by_key().count().to_stream().to(f"{name}-out")
    return app


def seconds_of(app: hr.App, url: str, records: int) -> float:
    """From the start of the job to its end; ends the benchmark if what it wrote is wrong."""
    began = time.monotonic()
    app.start(until="caught-up").wait(3600)
    seconds = time.monotonic() - began
    with hr.open_system(url) as system:
        last = {r.key: r.value for r in system.consume(f"{app.name}-out", key=hr.Bytes(), value=hr.Long())}
    if sum(last.values()) != records:
        raise SystemExit(f"{app.name} counted {sum(last.values()):,} records, expected {records:,}")
    return seconds


def cpu_seconds() -> dict[str, float]:
    """What this process and all below it have used so far, by kind: driver, jvm (Spark's), workers (Python), broker."""
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):  # it has ended meanwhile
            below.setdefault(int(_stat(int(folder.name))[1]), []).append(int(folder.name))
    seconds = dict.fromkeys(("driver", "jvm", "workers", "broker"), 0.0)
    open_ = [os.getpid()]
    while open_:
        pid = open_.pop()
        open_ += below.get(pid, [])
        with suppress(OSError, IndexError, ValueError):
            ticks = sum(map(int, _stat(pid)[11:15]))  # its own and of those that it has waited for
            seconds[_kind_of(pid)] += ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()


def _kind_of(pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return "broker" if b"kafka.Kafka" in command else "jvm" if b"SparkSubmit" in command else "workers"


def compare(kind: str, root: Path, records: int, keys: int, repeat: int, with_cpu: bool) -> None:
    with system_of(kind, root) as url:
        fill(url, records, keys)
        first = counting(url, root, "session", False)
        session_of(first, config_of(first))
        try:
            best: dict[bool, float] = {}
            for turn in range(repeat):
                for repartitioned in (False, True):
                    name = f"{'with' if repartitioned else 'without'}-{turn}"
                    before = cpu_seconds() if with_cpu else {}
                    seconds = seconds_of(counting(url, root, name, repartitioned, first.spark), url, records)
                    best[repartitioned] = min(seconds, best.get(repartitioned, seconds))
                    print(f"  {kind}, run {turn + 1}: {name.partition('-')[0]} a repartition {seconds:.2f} s", flush=True)
                    if with_cpu:
                        used = {kind: after - before[kind] for kind, after in cpu_seconds().items()}
                        print(f"    cpu {sum(used.values()):.2f} s: {', '.join(f'{k} {v:.2f}' for k, v in used.items())}")
        finally:
            first.spark.stop()
    print(
        f"{kind}: {records:,} records, {keys:,} keys: {best[False]:.2f} s without a repartition, {best[True]:.2f} s with one: "
        f"{best[True] / best[False]:.2f} times (asked for: at most {ASKED[kind]})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="all", choices=["log", "kafka", "all"])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    for kind in ("log", "kafka"):
        if given.what in (kind, "all"):
            root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
            try:
                compare(kind, root, given.records, given.keys, given.repeat, given.cpu)
            finally:
                shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
