"""Startpoints that take a task's state back: which version, every position with it, and the way back while nothing moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.planned_startpoints import Consumer, entry
from headrace.codec.documents import decode, encode
from headrace.core.job_plan.apply_rewinds import StateHistory, StateRewinds
from headrace.core.job_plan.apply_startpoints import AppliedStartpoints, apply_startpoints
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.consistent_cuts import SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.state_history import StateVersion, by_task
from headrace.errors import StateError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, StateFile, StateFileKind
from headrace.model.startpoint import StartpointEntry, StartpointRequest, StartpointStatus, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASK = TaskName.parse("Partition_0")
X, Y = SSP("k", "x", 0), SSP("k", "y", 0)
VERSIONS = {1: (10, 5), 2: (20, 15), 3: (30, 25)}  # round to the positions in X and Y


def checkpoint(number: int, positions: tuple[int, int]) -> Checkpoint:
    head = Head(number, (StateFile(f"file-{number}", StateFileKind.SNAPSHOT, 1, 1, "c", number),))
    marks = {X: number, Y: number}
    return Checkpoint(TASK, RoundId(1, None, number), 1, dict(zip((X, Y), positions, strict=True)), head, marks)


class Job:
    """A task with state that has come to round 4, at 40 and 35, and the three versions of it that are kept."""

    def __init__(self, stateful: bool = True) -> None:
        self.now = checkpoint(4, (40, 35))
        self.asked, self.stateful = StartpointRequests(), stateful
        self.versions = {one.key: one for one in (StateVersion(checkpoint(n, at), n) for n, at in VERSIONS.items())}
        self.us = 100
        self.stored_rewinds: dict[str, Rewind] = {}

    def plan(self, *entries: StartpointEntry, delete: tuple[str, ...] = ()) -> AppliedStartpoints:
        self.us += 1
        consumer = Consumer({X: 100, Y: 100})
        rewinds = self.rewinds(consumer)
        asked = StartpointRequests({f"{self.us}": StartpointRequest(entries, delete)}, self.asked.records)
        stored: Mapping[TaskName, Checkpoint] = {TASK: self.now}
        taken = apply_startpoints(asked, stored, stored, rewinds)
        self.now = taken.checkpoints[TASK]
        self.asked = StartpointRequests({}, taken.records)
        in_force = rewinds.in_force(taken.checkpoints)
        changes = rewinds.changes(in_force)
        self.versions |= {key: decode(StateVersion, encode(one), key) for key, one in changes.versions.items() if one}
        self.stored_rewinds |= {key: decode(Rewind, encode(one), key) for key, one in changes.rewinds.items() if one}
        for key in [key for key, one in changes.rewinds.items() if one is None]:
            del self.stored_rewinds[key]
        assert tuple(self.stored_rewinds.values()) == in_force
        return taken

    def rewinds(self, consumer: Consumer) -> StateRewinds:
        flow = SubTopologyEdges(None, ("x", "y"), (), self.stateful)
        kept = StateHistory(by_task(self.versions.values()), (), tuple(self.stored_rewinds.values()))
        return StateRewinds(kept, (flow,), consumer, self.us)

    @property
    def stands(self) -> tuple[int, int, int]:
        """The state's version, and the positions in X and Y."""
        return 0 if self.now.head is None else self.now.head.version, self.now.positions[X], self.now.positions[Y]

    @property
    def status(self) -> dict[str, StartpointStatus]:
        return {id_: record.status for id_, record in self.asked.records.items()}

    @property
    def line_is_whole(self) -> bool:
        return all(version.abandoned_for is None for version in self.versions.values())


def rewind(id_: str, ssp: SSP, at: int, written_at_us: int = 0) -> StartpointEntry:
    return replace(entry(id_, ssp, at, None, written_at_us), state=StatePolicy.REWIND)


@pytest.mark.parametrize(
    ("at", "stands"),
    [
        (39, (3, 30, 25)),
        (30, (3, 30, 25)),
        (29, (2, 20, 15)),
        (10, (1, 10, 5)),
        (9, (0, 0, 0)),
        (40, (4, 40, 35)),
        (50, (4, 50, 35)),
    ],
)
def test_the_state_goes_back_with_every_position_of_its_task(at: int, stands: tuple[int, int, int]) -> None:
    job = Job()
    job.plan(rewind("a", X, at))
    assert job.stands == stands
    assert job.status == {"a": StartpointStatus.PENDING}
    assert job.now.round_id == RoundId(1, None, 4), "a round builds on what was committed last"


def test_of_several_ssps_the_version_is_after_none() -> None:
    job = Job()
    job.plan(rewind("a", X, 35), rewind("b", Y, 16))
    assert job.stands == (2, 20, 15)
    assert {one.ssp for one in job.asked.records["a"].resolutions} == {X}
    assert {one.ssp for one in job.asked.records["b"].resolutions} == {Y}


def test_watermarks_are_those_of_the_version() -> None:
    job = Job()
    job.plan(rewind("a", X, 25))
    assert job.now.watermarks == {X: 2, Y: 2}


def test_where_there_is_no_state_only_the_position_moves() -> None:
    job = Job(stateful=False)
    job.plan(rewind("a", X, 25))
    assert job.stands == (4, 25, 35)


def test_a_later_rewind_begins_from_where_the_task_was_before_the_first() -> None:
    job = Job()
    job.plan(rewind("a", X, 10))
    assert job.stands == (1, 10, 5)
    job.plan(rewind("b", X, 30, 1))
    assert job.stands == (3, 30, 25), "the state of the first rewind with the position of the second would lose records"
    assert job.status == {"a": StartpointStatus.SUPERSEDED, "b": StartpointStatus.PENDING}
    assert {(one.ssp, one.offset, one.before) for one in job.asked.records["b"].resolutions} == {(X, 30, 40), (Y, 25, 35)}


def test_a_startpoint_that_keeps_the_state_takes_the_place_of_a_rewind_whole() -> None:
    job = Job()
    job.plan(rewind("a", X, 10))
    job.plan(entry("b", X, 33, None, 1))
    assert job.stands == (4, 33, 35)
    assert job.status == {"a": StartpointStatus.SUPERSEDED, "b": StartpointStatus.PENDING}
    assert job.line_is_whole


def test_a_deleted_rewind_was_never_there() -> None:
    job = Job()
    before = job.now
    job.plan(rewind("a", X, 10))
    job.plan(delete=("a",))
    assert job.now == before
    assert job.status == {"a": StartpointStatus.DELETED}
    assert job.line_is_whole


def test_one_of_two_rewinds_is_deleted() -> None:
    job = Job()
    job.plan(rewind("a", X, 10), rewind("b", Y, 25))
    assert job.stands == (1, 10, 5)
    job.plan(delete=("a",))
    assert job.stands == (1, 10, 5), "it was resolved once, and stands where it did"
    assert job.status == {"a": StartpointStatus.DELETED, "b": StartpointStatus.PENDING}


def test_a_startpoint_of_another_ssp_stays_when_a_rewind_is_taken_back() -> None:
    job = Job()
    job.plan(rewind("a", X, 10))
    job.plan(entry("b", Y, 50, None, 1))
    assert job.stands == (1, 10, 50)
    job.plan(delete=("a",))
    assert job.stands == (4, 40, 50)


def test_without_a_version_that_is_old_enough_nothing_changes() -> None:
    job = Job()
    del job.versions[next(key for key, one in job.versions.items() if one.kept_us == 1)]
    consumer = Consumer({X: 100, Y: 100})
    rewinds = job.rewinds(consumer)
    consumer.register = lambda ssp, startpoint: 7 if startpoint.position is None else startpoint.position  # type: ignore[method-assign]
    asked = StartpointRequests({"1": StartpointRequest((rewind("a", X, 12),))})
    with pytest.raises(StateError, match=r"startpoint a of k\.x\.0, .*no kept version of its state is at or before"):
        apply_startpoints(asked, {TASK: job.now}, {TASK: job.now}, rewinds)


def test_of_entries_that_come_together_a_later_one_alone_sets_a_position_in_a_task_that_goes_back() -> None:
    job = Job()
    job.plan(entry("a", X, 100, None, 1), rewind("b", Y, 15, 2))
    assert job.stands == (2, 20, 15), "a skip from before the rewind would leave out what the state has lost"
    assert job.status == {"a": StartpointStatus.SUPERSEDED, "b": StartpointStatus.PENDING}
    job = Job()
    job.plan(rewind("b", Y, 15, 1), entry("a", X, 100, None, 2))
    assert job.stands == (2, 100, 15)
    assert job.status == {"a": StartpointStatus.PENDING, "b": StartpointStatus.PENDING}
    assert {one.ssp for one in job.asked.records["b"].resolutions} == {Y}


def test_what_the_state_is_going_to_come_to_again_is_not_skipped() -> None:
    job = Job()
    job.plan(rewind("a", X, 10))
    job.plan(rewind("b", Y, 12, 1))
    assert job.stands == (1, 10, 5), "the state has lost what is between 5 and 12 of Y: it reads on from 5"
    job.now = checkpoint(5, (12, 6))
    job.plan(rewind("c", Y, 34, 2))
    assert job.stands == (5, 12, 6)
    job.plan(rewind("d", Y, 36, 3))
    assert job.stands[2] == 36, "nothing from there on was in the state"
