"""A stateful job on three machines, exactly once on Kafka, while its input keeps coming and executors and machines are killed
and stopped, aimed at the steps of a container's commit (protocol.md, "Steps").

What is judged: each effect of each record is there once, as a plain model has it; and of what is *committed*, no process has
begun on a task's next record before another one was done with the one before. An attempt that was stopped and then fenced may
well have worked beside its successor: nothing of it is committed.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from cluster.conftest import Driver
from cluster.machines import until
from cluster_faults.conftest import BACK_S, MACHINES
from cluster_faults.machines import FaultyCluster
from cluster_faults.traps import STEPS, Traps
from cluster_faults.world import Faulty, counter, running
from support.fixtures import only_on

ALL = "HEADRACE_TEST_CLUSTER_STEPS" in os.environ  # `make soak`
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_600 if ALL else 300, func_only=True)]
Keys = Callable[..., dict[str, Any]]
WORLD, place = Faulty, only_on("kafka")
# Else: process, produce, send the commit, and committed.
KILLED_AT, LOST_AT, STILL_AT = (STEPS,) * 3 if ALL else ((4, 6, 8, 9), (8,), (8,))


def test_workers_and_executors_that_are_killed(
    cluster: FaultyCluster, driver: Driver, traps: Traps, world: Faulty, job_keys: Keys
) -> None:
    world.create()
    with running(driver, cluster, world, job_keys, processor_return_wait_s=600.0):
        with world.fed():
            world.wait_until_all_move_on()
            for step in KILLED_AT:
                traps.hit("kill", step)
                world.wait_until_all_move_on()
            for step in LOST_AT:  # the worker is in its commit, and stays there: the round ends without it
                pid = traps.hit("stop", step)
                left_out = left_out_of_rounds(driver)
                cluster.kill_executor(cluster.machine_of(pid))
                until(lambda before=left_out: left_out_of_rounds(driver) > before, 30.0)
                world.wait_until_all_move_on()
            assert world.job_model() == 1 and not world.changes()
        world.judge()
    assert {one.host for one in world.done()} == set(MACHINES)
    homes = world.homes()
    assert all(homes[one.task] == one.host for one in world.done()), "all that counts was done where the tasks are at home"


def left_out_of_rounds(driver: Driver) -> int:
    """How many containers were lost; or, where Spark was sooner, were run elsewhere and declined."""
    return counter(driver, "containers_lost") + counter(driver, "containers_declined")


@pytest.mark.soak
def test_a_machine_that_loses_power_in_a_commit(
    cluster: FaultyCluster, driver: Driver, traps: Traps, world: Faulty, job_keys: Keys
) -> None:
    """It comes back with another boot id: its stores cannot be trusted, those of the others can."""
    world.create()
    with running(driver, cluster, world, job_keys, processor_return_wait_s=600.0):
        with world.fed():
            world.wait_until_all_move_on()
            restored = counter(driver, "stores_restored")
            name = cluster.machine_of(traps.hit("stop", 8))
            cluster.kill(name)
            cluster.boot_ids[name] = str(uuid.uuid4())
            began_s = time.monotonic()
            until(lambda: len({one.host for one in world.done() if one.start > began_s}) == 2, 30.0)
            cluster.start(name)
            world.wait_until_all_move_on()
            assert counter(driver, "stores_restored") == restored + 2, "two tasks, one store file each"
        world.judge()
        assert world.job_model() == 1 and not world.changes()


@pytest.mark.soak
@pytest.mark.parametrize("step", STILL_AT)
def test_a_machine_that_stands_still_and_wakes(
    cluster: FaultyCluster, driver: Driver, traps: Traps, world: Faulty, job_keys: Keys, step: int
) -> None:
    """In the middle of a commit, for longer than Spark waits: others get its tasks. What wakes up commits nothing; and the
    machine takes part again."""
    world.create()
    with running(driver, cluster, world, job_keys, processor_return_wait_s=1.0):
        with world.fed():
            world.wait_until_all_move_on()
            name = cluster.machine_of(traps.hit("stop", step))
            cluster.freeze(name)
            try:
                until(world.changes, 60.0)
                assert world.changes()[0] == (f"{name} has left", "2 of 6 tasks moved")
                world.wait_until_all_move_on()
            finally:
                cluster.thaw(name)
            until(lambda: len(world.changes()) == 2, BACK_S, lambda: f"{driver.ask(status=True)}")
            assert world.changes()[1] == (f"{name} has joined", "2 of 6 tasks moved")
            world.wait_until_all_move_on()
        world.judge()
    assert set(world.homes().values()) == set(MACHINES)
