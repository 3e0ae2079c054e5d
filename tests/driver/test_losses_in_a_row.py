"""Containers whose executor is lost again and again: once is no failure, and a plan in between changes nothing."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.driver.rounds.absent_containers import AbsentContainers
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.driver.rounds.retries import FAILURES_MAX, Retries
from headrace.errors import RoundFailedError
from headrace.exchange.engine import EXECUTOR_LOST, ContainerWork, EngineFailure
from headrace.exchange.messages import Summary
from headrace.model.checkpoint import RoundId
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TASKS = tuple(TaskModel(TaskName.parse(f"Partition_{number}"), (SSP("k", "a", number),)) for number in range(3))
BACKEND: Any = SimpleNamespace(cluster=None, engine=None)
FIRST, SECOND = RoundId(1, "source", 1), RoundId(1, "source", 2)


def absent(*places: tuple[int, ...]) -> AbsentContainers:
    """Containers of tasks of these numbers, by lane; the location of each is its lane."""
    one = {
        lane: ContainerModel(lane, tuple(TASKS[n] for n in numbers), str(lane), f"host-{lane}")
        for lane, numbers in enumerate(places)
    }
    return AbsentContainers(one, BACKEND)


def round_of(*lanes: int, bases: dict[int, RoundId]) -> PlannedRound:
    works = tuple((ContainerWork(lane, b"", f"host-{lane}", ()),) for lane in lanes)
    return PlannedRound(RoundId(1, "source", 9), (), {TASKS[n].name: base for n, base in bases.items()}, works)


def test_a_loss_over_the_same_records_is_a_failure_the_second_time() -> None:
    known, planned = absent((0, 1), (2,)), round_of(0, 1, bases=dict.fromkeys(range(3), FIRST))
    known.heard(planned, [Summary(0, lost=True)])
    assert (known.failure, known.times_lost, known.lanes) == (None, 0, {0})
    for times in (2, 3):
        known.begin()
        known.heard(planned, [Summary(0, lost=True), Summary(1, lost=True)][: 4 - times])
        assert known.failure is not None
        assert (known.failure.error_class, known.failed, known.times_lost) == (EXECUTOR_LOST, {0}, times)
        assert str(known.failure) == f"the executor at host-0, {times} times in a row"


def test_what_has_committed_since_was_lost_for_the_first_time() -> None:
    known = absent((0, 1), (2,))
    for base in (FIRST, SECOND):
        known.begin()
        known.heard(round_of(0, bases={0: base, 1: base}), [Summary(0, lost=True)])
        assert known.failure is None


def test_losses_are_counted_over_plans_that_move_the_task() -> None:
    before, after = absent((0, 1), (2,)), absent((0,), (1, 2))
    before.heard(round_of(0, bases={0: FIRST, 1: FIRST}), [Summary(0, lost=True)])
    after.inherit_from(before)
    after.heard(round_of(1, bases={1: FIRST, 2: SECOND}), [Summary(1, lost=True)])
    assert (after.failed, after.times_lost) == ({1}, 2)


def test_a_task_that_sat_out_was_not_lost() -> None:
    known = absent((0, 1))
    for part in ({0: FIRST}, {1: FIRST}):
        known.begin()
        known.heard(round_of(0, bases=part), [Summary(0, lost=True)])
        assert known.failure is None


def test_executors_that_are_lost_twice_each_are_not_one_that_is_lost_again_and_again() -> None:
    """Each of them commits before the next one is lost."""
    ended = threading.Event()
    ended.set()
    seen = SimpleNamespace(failed=frozenset[int](), times_lost=0)
    places = SimpleNamespace(positions=dict)
    runner: Any = SimpleNamespace(absent=seen, task_positions=places, sub=SimpleNamespace(title="source"))
    retries = Retries(runner, ended, lambda what, ask: None, lambda: None, lambda text: None)
    planned = round_of(*range(6), bases={})
    for lane in range(6):
        retries.ended(planned.lanes - {lane, lane - 1}, is_whole=False)  # its first loss is no failure
        seen.failed, seen.times_lost = frozenset({lane}), 2
        retries.again(planned, EngineFailure("lost", error_class=EXECUTOR_LOST))
    seen.times_lost = FAILURES_MAX
    with pytest.raises(RoundFailedError, match=f"failed {FAILURES_MAX} times, .* an executor was lost"):
        retries.again(planned, EngineFailure("lost", error_class=EXECUTOR_LOST))
