"""`make cluster-demo`: the job of `headrace demo` on a Spark cluster of this machine, a host of which is lost and comes back.

It starts a master, three workers and a Kafka broker on addresses of loopback. Each worker is a location of its own, with local
stores of its own, by its environment. One worker is killed while the job runs: its tasks wait, then move. It is started again:
they come home. In the end all windows are compared with plain Python over the same flights. Exit code 0: they are equal, and
tasks have moved and come home. All that was started is ended, also by Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.adapters.spark.standalone import StandaloneCluster
from headrace.demo import data, run
from headrace.serdes.windowed import Windowed
from headrace.wiring.kafka_server import KafkaServer

NODES = {"node-1": "127.0.0.2", "node-2": "127.0.0.3", "node-3": "127.0.0.4"}
LOST = "node-2"
PARTITIONS, PARTS = 6, 4
AWAY_S = 3.0  # until the tasks of a lost location move
WAIT_S = 150.0  # for each thing that is waited for
HOUR_US = 3_600_000_000
Windows = Mapping[tuple[str, int], tuple[int, float]]  # carrier and start in µs: flights, mean delay

began_s = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - began_s:5.1f} s  {text}", flush=True)


def until(what: str, look: Callable[[], Any]) -> Any:
    """What `look` gives, once it is true."""
    until_s = time.monotonic() + WAIT_S
    while not (found := look()):
        if time.monotonic() > until_s:
            raise hr.WaitTimeoutError(f"{what}: not within {WAIT_S:.0f} s")
        time.sleep(0.2)
    return found


class Demo:
    """The job, its streams, and where its tasks are."""

    def __init__(self, folder: Path, system: str, master: str, flights: int) -> None:
        self.table = data.flights_table().slice(0, flights)
        self.app = hr.App("flight-delays")
        names: dict[str, Any] = {"__name__": "flight_delays"}
        exec(compile(run.example_text(PARTITIONS, system), "flight_delays.py", "exec"), names)
        self.app = names["app"]
        self.app.config_arguments = {
            "system": system,
            "location_id": "env:NODE",
            "local_store_dir": "env:NODE_STORES",
            "state_uri": str(folder / "state"),
            "processor_return_wait_s": AWAY_S,
            "kafka.topic.retention.ms": "-1",  # the flights are of 2013
            "spark.master": master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": str(len(NODES)),
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
        }
        self.system = hr.open_system(system, kafka={"topic.retention.ms": "-1"})
        self.produced = 0
        self.before: dict[str, str] = {}

    def produce(self, part: int) -> None:
        size = -(-self.table.num_rows // PARTS)
        records = data.flight_records(self.table.slice(part * size, size))
        self.produced += self.system.produce(run.INPUT, records, key=hr.String(), value=hr.Json())

    def has_read_all(self, job: hr.Job) -> bool:
        status = job.status()["sub_topologies"]
        return status["source"]["records"] >= self.produced and all(one["lag"] == 0 for one in status.values())

    def homes(self) -> dict[str, str]:
        """The location of each task, as the job model in force has it."""
        model = self.system.job_store("flight-delays").job_model()  # type: ignore[attr-defined]  # for the driver's use
        placed = [(task, container) for sub in model.sub_topologies for container in sub.containers for task in container.tasks]
        return {str(task.name): str(container.location_id) for task, container in placed}

    def say_moves(self) -> tuple[frozenset[str], frozenset[str]]:
        """Say which tasks have moved since the last call; those that left and those that reached the node that is lost."""
        now, before = self.homes(), self.before
        moved = {task: (before[task], now[task]) for task in now if before.get(task, now[task]) != now[task]}
        for (source, target), count in sorted(Counter(moved.values()).items()):
            say(f"  {count} of {len(now)} tasks moved from {source} to {target}")
        self.before = now
        say(f"tasks per location: {', '.join(f'{place} {count}' for place, count in sorted(Counter(now.values()).items()))}")
        left = frozenset(task for task, (source, _) in moved.items() if source == LOST)
        return left, frozenset(task for task, (_, target) in moved.items() if target == LOST)

    def windows(self) -> Windows:
        output = self.system.consume(run.OUTPUT, key=Windowed(hr.String()), value=hr.Json())
        return {(one.key.key, one.key.start_us): (one.value["flights"], one.value["mean_delay"]) for one in output}


def windows_of(records: Iterable[hr.Record]) -> Windows:
    """The same in plain Python."""
    delays: dict[tuple[str, int], list[float]] = defaultdict(list)
    for one in records:
        if one.value["dep_delay"] is not None:
            delays[one.value["carrier"], one.timestamp_us // HOUR_US * HOUR_US].append(one.value["dep_delay"])
    return {place: (len(found), math.fsum(found) / len(found)) for place, found in delays.items()}


def are_equal(found: Windows, expected: Windows) -> bool:
    return found.keys() == expected.keys() and all(
        found[place][0] == flights and math.isclose(found[place][1], mean, rel_tol=1e-9, abs_tol=1e-9)
        for place, (flights, mean) in expected.items()
    )


def start_worker(cluster: StandaloneCluster, folder: Path, node: str) -> None:
    environment = {"NODE": node, "NODE_STORES": str(folder / node / "stores")}
    cluster.add_worker(node, NODES[node], folder / node, environment)


@contextmanager
def running(app: hr.App) -> Iterator[hr.Job]:
    job = app.start()
    try:
        yield job
    finally:
        job.stop()


def show(folder: Path, flights: int) -> bool:
    """Run it; whether all was as it is to be."""
    with ExitStack() as stack:
        say("starting a Kafka broker, a Spark master and three workers")
        kafka = stack.enter_context(KafkaServer(tell=say))
        cluster = stack.enter_context(StandaloneCluster(folder))
        for node in NODES:
            start_worker(cluster, folder, node)
        demo = Demo(folder, f"kafka://{kafka.bootstrap}", cluster.master, flights)
        stack.enter_context(demo.system)
        demo.system.create_stream(run.INPUT, PARTITIONS)
        demo.produce(0)
        for node in NODES:
            cluster.wait_for(node)
        say(f"{demo.produced:,} of {demo.table.num_rows:,} flights are in the stream; starting the job on {cluster.master}")
        job = stack.enter_context(running(demo.app))
        until("the first flights", lambda: demo.has_read_all(job))
        say("the job has read them")
        demo.say_moves()
        say(f"killing the worker of {LOST} and its executor, and producing more")
        cluster.kill_worker(LOST)
        demo.produce(1)
        until("a job model without the lost location", lambda: LOST not in demo.homes().values())
        left, _ = demo.say_moves()
        until("the flights that came meanwhile", lambda: demo.has_read_all(job))
        say(f"the others have read all {demo.produced:,} flights; starting the worker of {LOST} again")
        start_worker(cluster, folder, LOST)
        demo.produce(2)
        until("tasks at the location that is back", lambda: LOST in demo.homes().values())
        _, came = demo.say_moves()
        demo.produce(3)
        until("all flights", lambda: demo.has_read_all(job))
        found, expected = demo.windows(), windows_of(data.flight_records(demo.table))
        is_equal = are_equal(found, expected)
        say(f"{demo.produced:,} flights, {len(found):,} windows: {'equal to' if is_equal else 'NOT equal to'} plain Python")
        say(f"left {LOST} when it was lost: {', '.join(sorted(left))}")
        say(f"came when it was back: {', '.join(sorted(came))}")
        say(f"{len(left)} tasks left {LOST}, {len(left & came)} of them came home")
    say("everything that was started has ended")
    return is_equal and left == came and bool(came)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--flights", type=int, default=60_000, help="how many flights, from the first of January on")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="        %(message)s", stream=sys.stdout)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        with tempfile.TemporaryDirectory(prefix="hr-demo-") as folder:
            os.chdir(folder)
            return 0 if show(Path(folder), arguments.flights) else 1
    except KeyboardInterrupt:
        say("stopped; everything that was started has ended")
        return 130
    except hr.HeadraceError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
