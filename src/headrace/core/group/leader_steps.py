"""In which order a leader does what there is to do: one thing at each look."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.core.group.proposals import is_left_over
from headrace.core.group.state import GroupState


class LeaderStep(Enum):
    END_BARRIER = "end barrier"  # of the own proposal: commit its plan, or abandon it
    END_LEFT_OVER = "end left over"  # a proposal of a leader before: publish what was committed, or abandon it
    PUBLISH = "publish"  # the job model in force is not what ZooKeeper shows
    DECIDE = "decide"  # whether another plan is due
    PAUSE = "pause"  # continue a pause, or request one
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class LeaderView:
    """What a leader knows beside the state of its group. `committed`: the version of the stored job model, None before the
    first; `has_planned`: it has looked whether that fits the group; `is_settled`: processors have come or left, and that has
    come to rest; `has_requests`: another plan is requested; `wants_pause`: one is on its way, or due."""

    committed: int | None
    is_proposing: bool
    has_planned: bool
    is_settled: bool
    has_requests: bool
    wants_pause: bool


def leader_step(state: GroupState, view: LeaderView) -> LeaderStep:
    """What comes first. A barrier that waits holds up all else; nothing is decided by a job model that the others do not see;
    and a pause comes behind what makes another plan.

    >>> leader_step(GroupState(), LeaderView(None, False, False, True, True, True)).name
    'DECIDE'
    >>> leader_step(GroupState(), LeaderView(7, False, True, True, True, True)).name  # ZooKeeper has come back empty
    'PUBLISH'
    """
    if view.is_proposing:
        return LeaderStep.END_BARRIER
    if is_left_over(state, None):
        return LeaderStep.END_LEFT_OVER
    if view.has_planned and view.committed is not None and not _shows(state, view.committed):
        return LeaderStep.PUBLISH
    if view.is_settled or (view.has_requests and view.has_planned):
        return LeaderStep.DECIDE
    return LeaderStep.PAUSE if view.has_planned and view.wants_pause else LeaderStep.NOTHING


def _shows(state: GroupState, version: int) -> bool:
    return state.versions.active == version and state.origin is not None
