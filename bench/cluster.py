"""Figures of a job on a Spark cluster: three machines (in namespaces of this one) with a worker of one core each, a standalone
master and a Kafka broker.

    .venv/bin/python bench/cluster.py [loss|streams|restart|rounds|all] [--trials N] [--keys N]

loss     a machine is killed while records keep coming: the time from there to the first commit of each task that moves (the
         wait for the machine's return is in it), how many tasks move and how few could, and the longest pause of a task that
         does not move, when the machine goes, when its tasks move, and when it is back; then the same of an executor alone,
         which is replaced
streams  one of four instances on Kafka Streams is killed, with a session timeout as long as that wait: the time from there to
         when all tasks commit again
restart  the job is started again with so many keys in its local stores, and then without these stores: the time from the start
         to the first commit of every task
rounds   what a small round and a large one take on the cluster, beside the same job in one process (`local[2]`), in one run

Exactly once, six tasks with state. Figures are of one machine at one time: the ratios are what can be compared.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from common import kafka_streams_program, system_of
from confluent_kafka import Consumer, TopicPartition

import headrace as hr

sys.path[:1] = [str(Path(__file__).resolve().parents[1] / "tests")]  # not this folder: its `cluster` is this script
# mypy knows no modules of the tests, whose machines these are; they are found on the path set above
from cluster.conftest import Driver  # type: ignore[import-not-found]  # noqa: E402
from cluster.machines import until  # type: ignore[import-not-found]  # noqa: E402
from cluster_faults.machines import FaultyCluster  # type: ignore[import-not-found]  # noqa: E402

MACHINES = ("machine-1", "machine-2", "machine-3")
TASKS, INSTANCES, WAIT_S, SETTLED_S = 6, 4, 300.0, 5.0
FED = 30  # keys that get a record ten times a second
RETURN_WAIT_S = 10.0  # the default
SMALL, LARGE = 60, 300_000  # records of a round
APPLICATIONS = "cluster_faults.application"


class Arrivals:
    """What is committed to a stream, and when it could be read."""

    def __init__(self, servers: str, stream: str, partitions: int) -> None:
        settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition(stream, number, 0) for number in range(partitions)])
        self.seen: list[tuple[float, bytes, bytes, int]] = []  # when, key, value, its own time in ms
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(10_000, 0.01):
                if message.error() is None:
                    self.seen.append((time.monotonic(), message.key() or b"", message.value() or b"", message.timestamp()[1]))

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def by_task(self) -> dict[str, list[tuple[float, float]]]:
        """Of an application that says who works on what: by task, when each record arrived, and when it was begun."""
        found = defaultdict[str, list[tuple[float, float]]](list)
        for arrived_s, _, value, _ in list(self.seen):
            done = msgspec.json.decode(value)
            if "task" in done:
                found[done["task"]].append((arrived_s, done["start"]))
        return found


class Bench:
    """A broker, and jobs of one application at a time on a cluster or in one process."""

    def __init__(self, url: str, root: Path) -> None:
        self.url, self.root = url, root
        self.servers = url.removeprefix("kafka://")

    @contextmanager
    def cluster(self) -> Iterator[tuple[FaultyCluster, Driver]]:
        with FaultyCluster(self.root / f"cluster-{uuid.uuid4().hex[:4]}", MACHINES) as cluster:
            driver = Driver(cluster, applications=APPLICATIONS, more={"spark.cores.max": "3", "spark.executor.cores": "1"})
            try:
                yield cluster, driver
            finally:
                driver.close()

    @contextmanager
    def one_process(self) -> Iterator[tuple[FaultyCluster, Driver]]:
        """The same without a cluster: its folders are there, and no worker."""
        with FaultyCluster(self.root / f"local-{uuid.uuid4().hex[:4]}", MACHINES, begin_with=0) as cluster:
            driver = Driver(cluster, applications=APPLICATIONS, more={"spark.master": "local[2]"})
            try:
                yield cluster, driver
            finally:
                driver.close()

    @contextmanager
    def application(self, output: str) -> Iterator[tuple[str, Arrivals]]:
        """Its name, and what is committed to one of its streams."""
        name = f"bench-{uuid.uuid4().hex[:6]}"
        with hr.open_system(self.url) as system:
            for stream in ("orders", "windows", "work", "counts"):
                system.create_stream(f"{name}-{stream}", TASKS)
        arrivals = Arrivals(self.servers, f"{name}-{output}", TASKS)
        try:
            yield name, arrivals
        finally:
            arrivals.end()

    @contextmanager
    def running(self, driver: Driver, cluster: FaultyCluster, kind: str, name: str, **more: Any) -> Iterator[None]:
        own = {"log": str(cluster.shared / f"{name}.log")} if kind == "worked" else {}
        keys = {"system": self.url, "local_store_dir": str(cluster.own / "stores"), "state_uri": str(cluster.shared / "state")}
        driver.ask(start=kind, until=None, name=name, trigger_interval_ms=20, **keys, **own, **more)
        try:
            yield
        finally:
            driver.ask(stop=True)

    @contextmanager
    def at_work(self) -> Iterator[tuple[FaultyCluster, Arrivals, str]]:
        """A job on the cluster whose records keep coming, once each task has committed."""
        with ExitStack() as open_now:
            cluster, driver = open_now.enter_context(self.cluster())
            name, arrivals = open_now.enter_context(self.application("work"))
            open_now.enter_context(self.fed(name))
            open_now.enter_context(self.running(driver, cluster, "worked", name, processor_return_wait_s=RETURN_WAIT_S))
            until(lambda: len(arrivals.by_task()) == TASKS, WAIT_S)
            yield cluster, arrivals, name

    def produce(self, name: str, keys: Sequence[bytes], value: bytes) -> None:
        at_us = int(time.time() * 1e6)
        with hr.open_system(self.url) as system:
            system.produce(f"{name}-orders", [hr.Record(key, value, at_us) for key in keys])

    @contextmanager
    def fed(self, name: str) -> Iterator[None]:
        """While the context is open each task gets some records ten times a second."""
        ending = threading.Event()

        def feed() -> None:
            number = 0
            with hr.open_system(self.url) as system:
                while not ending.wait(0.1):
                    number, at_us = number + 1, int(time.time() * 1e6)
                    value = msgspec.json.encode({"id": number})
                    system.produce(f"{name}-orders", [hr.Record(key, value, at_us) for key in names(0, FED)])

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()


def names(first: int, count: int) -> list[bytes]:
    return [b"key-%09d" % number for number in range(first, first + count)]


# --- a machine, or an executor, is lost --------------------------------------------------------------------------------------


def loss(bench: Bench, trials: int) -> None:
    with bench.at_work() as (cluster, arrivals, name):
        time.sleep(SETTLED_S)
        usual = pauses(arrivals, time.monotonic() - SETTLED_S)
        print(f"usual: {np.median(usual):.2f} s from one commit of a task to the next, {max(usual):.2f} s at most", flush=True)
        Machines(bench, cluster, arrivals, name).report(trials)
        Replaced(bench, cluster, arrivals, name).report(trials)


class Machines:
    """A machine is lost, and comes back."""

    def __init__(self, bench: Bench, cluster: FaultyCluster, arrivals: Arrivals, name: str) -> None:
        self.bench, self.cluster, self.arrivals, self.name = bench, cluster, arrivals, name

    def homes(self) -> dict[str, str | None]:
        opened: Any = hr.open_system(self.bench.url)
        with opened as system:
            model = system.job_store(self.name).job_model()
        assert model is not None
        return {str(task.name): one.location_id for one in model.sub_topologies[0].containers for task in one.tasks}

    def report(self, trials: int) -> None:
        first_s, lost_s, gone_s, back_s = list[float](), list[float](), list[float](), list[float]()
        moved = least = 0
        for trial in range(trials):
            victim, before, since_s = MACHINES[trial % 3], self.homes(), time.monotonic()
            self.cluster.kill(victim)
            until(lambda lost=victim: lost not in self.homes().values(), WAIT_S)
            after = self.homes()
            lost = [task for task, home in before.items() if home == victim]
            first_s += [at_s - since_s for at_s in self.first_commits(lost, since_s)]
            time.sleep(SETTLED_S)
            stayed = [task for task in after if after[task] == before[task]]
            waited_s = since_s + 0.9 * RETURN_WAIT_S
            lost_s += pauses(self.arrivals, since_s, stayed, longest=True, until_s=waited_s)
            gone_s += pauses(self.arrivals, waited_s, stayed, longest=True)
            moved, least = moved + len(after) - len(stayed), least + len(lost)
            since_s = time.monotonic()
            self.cluster.start(victim)
            until(lambda lost=victim: lost in self.homes().values(), WAIT_S)
            back = self.homes()
            returned = [task for task in back if back[task] != after[task]]
            self.first_commits(returned, since_s)
            time.sleep(SETTLED_S)
            back_s += pauses(self.arrivals, since_s, [task for task in back if task not in returned], longest=True)
            moved, least = moved + len(returned), least + TASKS // len(MACHINES)
        p50, p99 = np.percentile(first_s, [50, 99])
        print(f"a machine is lost, {trials} times: a task that moves commits again after {p50:.1f} s (p50), {p99:.1f} s (p99)")
        print(f"  of which {RETURN_WAIT_S:g} s are the wait for its return (processor_return_wait_s)")
        print(f"  {moved} tasks have moved, with its return; at least {least} had to")
        said = f"{_pair(lost_s)} at the loss, {_pair(gone_s)} when others move, {_pair(back_s)} at the return"
        print(f"  the longest pause of a task that stays (median, most): {said}", flush=True)

    def first_commits(self, tasks: Sequence[str], since_s: float) -> list[float]:
        """When each task's first record arrived that was begun after that time."""

        def found() -> list[float]:
            by_task = self.arrivals.by_task()
            firsts = [[at_s for at_s, begun_s in by_task[task] if begun_s > since_s] for task in tasks]
            return [min(times) for times in firsts] if all(firsts) else []

        times: list[float] = until(found, WAIT_S)
        return times


class Replaced(Machines):
    """An executor is lost, and its machine has another one."""

    def report(self, trials: int) -> None:
        first_s, stayed_s, moved = list[float](), list[float](), 0
        for trial in range(trials):
            until(lambda: len(set(self.homes().values())) == len(MACHINES), WAIT_S)
            victim, before, since_s = MACHINES[trial % 3], self.homes(), time.monotonic()
            (executor,) = until(lambda lost=victim: self.cluster.executors(lost), WAIT_S)
            os.kill(executor, signal.SIGKILL)
            mine = [task for task, home in before.items() if home == victim]
            first_s += [at_s - since_s for at_s in self.first_commits(mine, since_s)]
            time.sleep(SETTLED_S)
            stayed_s += pauses(self.arrivals, since_s, [task for task in before if task not in mine], longest=True)
            moved += sum(home != before[task] for task, home in self.homes().items())
        p50, p99 = np.percentile(first_s, [50, 99])
        print(f"an executor is lost, {trials} times: the first commit of its tasks after {p50:.1f} s (p50), {p99:.1f} s (p99)")
        print(f"  {moved} tasks have moved; the longest pause of another task (median, most): {_pair(stayed_s)}", flush=True)


def _pair(found_s: Sequence[float]) -> str:
    return f"{np.median(found_s):.2f}, {max(found_s):.2f} s"


def pauses(
    arrivals: Arrivals,
    since_s: float,
    tasks: Sequence[str] | None = None,
    *,
    longest: bool = False,
    until_s: float | None = None,
) -> list[float]:
    """The seconds from one commit of a task to its next one since then (until then, None: now); or of each task the most."""
    found, end_s = [], time.monotonic() if until_s is None else until_s
    for task, seen in arrivals.by_task().items():
        if tasks is None or task in tasks:
            times = sorted({at_s for at_s, _ in seen if since_s < at_s < end_s})
            gaps = [later - earlier for earlier, later in pairwise([since_s, *times, end_s]) if later - earlier > 0.02]
            found += [max(gaps)] if longest else gaps
    return found


# --- the same on Kafka Streams ----------------------------------------------------------------------------------------------


def streams(bench: Bench, trials: int) -> None:
    command, took_s = kafka_streams_program("KafkaStreamsMember", bench.root, heap_mb=256), list[float]()
    session_ms = str(round(RETURN_WAIT_S * 1e3))
    with bench.application("counts") as (name, arrivals), bench.fed(name):
        arguments = [bench.servers, f"{name}-orders", f"{name}-counts", name]

        def begun(number: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*command, *arguments, str(bench.root / name / str(number)), session_ms], stdout=subprocess.DEVNULL
            )

        instances = [begun(number) for number in range(INSTANCES)]
        try:
            for trial in range(trials):
                until(lambda: all_are_fed(arrivals, time.time() - 1.0), WAIT_S)
                time.sleep(4 * SETTLED_S)  # until all have their tasks
                victim = trial % INSTANCES
                instances[victim].kill()
                killed_s, since_s = time.time(), time.monotonic()
                until(lambda since=killed_s: all_are_fed(arrivals, since), WAIT_S)
                took_s.append(time.monotonic() - since_s)
                instances[victim].wait()
                instances[victim] = begun(victim)
        finally:
            for one in instances:
                one.kill()
                one.wait()
    print(
        f"Kafka Streams, one of {INSTANCES} instances is killed, {trials} times: all tasks commit again after "
        f"{np.median(took_s):.1f} s (p50), {max(took_s):.1f} s (most), with a session timeout of {RETURN_WAIT_S:g} s",
        flush=True,
    )


def all_are_fed(arrivals: Arrivals, since_s: float) -> bool:
    """Whether of each key something has arrived that was produced after that time."""
    return {key for _, key, _, at_ms in list(arrivals.seen) if at_ms > since_s * 1e3} >= set(names(0, FED))


# --- a restart --------------------------------------------------------------------------------------------------------------


def restart(bench: Bench, keys: int) -> None:
    with bench.cluster() as (cluster, driver), bench.application("counts") as (name, arrivals):
        for first in range(0, keys, 100_000):
            bench.produce(name, names(first, min(100_000, keys - first)), b"v")
        with bench.running(driver, cluster, "counted", name):
            until(lambda: len(arrivals.seen) >= keys, 4 * WAIT_S)

        def started_s() -> float:
            """From the start to when every task has committed."""
            bench.produce(name, names(0, SMALL), b"v")
            before, began_s = len(arrivals.seen), time.monotonic()
            with bench.running(driver, cluster, "counted", name):
                until(lambda: len(arrivals.seen) >= before + SMALL, WAIT_S)
                return time.monotonic() - began_s

        warm = [started_s() for _ in range(3)]
        for machine in MACHINES:
            shutil.rmtree(cluster.root / machine / "own" / "stores" / name)
        cold = started_s()
        print(f"a restart with {keys:,} keys: all tasks have committed {min(warm):.1f} to {max(warm):.1f} s after the start")
        print(f"  without the local stores: {cold:.1f} s, {cold / np.median(warm):.1f} times as long", flush=True)


# --- rounds -----------------------------------------------------------------------------------------------------------------


def rounds(bench: Bench, trials: int) -> None:
    found = {}
    for place, made in (("one process", bench.one_process), ("the cluster", bench.cluster)):
        with ExitStack() as open_now:
            cluster, driver = open_now.enter_context(made())
            name, arrivals = open_now.enter_context(bench.application("counts"))
            open_now.enter_context(bench.running(driver, cluster, "counted", name))
            took = {count: rounds_s(bench, name, arrivals, count, trials) for count in (SMALL, LARGE)}
            small, large = np.median(took[SMALL]), min(took[LARGE])
            found[place] = small, large
            print(
                f"{place}: {SMALL} records are committed after {small * 1e3:.0f} ms (median), {LARGE:,} after {large:.2f} s",
                flush=True,
            )
    ratios = [there / here for here, there in zip(*found.values(), strict=True)]
    print(f"the cluster takes {ratios[0]:.2f} times as long for a small round, and {ratios[1]:.2f} times for a large one")


def rounds_s(bench: Bench, name: str, arrivals: Arrivals, count: int, trials: int) -> list[float]:
    """How long it takes from the producer's call until all that came of it can be read; the first time does not count."""
    found = []
    with hr.open_system(bench.url) as system:
        for _ in range((5 * trials if count == SMALL else trials) + 1):
            records = [hr.Record(key, b"v" * 40, int(time.time() * 1e6)) for key in names(0, count)]
            before, began_s = len(arrivals.seen), time.monotonic()
            system.produce(f"{name}-orders", records)
            until(lambda least=before + count: len(arrivals.seen) >= least, WAIT_S)
            found.append(time.monotonic() - began_s)
            time.sleep(0.2)
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="all", choices=["loss", "streams", "restart", "rounds", "all"])
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--keys", type=int, default=1_000_000)
    given = parser.parse_args()
    parts: dict[str, Callable[[Bench], None]] = {
        "loss": lambda bench: loss(bench, given.trials),
        "streams": lambda bench: streams(bench, given.trials),
        "restart": lambda bench: restart(bench, given.keys),
        "rounds": lambda bench: rounds(bench, given.trials),
    }
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with system_of("kafka", root) as url:
            for part in parts if given.part == "all" else [given.part]:
                print(
                    f"-- {part}; the load of the last minute is {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True
                )
                parts[part](Bench(url, root))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
