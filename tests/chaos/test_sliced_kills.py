"""SIGKILL of the driver at every numbered step, where one partition is cut into slices: on Kafka one container may have
committed when the other has not, and the next start finds them apart.

Nothing is lost or doubled, neither from a slice that had committed nor from one that had not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from chaos.killing import every_step_landed, finish_and_judge, kill_at_steps, steps_of
from chaos.world import SeededWorld
from support.checker import KillReport
from support.children import Children, report_of, told
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


@pytest.mark.soak_on("log")
@pytest.mark.parametrize("world", ["kafka", "log"], indirect=True)
def test_nothing_is_lost_or_doubled_when_the_driver_of_slices_is_killed_at_every_step(world: SeededWorld) -> None:
    kind, report = world.place.kind, KillReport()
    kill_at_steps(world, SEED, steps_of(kind), report)
    world.end()
    finish_and_judge(world, report)
    print(report)
    every_step_landed(report, kind)


def apart(world: SeededWorld, times: int, report: KillReport) -> None:
    """Kill drivers until one container had committed what the other had not, so many times."""
    kills = 0
    while times:  # by chance the other one had committed as well
        kills += 1
        assert kills <= KILLS_MAX, "one container has committed, and the other has not"
        world.produce(60)
        world.killed(AFTER_A_COMMIT)
        report.fault("between two commits", "SIGKILL", landed=True)
        stored = [one for task, one in world.checkpoints().items() if task.startswith("Partition_0-")]
        assert len(stored) == 4
        times -= len({position for one in stored for position in one["positions"].values()}) == 2


@pytest.mark.soak
@pytest.mark.parametrize("world", ["kafka"], indirect=True)
def test_a_container_that_had_committed_does_not_read_again_what_the_other_still_has_to(world: SeededWorld) -> None:
    report = KillReport()
    apart(world, 2, report)
    finish_and_judge(world, report)


@pytest.mark.parametrize("world", ["kafka"], indirect=True)
def test_tasks_of_a_round_that_was_committed_by_half_are_brought_together_before_they_are_merged(world: SeededWorld) -> None:
    report = KillReport()
    for factor in (1, 4, 2):
        if factor != 4:
            apart(world, 1, report)
        with hr.elasticity(world.name, world.url) as scales:
            scales.set(factor)
        world.finish()
        world.finish()  # a merge was left to this start
        with hr.elasticity(world.name, world.url) as scales:
            assert {view.scale.factor for view in scales.scales()} == {factor}
            outcomes = [(change.after, change.outcome.value) for change in scales.history()]
        assert outcomes and {outcome for _, outcome in outcomes} == {"applied"}
    finish_and_judge(world, report)


BEFORE_ITS_COMMIT = ("kafka", 4)  # of the second container: the first has committed


@pytest.mark.soak
@pytest.mark.parametrize("world", ["kafka"], indirect=True)
def test_a_container_that_sleeps_through_a_merge_commits_nothing_when_it_wakes(world: SeededWorld) -> None:
    """Its sibling had committed the round; the merged tasks read on from there, and what wakes is of tasks that are gone."""
    report = KillReport()
    world.finish()
    world.produce(60)
    sleeping, pid = world.stopped(BEFORE_ITS_COMMIT, 2)
    stored = [one for task, one in world.checkpoints().items() if task.startswith("Partition_0-")]
    assert len({position for one in stored for position in one["positions"].values()}) == 2, "one of two has committed"
    with hr.elasticity(world.name, world.url) as scales:
        scales.set(2)
    world.finish(stale_us=0)
    world.finish(stale_us=0)  # a merge was left to this start
    committed = world.checkpoints()
    assert {task.rpartition("-")[2] for task in committed if task.startswith("Partition_0-")} == {"2"}
    assert world.woken(pid) == 1, told(sleeping)
    assert report_of(sleeping)["error"] == "FencedError", told(sleeping)
    assert world.checkpoints() == committed
    finish_and_judge(world, report)
