"""Figures of a standalone group (docs/groups.md): processors on Kafka and ZooKeeper, beside instances of Kafka Streams on the
same broker, under the same load.

    .venv/bin/python bench/groups.py [kill|restart|rolling|pauses|all] [--trials N] [--sessions 3,10] [--keys N]
        [--without-streams]

kill     one of four is killed (-9) under a constant load, with a session timeout of 3 s and of 10 s: the time from there to the
         first commit of each task that it had, by its new owner; how many tasks move and how few could; the longest pause
         between two commits of a task that does not move, beside the usual one. Asked for: the usual one, which is a round
restart  all are stopped in order and started again, with so many keys in their local stores, and then without these stores: the
         time from the start to the first commit of each task, and how many tasks are on their processor again
rolling  one after the other is stopped in order and started again under a constant load: job models that are made (expected:
         none), tasks that move, and the longest pause of each task
pauses   what it costs that all rest, in Headrace alone: see bench/group_pauses.py

Exactly once, 64 partitions, a count of keys. Each processor is a process that is started as a program is, with a location and
a disk of its own; what it counts runs in that process (as in the tests: without Spark, which would need four JVMs), or with
`--engine spark` in a local Spark. Settings are the defaults of both systems, but for the session timeout; and the broker looks
for transactions that are too old every second, instead of every ten.

All is measured from outside. The clock is CLOCK_MONOTONIC of this process: a task has committed when a consumer of its own here
(read_committed) is given the first record of a transaction. A partition of the output has what one task writes, which puts its
id into each record; between two transactions there is a hole in the offsets. Figures are of one machine at one time: the ratios
are what can be compared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from commits_seen import Arrivals, Load, fed_names, name_of, write_all
from group_contestants import IDS, WAIT_S, Bench, Contestant, Instances, Processors
from group_pauses import pauses

from headrace.adapters.zookeeper_server.server import ZooKeeperServer
from headrace.testing.kafka_server import KafkaServer

BESIDE_S, BEHIND_S = 8.0, 3.0
# Kafka takes no session timeout below 6 s, unless it is told to
PROPERTIES = {"group.min.session.timeout.ms": "500"}


# --- one is killed ------------------------------------------------------------------------------------------------------------


def kill(made: Callable[[int], Contestant], sessions_s: Sequence[float], trials: int, filled: int) -> dict[str, float]:
    """What is printed in ratios: by title the seconds."""
    found: dict[str, float] = {}
    for session_s in sessions_s:
        contestant = made(round(session_s * 1e3))
        bench = contestant.bench
        with contestant.open() as arrivals, Load(bench.servers, contestant.input, bench.partitions, bench.rate):
            write_all(bench.servers, contestant.input, list(map(name_of, range(filled))))
            contestant.start(*IDS)
            tries = []
            for trial in range(trials):
                if trial:
                    contestant.start(*set(IDS) - contestant.processes.keys())
                contestant.settle(arrivals)
                leader = contestant.leader()
                others = [id_ for id_ in IDS[trial % 4 :] + IDS if id_ != leader]
                victim = others[0] if trial % 2 or not leader else leader
                tries.append(killed(contestant, arrivals, victim, "it led" if victim == leader else "it did not lead"))
        firsts = [first for one in tries for first in one.firsts_s]
        p50, p99 = np.percentile(firsts, [50, 99])
        found[f"first commits after a kill, session {session_s:g} s, p50"] = float(p50)
        found[f"first commits after a kill, session {session_s:g} s, most"] = max(firsts)
        found[f"longest pause of others, session {session_s:g} s"] = max(one.pause_s for one in tries)
        print(
            f"{contestant.title}, session timeout {session_s:g} s, {trials} killed: from the kill to the first commit of each "
            f"of its tasks by another {p50:.2f} s (p50), {p99:.2f} s (p99), {max(firsts):.2f} s (most); "
            f"{sum(one.moved for one in tries)} tasks have moved, at least {sum(one.least for one in tries)} had to; "
            f"the longest pause of a task that stayed {max(one.pause_s for one in tries):.2f} s, "
            f"{max(one.pause_s / one.usual_s for one in tries):.1f} times the usual one",
            flush=True,
        )
    return found


@dataclass(frozen=True, slots=True)
class Killed:
    """`usual_s`: the median pause between two commits before it; `pause_s`: the longest of a task that stayed."""

    firsts_s: Sequence[float]
    moved: int
    least: int
    pause_s: float
    usual_s: float


def killed(contestant: Contestant, arrivals: Arrivals, victim: str, what: str) -> Killed:
    time.sleep(BESIDE_S)
    before, pid = arrivals.owners(), contestant.processes[victim].pid
    lost = {task: f"{victim} {pid}" for task, who in before.items() if who == victim}
    killed_s = contestant.kill(victim)
    firsts = contestant.firsts(arrivals, killed_s, lost)
    time.sleep(BEHIND_S)
    end_s, after = time.monotonic(), arrivals.owners()
    stayed = [task for task in before if after[task] == before[task]]
    usual = [length_s for task in before for length_s, _ in arrivals.gaps(task, killed_s - BESIDE_S, killed_s)]
    longest_s, began_s = max(max(arrivals.gaps(task, killed_s, end_s)) for task in stayed)
    each = [max(arrivals.gaps(task, killed_s, end_s))[0] for task in stayed]
    first_s, last_s = min(firsts.values()), max(firsts.values())
    print(
        f"  {contestant.title}: {victim} is killed ({what}), with {len(lost)} tasks: first commits after {first_s:.2f} to "
        f"{last_s:.2f} s; a task that stayed paused for {np.median(each):.2f} s (median), {longest_s:.2f} s "
        f"(most, from {began_s - killed_s:.2f} s after the kill on); usually {np.median(usual):.2f} s (median), "
        f"{max(usual):.2f} s (most)",
        flush=True,
    )
    return Killed(list(firsts.values()), len(before) - len(stayed), len(lost), longest_s, float(np.median(usual)))


# --- all are started again ----------------------------------------------------------------------------------------------------


def restart(made: Callable[[int], Contestant], session_s: float, trials: int, keys: int) -> dict[str, float]:
    contestant = made(round(session_s * 1e3))
    bench, starts = contestant.bench, dict[str, list[Started]]()
    with contestant.open() as arrivals:
        write_all(bench.servers, contestant.input, list(map(name_of, range(keys))))
        began_s = time.monotonic()
        contestant.start(*IDS)
        contestant.until(f"{keys:,} keys are counted", lambda: arrivals.records >= keys, 2 * WAIT_S)
        print(f"  {contestant.title}: {keys:,} keys are counted after {time.monotonic() - began_s:.1f} s", flush=True)
        with Load(bench.servers, contestant.input, bench.partitions, bench.rate):
            contestant.settle(arrivals)
        for kind in ("warm", "cold") * trials:
            starts.setdefault(kind, []).append(started_again(contestant, arrivals, kind == "cold"))
    found, after, of_it = dict[str, float](), dict[str, float](), ""
    for kind, mine in starts.items():
        took, home = [first for one in mine for first in one.firsts_s], min(one.home for one in mine)
        p50, p99 = np.percentile(took, [50, 99])
        found |= {f"{kind} restart, p50": float(p50), f"{kind} restart, most": max(took)}
        loaded_s = float(np.median([one.loaded_s for one in mine]))
        of_it = f"; of it {loaded_s:.2f} s until all programs are loaded" if loaded_s else ""
        after[kind] = float(np.median([first - one.loaded_s for one in mine for first in one.firsts_s]))
        print(
            f"{contestant.title}, {keys:,} keys, {kind} start: first commits of the tasks after {p50:.2f} s (p50), {p99:.2f} s "
            f"(p99), {max(took):.2f} s (most){of_it}; {100 * home:.1f} % of the tasks are on their processor again",
            flush=True,
        )
    p50, most = (found[f"cold restart, {which}"] / found[f"warm restart, {which}"] for which in ("p50", "most"))
    without = f"; without the loading of programs {after['cold'] / after['warm']:.2f} times (p50)" if of_it else ""
    print(f"{contestant.title}: cold takes {p50:.2f} times as long as warm (p50), {most:.2f} times (most){without}", flush=True)
    return found


@dataclass(frozen=True, slots=True)
class Started:
    """From the start of all processes: the first commit of each task, and when the last process had loaded its program (0 where
    that is not known). `home`: the share of the tasks that are on their processor again."""

    firsts_s: Sequence[float]
    loaded_s: float
    home: float


def started_again(contestant: Contestant, arrivals: Arrivals, is_cold: bool) -> Started:
    bench = contestant.bench
    one_each = [names[0] for names in fed_names(bench.partitions, 1).values()]
    time.sleep(1.0)  # what has arrived is counted
    before = arrivals.owners()
    runs = {task: f"{who} {contestant.processes[who].pid}" for task, who in before.items()}
    contestant.stop(*IDS)
    if is_cold:
        contestant.delete_local_stores()
    write_all(bench.servers, contestant.input, one_each)
    began_s = time.monotonic()
    contestant.start(*random.sample(IDS, len(IDS)))
    firsts, after, begun_s = contestant.firsts(arrivals, began_s, runs), arrivals.owners(), contestant.begun_s()
    home = sum(after[task] == before[task] for task in before) / len(before)
    return Started(list(firsts.values()), 0.0 if begun_s is None else begun_s - began_s, home)


# --- one after the other is started again -------------------------------------------------------------------------------------


def rolling(made: Callable[[int], Contestant], session_s: float, filled: int) -> dict[str, float]:
    contestant = made(round(session_s * 1e3))
    bench, own, others, parts = contestant.bench, list[float](), list[float](), list[tuple[float, float]]()
    with contestant.open() as arrivals, Load(bench.servers, contestant.input, bench.partitions, bench.rate):
        write_all(bench.servers, contestant.input, list(map(name_of, range(filled))))
        contestant.start(*IDS)
        before, models = contestant.settle(arrivals), contestant.job_models()
        time.sleep(BESIDE_S)
        now_s = time.monotonic()
        usual = [length_s for task in before for length_s, _ in arrivals.gaps(task, now_s - BESIDE_S, now_s)]
        for id_ in IDS:
            owners, pid, since_s = arrivals.owners(), contestant.processes[id_].pid, time.monotonic()
            runs = {task: f"{id_} {pid}" for task, who in owners.items() if who == id_}
            contestant.stop(id_)
            ended_s = time.monotonic()
            contestant.start(id_)
            contestant.firsts(arrivals, since_s, runs)
            if (begun_s := contestant.begun_s()) is not None:
                parts.append((ended_s - since_s, begun_s - ended_s))
            contestant.settle(arrivals)
            for task in owners:
                longest_s, _ = max(arrivals.gaps(task, since_s, time.monotonic()))
                (own if task in runs else others).append(longest_s)
        after, made_models = arrivals.owners(), contestant.job_models()
    moved = sum(after[task] != before[task] for task in before)
    told = "" if models is None or made_models is None else f"{made_models - models} job models were made (expected: 0), "
    ends_s, loads_s = np.median(parts, axis=0) if parts else (0.0, 0.0)
    of_it = f", with {ends_s:.2f} s to its end and {loads_s:.2f} s until the program is loaded" if parts else ""
    print(
        f"{contestant.title}, one after the other is stopped and started: {told}{moved} tasks are on another processor; the "
        f"longest pause of a task of the one that restarts {np.median(own):.2f} s (p50{of_it}), {max(own):.2f} s (most), of "
        f"the others' {np.median(others):.2f} s (p50), {max(others):.2f} s (most); usually {np.median(usual):.2f} s (median)",
        flush=True,
    )
    longest = "longest pause in a rolling restart"
    return {f"{longest} of a task of the one that restarts, p50": float(np.median(own)), longest: max(own + others)}


def compare(ours: Mapping[str, float], theirs: Mapping[str, float]) -> None:
    for what in ours.keys() & theirs.keys():
        ratio = theirs[what] / ours[what]
        print(f"{what}: Headrace {ours[what]:.2f} s, Kafka Streams {theirs[what]:.2f} s, {ratio:.2f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="all", choices=["kill", "restart", "rolling", "pauses", "all"])
    parser.add_argument("--trials", type=int, default=2, help="kills, restarts, changes, of each kind")
    parser.add_argument("--sessions", default="3,10", help="session timeouts in seconds, with commas")
    parser.add_argument("--keys", type=int, default=1_000_000, help="of all tasks together, for `restart`")
    parser.add_argument("--filled", type=int, default=0, help="the same for `kill` and `rolling`, beside those that are fed")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rate", type=float, default=10.0, help="records per second and task")
    parser.add_argument("--engine", default="inline", choices=["inline", "spark"], help="what Headrace's processors run on")
    parser.add_argument("--without-streams", action="store_true", help="leave Kafka Streams out")
    parser.add_argument("--only-streams", action="store_true", help="leave Headrace out")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs, and print its name")
    given = parser.parse_args()
    sessions_s = [float(text) for text in given.sessions.split(",")]
    parts: dict[str, Callable[[Callable[[int], Contestant]], dict[str, float]]] = {
        "kill": lambda made: kill(made, sessions_s, given.trials, given.filled),
        "restart": lambda made: restart(made, 10.0, given.trials, given.keys),
        "rolling": lambda made: rolling(made, 10.0, given.filled),
    }
    kinds: list[type[Contestant]] = [] if given.only_streams else [Processors]
    kinds += [] if given.without_streams else [Instances]
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with KafkaServer(folder=root / "broker", heap_mb=1024, properties=PROPERTIES) as kafka, ZooKeeperServer() as zookeeper:
            bench = Bench(kafka.bootstrap, zookeeper.address, root, given.partitions, given.rate, given.engine)
            for part in [*parts, "pauses"] if given.part == "all" else [given.part]:
                print(f"-- {part}; the load of the last minute is {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
                what = "a local Spark each" if given.engine == "spark" else "no Spark: functions run in each processor"
                print(f"   {len(IDS)} processes, {given.partitions} tasks, {given.rate:g} records/s each; {what}", flush=True)
                if part == "pauses":
                    pauses(bench, given.trials)
                    continue
                found = [parts[part](partial(kind, bench)) for kind in kinds]
                if len(found) == 2:
                    compare(*found)
    finally:
        if given.keep:
            print(root)
        else:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
