"""What each safeguard of a group's decisions is for: without it a simulated schedule breaks what must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import pytest

from group.simulated import STEP_S, TIMEOUT_S, World
from group.test_simulation import FEW, MANY, comes_home, converges, started
from headrace.coordination import ANY_VERSION, Operation, TreeConflictError, Write
from headrace.core.affinity.sharing import Shares
from headrace.core.group.grants import Grants, holders_of
from headrace.core.group.processor_steps import ProcessorStep, ProcessorView, processor_step
from headrace.core.group.proposals import RELEASE_WAIT_S, BarrierOutcome, barrier_outcome
from headrace.core.group.state import GroupState, ModelVersions
from headrace.core.job_plan.draft import Draft
from headrace.group.registration import OwnNode
from headrace.model.job_model import JobModel

STEPS, HISTORY = "headrace.core.group.processor_steps", "headrace.core.job_plan.history"
SIMULATED, OWN_NODE = "group.simulated", "headrace.group.registration.OwnNode"


def by_proposal_alone(versions: Any, barrier: Any, active: Any, proposed: Any, holds_lease: bool) -> bool:
    """As `may_work`, but that who has released for a proposal does not resume when that is abandoned."""
    return holds_lease and active is not None and (versions.proposed <= versions.active or active == proposed)


def whatever_is_proposed(versions: Any, barrier: Any, active: Any, proposed: Any, holds_lease: bool) -> bool:
    """As `may_work`, but that nobody releases for a proposal."""
    return holds_lease and active is not None


def nobody_is_waited_for(*_: Any) -> tuple[BarrierOutcome, frozenset[int]]:
    return BarrierOutcome.RELEASED, frozenset()


def committed_by_anybody(self: OwnNode, operations: Any, by: int | None = None) -> bool:
    """As `OwnNode.commit`, but that the own node need not be there."""
    try:
        self._tree.commit(operations)
    except TreeConflictError:
        return False
    return True


def after_the_committed_one(state: GroupState, committed: int) -> int:
    return 1 + committed


def those_that_are_there(before: JobModel, draft: Draft) -> str:
    """As `_group_change`, but by who is there, and not by who gets tasks."""
    had, there = holders_of(before), {one.id for one in draft.terms.processors}
    return ", ".join([f"{name} came" for name in sorted(there - had)] + [f"{name} left" for name in sorted(had - there)])


def those_that_stopped_alone(state: GroupState, *_: Any, **terms: Any) -> frozenset[str]:
    """As `to_await`, but only those that were stopped in order."""
    return frozenset() if terms["forgets"] else state.awaited


def by_each_sub_topology_alone(subs: Sequence[Shares]) -> None:
    """As `improve`, but that what is best for each alone stays as it is."""


def any_incarnation(state: GroupState, view: ProcessorView, grants: Grants) -> ProcessorStep:
    """As `processor_step`, but that a grant counts for whoever has the id of its processor."""
    mine = grants.get(view.processor_id)
    return processor_step(state, view if mine is None else replace(view, incarnation=mine.incarnation), grants)


def waited_for_without_end(*terms: Any) -> tuple[BarrierOutcome, frozenset[int]]:
    return barrier_outcome(*terms, wait_s=inf)


def committed_over_any_version(self: OwnNode, operations: Sequence[Operation], by: int | None = None) -> bool:
    """As `committed_by_anybody`, and that nobody else need not have written meanwhile."""
    over_any = [replace(one, version=ANY_VERSION) if isinstance(one, Write) else one for one in operations]
    return committed_by_anybody(self, over_any)


# --- schedules --------------------------------------------------------------------------------------------------------


def of_seeds(*seeds: int) -> Callable[[], None]:
    """What happens by chance."""

    def all_converge() -> None:
        for seed in seeds:
            converges(seed)
            comes_home(seed)

    return all_converge


def one_of_other_code_comes_to_be_the_first() -> None:
    """The leader dies, and the next one cannot make plans for the code that runs."""
    world = World()
    first = world.add("a")
    for id_, code in (("x", "other code"), ("b", "code")):
        world.add(id_, code)
    world.pass_s(20)
    first.die()
    world.pass_s(2 * TIMEOUT_S)
    world.check_converged()
    assert world.code == "code"


def one_stops_and_is_waited_for() -> None:
    """What it has left open, as far as its last rounds, holds back all that read behind it, until its lanes are fenced."""
    world = World()
    _, second, _ = started(world)
    second.stop()
    world.pass_s(3)
    assert "b" in world.kafka.plan and "b" not in world.kafka.grants, "what b has left open is not fenced"


def one_does_not_release() -> None:
    """Another joins, for which it is to release tasks; it keeps its lease meanwhile."""
    world = World()
    _, second, _ = started(world)
    second.is_slow = True
    joining = world.add("d")
    world.pass_s(RELEASE_WAIT_S + 10)
    assert second.is_stuck and joining.works_on(), "d waits for ever for tasks of b"
    second.is_slow = second.is_stuck = False
    world.pass_s(10)
    world.check_converged()


def two_have_one_id() -> None:
    """The later one is there for a while, and works when the other has left."""
    world = World()
    first, *_ = started(world)
    twin = world.add("a")
    world.pass_s(5)
    assert first.works_on() and not twin.works_on()
    first.die()
    world.pass_s(2 * TIMEOUT_S)
    assert twin.works_on()
    world.check_converged()


def a_leader_sleeps_in_a_write() -> None:
    """It has read what is there, and its write comes when its successor has put another job model in force."""
    world = World()
    first, second, _ = started(world)
    world.add("d")
    while world.kafka.version < 2:
        world.pass_s(STEP_S / 4)
    commit = first.tree.commit

    def late(*terms: Any) -> tuple[str, ...]:
        first.tree.commit, first.is_paused = commit, True  # type: ignore[method-assign]
        world.server.expire(first.tree.session_id or 0)
        world.pass_s(15)
        assert second.group.state().versions == ModelVersions(3, 3)
        first.is_paused = False
        return commit(*terms)

    first.tree.commit = late  # type: ignore[method-assign]
    first.step()
    assert first.tree.commit == commit, "it has written nothing"
    assert second.group.state().versions == ModelVersions(3, 3), "a former job model is shown as the one in force"
    world.pass_s(20)
    world.check_converged()


MANY_SEEDS = of_seeds(*FEW, *MANY)


class TakenOut(NamedTuple):
    """`instead` is what is at `place` when a safeguard is taken out; then `schedule` breaks what must hold. `breaks`: what the
    error says of it."""

    place: str
    instead: Any
    breaks: str
    schedule: Callable[[], None] = MANY_SEEDS


class Covered(NamedTuple):
    """`by`: what else is taken out, so that the schedule breaks what must hold."""

    place: str
    instead: Any
    by: tuple[str, Any]
    breaks: str
    schedule: Callable[[], None]


# Per safeguard of the coordination. What keeps two from *committing* is Kafka's, see `commit_model.test_group`.
TAKEN_OUT = {
    "a lease ends before the session": TakenOut("headrace.core.group.lease.Lease.holds", lambda *_: True, "work on task"),
    "who loses tasks releases them first": TakenOut(f"{STEPS}.may_work", whatever_is_proposed, "work on task"),
    "a leader waits until they are released": TakenOut(f"{SIMULATED}.barrier_outcome", nobody_is_waited_for, "work on task"),
    "it does not wait for ever": TakenOut(
        f"{SIMULATED}.barrier_outcome", waited_for_without_end, "d waits for ever", one_does_not_release
    ),
    "who has released resumes after an abandoned proposal": TakenOut(
        f"{STEPS}.may_work", by_proposal_alone, "tasks are not worked on"
    ),
    "a proposal of a leader before is ended": TakenOut(
        "headrace.core.group.leader_steps.is_left_over", lambda *_: False, "tasks are not worked on"
    ),
    "a number is used once": TakenOut(f"{SIMULATED}.next_version", after_the_committed_one, "twice"),
    "those that were down together are waited for": TakenOut(f"{SIMULATED}.to_await", those_that_stopped_alone, "not home"),
    "of those that left the grants are taken back": TakenOut(
        f"{SIMULATED}.left_behind", lambda *_: frozenset(), "not fenced", one_stops_and_is_waited_for
    ),
    "one of other code does not lead": TakenOut(
        f"{SIMULATED}.must_step_back", lambda *_: False, "by a plan of other code", one_of_other_code_comes_to_be_the_first
    ),
    "a spare that comes is no change": TakenOut(f"{HISTORY}._group_change", those_that_are_there, "changes nothing"),
    "shares are equal over all sub-topologies": TakenOut(
        "headrace.core.affinity.members.improve", by_each_sub_topology_alone, "shares are not equal"
    ),
}

COVERED = {
    # Each write names the version of the node that was read, so that a deposed leader's is refused by what its successor has
    # written. Its own node covers what nobody has written since, such as the run.
    "a leader's writes depend on its own node": Covered(
        f"{OWN_NODE}.commit",
        committed_by_anybody,
        (f"{OWN_NODE}.commit", committed_over_any_version),
        "a former job model",
        a_leader_sleeps_in_a_write,
    ),
    # Nobody works but under a grant of its own incarnation, and grants are given to the first of an id alone. That another one
    # has it is for people: the later one ends with an error, and does not wait for ever.
    "the later of two with one id gives way": Covered(
        f"{SIMULATED}.duplicate_of",
        lambda *_: None,
        (f"{SIMULATED}.processor_step", any_incarnation),
        "work on task",
        two_have_one_id,
    ),
}


@pytest.mark.parametrize("safeguard", TAKEN_OUT)
def test_without_a_safeguard_a_schedule_breaks_what_must_hold(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = TAKEN_OUT[safeguard]
    monkeypatch.setattr(one.place, one.instead)
    with pytest.raises(AssertionError, match=one.breaks):
        one.schedule()


@pytest.mark.parametrize("safeguard", COVERED)
def test_a_safeguard_that_another_one_covers(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = COVERED[safeguard]
    monkeypatch.setattr(one.place, one.instead)
    one.schedule()
    of_seeds(*FEW[:8])()
    monkeypatch.setattr(*one.by)
    with pytest.raises(AssertionError, match=one.breaks):
        one.schedule()


@pytest.mark.parametrize(
    "schedule",
    [
        one_of_other_code_comes_to_be_the_first,
        one_stops_and_is_waited_for,
        one_does_not_release,
        two_have_one_id,
        a_leader_sleeps_in_a_write,
    ],
)
def test_with_all_safeguards_it_holds(schedule: Callable[[], None]) -> None:
    schedule()
