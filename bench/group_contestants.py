"""What bench/groups.py compares: processors of Headrace and instances of Kafka Streams, started and ended as programs are."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commits_seen import Arrivals
from common import PEERS, kafka_streams_program

import headrace as hr

IDS = ("a", "b", "c", "d")
WAIT_S, STABLE_S, LATE_S = 240.0, 5.0, 5.0


@dataclass(frozen=True, slots=True)
class Bench:
    servers: str
    zookeeper: str
    root: Path
    partitions: int
    rate: float
    engine: str


@dataclass
class Contestant(ABC):
    """An application `name` that several processes run, each with an id and a folder of its own."""

    bench: Bench
    session_ms: int
    name: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:6]}")
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    title = ""

    @abstractmethod
    def command(self, id_: str) -> list[str]: ...

    @abstractmethod
    def delete_local_stores(self) -> None: ...

    def leader(self) -> str:
        """The id of the one that leads; empty where there is none, or it is not known."""
        return ""

    def job_models(self) -> int | None:
        """How many were proposed; None where there are none."""
        return None

    def begun_s(self) -> float | None:
        """When the last of them had loaded its program; None where that is not known."""
        return None

    @property
    def input(self) -> str:
        return f"{self.name}-in"

    @property
    def folder(self) -> Path:
        return self.bench.root / self.name

    @contextmanager
    def open(self) -> Iterator[Arrivals]:
        """Its streams are there, and its processes are ended at last."""
        self.folder.mkdir()
        with hr.open_system(f"kafka://{self.bench.servers}") as system:
            for stream in ("in", "out"):
                system.create_stream(f"{self.name}-{stream}", self.bench.partitions)
        arrivals = Arrivals(self.bench.servers, f"{self.name}-out", self.bench.partitions)
        try:
            yield arrivals
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            arrivals.end()

    def start(self, *ids: str) -> None:
        for id_ in ids:
            with (self.folder / f"{id_}.log").open("ab") as log:
                self.processes[id_] = subprocess.Popen(self.command(id_), stdout=log, stderr=log)

    def kill(self, id_: str) -> float:
        """When that was."""
        killed_s, process = time.monotonic(), self.processes.pop(id_)
        process.kill()
        process.wait()
        return killed_s

    def stop(self, *ids: str) -> None:
        """In order, and wait for the end of all."""
        ended = [self.processes.pop(id_) for id_ in ids]
        for process in ended:
            process.send_signal(signal.SIGTERM)
        for process in ended:
            process.wait(WAIT_S)

    def until(self, what: str, look: Callable[[], object], within_s: float = WAIT_S) -> None:
        end_s = time.monotonic() + within_s
        while not look():
            dead = [id_ for id_, process in self.processes.items() if process.poll() is not None]
            if dead or time.monotonic() > end_s:
                logs = "\n".join((self.folder / f"{id_}.log").read_text(errors="replace")[-2000:] for id_ in dead)
                raise SystemExit(f"{self.title}: not within {within_s:g} s: {what}; processes that ended: {dead}\n{logs}")
            time.sleep(0.02)

    def settle(self, arrivals: Arrivals) -> dict[int, str]:
        """Wait until each task has committed just now, each process has some, and for a while none has moved; by task its
        process."""
        found: list[tuple[float, dict[int, str]]] = [(time.monotonic(), {})]

        def is_settled() -> bool:
            owners = arrivals.owners()
            if owners != found[-1][1]:
                found.append((time.monotonic(), owners))
            now_s = time.monotonic()
            is_whole = len(owners) == self.bench.partitions and set(owners.values()) == set(self.processes)
            commits = all(seen and now_s - seen[-1].at_s < LATE_S for seen in arrivals.commits.values())
            return is_whole and commits and now_s - found[-1][0] > STABLE_S

        self.until("all tasks commit, and none moves", is_settled)
        return found[-1][1]

    def firsts(self, arrivals: Arrivals, since_s: float, runs: Mapping[int, str]) -> dict[int, float]:
        """Of each task that `runs` names, the seconds from then to its first commit by another run than that."""
        found: dict[int, float] = {}

        def look() -> bool:
            for task in runs.keys() - found.keys():
                if (at_s := arrivals.first(task, since_s, runs[task])) is not None:
                    found[task] = at_s - since_s
            return found.keys() == runs.keys()

        self.until(f"first commits of {len(runs)} tasks", look)
        return found


@dataclass
class Processors(Contestant):
    """`program`: what they run, with `settings` beside those of all."""

    title = "Headrace"
    program: str = "headrace_processor.py"
    settings: dict[str, Any] = field(default_factory=dict)

    def command(self, id_: str) -> list[str]:
        own = self.folder / id_
        terms = {
            "processor_id": id_,
            "location_id": id_,
            "system": f"kafka://{self.bench.servers}",
            "coordinator": f"zookeeper://{self.bench.zookeeper}/headrace",
            "state_uri": str(self.folder / "state"),
            "local_store_dir": str(own / "stores"),
            "zookeeper.session.timeout.ms": self.session_ms,
            **self.settings,
        }
        own.mkdir(exist_ok=True)
        return [sys.executable, str(PEERS / self.program), self.name, self.bench.engine, str(own / "begun"), json.dumps(terms)]

    def delete_local_stores(self) -> None:
        for folder in self.folder.glob("*/stores"):
            shutil.rmtree(folder)

    def begun_s(self) -> float | None:
        return max(float((self.folder / id_ / "begun").read_text()) for id_ in self.processes)

    def leader(self) -> str:
        with zookeeper_at(self.bench.zookeeper) as client:
            group = self._group(client)
            first = min(client.get_children(f"{group}/processors"))
            return str(json.loads(client.get(f"{group}/processors/{first}")[0])["processor_id"])

    def job_models(self) -> int | None:
        with zookeeper_at(self.bench.zookeeper) as client:
            return int(json.loads(client.get(f"{self._group(client)}/jobModelVersion")[0])["proposed"])

    def _group(self, client: Any) -> str:
        (found,) = [node for node in client.get_children("/headrace") if node.startswith(f"{self.name}-")]
        return f"/headrace/{found}"


@contextmanager
def zookeeper_at(address: str) -> Iterator[Any]:
    from kazoo.client import KazooClient

    client = KazooClient(address)
    client.start(WAIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Instances(Contestant):
    title = "Kafka Streams"

    def command(self, id_: str) -> list[str]:
        program = kafka_streams_program("KafkaStreamsMember", self.bench.root, heap_mb=256)
        places = [self.bench.servers, self.input, f"{self.name}-out", self.name, str(self.folder / id_)]
        return [*program, *places, str(self.session_ms), id_]

    def delete_local_stores(self) -> None:
        for id_ in IDS:
            shutil.rmtree(self.folder / id_)
