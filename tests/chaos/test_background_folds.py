"""SIGKILL of a driver whose state files are folded in the background, all of them: nothing of the state is lost or counted
twice, and no file is missing or left over."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from chaos.world import USUAL, SeededWorld
from support.checker import KillReport
from support.children import Children
from support.fixtures import place_of
from support.world import Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED, RECORDS = 20301, 700
STEPS: dict[str, tuple[Step, ...]] = {
    "log": (("log", 5), ("log", 8), ("log", 3)),
    "kafka": (("kafka", 5), ("kafka", 8), ("kafka", 10)),
}
OFTEN: dict[str, Any] = {"max_records_per_round": 20, "keep_state_versions": 1}  # a kept version has files of its own


@pytest.mark.soak_on("kafka")
@pytest.mark.parametrize("kind", ["log", "kafka"])
def test_no_state_is_lost_where_files_are_folded_in_the_background(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, children: Children
) -> None:
    draw, report = random.Random(SEED), KillReport()
    build = "chaos.usual_job:folding_in_background"
    with SeededWorld(tmp_path, place_of(request, kind), children, SEED, build, keys=OFTEN) as world:
        taken = set[str]()
        for step in STEPS[kind]:
            world.produce(RECORDS)
            world.killed(step, draw.randrange(20, 60))
            report.fault(f"{step[0]} {step[1]}", "SIGKILL", landed=True)
            taken |= folds_of(world)
        world.produce(RECORDS)
        world.finish()
        taken |= folds_of(world)
        assert taken, "no fold was taken"
        world.end()
        world.finish(build=USUAL)  # its start removes what nothing names
        world.judge(report)
        print(report)
        report.verify(landed_min=len(STEPS[kind]))
        named = {file["name"] for one in world.checkpoints().values() if one["head"] for file in one["head"]["files"]}
        state = world.folder / "state"
        there = {str(path.relative_to(state)) for path in state.rglob("*.arrow")}
        assert there == named


def folds_of(world: SeededWorld) -> set[str]:
    heads = [checkpoint["head"] for checkpoint in world.checkpoints().values()]
    return {file["name"] for head in heads if head for file in head["files"] if file["reaches"]}
