"""SIGKILL of the driver at every numbered step of a new job model, and of its first rounds, while partitions are born."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from expansion.killing import ROUND_STEPS, drawn_pairs, kill_in_changes
from expansion.world import GrowingWorld
from support.checker import KillReport
from support.children import Children
from support.world import STORING_START_STEPS, Place, Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
SEED = 20280


def killed(folder: Path, children: Children, shape: str, place: Place, steps: Sequence[Step | None]) -> KillReport:
    report, draw = KillReport(), random.Random(SEED)
    for pair in drawn_pairs(draw, steps):
        world = GrowingWorld(folder, place, children, shape)
        kill_in_changes(world, draw, pair, report)
        world.judge(report)
        world.close()
    print(report)
    report.verify(landed_min=len(steps))
    return report


@pytest.mark.soak_on("log")
def test_state_and_order_are_kept_when_the_driver_is_killed_at_every_step_of_a_change(
    tmp_path: Path, children: Children, place: Place
) -> None:
    killed(tmp_path, children, "stateful", place, STORING_START_STEPS)


@pytest.mark.soak
def test_state_and_order_are_kept_when_the_driver_is_killed_in_the_first_rounds_of_a_new_model(
    tmp_path: Path, children: Children, place: Place
) -> None:
    killed(tmp_path, children, "stateful", place, [*ROUND_STEPS[place.kind], None])


@pytest.mark.soak_on("kafka")
def test_a_stateless_job_keeps_each_keys_order_when_it_is_killed_as_its_tasks_grow(
    tmp_path: Path, children: Children, place: Place
) -> None:
    in_rounds: list[Step] = [("kafka", 6), ("kafka", 9)] if place.kind == "kafka" else [("log", 6), ("log", 12)]
    killed(tmp_path, children, "stateless", place, [("start", 9), ("start", 10), *in_rounds, None, None])
