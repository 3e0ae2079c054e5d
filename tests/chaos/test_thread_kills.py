"""SIGKILL of the driver at every numbered step of the commit and at random moments, on each system, while virtual tasks work in
threads and rounds are cut in the midst of what they read: the tasks of a partition are nearly never at one position."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chaos.killing import kill_at_moments, kill_at_steps
from chaos.world import SeededWorld
from support.checker import KillReport
from support.child import Run
from support.children import Children
from support.fixtures import place_of
from support.world import COMMIT_STEPS

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20932
MOMENTS = 4


class Threaded(SeededWorld):
    """Its function waits for 2 ms at each record, and a round has time for a few."""

    THREADED: ClassVar[Mapping[str, Any]] = {
        "elasticity_factor": 4,
        "task_threads": 4,
        "max_round_ms": 40,
        "max_records_per_round": 200,
        "containers": 2,
    }

    def run_of(self, **options: Any) -> Run:
        keys = {**self.THREADED, **(options.pop("keys", None) or {})}
        return super().run_of(**{"pause_s": 0.002, **options}, keys=keys)


@pytest.mark.soak_on("log")
@pytest.mark.parametrize("kind", ["log", "kafka"])
def test_nothing_is_lost_or_doubled_when_threads_are_killed(
    request: pytest.FixtureRequest, tmp_path: Path, children: Children, kind: str
) -> None:
    report, steps = KillReport(), COMMIT_STEPS[kind]
    world = Threaded(tmp_path, place_of(request, kind), children, SEED)
    try:
        kill_at_steps(world, SEED, steps, report)
        kill_at_moments(world, SEED, MOMENTS, (0.3, 1.5), report)
        world.finish()
        calm = f"calm-{world.name}"
        undisturbed = {"elasticity_factor": 1, "task_threads": 1, "max_round_ms": 20_000}
        stores = str(world.folder / "stores-calm")
        run = world.finish(name=calm, input=world.stream("in"), stores=stores, keys=undisturbed, pause_s=0.0)
        world.judge(report, run)
        print(report)
        report.verify(landed_min=len(steps))
    finally:
        world.close()
