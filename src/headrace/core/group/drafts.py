"""What a plan of a group is made for, and what is to be done with one that was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.core.group.grants import (
    Grants,
    GroupShape,
    changes_of,
    holders_of,
    known_to_have_begun,
    members_in,
    processor_portions,
    processor_slots,
)
from headrace.core.group.membership import candidates_of
from headrace.core.group.proposals import Portion
from headrace.core.group.settling import Settling
from headrace.core.group.state import GroupState, incarnation_of
from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.rewind.startpoint_rules import in_force
from headrace.model.change import ChangeKind
from headrace.model.job_model import JobModel
from headrace.model.startpoint import StartpointRecord


@dataclass(frozen=True, slots=True, eq=False)
class WantedPlan:
    """What to plan for. `present`: the incarnations of those that get tasks or may have some, by processor id. `of_other_code`:
    they have other code than those that the plan in force was made for."""

    shape: GroupShape
    present: Mapping[str, str]
    of_other_code: bool = False


def wanted_plan(
    state: GroupState, model: JobModel | None, settling: Settling, version: int, *, forgets: bool
) -> WantedPlan | None:
    """A plan for the processors that are there with the code of the plan in force, and for those that are waited for; None
    where there is none. `state`: its origin is that of the plan in force, which is stored with it. `model`: the stored one.
    `version`: the number that the plan has; `forgets`: tasks need not stay where they were."""
    active_code = state.origin.code if state.origin else None
    candidates = candidates_of(state.members, active_code)
    present = {one.processor_id: incarnation_of(one) for one in candidates.chosen if one.processor_id is not None}
    registered = [one.registration for one in candidates.chosen if one.registration is not None]
    processors = [slot for one in registered for slot in processor_slots(one.processor_id, one.location_id, one.slots)]
    processors += [] if model is None else members_in(model, settling.waited_for)
    of_other_code = active_code is not None and any(one.code != active_code for one in registered)
    return WantedPlan(GroupShape(tuple(processors), version, forgets), present, of_other_code) if processors else None


def wanted_again(model: JobModel) -> WantedPlan | None:
    """A plan for those that have tasks under `model`, in the slots in which they have them; None for a job model that was not
    made for a group."""
    members = members_in(model, holders_of(model))
    return WantedPlan(GroupShape(tuple(members), model.version + 1), {}) if members else None


class GroupStep(Enum):
    """What a leader does with a plan that it has made."""

    NOTHING = "nothing"
    GRANT = "grant"  # the same plan for new incarnations: they get grants, and no version is used
    PROPOSE = "propose"


@dataclass(frozen=True, slots=True, eq=False)
class GroupDraft:
    """A plan that is not committed. `portions`: those of it, by processor id; `changed`: the processors that it changes, and
    that commit nothing until it is in force; `gains`: those that only get tasks, and work on; `ungranted`: those that are there
    and have tasks in it, and no grant for their present incarnation. Of one that is not there the grant was taken back
    before. `of_other_code`: as in `WantedPlan`; it is committed then, also where all else is the same."""

    draft: Draft
    snapshot: Snapshot
    portions: Mapping[str, Portion]
    changed: frozenset[str]
    gains: frozenset[str]
    ungranted: frozenset[str]
    of_other_code: bool = False

    @property
    def to_fence(self) -> frozenset[str]:
        return self.changed | self.ungranted

    @property
    def step(self) -> GroupStep:
        draft = self.draft
        entries = [one for one in draft.changes.values() if one.kind is not ChangeKind.START]
        settled = draft.done or draft.scaling.settled or draft.changed_startpoints
        is_first = self.snapshot.model is None
        if self.changed or self.gains or entries or settled or draft.creates or is_first or self.of_other_code:
            return GroupStep.PROPOSE
        return GroupStep.GRANT if self.ungranted else GroupStep.NOTHING


def group_draft(draft: Draft, snapshot: Snapshot, wanted: WantedPlan, grants: Grants) -> GroupDraft:
    """What `draft`, made from `snapshot` for what is `wanted`, changes. `grants`: those in force."""
    present = wanted.present
    before = processor_portions(snapshot.model, _ids_in_force(snapshot.startpoints.records))
    after = processor_portions(draft.job_model, _ids_in_force(draft.startpoints))
    changed, gaining = changes_of(before, after, draft.job_model, snapshot.checkpoints, draft.checkpoints)
    held = {id_: grant.incarnation for id_, grant in grants.items()}
    ungranted = {id_ for id_, incarnation in present.items() if id_ in after and held.get(id_) != incarnation}
    begun = known_to_have_begun(grants, snapshot.model, snapshot.checkpoints)
    # One that may still work under the number before the one that it has cannot keep both beside a third.
    gains = frozenset(
        id_ for id_ in gaining if held.get(id_) == present.get(id_, "") and (id_ in begun or not grants[id_].former)
    )
    return GroupDraft(draft, snapshot, after, changed - gains, gains, frozenset(ungranted), wanted.of_other_code)


def _ids_in_force(records: Mapping[str, StartpointRecord]) -> frozenset[str]:
    return frozenset(record.entry.id for record, _ in in_force(records.values()).values())
