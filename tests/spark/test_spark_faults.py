"""What must hold on Spark when workers die, hang or are cancelled, and when the job is stopped in the middle of a round."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from chaos.usual_job import usual
from chaos.world import SeededWorld
from headrace.driver import generation
from headrace.driver import job as jobs
from headrace.driver.rounds import retries
from headrace.errors import RoundFailedError
from support.checker import KillReport
from support.children import Children, wait_until_stopped
from support.world import Place, waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def seeded(tmp_path: Path, children: Children) -> SeededWorld:
    return SeededWorld(tmp_path, Place(), children, 7)


def caught_up(world: SeededWorld, spark: Any) -> KillReport:
    """Run the chaos job to its end on Spark, and judge it."""
    usual(world.run_of(), spark).start(until="caught-up").wait(150)
    report = KillReport()
    world.judge(report)
    return report


def test_python_workers_killed_at_every_step_of_theirs(seeded: SeededWorld, spark: Any, worker_steps: Any) -> None:
    seeded.produce(500)
    steps = range(2, 9)
    log = worker_steps(*(f"kill:log:{step}:{3 * number + 2}" for number, step in enumerate(steps)))
    report = caught_up(seeded, spark)
    died = [line.rpartition(" ")[0] for line in log.read_text().splitlines()]
    for step in steps:
        report.fault(f"log {step}", "worker SIGKILL", landed=f"kill log {step}" in died)
    print(report)
    report.verify(landed_min=len(steps))


def test_a_stopped_python_worker_does_not_hold_the_job_up_for_ever(
    seeded: SeededWorld, spark: Any, worker_steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "ROUND_WAIT_S", 3.0)
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 0.2)
    seeded.produce(100)
    log = worker_steps("stop:log:4:2")
    job = usual(seeded.run_of(keys={"max_round_ms": 100}), spark).start(until="caught-up")
    pid = int(waited(lambda: log.exists() and log.read_text()).split()[-1])
    wait_until_stopped(pid)
    job.wait(100)
    report = KillReport()
    seeded.judge(report)
    report.fault("log 4", "worker SIGSTOP", landed=True)
    report.verify()


def test_a_cancelled_round_whose_worker_lives_on_spoils_nothing(world: Any, tmp_path: Path) -> None:
    asleep, awake = tmp_path / "asleep", tmp_path / "awake"

    def slow_once(record: Any) -> int:
        """Sleeps through the cancel of its round, once; a plain sleep is cut short by no signal that is caught."""
        if record.value == 17 and not asleep.exists():
            asleep.touch()
            time.sleep(1.5)
            awake.touch()
        return int(record.value)

    world.produce(list(range(40)))
    app = world.app(max_records_per_round=40)
    stream = app.stream("in", key=hr.String(), value=hr.Json())
    stream.map_values(slow_once, value=hr.Json()).to("out")
    stream.group_by_key().count(store="counts").to_stream().to("counts")
    job = app.start(until="caught-up")
    waited(asleep.exists, job)
    for planned in list(job._generation._current.values()):
        job._launched.backend.engine.cancel(str(planned.id))
    job.wait(100)
    waited(awake.exists)
    assert sorted(world.values("out")) == list(range(40))
    assert {r.key: r.value for r in world.read("counts", hr.Long())} == {f"k{i}": 8 for i in range(5)}


def test_stop_in_the_middle_of_a_round_drops_it_whole(world: Any, tmp_path: Path) -> None:
    began, gate = tmp_path / "began", tmp_path / "gate"

    def slow(record: Any) -> int:
        if record.value >= 20 and not gate.exists():
            began.touch()
            time.sleep(0.2)
        return int(record.value)

    def application_() -> hr.App:
        app = world.app(max_records_per_round=20)
        stream = app.stream("in", key=hr.String(), value=hr.Json())
        stream.map_values(slow, value=hr.Json()).to("out")
        stream.group_by_key().count(store="counts").to_stream().to("counts")
        return app

    world.produce(list(range(20)))
    world.run(application_())
    world.produce(list(range(20, 40)))
    job = application_().start()
    waited(began.exists, job)
    job.stop()
    assert not job.is_running
    job.wait(1)  # a stop is no error
    assert sorted(world.values("out")) == list(range(20))
    gate.touch()
    world.run(application_())
    assert sorted(world.values("out")) == list(range(40))
    assert {r.key: r.value for r in world.read("counts", hr.Long())} == {f"k{i}": 8 for i in range(5)}


def test_a_worker_that_dies_again_and_again_ends_the_job(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FAILURES_MAX", 2)

    def deadly(record: Any) -> Any:
        if record.value == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return record.value

    world.produce(list(range(30)))
    app = world.app()
    app.stream("in", key=hr.String(), value=hr.Json()).map_values(deadly, value=hr.Json()).to("out")
    with pytest.raises(RoundFailedError) as caught:
        world.run(app)
    text = str(caught.value)
    assert "failed 2 times" in text
    assert "a Python worker died" in text
    assert "\tat " not in text
    assert "org.apache" not in text
    assert world.values("out") == []


def test_stop_returns_while_the_job_waits_for_records(world: Any) -> None:
    app = world.app()
    app.stream("in", key=hr.String(), value=hr.Json()).to("out")
    job = app.start()
    world.produce([1])
    waited(lambda: len(world.system.streams()) > 1 and world.values("out"), job)
    stopper = threading.Thread(target=job.stop)
    stopper.start()
    stopper.join(20)
    assert not stopper.is_alive()
    assert not job.is_running
