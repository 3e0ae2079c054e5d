"""Drivers that should be dead, on the log: stopped at every step while another takes over, or alive when a second one comes."""

from __future__ import annotations

import os
import random
import signal
import socket
from pathlib import Path

import pytest

from chaos.world import SeededWorld
from support.checker import KillReport
from support.children import Children, report_of
from support.world import COMMIT_STEPS, START_STEPS, Place

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20261
# A driver stopped inside SQLite's write transaction holds its lock: nobody can take over, and the error says why.
HOLDS_THE_CATALOG = {("log", 10), ("log", 11), ("log", 12), ("start", 2), ("start", 3)}
STOPS = [step for step in (*COMMIT_STEPS["log"], *START_STEPS) if step not in HOLDS_THE_CATALOG and step != ("start", 1)]
TRIES = 4  # by chance another thread of the stopped driver holds the catalog: then it is tried again
AWAKE = {"stale_us": None, "silent": False}  # it takes over from nobody, and finds out that another has taken over


@pytest.fixture
def world(tmp_path: Path, children: Children) -> SeededWorld:
    return SeededWorld(tmp_path, Place(), children, SEED)


def taken_over(world: SeededWorld, step: tuple[str, int]) -> bool:
    """Stop a driver at a step, start another, let the first go on; whether the other one could take over."""
    stopped, pid = world.stopped(step, **AWAKE)
    successor = world.run_of(stale_us=0, lock_wait_s=0.5)
    succeeded = world.children.finish(successor) == 0
    committed = world.checkpoints()
    code = world.woken(pid)
    if succeeded:
        assert code == 1, f"{step}: a driver that was taken over ended well"
        assert report_of(stopped)["error"] == "FencedError", (step, report_of(stopped))
        assert world.checkpoints() == committed, f"{step}: the old driver committed"
    else:
        assert report_of(successor)["error"] == "StorageError", (step, report_of(successor))
        assert f"stayed locked by process {pid} (which is stopped)" in report_of(successor)["message"]
        assert code == 0, (step, report_of(stopped))
    return succeeded


def test_a_driver_stopped_at_any_step_cannot_commit_once_another_took_over(world: SeededWorld) -> None:
    draw = random.Random(SEED)
    report = KillReport()
    for step in STOPS:
        for _ in range(TRIES):
            world.produce(draw.randrange(45, 80))
            landed = taken_over(world, step)
            report.fault(f"{step[0]} {step[1]}", "SIGSTOP", landed=landed)
            if landed:
                break
    for step in sorted(HOLDS_THE_CATALOG):
        world.produce(draw.randrange(45, 80))
        assert not taken_over(world, step), f"{step}: taken over while the catalog was locked"
        report.fault(f"{step[0]} {step[1]}", "SIGSTOP", landed=True)
    world.produce(50)
    world.finish()
    world.judge(report)
    print(report)
    report.verify(landed_min=len(STOPS) + len(HOLDS_THE_CATALOG))


def test_a_store_that_a_stopped_process_holds_is_set_aside_and_said(world: SeededWorld) -> None:
    world.produce(60)
    world.finish()
    world.produce(60)
    _, pid = world.stopped(("log", 5), **AWAKE)  # it has its stores open
    successor = world.finish(stale_us=0)
    notes = " ".join(report_of(successor)["notes"])
    assert f"is held by process {pid}, which is stopped" in notes
    assert world.woken(pid) == 1
    world.produce(60)
    world.finish()
    report = KillReport()
    world.judge(report)
    report.verify(landed_min=0)
    assert not list((world.folder / "stores").rglob("*~1")), "the sibling is removed once the first folder is free"


def test_a_second_driver_says_who_holds_the_job_and_a_third_starts_when_that_one_is_killed(world: SeededWorld) -> None:
    world.produce(60)
    _, pid = world.stopped(("log", 4), 2, **AWAKE)
    second = world.run_of()
    assert world.children.finish(second) == 1
    assert report_of(second)["error"] == "JobHeldError"
    assert f"is run by process {pid} on host {socket.gethostname()}" in report_of(second)["message"]
    os.kill(pid, signal.SIGKILL)
    assert world.children.wait(pid) == -signal.SIGKILL
    world.finish()
    report = KillReport()
    world.judge(report)
    report.verify(landed_min=0)
