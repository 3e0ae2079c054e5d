"""A job some of whose containers took no part in a round: what it does until they do, and what has failed before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from driver.test_absent_containers import Clustered, Place, engine, place
from headrace import wiring
from headrace.core.affinity import absences
from headrace.driver import system_wait
from headrace.driver.rounds import retries
from headrace.driver.rounds.pauses import Pause
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import RoundFailedError, UnavailableError
from headrace.exchange.engine import WORKER_DIED, EngineFailure
from support.world import waited

__all__ = ["engine", "place"]
TEXT, NUMBER = hr.String(), hr.Long()


class Timed(hr.Processor[str, int, str, int]):
    """Sends one record per key, a second after its first."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        if record.value == 1:
            self.context.timer("t", after="1 s")

    def on_timer(self, timer: Any) -> None:
        self.context.forward(value=7)


def busy_in(engine: Clustered, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The location `east` has no free worker in the round of this number, from 1."""
    run = Clustered.run

    def ran(self: Clustered, *given: Any) -> list[bytes]:
        self.elsewhere = {"east"} if len(self.rounds) + 1 == number else set()
        return run(self, *given)

    monkeypatch.setattr(Clustered, "run", ran)


def test_timers_of_a_busy_lane_fire_before_a_run_ends(
    engine: Clustered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All is read by then, and in the round of the timers the location is busy."""
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as log:
        for stream in ("in", "out"):
            log.create_stream(stream, 2)
        for value, time_us in ((1, 1_000_000), (0, 90_000_000)):
            log.produce("in", [hr.Record(f"k{n}", value, time_us) for n in range(20)], key=TEXT, value=NUMBER)
    app = hr.App("timed", url, state_uri=str(tmp_path / "state"), local_store_dir=str(tmp_path / "stores"))
    app.stream("in", key=TEXT, value=NUMBER).process(Timed, key=TEXT, value=NUMBER).to("out")
    busy_in(engine, monkeypatch, 2)
    job = wiring.start(app, "caught-up", engine=engine)
    try:
        job.wait(60)
    finally:
        job.stop()
    with hr.open_system(url) as log:
        assert sorted(one.key for one in log.consume("out", key=TEXT, value=NUMBER)) == sorted(f"k{n}" for n in range(20))


def test_a_busy_lane_does_not_sit_out_for_a_whole_trigger_interval(
    engine: Clustered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place, folders = Place(tmp_path), {"state_uri": str(tmp_path / "state"), "local_store_dir": str(tmp_path / "stores")}
    app = hr.App("absent", place.url, trigger_interval_ms=600_000, **folders)
    app.stream("in", key=TEXT, value=NUMBER).map_values(lambda one: one.value, value=NUMBER).to("out")
    busy_in(engine, monkeypatch, 1)
    place.produce(range(30))
    job = wiring.start(app, "caught-up", engine=engine)
    try:
        job.wait(60)
    finally:
        job.stop()
    assert place.read("out") == list(range(30))


def test_a_system_that_was_away_twice_was_not_away_in_between(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds were committed in between, though none with all containers."""
    monkeypatch.setattr(system_wait, "SYSTEM_WAIT_S", 1.0)
    monkeypatch.setattr(absences, "AGAIN_S", 0.05)
    monkeypatch.setattr(absences, "AGAIN_S_MAX", 0.1)
    place.produce(range(30))
    run, away, due_s = Clustered.run, list[int](), [0.0]

    def ran(self: Clustered, *given: Any) -> list[bytes]:
        if time.monotonic() >= due_s[0] and len(away) < 2:
            due_s[0] = time.monotonic() + 3.0
            away.append(len(self.rounds))
            raise UnavailableError("a broker restarts", "wait")
        return run(self, *given)

    monkeypatch.setattr(Clustered, "run", ran)
    engine.elsewhere = {"east"}
    job = wiring.start(place.app, engine=engine)
    try:
        waited(lambda: len(away) == 2, job)
        engine.elsewhere.clear()
        waited(lambda: place.read("out") == list(range(30)), job)
    finally:
        job.stop()
    assert away[1] > away[0] + 1


def test_rounds_of_others_do_not_hide_that_a_container_fails_each_time(
    engine: Clustered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They have a backlog, and each round reads of some partitions only."""
    monkeypatch.setattr(retries, "FAILURES_MAX", 3)
    monkeypatch.setattr(retries, "DELAY_S_MAX", 0.01)
    url = f"log:{tmp_path / 'log'}"
    folders = {"state_uri": str(tmp_path / "state"), "local_store_dir": str(tmp_path / "stores")}
    app = hr.App("absent", url, max_records_per_round=2, **folders)
    app.stream("in", key=TEXT, value=NUMBER).map_values(lambda one: one.value, value=NUMBER).to("out")
    with hr.open_system(url) as log:
        for stream in ("in", "out"):
            log.create_stream(stream, 3)
        log.produce("in", [(f"k{n}", n) for n in range(120)], key=TEXT, value=NUMBER)
    engine.elsewhere = {"west"}
    engine.failures = {"west": EngineFailure("a Python worker died: EOFException", error_class=WORKER_DIED)}
    job = wiring.start(app, "caught-up", engine=engine)
    with pytest.raises(RoundFailedError, match="failed 3 times"):
        job.wait(60)
    assert sum("west" in one for one in engine.rounds) == 3


def test_a_sub_topology_that_is_done_behind_a_commit_without_an_answer_rests(
    place: Place, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce(range(30))
    commit, lost = SubTopologyRunner.commit, list[int]()

    def committed(self: SubTopologyRunner, planned: Any, summaries: Any) -> None:
        commit(self, planned, summaries)
        if not lost:
            lost.append(1)
            raise UnavailableError("the answer was lost", "")

    monkeypatch.setattr(SubTopologyRunner, "commit", committed)
    job: Any = wiring.start(place.app, "caught-up", engine=engine)
    try:
        job.wait(60)
    finally:
        job.stop()
    generation = job._generation
    generation._ending.clear()  # as in a processor of a group, whose others run on
    generation.pause({runner.sub.title: Pause(1) for runner in generation.runners.values()})
    assert lost and generation.rests(1)
