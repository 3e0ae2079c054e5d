"""Pauses of a group: who is to rest, until when, and what becomes of it; and what a leader does first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.group.grants import Grant
from headrace.core.group.leader_steps import LeaderStep, LeaderView, leader_step
from headrace.core.group.pauses import (
    PAUSE_S_MAX,
    REST_S,
    AwaitedPause,
    PauseOutcome,
    pause_of,
    pause_outcome,
    pause_to_keep,
)
from headrace.core.group.state import (
    BarrierState,
    GroupMember,
    GroupState,
    ModelOrigin,
    ModelVersions,
    PauseRequest,
    Registration,
    ReleaseBarrier,
    incarnation_of,
)
from headrace.driver.rounds.pauses import Pause, Pauses
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName


def member(sequence: int, id_: str) -> GroupMember:
    return GroupMember(sequence, Registration(id_, "host", 1, "code", "host", sequence, "1@1", "boot"))


# --- a processor ----------------------------------------------------------------------------------------------------


@given(asked_by=st.integers(0, 2), leader=st.none() | st.integers(0, 2), age_s=st.floats(0, 60))
def test_a_processor_rests_for_the_leader_that_there_is_and_not_long(asked_by: int, leader: int | None, age_s: float) -> None:
    request = PauseRequest(5, asked_by, ("source",))
    keeps = pause_to_keep(request, leader, {5: 100.0, 4: 0.0}, 100.0 + age_s)
    assert keeps is (asked_by == leader and age_s < PAUSE_S_MAX)


def test_one_that_is_seen_for_the_first_time_is_kept_and_none_is_not() -> None:
    assert pause_to_keep(PauseRequest(6, 1, ("source",)), 1, {5: 0.0}, 1e6)
    assert not pause_to_keep(None, 1, {}, 0.0)


# --- the leader -----------------------------------------------------------------------------------------------------


@given(
    resting=st.frozensets(st.integers(0, 4), max_size=4),
    rests=st.dictionaries(st.integers(0, 5), st.integers(6, 8)),
    present=st.frozensets(st.integers(0, 5)),
    waited_s=st.floats(0, 2 * REST_S),
)
def test_a_pause_holds_when_all_report_its_number_and_fails_when_one_is_gone_or_late(
    resting: frozenset[int], rests: dict[int, int], present: frozenset[int], waited_s: float
) -> None:
    outcome = pause_outcome(AwaitedPause(7, resting, 50.0), rests, present, 50.0 + waited_s)
    if resting - present:
        assert outcome is PauseOutcome.LOST
    elif {one for one, number in rests.items() if number == 7} >= resting:
        assert outcome is PauseOutcome.RESTING
    else:
        assert (outcome is PauseOutcome.LATE) is (50.0 + waited_s - 50.0 >= REST_S)


def model_of(holders: dict[str | None, list[str]]) -> JobModel:
    """By sub-topology the processors of its containers, a task each."""
    subs = []
    for name, ids in holders.items():
        names = [TaskName(PartitionGroup(number), name) for number in range(len(ids))]
        tasks = [TaskModel(one, (SSP("kafka", "words", number),)) for number, one in enumerate(names)]
        containers = [ContainerModel(n, (task,), id_) for n, (task, id_) in enumerate(zip(tasks, ids, strict=True))]
        subs.append(SubTopologyModel(name, tuple(containers)))
    return JobModel("delays", 1, tuple(subs), {})


def test_those_rest_that_have_tasks_of_it_and_a_grant_of_their_own() -> None:
    model = model_of({None: ["a", "b#1"], "by-key": ["c", "a", "d"]})
    members = [member(1, "a"), member(2, "b"), member(3, "c"), member(4, "d")]
    grants = {one.processor_id or "": Grant(10 + one.sequence, incarnation_of(one)) for one in members}
    assert pause_of(["source"], model, members, grants).resting == {1, 2}
    assert pause_of(["source", "by-key"], model, members, grants).resting == {1, 2, 3, 4}
    grants["d"] = replace(grants["d"], incarnation="another")  # not of the one that is there
    del grants["c"]
    assert pause_of(["by-key"], model, members, grants).resting == {1}
    assert pause_of(["by-key"], model, members[1:], grants).resting == frozenset()


# --- what comes first -----------------------------------------------------------------------------------------------

SHOWN = GroupState(versions=ModelVersions(7, 7), origin=ModelOrigin("code", "run"))
LEFT = replace(SHOWN, versions=ModelVersions(8, 7), barrier=ReleaseBarrier(8, BarrierState.NEW))
EMPTY = GroupState()
ALL = LeaderView(7, is_proposing=True, has_planned=True, is_settled=True, has_requests=True, wants_pause=True)


@pytest.mark.parametrize(
    ("state", "known", "step"),
    [
        (LEFT, {}, LeaderStep.END_BARRIER),
        (LEFT, {"is_proposing": False}, LeaderStep.END_LEFT_OVER),
        (EMPTY, {"is_proposing": False}, LeaderStep.PUBLISH),
        (EMPTY, {"is_proposing": False, "committed": None}, LeaderStep.DECIDE),
        (EMPTY, {"is_proposing": False, "has_planned": False}, LeaderStep.DECIDE),
        (SHOWN, {"is_proposing": False}, LeaderStep.DECIDE),
        (SHOWN, {"is_proposing": False, "has_planned": False, "is_settled": False}, LeaderStep.NOTHING),
        (SHOWN, {"is_proposing": False, "is_settled": False}, LeaderStep.DECIDE),
        (SHOWN, {"is_proposing": False, "is_settled": False, "has_requests": False}, LeaderStep.PAUSE),
        (
            SHOWN,
            {"is_proposing": False, "is_settled": False, "has_requests": False, "wants_pause": False},
            LeaderStep.NOTHING,
        ),
    ],
)
def test_what_a_leader_does_first(state: GroupState, known: dict[str, Any], step: LeaderStep) -> None:
    assert leader_step(state, replace(ALL, **known)) is step


# --- the rounds of a processor --------------------------------------------------------------------------------------


class Runner:
    """As much of a `SubTopologyRunner` as pauses ask for."""

    def __init__(self, title: str, behind: bool = False) -> None:
        self.sub, self.behind = type("Sub", (), {"title": title})(), behind

    def is_behind(self, targets: Any) -> bool:
        return self.behind and bool(targets)


def test_all_rest_once_each_has_come_to_where_it_is_to_rest() -> None:
    pauses, source, below = Pauses(), cast(Any, Runner("source")), cast(Any, Runner("by-key", behind=True))
    pause = Pause(3, {SSP("kafka", "words", 0): 10})
    assert pauses.ask({"source": pause, "by-key": pause})
    assert not pauses.ask({"source": pause, "by-key": pause}), "it is asked for already"
    assert pauses.rests(source, pauses.of("source"))
    assert not pauses.rests(below, pauses.of("by-key"))
    assert not pauses.all_rest(3, []) and pauses.all_rest(3, ["by-key"]), "one that has ended runs no round"
    below.behind = False
    assert pauses.rests(below, pauses.of("by-key"))
    assert pauses.all_rest(3, [])
    pauses.ask({})
    assert not pauses.rests(source, pauses.of("source"))
    pauses.ask({"source": Pause(4)})
    assert not pauses.all_rest(4, []), "it has gone on in between"
