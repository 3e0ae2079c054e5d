"""SIGKILL of the driver at every numbered step, where one partition is cut into slices: on Kafka one container may have
committed when the other has not, and the next start finds them apart.

Nothing is lost or doubled, neither from a slice that had committed nor from one that had not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.killing import every_step_landed, finish_and_judge, kill_at_steps, steps_of
from chaos.world import SeededWorld
from support.checker import KillReport
from support.children import Children
from support.fixtures import place_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SEED = 20321
KEYS = {"elasticity_factor": 4, "containers": 2}
AFTER_A_COMMIT = ("kafka", 9)  # of the first container: the second is never begun
KILLS_MAX = 12


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, children: Children) -> Iterator[SeededWorld]:
    with SeededWorld(tmp_path, place_of(request, request.param), children, SEED, partitions=1, keys=KEYS) as made:
        yield made


@pytest.mark.parametrize("world", ["kafka", "log"], indirect=True)
def test_nothing_is_lost_or_doubled_when_the_driver_of_slices_is_killed_at_every_step(world: SeededWorld) -> None:
    kind, report = world.place.kind, KillReport()
    kill_at_steps(world, SEED, steps_of(kind), report)
    world.end()
    finish_and_judge(world, report)
    print(report)
    every_step_landed(report, kind)


@pytest.mark.parametrize("world", ["kafka"], indirect=True)
def test_a_container_that_had_committed_does_not_read_again_what_the_other_still_has_to(world: SeededWorld) -> None:
    report, apart, kills = KillReport(), 0, 0
    while apart < 2:  # by chance the other one had committed as well
        kills += 1
        assert kills <= KILLS_MAX, "one container has committed, and the other has not"
        world.produce(60)
        world.killed(AFTER_A_COMMIT)
        report.fault("between two commits", "SIGKILL", landed=True)
        stored = [one for task, one in world.checkpoints().items() if task.startswith("Partition_0-")]
        assert len(stored) == 4
        apart += len({position for one in stored for position in one["positions"].values()}) == 2
    finish_and_judge(world, report)
