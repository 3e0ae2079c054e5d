"""Large state on a Spark cluster: the tasks of a machine that stays away move, and their stores are restored in the background:
the other tasks have their rounds meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from cluster.conftest import Driver
from cluster.machines import Cluster, until
from cluster.test_cluster import FIRST_MS, MACHINES, WAIT_S, Clustered, Keys, running, source_of, without_new_executors
from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName
from support.fixtures import only_on

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
WORLD, place = Clustered, only_on("kafka")
KEYS, PARTITIONS = 140_000, 4


def batches_of(cluster: Cluster, heads: list[Head]) -> int:
    """How many batches the state files of some tasks have."""
    files = [cluster.shared / file.name for head in heads for file in head.files]
    return sum(pa.ipc.open_file(pa.memory_map(str(path))).num_record_batches for path in files)


def behind(world: Clustered) -> dict[str, int]:
    """By task how many offsets it has not read yet."""
    ends = world.system.high_watermarks(f"{world.name}-orders")
    return {
        str(task): sum(ends[ssp.partition] - offset for ssp, offset in one.positions.items())
        for task, one in world.system.job_store(world.name).checkpoints().items()
    }


def homes(world: Clustered) -> dict[str, str | None]:
    """By task where the job model has it."""
    model = world.system.job_store(world.name).job_model()
    assert model is not None
    return {str(task.name): one.location_id for one in model.sub_topologies[0].containers for task in one.tasks}


def heard(driver: Driver) -> dict[str, Any]:
    """By task how far it is restored, once the driver has heard that."""
    found = {one["task"]: one for one in source_of(driver.ask(status=True))["restoring"]}
    return found if any(one["done_bytes"] for one in found.values()) else {}


def process_of(cluster: Cluster, world: Clustered, machine: str) -> int | None:
    """The process there that restores, once it has stopped."""
    for path in (cluster.machines[machine] / "own" / "stores" / ".restoring" / world.name).glob("*/answer.json"):
        pid = int((json.loads(path.read_text())["process"] or "0").partition("@")[0])
        stat = Path(f"/proc/{pid}/stat")
        if pid and stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "T":
            return pid
    return None


@pytest.mark.soak
@pytest.mark.parametrize(
    ("lanes", "is_killed"),
    [(1, False), (PARTITIONS, True)],
    ids=["in a lane with the others", "in lanes of their own, and its executor is killed in the midst"],
)
def test_a_large_state_is_restored_while_the_other_tasks_commit(
    cluster: Cluster, driver: Driver, world: Clustered, job_keys: Keys, lanes: int, is_killed: bool
) -> None:
    """`lanes`: in how many the tasks are once one machine is left, which has a slot."""
    rng = random.Random(11)
    keys = [f"{number:06d}-{rng.randbytes(90).hex()}" for number in range(KEYS)]
    world.create(PARTITIONS, "orders")
    world.create(2, "counts")
    world.produce("orders", [(key, {"id": number, "amount": 1}, FIRST_MS) for number, key in enumerate(keys)])
    asked = job_keys(world.name, processor_return_wait_s=1.0, **({"containers": lanes} if lanes > 1 else {}))
    until(lambda: driver.ask(executors=True)["executors"] == len(MACHINES), WAIT_S)  # the plan is made with both
    with (
        running(driver, start="one_expression", until=None, **asked),
        without_new_executors(cluster, driver, "machine-1", True),
    ):
        until(lambda: not any(behind(world).values()), WAIT_S)
        both, shown_here = set(MACHINES), lambda: f"{homes(world)}, {driver.ask(status=True)}"
        until(lambda: set(homes(world).values()) == both, WAIT_S, shown_here)  # under load one may come after the first plan
        moved = {task for task, location in homes(world).items() if location == "machine-1"}
        assert len(moved) == 2
        checkpoints = world.system.job_store(world.name).checkpoints()
        heads = [head for task in moved if (head := checkpoints[TaskName.parse(task)].head) is not None]
        size = sum(file.bytes for head in heads for file in head.files)
        assert size > 8 * 1024 * 1024, "more than what two lanes restore in a round"
        before = source_of(driver.ask(status=True))["counters"].get("stores_restored", 0)

        cluster.stop_next_restore()
        (executor,) = cluster.executors("machine-1")
        os.kill(executor, signal.SIGKILL)
        again = keys[:4_000]
        world.produce("orders", [(key, {"id": number, "amount": 1}, FIRST_MS) for number, key in enumerate(again)])
        process = until(lambda: process_of(cluster, world, "machine-2"), WAIT_S)
        until(lambda: {task for task, count in behind(world).items() if count} == moved, WAIT_S)
        shown = until(lambda: heard(driver), WAIT_S)
        assert shown.keys() == moved and {one["location"] for one in shown.values()} == {"machine-2"}
        assert sum(one["total_bytes"] for one in shown.values()) == size
        assert sum(one["done_bytes"] for one in shown.values()) < size
        store = world.system.job_store(world.name)  # as other processes see it
        until(lambda: {one["task"] for one in store.status()["source"]["restoring"]} == moved, WAIT_S)

        if is_killed:
            (executor,) = cluster.executors("machine-2")
            os.kill(executor, signal.SIGKILL)
        os.kill(process, signal.SIGCONT)
        until(lambda: not any(behind(world).values()), WAIT_S)
        status = until(lambda: (found := source_of(driver.ask(status=True))) and not found["restoring"] and found, WAIT_S)
        assert status["counters"].get("stores_restored", 0) == before, "no round has restored a store"
        model = world.system.job_store(world.name).job_model()
        assert model is not None and len(model.sub_topologies[0].containers) == lanes
        assert status["metrics"]["restored-bytes"] > 0
        assert is_killed or not status["metrics"]["declined"], "they sat out from the beginning of the plan"
        # One that ends between a batch and the step behind it has not counted that.
        assert 0 <= batches_of(cluster, heads) - cluster.restored_batches() <= is_killed, "none was read twice"
    counted: dict[str, int] = {}
    for one in world.read("counts", hr.Long()):
        assert one.value == counted.get(one.key, 0) + 1, "each record is counted once"
        counted[one.key] = one.value
    assert counted == Counter(keys) + Counter(again)
