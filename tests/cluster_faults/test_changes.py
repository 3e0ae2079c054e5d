"""What changes the plan of a job, on three machines and with state: more partitions, another scale, a rewind; and what ends it
once it has caught up. What is written is judged by plain models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from cluster.conftest import Driver
from cluster.machines import until
from cluster_faults.conftest import MACHINES
from cluster_faults.machines import FaultyCluster
from cluster_faults.world import WAIT_S, Faulty, running
from support.fixtures import only_on

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300, func_only=True)]
Keys = Callable[..., dict[str, Any]]
WORLD, place = Faulty, only_on("kafka")


@pytest.mark.soak
def test_a_stream_that_grows(cluster: FaultyCluster, driver: Driver, world: Faulty, job_keys: Keys) -> None:
    """New partitions go to the tasks that have the state of their keys, where these are."""
    world.create(3)
    with running(driver, cluster, world, job_keys, partition_check_interval_s=0.5):
        with world.fed():
            world.wait_until_all_move_on()
            homes = world.homes()
            world.system.expand_stream(world.stream("orders"), 6)
            until(lambda: world.job_model() == 2, WAIT_S)
            world.wait_until_all_move_on()
            assert world.homes() == homes
        world.judge()
    assert {one.task for one in world.done()} == set(homes)


@pytest.mark.soak
def test_another_scale_and_back(cluster: FaultyCluster, driver: Driver, world: Faulty, job_keys: Keys) -> None:
    """The slices of a task are where it was."""
    world.create()
    with running(driver, cluster, world, job_keys):
        with world.fed():
            world.wait_until_all_move_on()
            homes = world.homes()
            for factor in (2, 1):
                driver.ask(elasticity=factor)
                until(lambda count=6 * factor: len(world.homes()) == count, WAIT_S)
                assert all(homes[task.partition("-")[0]] == home for task, home in world.homes().items())
                world.wait_until_all_move_on()
            assert world.homes() == homes
        world.judge()


@pytest.mark.soak
def test_a_rewind_of_the_state(cluster: FaultyCluster, driver: Driver, world: Faulty, job_keys: Keys) -> None:
    """All is read again, and counted once; tasks stay where they are."""
    world.create()
    with running(driver, cluster, world, job_keys):
        with world.fed():
            world.wait_until_all_move_on()
            homes, before = world.homes(), len(world.done())
            with hr.startpoints(world.name, world.url) as points:
                points.set(world.stream("orders"), "earliest", state="rewind")
            until(lambda: len(world.replayed()) >= before, WAIT_S)
            world.wait_until_all_move_on()
            assert world.homes() == homes
        world.judge()
    assert all(homes[one.task] == one.host for one in world.replayed())


@pytest.mark.soak
def test_all_at_once_while_a_machine_is_back_and_an_executor_dies(
    cluster: FaultyCluster, driver: Driver, world: Faulty, job_keys: Keys
) -> None:
    """More partitions, another factor and a rewind are requested as a machine returns whose tasks are with the others."""
    world.create(3)
    with running(driver, cluster, world, job_keys, processor_return_wait_s=1.0, partition_check_interval_s=0.5):
        with world.fed():
            world.wait_until_all_move_on()
            there, before = set(world.homes().values()), len(world.done())
            cluster.kill(MACHINES[2])
            until(lambda: len(set(world.homes().values())) == len(there) - 1, WAIT_S)
            world.wait_until_all_move_on()
            cluster.start(MACHINES[2])
            world.system.expand_stream(world.stream("orders"), 6)
            with hr.startpoints(world.name, world.url) as points:
                points.set(world.stream("orders"), "earliest", state="rewind")
            driver.ask(elasticity=2)
            cluster.kill_executor(MACHINES[0])
            until(lambda: len(world.homes()) == 6 and set(world.homes().values()) == there, WAIT_S)
            until(lambda: len(world.replayed()) >= before, WAIT_S)
            world.wait_until_all_move_on()
        world.judge(has_grown_in_a_replay=True)
    assert world.system.describe_stream(world.stream("orders")).partitions == 6


@pytest.mark.soak
def test_until_caught_up_with_an_executor_that_dies(
    cluster: FaultyCluster, driver: Driver, world: Faulty, job_keys: Keys
) -> None:
    """It ends by itself, once, with all that was there at its start; the next run begins with what came since."""
    world.create()
    command = {"start": "worked", "until": "caught-up", "log": str(cluster.shared / f"{world.name}.log")}
    for run in range(2):
        world.produce_some(1_200, takes_s=0.005)
        driver.ask(**command, **job_keys(world.name, max_records_per_round=300))
        until(lambda least=1_200 * run + 200: len(world.done()) >= least, WAIT_S)
        cluster.kill_executor(MACHINES[run])
        driver.ask(wait=WAIT_S)
        assert len(world.done()) == len(world.sent)
    world.let_time_pass()
    driver.ask(**command, **job_keys(world.name))
    driver.ask(wait=WAIT_S)
    world.judge()
