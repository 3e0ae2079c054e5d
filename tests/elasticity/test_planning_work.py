"""How much work a plan and a round are: counted, as times differ from machine to machine. Siblings have partitions in common,
so that what is of a partition is not to be worked out again by each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log.job_store import LogJobStore
from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.elasticity import virtual_tasks_of
from headrace.core.job_plan.planner import planned
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.driver.planning.job_plan import Backend
from headrace.driver.planning.job_planner import JobPlanner
from headrace.driver.planning.observe import observe, terms_of
from headrace.driver.rounds import task_positions
from headrace.driver.rounds.task_positions import TaskPositions
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.commits import DriverLease
from headrace.model.job_model import ContainerModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.wiring import config_of, opened_system

PARTITIONS = 8
HEAD = Head(1, (StateFile("f", StateFileKind.SNAPSHOT, 1, 1, "c", 1),))


class Planning:
    """Plans of a keyed count over `PARTITIONS` partitions, and how many SSPs were made meanwhile."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url, self._patch = f"log:{root}", monkeypatch
        self.app: hr.App
        with opened_system(self._url) as system:
            system.create_stream("in", PARTITIONS)

    @contextmanager
    def at(self, factor: int) -> Iterator[tuple[Draft, Snapshot, JobPlanner]]:
        """What is stored, the plan made of it, and who commits it."""
        app = hr.App("counting", system=self._url, config={"elasticity_factor": factor})
        app.stream("in", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="counts")
        config, topology = config_of(app), app.topology()
        with opened_system(self._url) as system:
            terms, store = terms_of(topology, config, system.name, slots=2), system.job_store("counting")
            epoch = store.acquire(DriverLease("run", "host", 1, "", "", 1), 1)
            snapshot = observe(terms, system, store, epoch=epoch, now_us=1)
            backend = Backend(system, store, store, engine=None)  # type: ignore[arg-type]  # nothing runs
            yield planned(terms, snapshot), snapshot, JobPlanner(topology, {}, config, backend, lambda line: None)
            store.release(epoch)

    def ssps_made(self, factor: int) -> int:
        made, check = 0, SSP.__post_init__

        def counted(ssp: SSP) -> None:
            nonlocal made
            made += 1
            check(ssp)

        with self._patch.context() as patched:
            patched.setattr(SSP, "__post_init__", counted)
            with self.at(factor):
                return made


def test_no_sibling_makes_partitions_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = Planning(tmp_path, monkeypatch)
    assert planning.ssps_made(32) == planning.ssps_made(2) > 0


def test_a_plan_that_changes_nothing_writes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = Planning(tmp_path, monkeypatch)
    written: list[int] = []
    put = LogJobStore._put_checkpoints

    def counted(self: Any, db: Any, checkpoints: Collection[Checkpoint]) -> None:
        written.append(len(checkpoints))
        put(self, db, checkpoints)

    monkeypatch.setattr(LogJobStore, "_put_checkpoints", counted)
    for factor in (4, 4, 2, 2):
        with planning.at(factor) as (draft, snapshot, planner):
            planner.commit(draft, snapshot)
    assert written == [PARTITIONS * 4, 0, PARTITIONS * 2, 0]


# --- rounds -------------------------------------------------------------------------------------------------------------------


def tasks_of(partitions: int, factor: int) -> Sequence[TaskModel]:
    whole = (TaskModel(TaskName(PartitionGroup(p)), (SSP("log", "in", p),)) for p in range(partitions))
    return [task for one in whole for task in virtual_tasks_of(one, factor)]


def test_what_a_round_has_moved_is_all_that_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    app = hr.App("counting")
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).group_by_key().count(store="counts")
    (sub,) = sub_topologies_of(app.topology())
    tasks = tasks_of(100, 8)
    checkpoints = {task.name: Checkpoint(task.name, RoundId(1, None, 1), 1, {task.partitions[0]: 5}, HEAD) for task in tasks}
    system: Any = None
    here = TaskPositions(sub, SubTopologyModel(None, (ContainerModel(0, tuple(tasks)),), 8), checkpoints, system)
    looked_at: list[int] = []
    lowest = task_positions.lowest_positions

    def counted(checkpoints: Collection[Checkpoint]) -> Mapping[SSP, int]:
        looked_at.append(len(checkpoints))
        return lowest(checkpoints)

    monkeypatch.setattr(task_positions, "lowest_positions", counted)
    moved = [replace(checkpoints[task.name], positions={task.partitions[0]: 9}) for task in tasks[:8]]
    assert here.move_to(moved[:7]) == 0, "one is where it was"
    assert here.move_to(moved[7:]) == 4
    ends = {SSP("log", "in", partition): 20 for partition in range(100)}
    assert here.lag(ends) == 11 + 99 * 15
    assert here.positions() == lowest(here.checkpoints.values())
    assert looked_at == [8, 8]
