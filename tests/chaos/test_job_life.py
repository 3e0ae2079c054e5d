"""The life of a job in one process: what ends it ends all of it, is said by `wait`, and lets the next one start at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from chaos.usual_job import usual
from chaos.world import SeededWorld
from headrace.driver.rounds import retries
from headrace.errors import RoundFailedError, WaitTimeoutError
from headrace.exchange import fault_injection as steps
from support import world as worlds
from support.child import Run
from support.children import Children
from support.world import Place

pytestmark = pytest.mark.chaos


@pytest.fixture
def run(tmp_path: Path, children: Children) -> Run:
    world = SeededWorld(tmp_path, Place(), children, 1)
    world.produce(100)
    world.close()
    return world.run_of()


def started(run: Run, until: str | None = "caught-up", **keys: Any) -> Any:
    return worlds.started(usual(replace(run, keys=keys)), until)


def test_a_start_that_fails_gives_the_application_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 13):
        monkeypatch.setattr(steps, "_traps", [steps._Trap("raise", "start", step, 1, None)])
        with pytest.raises(steps.StepReached):
            started(run)
    monkeypatch.setattr(steps, "_traps", None)
    started(run).wait(60)


def test_a_round_that_fails_for_ever_ends_the_job_and_the_next_one_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FAILURES_MAX", 2)
    traps = [steps._Trap("raise", "log", 4, count, None) for count in range(1, 50)]
    monkeypatch.setattr(steps, "_traps", traps)
    job = started(run)
    with pytest.raises(RoundFailedError, match="failed 2 times"):
        job.wait(60)
    assert not job.is_running
    assert not [thread for thread in job._generation._threads if thread.is_alive()]
    monkeypatch.setattr(steps, "_traps", None)
    started(run).wait(60)


def test_a_round_that_fails_once_is_made_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    traps = [steps._Trap("raise", "log", step, 1, None) for step in range(2, 9)]
    monkeypatch.setattr(steps, "_traps", traps)
    job = started(run)
    job.wait(60)
    assert all(trap.seen > 1 for trap in traps), "a step was not reached again after it had failed"
    assert all(sub["lag"] == 0 and sub["round"] > 0 for sub in job.status()["sub_topologies"].values())


def test_a_job_that_waits_stops_though_its_trigger_is_an_hour(run: Run) -> None:
    job = started(run, until=None, trigger_interval_ms=3_600_000)
    with pytest.raises(WaitTimeoutError):
        job.wait(0.5)
    job.stop(20)
    job.wait(0)
    assert not job.is_running


def test_the_second_driver_in_one_process_is_refused(run: Run) -> None:
    job = started(run, until=None)
    with pytest.raises(hr.JobHeldError):
        started(run)
    job.stop(20)
    started(run).wait(60)
