"""SIGKILL of the driver at every step between a startpoint's writing and its removal: it is applied once, and never lost.

The start of a stopped job with a rewind pending is killed at every step in `rewinds/test_kills.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.model.startpoint import PositionType
from startpoint_kills.world import StartpointWorld
from support.checker import KillReport
from support.children import Children
from support.world import STORING_START_STEPS, Place, Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20310
LATER_STEPS = {
    "kafka": tuple(("kafka", step) for step in (2, 4, 6, 7, 8, 9, 11)),
    "log": tuple(("log", step) for step in (1, 4, 6, 9, 11, 12, 13)),
}
SETTLE_STEPS = (("settle", 1), ("settle", 2))
AT_RANDOM = (None, None, None)


@pytest.mark.soak_on("kafka")
def test_what_was_resolved_before_the_kill_counts_after_it_wherever_the_end_is_by_then(
    tmp_path: Path, children: Children, place: Place
) -> None:
    steps = range(1, 13)  # the transaction is behind step 9, and the removal of the request behind 10
    report, world = KillReport(), StartpointWorld(tmp_path, place, children, len(steps), SEED)
    world.finish()
    for step in steps:
        asked = world.ask(PositionType.LATEST)
        world.killed(("start", step))
        report.fault(f"start {step}", "SIGKILL", landed=True)
        taken = world.came_to(asked.id)
        assert (taken is None) == (step <= 9)
        world.write(2)
        world.finish()
        assert taken in (None, world.came_to(asked.id)), "it was resolved again"
    judged(world, report, len(steps))


@pytest.mark.soak_on("log")
def test_a_startpoint_of_a_running_job_is_applied_once_when_its_change_is_killed_at_every_step(
    tmp_path: Path, children: Children, place: Place
) -> None:
    killed_in_changes(tmp_path, children, place, STORING_START_STEPS)


@pytest.mark.soak_on("kafka")
def test_a_startpoint_is_applied_once_when_the_job_is_killed_in_the_rounds_behind_it_and_as_it_is_settled(
    tmp_path: Path, children: Children, place: Place
) -> None:
    killed_in_changes(tmp_path, children, place, (*LATER_STEPS[place.kind], *SETTLE_STEPS, *AT_RANDOM))


def killed_in_changes(tmp_path: Path, children: Children, place: Place, steps: Sequence[Step | None]) -> None:
    """Ask for a startpoint while the job runs, and kill the driver in the change that takes it up, or in what follows."""
    report, world = KillReport(), StartpointWorld(tmp_path, place, children, len(steps), SEED)
    world.finish()
    with world.producer():
        for at in random.Random(SEED).sample(steps, len(steps)):
            world.killed_at_work(at, world.ask, within_s=world.draw.uniform(0.3, 1.2))
            report.fault(f"{at[0]} {at[1]}" if at else "at random", "SIGKILL", landed=True)
    judged(world, report, len(steps))


def judged(world: StartpointWorld, report: KillReport, landed: int) -> None:
    world.judge(report)
    world.close()
    print(report)
    report.verify(landed_min=landed)
