"""A job on a cluster that is this process: its containers are run at the location that they are planned for; the processes that
restore are real."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.adapters.lmdb import close_idle
from headrace.driver import store_restoration
from headrace.driver.job import Job
from headrace.exchange.engine import ContainerWork, RestoreWork
from headrace.exchange.store_restoring import RestoreAnswer, encoded_answer
from headrace.wiring import local_stores
from headrace.wiring.worker import entry, store_restoring
from headrace.wiring.worker.worker_state import forget
from support.located import HERE, LocatedEngine

NAME = "restored"


class Clustered(LocatedEngine):
    """Each container is run where it is planned for. While `is_held` workers say nothing of what they restore."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = False
        self.asked: list[str] = []  # the locations
        self.rounds: list[list[int]] = []  # the lanes of each

    def run(self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any) -> list[bytes]:
        mine = [work for group in works for work in group]
        self.rounds.append(sorted(work.lane for work in mine))
        return [self.at_home(work, program) for work in mine]

    def restore(self, works: Sequence[RestoreWork]) -> Sequence[bytes]:
        self.asked += [work.location for work in works]
        if self.is_held:
            return [encoded_answer(RestoreAnswer()) for _ in works]
        HERE.location = works[0].location
        return [store_restoring.restore(work.payload) for work in works]


def clustered(monkeypatch: pytest.MonkeyPatch) -> Clustered:
    for module in (entry, store_restoring, local_stores):
        monkeypatch.setattr(module, "location_of", lambda given: HERE.location)
    monkeypatch.setattr(store_restoration, "ASK_S", 0.05)
    return Clustered()


class Place:
    """An application that counts keys, which are in two partitions or more, and writes each count."""

    def __init__(self, root: Path, partitions: int, url: str | None = None) -> None:
        self.root, self.sent = root, Counter[str]()
        self.url = url or f"log:{root / 'log'}"
        self.name = NAME if url is None else f"{NAME}-{root.name}"  # others have used the broker
        self.input, self.output = (f"{stream}-{root.name}" for stream in ("in", "out"))
        with hr.open_system(self.url) as system:
            for stream in (self.input, self.output):
                system.create_stream(stream, partitions)

    def application(self, **keys: Any) -> hr.App:
        paths = {"local_store_dir": str(self.root / "stores"), "state_uri": str(self.root / "state")}
        pace = {"trigger_interval_ms": 5, "restore_inline_bytes": 0}
        app = hr.App(self.name, system=self.url, **paths, **(pace | keys))
        counts = app.stream(self.input, key=hr.String(), value=hr.String()).group_by_key().count(store="counts")
        counts.to_stream().to(self.output)
        return app

    def start(self, engine: Clustered, until: str | None = None, **keys: Any) -> Job:
        return wiring.start(self.application(**keys), until, engine=engine)

    def produce(self, count: int = 100) -> None:
        keys = [f"k{number % 10}" for number in range(count)]
        with hr.open_system(self.url) as log:
            log.produce(self.input, [(key, "") for key in keys], key=hr.String(), value=hr.String())
        self.sent.update(keys)

    def caught_up(self, engine: Clustered, **keys: Any) -> dict[str, Any]:
        job = self.start(engine, "caught-up", **keys)
        try:
            job.wait(60)
            return source_of(job)
        finally:
            job.stop()

    def keys_of(self, partition: int) -> set[str]:
        with hr.open_system(self.url) as log:
            return {record.key for record in log.consume(self.input, key=hr.String(), partitions=[partition])}

    def counted(self) -> dict[str, int]:
        with hr.open_system(self.url) as log:
            found = [(record.key, record.value) for record in log.consume(self.output, key=hr.String(), value=hr.Long())]
        for key in self.sent:
            mine = [value for name, value in found if name == key]
            assert mine == sorted(set(mine)), "each record is counted once"
        return dict(found)

    def lose(self, task: str) -> None:
        """As where a task comes to a machine that never had it: nothing of it is in memory either."""
        forget(self.name, str(self.root / "state"))
        close_idle()
        shutil.rmtree(self.root / "stores" / self.name / task)


def source_of(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = dict(job.status()["sub_topologies"]["source"])
    return found


def until(look: Callable[[], Any], within_s: float = 60.0) -> Any:
    deadline_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found


def done(place: Place, before: Mapping[str, int]) -> set[str]:
    """The keys that have been counted further than `before`."""
    return {key for key, count in place.counted().items() if count > before[key]}


def engine_is_busy(engine: Clustered) -> bool:
    """Whether rounds have been run within the last half second."""
    rounds = len(engine.rounds)
    time.sleep(0.5)
    return len(engine.rounds) > rounds


def job_model(place: Place) -> list[dict[str, Any]]:
    with hr.open_system(place.url) as log:
        model = log.job_store(place.name).job_model()
    assert model is not None
    (sub,) = model.sub_topologies
    return [
        {"lane": one.lane, "location": one.location_id, "tasks": [str(task.name) for task in one.tasks]}
        for one in sub.containers
    ]
