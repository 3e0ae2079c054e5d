"""SIGKILL of the driver at every step between a startpoint's writing and its removal: it is applied once, and never lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.checker import KillReport
from chaos.children import Children, sprung
from expansion.world import told
from headrace.model.startpoint import PositionType, StartpointEntry
from startpoint_kills.world import Place, World

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("place", ["kafka", "log"], indirect=True),
]
SEED = 20310
START_STEPS = tuple(("start", step) for step in range(1, 13))
LATER_STEPS = {
    "kafka": tuple(("kafka", step) for step in (2, 4, 6, 7, 8, 9, 11)),
    "log": tuple(("log", step) for step in (1, 4, 6, 9, 11, 12, 13)),
}
SETTLE_STEPS = (("settle", 1), ("settle", 2))
AT_RANDOM = ("random", 0)
Steps = Sequence[tuple[str, int]]


def shuffled(steps: Steps) -> list[tuple[str, int]]:
    order = list(steps)
    random.Random(SEED).shuffle(order)
    return order


def kill_in_start(world: World, step: int, report: KillReport, kind: PositionType | None = None) -> StartpointEntry:
    """Ask for a startpoint while nothing runs, and kill the driver that starts then."""
    asked = world.ask(kind)
    run = world.run_of(until="caught-up", traps=f"kill:start:{step}:1")
    code = world.children.finish(run)
    assert (code, sprung(run)) == (-signal.SIGKILL, [f"kill start {step}"]), told(run)
    report.fault(f"start {step}", "SIGKILL", landed=True)
    return asked


def kill_in_change(world: World, at: tuple[str, int], report: KillReport) -> None:
    """Ask for a startpoint while the job runs, and kill the driver in the change that takes it up, or in what follows."""
    protocol, step = at
    traps, later = "", ""
    if protocol == "start":
        traps = f"kill:start:{step}:2"
    elif at != AT_RANDOM:
        later = f"kill:{protocol}:{step}:1"
    run = world.run_of(traps=traps, later=later)
    pid = world.at_work(run)
    world.ask()
    if at == AT_RANDOM:
        time.sleep(world.draw.uniform(0.3, 1.2))
        os.kill(pid, signal.SIGKILL)
    code = world.children.wait(pid)
    assert code == -signal.SIGKILL, f"{protocol} {step}: ended with {code}: {told(run)}"
    assert at == AT_RANDOM or sprung(run) == [f"kill {protocol} {step}"], told(run)
    report.fault("at random" if at == AT_RANDOM else f"{protocol} {step}", "SIGKILL", landed=True)


def judged(world: World, report: KillReport, landed: int) -> None:
    world.judge(report)
    world.close()
    print(report)
    report.verify(landed_min=landed)


def test_a_startpoint_of_a_stopped_job_is_applied_once_when_its_start_is_killed_at_every_step(
    tmp_path: Path, children: Children, place: Place
) -> None:
    report, world = KillReport(), World(tmp_path, children, place, len(START_STEPS), SEED)
    world.finish()
    for _, step in shuffled(START_STEPS):
        world.write(2)
        kill_in_start(world, step, report)
    judged(world, report, len(START_STEPS))


def test_what_was_resolved_before_the_kill_counts_after_it_wherever_the_end_is_by_then(
    tmp_path: Path, children: Children, place: Place
) -> None:
    steps = (9, 10, 11)  # before the transaction, between it and the removal of the request, after that
    report, world = KillReport(), World(tmp_path, children, place, len(steps), SEED)
    world.finish()
    for step in steps:
        asked = kill_in_start(world, step, report, PositionType.LATEST)
        taken = world.came_to(asked.id)
        assert (taken is None) == (step == 9)
        world.write(2)
        world.finish()
        assert taken in (None, world.came_to(asked.id)), "it was resolved again"
    judged(world, report, len(steps))


def test_a_startpoint_of_a_running_job_is_applied_once_when_its_change_is_killed_at_every_step(
    tmp_path: Path, children: Children, place: Place
) -> None:
    killed_in_changes(tmp_path, children, place, START_STEPS)


def test_a_startpoint_is_applied_once_when_the_job_is_killed_in_the_rounds_behind_it_and_as_it_is_settled(
    tmp_path: Path, children: Children, place: Place
) -> None:
    later = LATER_STEPS["kafka" if place.servers else "log"]
    killed_in_changes(tmp_path, children, place, (*later, *SETTLE_STEPS, AT_RANDOM, AT_RANDOM, AT_RANDOM))


def killed_in_changes(tmp_path: Path, children: Children, place: Place, steps: Steps) -> None:
    report, world = KillReport(), World(tmp_path, children, place, len(steps), SEED)
    world.finish()
    with world.producer():
        for at in shuffled(steps):
            kill_in_change(world, at, report)
    judged(world, report, len(steps))
