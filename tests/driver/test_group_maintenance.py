"""What a leader of a group keeps and deletes: never what the next leader needs, and no more than a single driver would."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

import headrace as hr
from driver.test_maintenance import application, opened, work
from driver.test_state_versions import BEHIND, TASKS, Job
from headrace.adapters.kafka.stored_checkpoints import CheckpointTopic
from headrace.codec.documents import decode_checkpoint, encode
from headrace.driver.group.group_maintenance import GroupMaintenance
from headrace.driver.maintenance.maintenance import Maintenance
from headrace.driver.maintenance.state_garbage import files_of
from headrace.driver.maintenance.state_versions import versions_of
from headrace.errors import FencedError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.testing import Driver


def leadership(job: Job, **terms: Any) -> GroupMaintenance:
    """Of a leader that has begun just now, with the plan that is in force; it hears of commits by reading alone."""
    job.plan(by_cuts=False, **terms)
    plan = SimpleNamespace(epoch=job.epoch, checkpoints={}, subs=[SimpleNamespace(name=None), SimpleNamespace(name="a")])
    maintenance: Any = Maintenance.__new__(Maintenance)
    maintenance._plan, maintenance._committed = plan, set()
    maintenance._garbage, maintenance._versions = job.garbage, job.versions
    store = SimpleNamespace(
        checkpoints=lambda: dict(job.current), check_epoch=job.store.check_epoch, replaced_files=frozenset
    )
    backend, topology = SimpleNamespace(store=store, system=job.system), SimpleNamespace(application="kept")
    plans: Any = SimpleNamespace(planner=SimpleNamespace(backend=backend, topology=topology))
    made: Any = GroupMaintenance(plans, MagicMock(), MagicMock(), 1, threading.Lock())
    made._maintenance, made._plan = maintenance, plan
    return made  # type: ignore[no-any-return]


def commit(job: Job, number: int) -> None:
    """All processors commit a round; their states are another file from then on."""
    job.us += 1_000_000
    for task in TASKS:
        job.current[task] = job._checkpoint(task, number, 10 * number)


@pytest.fixture
def job(tmp_path: Path) -> Any:
    (tmp_path / "state").mkdir()
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        system.create_stream("a", 1)
        yield Job(tmp_path / "state", system)


def test_a_leader_that_slept_deletes_nothing_that_the_next_one_keeps(job: Job, tmp_path: Path) -> None:
    first = leadership(job)
    commit(job, 1)
    first.hear()
    commit(job, 2)
    job.garbage.committed(None, job._of(None))  # the first one knows of round 2, and has not kept it
    second = leadership(job)  # which keeps what is current then
    commit(job, 3)
    second.hear()
    with pytest.raises(FencedError):
        first.hear()
    kept = [one.checkpoint for mine in versions_of(job.system.metadata_store("kept")).values() for one in mine]
    assert {one.round_id.number for one in kept if one.task in TASKS} >= {1, 2}
    assert [name for name in files_of(kept) if not (tmp_path / "state" / name).exists()] == []


def test_files_that_cannot_be_deleted_for_a_while_end_no_leader(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = leadership(job, interval_s=3600)
    commit(job, 1)
    leader.hear()
    commit(job, 2)

    def refused(name: str) -> None:
        raise PermissionError(13, "Permission denied", name)

    job.versions.began(None)
    with monkeypatch.context() as patch:
        patch.setattr(job.garbage._files, "delete", refused)
        leader.hear()
    assert leader._has_leftovers, "they are looked for again"
    assert job.versions._pause_of(None) is not None, "what has committed is known: it does not count as running"


def test_a_plan_that_has_not_committed_yet_purges_nothing(tmp_path: Path) -> None:
    with Driver(application(), directory=tmp_path) as driver:
        work(driver, 2)
    with Driver(application(), directory=tmp_path) as driver:
        plans = MagicMock()
        plans.planner.backend, plans.planner.topology.application = driver._held.backend, "tidy"
        leader = GroupMaintenance(plans, MagicMock(), MagicMock(), 1, threading.Lock())
        leader._maintenance, leader._plan = opened(driver).maintenance, opened(driver).plan
        leader.tidy()
        assert driver._system.beginning_offsets("tidy-by-first-repartition") == {0: 0}
        work(driver, 1)
        leader.tidy()
        assert driver._system.beginning_offsets("tidy-by-first-repartition") == {0: 9}


class Topic:
    """The leader's reader of the checkpoints, which all stores of its process share; the broker alone is not there."""

    def __init__(self) -> None:
        self.reader, self._written, self._offset = CheckpointTopic({}, "checkpoints"), list[Checkpoint](), 0

    def write(self, one: Checkpoint) -> None:
        self._written.append(one)

    def read(self) -> dict[TaskName, Checkpoint]:
        for one in self._written:
            key, value, at = str(one.task).encode(), encode(one), self._offset
            self.reader._take(SimpleNamespace(key=lambda k=key: k, value=lambda v=value: v, offset=lambda o=at: o))
            self._offset += 1
        self._written.clear()
        found = [decode_checkpoint(value, "a checkpoint") for value in self.reader._values.values()]
        return {one.task: one for one in found}


@pytest.mark.parametrize("read_by", ["a cut that was not kept", "a round that failed"])
def test_a_cut_of_one_sub_topology_deletes_no_file_that_a_checkpoint_of_another_names(
    job: Job, tmp_path: Path, read_by: str
) -> None:
    """Its last look is old, and others have read the topic since."""
    leader, topic, deltas = leadership(job, interval_s=3600), Topic(), list[StateFile]()
    store: Any = leader._backend.store
    store.checkpoints, store.replaced_files = topic.read, topic.reader.replaced_files

    numbers = count()

    def commits() -> Checkpoint:
        number = next(numbers)
        file = StateFile(f"kept/a-{number}", StateFileKind.DELTA, 1, 1, "c", number)
        (tmp_path / "state" / file.name).touch()
        deltas.append(file)
        one = Checkpoint(BEHIND, RoundId(1, "a", number), 1, {SSP("log", "a", 0): number}, Head(file.version, tuple(deltas)))
        topic.write(one)
        return one

    (tmp_path / "state" / "kept").mkdir(exist_ok=True)
    for task in TASKS:
        if task != BEHIND:
            topic.write(job.current[task])
    commits()
    leader.hear()
    commits()
    commits()
    if read_by == "a cut that was not kept":
        leader.hear([None])
    else:
        topic.read()
    last = commits()
    leader.hear([None])
    needed = files_of([last])
    assert [name for name in needed if not (tmp_path / "state" / name).exists()] == []
    del deltas[:]
    folded = commits()
    for _ in range(2):
        leader.hear()
    assert [name for name in needed - files_of([folded]) if (tmp_path / "state" / name).exists()] == [], "they stay"

