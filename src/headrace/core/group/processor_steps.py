"""What a processor of a group does at each look: release what a proposal takes, and run what its grant covers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.core.group.grants import Grant, Grants, holders_of
from headrace.core.group.membership import spare_text, without_tasks_text
from headrace.core.group.proposals import may_work
from headrace.core.group.state import BarrierState, GroupState, incarnation_of
from headrace.model.job_model import JobModel


class Work(Enum):
    ROUNDS = "rounds"  # those of its own containers, under its grant
    HEARS = "hears"  # a leader without a grant: it follows what the others commit
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ProcessorView:
    """What a processor knows of itself."""

    processor_id: str
    incarnation: str
    holds_lease: bool
    is_leader: bool


@dataclass(frozen=True, slots=True)
class ProcessorStep:
    """In this order: `releases`: end the rounds, as a proposal changes what this processor runs; `joins`: the version whose
    barrier it joins then; `work`. `grant`: its own, as far as it is for this incarnation; `may_work`: a grant would be
    enough."""

    releases: bool
    joins: int | None
    work: Work
    grant: Grant | None
    may_work: bool


def processor_step(state: GroupState, view: ProcessorView, grants: Grants) -> ProcessorStep:
    """What to do under `state`; `grants`: those in force."""
    mine = grants.get(view.processor_id)
    grant = mine if mine is not None and mine.incarnation == view.incarnation else None
    versions, barrier = state.versions, state.barrier
    changes = state.proposed_origin is not None and view.processor_id in state.proposed_origin.changed
    works = may_work(versions, barrier, 1, 2 if changes else 1, holds_lease=view.holds_lease)
    is_open = versions.proposed > versions.active and barrier is not None and barrier.state is BarrierState.NEW
    work = Work.NONE
    if works and grant is not None:
        work = Work.ROUNDS
    elif works and view.is_leader:
        work = Work.HEARS
    return ProcessorStep(is_open and changes, versions.proposed if is_open else None, work, grant, works)


def waiting_for(state: GroupState, view: ProcessorView, step: ProcessorStep, model: JobModel | None) -> str:
    """What a processor that runs no rounds waits for, for people. `model`: the stored one."""
    mine = next((one.sequence for one in state.members if incarnation_of(one) == view.incarnation), -1)
    if state.origin is not None and (why := spare_text(state.members, mine, state.origin.code)):
        return f"tasks; {why}"
    if step.grant is not None and not step.may_work:
        return "the new job model, which changes what this processor runs"
    if state.versions.active == 0 or model is None:
        return "the first job model of the group"
    holders = holders_of(model)
    if view.processor_id not in holders:
        return f"tasks: {without_tasks_text(sum(1 for _ in model.tasks), holders)}"
    return "a grant of the leader"
