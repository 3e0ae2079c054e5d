"""The planner: from what is stored and declared to the plan that rounds run on, as a tuple of pure steps.

A start, a running job whose streams or requests have changed, the test driver, previews and dry runs all call `plan`; they
differ in the snapshot that they give it, and in what they do with the plan. A dry run is the difference between two plans:
of a snapshot, and of the same snapshot with one request more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headrace.core.job_plan.draft import Draft, PlanTerms
from headrace.core.job_plan.edits import edits
from headrace.core.job_plan.history import history
from headrace.core.job_plan.positions import inheritance, positions, stranded
from headrace.core.job_plan.programs import programs
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.startpoints import startpoints
from headrace.core.job_plan.streams import changed_streams, streams
from headrace.core.job_plan.tasks import compatibility, creations, job_model, scales, tasks
from headrace.errors import FencedError, HeadraceError, UnavailableError

Step = Callable[[Draft, Snapshot], Draft]
"""Decides one thing: the draft with it. A step that cannot raises the error that says why."""

BEFORE_ENGINE: tuple[Step, ...] = (edits, scales, streams, stranded)
"""What can be refused while nothing is held, and no engine is there."""

STEPS: tuple[Step, ...] = (
    *BEFORE_ENGINE,
    inheritance,
    tasks,
    compatibility,
    creations,
    job_model,
    positions,
    startpoints,
    programs,
    history,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no plan, and the step that refused. Nothing was changed."""

    error: HeadraceError
    step: str


def plan(terms: PlanTerms, snapshot: Snapshot, steps: Sequence[Step] = STEPS) -> Draft | Refusal:
    """The plan of a job: what all steps have decided. `UnavailableError` where a system does not answer while offsets are
    looked up, `FencedError` where another driver has taken over: these say nothing of the plan."""
    draft = terms.draft(snapshot.offsets)
    for step in steps:
        try:
            draft = step(draft, draft.past or snapshot)
        except (UnavailableError, FencedError):
            raise
        except HeadraceError as error:
            return Refusal(error, step.__name__)
    return draft


def plan_while_running(terms: PlanTerms, snapshot: Snapshot, steps: Sequence[Step] = STEPS) -> Draft | Refusal:
    """The plan of a job that runs. Where what has changed of its streams cannot be planned together, their readers stop as
    for any change that they cannot follow, and all others keep running."""
    made = plan_without_refused_scales(terms, snapshot, steps)
    changed = changed_streams(terms, snapshot) if isinstance(made, Refusal) and made.step != "startpoints" else frozenset()
    if not changed:
        return made
    assert isinstance(made, Refusal)
    return plan(replace(terms, refused_streams=dict.fromkeys(sorted(changed), made.error)), snapshot, steps)


def plan_without_refused_scales(terms: PlanTerms, snapshot: Snapshot, steps: Sequence[Step] = STEPS) -> Draft | Refusal:
    """The plan; where it cannot be made with the scales that are requested, but without them, these are refused on record."""
    made = plan(terms, snapshot, steps)
    if isinstance(made, Refusal) and snapshot.scales.open:
        refusing = snapshot.scales.refusing(made.error.message)
        without = plan(terms, replace(snapshot, scales=refusing), steps)
        return made if isinstance(without, Refusal) else without
    return made


def planned(terms: PlanTerms, snapshot: Snapshot, steps: Sequence[Step] = STEPS) -> Draft:
    """As `plan`, of a job that runs already as `plan_while_running`; raises what a refusal is for."""
    made = (plan_while_running if terms.is_replan else plan_without_refused_scales)(terms, snapshot, steps)
    if isinstance(made, Refusal):
        raise made.error
    return made
