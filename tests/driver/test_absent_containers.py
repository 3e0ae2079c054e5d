"""Containers that took no part in their round: what the round counts as. The cluster is this process: its containers are run at
the location that they are planned for, unless a test has them run elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.core.affinity import absences
from headrace.driver.rounds import retries
from headrace.errors import RoundFailedError
from headrace.exchange.engine import WORKER_DIED, ContainerWork, EngineFailure
from headrace.exchange.messages import Summary, encoded
from headrace.wiring import local_stores
from headrace.wiring.worker import entry
from support.located import HERE, LOCATIONS, LocatedEngine
from support.world import source_of, waited


class Clustered(LocatedEngine):
    """Containers at `elsewhere` are run where others are, and decline; before that attempts have failed at the locations of
    `failures`."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: set[str] = set()
        self.failures: dict[str, EngineFailure] = {}
        self.rounds: list[set[str]] = []  # the locations of each

    def run(self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any) -> list[bytes]:
        mine = [work for group in works for work in group]
        self.rounds.append({str(work.location) for work in mine})
        return [self._answer(work, program) for work in mine]

    def _answer(self, work: ContainerWork, program: Any) -> bytes:
        if work.location in self.elsewhere:
            other = next(one for one in LOCATIONS if one != work.location)
            return encoded(Summary(work.lane, declined=other))
        return self.at_home(work, program)

    def failed_at(self, round_id: str) -> Mapping[str, EngineFailure]:
        return self.failures


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Clustered:
    for module in (entry, local_stores):
        monkeypatch.setattr(module, "location_of", lambda given: HERE.location)
    return Clustered()


class Place:
    """An application that copies and counts its input of two partitions, one at each location."""

    def __init__(self, folder: Path) -> None:
        self.url = f"log:{folder / 'log'}"
        self.app = hr.App("absent", self.url, state_uri=str(folder / "state"), local_store_dir=str(folder / "stores"))
        copied = self.app.stream("in", key=hr.String(), value=hr.Long()).map_values(lambda one: one.value, value=hr.Long())
        copied.to("out")
        copied.group_by_key().count(store="counts")
        with hr.open_system(self.url) as log:
            log.create_stream("in", 2)
            log.create_stream("out", 2)

    def produce(self, values: range) -> None:
        with hr.open_system(self.url) as log:
            log.produce("in", [(f"k{value}", value) for value in values], key=hr.String(), value=hr.Long())

    def read(self, stream: str, *partitions: int) -> list[int]:
        with hr.open_system(self.url) as log:
            return sorted(one.value for one in log.consume(stream, value=hr.Long(), partitions=list(partitions) or None))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_container_that_fails_at_home_again_and_again_ends_the_job(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the engine its last attempt, which ran elsewhere and declined, is no failure."""
    monkeypatch.setattr(retries, "FAILURES_MAX", 3)
    place.produce(range(30))
    engine.elsewhere = {"east"}
    engine.failures = {"east": EngineFailure("a Python worker died: EOFException", error_class=WORKER_DIED)}
    job = wiring.start(place.app, "caught-up", engine=engine)
    with pytest.raises(RoundFailedError) as caught:
        job.wait(60)
    text, done = str(caught.value), place.read("out")
    (lost,) = [partition for partition in (0, 1) if place.read("in", partition)[0] not in done]
    assert "failed 3 times, the last time: a worker process died while sub-topology 'source' worked on in partition" in text
    assert f"worked on in partition {lost}, offsets 0 to {len(place.read('in', lost)) - 1} (a Python worker died" in text
    assert "nothing of it was committed" not in text
    assert done == place.read("in", 1 - lost), "the other container has committed"
    assert job._generation.runners[None].progress.errors.keys() == {f"Partition_{lost}"}


def test_a_failure_at_home_that_does_not_come_again_ends_nothing(place: Place, engine: Clustered) -> None:
    place.produce(range(30))
    engine.elsewhere, engine.failures = {"east"}, {"east": EngineFailure("it died", error_class=WORKER_DIED)}
    job = wiring.start(place.app, engine=engine)
    try:
        waited(lambda: "it died" in source_of(job)["waiting_for"], job)
        engine.elsewhere.clear()
        waited(lambda: place.read("out") == list(range(30)), job)
    finally:
        job.stop()


def test_a_busy_location_is_not_asked_all_the_time_and_ends_nothing(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So it is, too, where a location has other answers from one process to another."""
    monkeypatch.setattr(absences, "AGAIN_S", 60.0)
    monkeypatch.setattr(absences, "AGAIN_S_MAX", 60.0)
    engine.elsewhere = {"east"}
    place.produce(range(30))
    with caplog.at_level(logging.WARNING):
        job = wiring.start(place.app, engine=engine)
    try:
        waited(lambda: source_of(job)["waiting_for"] == "a free executor at east", job)
        place.produce(range(30, 60))
        (mine,) = [one for one in (0, 1) if place.read("in", one)[0] in place.read("out")]
        waited(lambda: place.read("out") == place.read("in", mine), job)
        assert engine.rounds[0] == {"east", "west"} and engine.rounds[1:].count({"west"}) == len(engine.rounds) - 1
    finally:
        job.stop()
    assert "no executor at east was free for container" in caplog.text


def test_a_location_that_is_free_again_has_its_tasks_again(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absences, "AGAIN_S", 0.05)
    monkeypatch.setattr(retries, "FAILURES_MAX", 2)
    engine.elsewhere = {"east"}
    place.produce(range(30))
    job = wiring.start(place.app, "caught-up", engine=engine)
    try:
        waited(lambda: source_of(job)["counters"].get("containers_declined", 0) >= 3, job)
        engine.elsewhere.clear()
        job.wait(60)
    finally:
        job.stop()
    assert place.read("out") == list(range(30))
