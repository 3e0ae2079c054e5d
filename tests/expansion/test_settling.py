"""The lasting barrier: stored once every producer knows of the new partitions, and respected by whoever reads again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.core.keys.hashing import partition_of
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from headrace.testing import Driver
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

KEYS = [f"key-{number}" for number in range(24)]
WAIT_S = 30.0


# --- stored, by a job that runs or by the next ------------------------------------------------------------------------


class Grown:
    """An application on one system whose input grows from 2 to 4 partitions."""

    def __init__(self, system: Any, url: str, root: Path) -> None:
        self.system, self._url, self._root = system, url, root
        self.name = f"settle-{uuid.uuid4().hex[:8]}"
        self.input = f"in-{self.name}"
        system.create_stream(self.input, 2)

    def started(self, settle_s: float) -> Any:
        app = hr.App(
            self.name,
            self._url,
            local_store_dir=str(self._root / "stores"),
            state_uri=str(self._root / "state"),
            partition_check_interval_s=0.1,
            trigger_interval_ms=10,
            settle_time_s=settle_s,
        )
        records = app.stream(self.input, key=hr.String(), value=hr.Long())
        records.group_by_key().count(store="n").to_stream().to(f"out-{self.name}")
        return wiring.start(app, engine=InlineEngine(run_container))

    def send(self) -> None:
        self.system.produce(self.input, [(key, 1) for key in KEYS], key=hr.String(), value=hr.Long())

    def settled(self) -> list[Any]:
        """Per expansion on record its lasting barrier, None where it has none yet."""
        found = SystemStreamPartitionAssignmentManager(self.system.metadata_store(self.name)).read_partition_records()
        return [expansion.settled for expansion in found[self.input].expansions]


@pytest.fixture(params=["kafka", "log"])
def grown(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grown]:
    url = f"log:{tmp_path / 'log'}"
    if request.param == "kafka":
        url = f"kafka://{request.getfixturevalue('kafka_server').bootstrap}"
    with hr.open_system(url) as system:
        yield Grown(system, url, tmp_path)


def waited(what: Any, job: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not what():
        if not job.is_running:
            job.wait(0)
        assert time.monotonic() < deadline_s, f"not within {WAIT_S:g} s: {job.status()}"
        time.sleep(0.02)


def test_the_ends_of_the_old_partitions_are_stored_when_its_time_has_come(grown: Grown) -> None:
    grown.send()
    job = grown.started(settle_s=1.0)
    grown.system.expand_stream(grown.input, 4)
    waited(lambda: job.status()["job_model"] == 2, job)
    grown.send()
    waited(lambda: any(grown.settled()), job)
    highs = grown.system.high_watermarks(grown.input)
    assert grown.settled() == [{0: highs[0], 1: highs[1]}]
    job.stop()


def test_one_that_has_not_settled_does_so_under_the_next_driver(grown: Grown) -> None:
    grown.send()
    job = grown.started(settle_s=3600.0)
    grown.system.expand_stream(grown.input, 4)
    waited(lambda: job.status()["job_model"] == 2, job)
    job.stop()
    assert grown.settled() == [None]
    grown.send()
    again = grown.started(settle_s=0.5)
    waited(lambda: any(grown.settled()), again)
    highs = grown.system.high_watermarks(grown.input)
    assert grown.settled() == [{0: highs[0], 1: highs[1]}]
    again.stop()


def test_of_a_chain_each_expansion_settles(grown: Grown) -> None:
    grown.send()
    job = grown.started(settle_s=0.5)
    for number, count in enumerate((4, 8), start=2):
        grown.system.expand_stream(grown.input, count)
        waited(lambda number=number: job.status()["job_model"] == number, job)
        grown.send()
        waited(lambda number=number: len(grown.settled()) == number - 1 and all(grown.settled()), job)
    assert [sorted(ends) for ends in grown.settled()] == [[0, 1], [0, 1, 2, 3]]
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
        for checkpoint in list(rounds.checkpoints.values()):
            rounds.task_positions.checkpoints[checkpoint.task] = replace(
                checkpoint, positions=dict.fromkeys(checkpoint.positions, 0)
            )


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
