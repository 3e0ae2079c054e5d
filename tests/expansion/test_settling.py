"""The lasting barrier: stored once every producer knows of the new partitions, and respected by whoever reads again."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.core.keys.hashing import partition_of
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from headrace.testing import Driver
from support.world import Place, World, started, waited

KEYS = [f"key-{number}" for number in range(24)]


# --- stored, by a job that runs or by the next ------------------------------------------------------------------------


class Grown(World):
    """An application whose input grows from 2 to 4 partitions."""

    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {"partition_check_interval_s": 0.1, "trigger_interval_ms": 10}

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.input = self.stream("in")

    def started(self, settle_s: float) -> Any:
        app = self.app(settle_time_s=settle_s)
        records = app.stream(self.input, key=hr.String(), value=hr.Long())
        records.group_by_key().count(store="n").to_stream().to(self.stream("out"))
        return started(app)

    def send(self) -> None:
        self.produce_to("in", [(key, 1) for key in KEYS])

    def settled(self) -> list[Any]:
        """Per expansion on record its lasting barrier, None where it has none yet."""
        found = SystemStreamPartitionAssignmentManager(self.system.metadata_store(self.name)).read_partition_records()
        return [expansion.settled for expansion in found[self.input].expansions]


WORLD = Grown


def test_the_ends_of_the_old_partitions_are_stored_when_its_time_has_come(world: Grown) -> None:
    world.send()
    job = world.started(settle_s=1.0)
    world.system.expand_stream(world.input, 4)
    waited(lambda: job.status()["job_model"] == 2, job)
    world.send()
    waited(lambda: any(world.settled()), job)
    highs = world.system.high_watermarks(world.input)
    assert world.settled() == [{0: highs[0], 1: highs[1]}]
    job.stop()


def test_one_that_has_not_settled_does_so_under_the_next_driver(world: Grown) -> None:
    world.send()
    job = world.started(settle_s=3600.0)
    world.system.expand_stream(world.input, 4)
    waited(lambda: job.status()["job_model"] == 2, job)
    job.stop()
    assert world.settled() == [None]
    world.send()
    again = world.started(settle_s=0.5)
    waited(lambda: any(world.settled()), again)
    highs = world.system.high_watermarks(world.input)
    assert world.settled() == [{0: highs[0], 1: highs[1]}]
    again.stop()


def test_of_a_chain_each_expansion_settles(world: Grown) -> None:
    world.send()
    job = world.started(settle_s=0.5)
    for number, count in enumerate((4, 8), start=2):
        world.system.expand_stream(world.input, count)
        waited(lambda number=number: job.status()["job_model"] == number, job)
        world.send()
        waited(lambda number=number: len(world.settled()) == number - 1 and all(world.settled()), job)
    assert [sorted(ends) for ends in world.settled()] == [[0, 1], [0, 1, 2, 3]]
    job.stop()


# --- respected --------------------------------------------------------------------------------------------------------


def passing(app: hr.App) -> hr.App:
    """One record of output for each of input, in one partition: the order in which they were read."""
    records = app.stream("in", key=hr.String(), value=hr.Long())
    records.map_values(lambda record: record.value, value=hr.Long()).to("out", partitioner=lambda record, count: 0)
    return app


def send_all(driver: Driver, numbers: range, partitions: int) -> None:
    for number in numbers:
        for key in KEYS:
            driver.send("in", key, number, partition=partition_of(key.encode(), partitions))


def by_key(driver: Driver) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for record in driver.read("out"):
        found.setdefault(record.key, []).append(record.value)
    return found


def rewind(driver: Driver) -> None:
    """Put every task back to where its partitions begin."""
    for rounds in driver._opened.runners:
        stored = list(rounds.checkpoints.values())
        rounds.task_positions.move_to(replace(one, positions=dict.fromkeys(one.positions, 0)) for one in stored)


@pytest.mark.parametrize("round_records", [7, 40])
def test_who_is_set_back_behind_the_barrier_reads_the_parents_up_to_it_first(round_records: int) -> None:
    app = passing(hr.App("again", max_records_per_round=round_records, settle_time_s=60.0))
    with Driver(app, partitions={"in": 2, "out": 1}) as driver:
        send_all(driver, range(3), 2)
        driver.run()
        driver.expand("in", 4)
        send_all(driver, range(3, 5), 2)  # its producers do not know yet
        driver.run()
        send_all(driver, range(5, 8), 4)
        driver.run()
        wanted = {key: list(range(8)) for key in KEYS}
        assert by_key(driver) == wanted
        plan, job = driver._opened.plan, driver._held
        in_a_minute_us = time.time_ns() // 1000 + 61_000_000  # a new job model is dated by the machine's clock
        backend, us = job.backend, in_a_minute_us
        assert plan.records.settle(backend.system, backend.store, plan.epoch, ["in"], us, 60_000_000) == ("in",)
        rewind(driver)
        driver.run()
        assert by_key(driver) == wanted
