"""What each safeguard of a group's decisions is for: without it a simulated schedule breaks what must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from group.test_simulation import FEW, MANY, comes_home, converges
from headrace.coordination import TreeConflictError
from headrace.core.affinity.sharing import Shares
from headrace.core.group.grants import holders_of
from headrace.core.group.proposals import BarrierOutcome
from headrace.core.group.state import GroupState
from headrace.core.job_plan.draft import Draft
from headrace.group.registration import OwnNode
from headrace.model.job_model import JobModel

STEPS, HISTORY = "headrace.core.group.processor_steps", "headrace.core.job_plan.history"


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


# Per safeguard of the coordination: what stands in its place when it is taken out, and a word of what breaks then. What keeps
# two from *committing* is Kafka's, see `commit_model.test_group`.
TAKEN_OUT: dict[str, tuple[str, Any, str]] = {
    "a lease ends before the session": ("headrace.core.group.lease.Lease.holds", lambda *_: True, "work on task"),
    "who loses tasks releases them first": (f"{STEPS}.may_work", whatever_is_proposed, "work on task"),
    "a leader waits until they are released": ("group.simulated.barrier_outcome", nobody_is_waited_for, "work on task"),
    "who has released resumes after an abandoned proposal": (f"{STEPS}.may_work", by_proposal_alone, ""),
    "a proposal of a leader before is ended": ("headrace.core.group.leader_steps.is_left_over", lambda *_: False, ""),
    "a number is used once": ("group.simulated.next_version", after_the_committed_one, "twice"),
    "those that were down together are waited for": ("group.simulated.to_await", those_that_stopped_alone, "not home"),
    "a spare that comes is no change": (f"{HISTORY}._group_change", those_that_are_there, "changes nothing"),
    "shares are equal over all sub-topologies": ("headrace.core.affinity.members.improve", by_each_sub_topology_alone, ""),
}

# Alone it is not needed here: each write names the version of the node that was read, so that a deposed leader's is refused by
# what its successor has written; and no plan is committed but by the holder of the application. It covers what a leader writes
# that nobody has written since, such as the run.
COVERED = {"a leader's writes depend on its own node": ("headrace.group.registration.OwnNode.commit", committed_by_anybody)}


@pytest.mark.parametrize("safeguard", TAKEN_OUT)
def test_without_a_safeguard_a_schedule_breaks_what_must_hold(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, instead, what = TAKEN_OUT[safeguard]
    monkeypatch.setattr(place, instead)

    def all_converge() -> None:
        for seed in (*FEW, *MANY):
            converges(seed)
            comes_home(seed)

    with pytest.raises(AssertionError, match=what or None):
        all_converge()


@pytest.mark.parametrize("safeguard", COVERED)
def test_a_safeguard_that_another_one_covers(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*COVERED[safeguard])
    for seed in FEW[:8]:
        converges(seed)
        comes_home(seed)
