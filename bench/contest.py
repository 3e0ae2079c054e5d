"""A contest on Kafka on this machine: contestants that read the same topics of one broker, one after the other, in one run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import kafka_streams_program

import headrace as hr
from headrace.wiring import config_of
from headrace.wiring.spark_sessions import session_of

OURS, SPARK, STREAMS, QUIX = "Headrace", "Structured Streaming", "Kafka Streams", "Quix Streams"
PROMISE = {OURS: "exactly once", SPARK: "at least once", STREAMS: "exactly once", QUIX: "exactly once"}
ROUND_RECORDS = 1_000_000  # Headrace's default, given to Structured Streaming too
COMMIT_MS = (100, 1000)  # Kafka Streams' default with exactly_once_v2, and one that suits a keyed count better
BROKERS: list[int] = []  # their processes, which are no contestant's


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


def kafka_streams(bench: Bench, name: str, what: str, inputs: str = "in") -> Figure:
    """From its first record to the commit of the last; the better of two commit intervals. `inputs`: with commas between."""
    found = (_kafka_streams(bench, f"{name}-{ms}", what, inputs, ms) for ms in COMMIT_MS)
    return max(found, key=lambda one: one.records_per_s)


def _kafka_streams(bench: Bench, name: str, what: str, inputs: str, commit_ms: int) -> Figure:
    command = kafka_streams_program("KafkaStreamsPeer", bench.root)
    arguments = [inputs, bench.output(f"{name}-out"), name, str(bench.root / name), what, str(commit_ms)]
    said, cpu_s = answer_of([*command, bench.servers, *arguments], "seconds")
    return Figure(bench.records / said, cpu_s)


def answer_of(command: list[str], word: str) -> tuple[float, float]:
    """The number behind `word` in what a peer prints, and the CPU seconds that it took."""
    before = os.times()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800, check=True)
    after = os.times()
    line = next(line for line in done.stdout.splitlines() if line.startswith(f"{word} "))
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    return float(line.split()[1]), used_s


Contestant = Callable[[Bench, str, str], Figure]


def compare(bench: Bench, what: str, repeat: int, contestants: Mapping[str, Contestant]) -> None:
    """Let each have its turn, `repeat` times (the slowest once), and print the best of each as a table."""
    best: dict[str, Figure] = {}
    for turn in range(repeat):
        for number, (name, run) in enumerate(contestants.items()):
            if name == QUIX and turn:
                continue
            figure = run(bench, f"bench-{what}-{number}-{turn}", what)
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


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def spark_of(bench_root: Path, servers: str) -> Any:
    """The session that all of Spark's contestants share, with its Python workers started."""
    app = hr.App("bench-session", system=f"kafka://{servers}", local_store_dir=str(bench_root / "session"))
    session_of(app, config_of(app))
    cores = app.spark.sparkContext.defaultParallelism

    def nothing(batches: Any) -> Any:  # in here it travels by value: workers cannot import this module
        import headrace.wiring.worker.entry
        import headrace.wiring.worker.kafka_worker  # noqa: F401  (its imports are part of a worker's start)

        yield from batches

    for _ in range(3):
        app.spark.range(0, cores, 1, cores).mapInArrow(nothing, "id long").collect()
    return app.spark
