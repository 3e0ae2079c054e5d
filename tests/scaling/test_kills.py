"""SIGKILL of the driver at every numbered step of a change of the elasticity factor, and of its first rounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

import headrace as hr
from expansion.killing import REST, ROUND_STEPS
from headrace.model.change import Outcome
from scaling.scaling_job import FIRST_FACTOR
from scaling.world import ScalingWorld
from support.checker import KillReport
from support.children import Children
from support.world import STORING_START_STEPS, Place, Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
SEED = 20320
FACTORS = (2, 8, 4, 1)
OF_A_MERGE = (("scale", 3), ("scale", 4))


def killed(folder: Path, children: Children, shape: str, place: Place, steps: Sequence[Step | None]) -> KillReport:
    """Change the factor once for each step, and kill the driver there; the next one goes on. Then a run to the end."""
    report, draw = KillReport(), random.Random(SEED)
    world = ScalingWorld(folder, place, children, shape)
    order, factor = list(steps), FIRST_FACTOR[shape]
    draw.shuffle(order)
    with world.producers():
        for at in order:
            if factor == 1 and at in OF_A_MERGE:
                world.rescale(8)  # which the next run has, before its trap is set
                factor = 8
            factor = next_factor(factor, is_merge=at in OF_A_MERGE)
            count, within_s = draw.randrange(1, 3), draw.uniform(0.0, 1.2)
            change = world.rescale if at not in OF_A_MERGE else world.rescale_apart
            world.killed_at_work(at, partial(change, factor), count=count, within_s=within_s)
            report.fault(f"{at[0]} {at[1]}" if at else "at random", "SIGKILL", landed=True)
    world.finish(keys=REST)
    world.finish(keys=REST)  # a merge of tasks that were apart was left to this start
    assert world.factors() == {factor}
    assert each_change_was_applied_once(world)
    world.judge(report)
    world.close()
    print(report)
    report.verify(landed_min=len(steps))
    return report


def each_change_was_applied_once(world: ScalingWorld) -> bool:
    """On record each change goes on from the one before, and no request is left."""
    with hr.elasticity(world.name, world.url) as scales:
        applied = [one for one in scales.history() if one.outcome is Outcome.APPLIED]
        for title in {one.what for one in applied}:
            mine = [(one.before, one.after) for one in applied if one.what == title]
            assert all(after == before for (_, after), (before, _) in pairwise(mine)), mine
            assert all(before != after for before, after in mine), mine
        return bool(applied) and not scales.open_requests()


def next_factor(factor: int, *, is_merge: bool) -> int:
    """Round and round, 1 to 2 to 8 to 4; a step that only a merge has gets one."""
    following = FACTORS[(FACTORS.index(factor) + 1) % len(FACTORS)]
    return 1 if is_merge and following > factor else following


@pytest.mark.soak_on("log")
def test_state_is_kept_when_the_driver_is_killed_at_every_step_of_a_change(
    tmp_path: Path, children: Children, place: Place
) -> None:
    killed(tmp_path, children, "prepared", place, [*STORING_START_STEPS, *(("scale", step) for step in (1, 2, 5, 6))])


@pytest.mark.soak_on("kafka")
def test_state_is_kept_when_the_driver_is_killed_while_tasks_are_brought_together(
    tmp_path: Path, children: Children, place: Place
) -> None:
    """On Kafka a round is seldom cut where tasks are apart; there it is a half committed round that leaves them so."""
    steps: list[Step] = [("scale", 4), ("scale", 4)] if place.kind == "kafka" else [("scale", 3), ("scale", 4), ("scale", 3)]
    killed(tmp_path, children, "gated", place, steps)


@pytest.mark.soak
def test_state_is_kept_when_the_driver_is_killed_in_the_first_rounds_of_another_factor(
    tmp_path: Path, children: Children, place: Place
) -> None:
    killed(tmp_path, children, "stateful", place, [*ROUND_STEPS[place.kind], None, None])
