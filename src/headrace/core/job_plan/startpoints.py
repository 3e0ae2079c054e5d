"""The step that applies startpoints: positions move, states go back, handovers to users' functions follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.core.job_plan.apply_rewinds import StateHistory, StateRewinds
from headrace.core.job_plan.apply_startpoints import apply_startpoints
from headrace.core.job_plan.assignment import assignment_of
from headrace.core.job_plan.checkpoint_inheritance import formerly_other_inputs
from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.startpoint_requests import StartpointRequests, with_bootstraps
from headrace.core.rewind.rewinds import skipped_ranges_of
from headrace.core.rewind.skipped_ranges import SkippedRanges
from headrace.core.rounds.for_each_round import Handover, set_elsewhere
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.core.rounds.partition_barrier import Parents, born_in
from headrace.core.rounds.purging import lowest_positions
from headrace.errors import HeadraceError
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName


def startpoints(draft: Draft, snapshot: Snapshot) -> Draft:
    """Resolve what is requested, and move the positions of the draft's checkpoints.

    While the job runs, a startpoint that cannot be resolved is refused on record, and the others are applied.
    """
    asked = with_bootstraps(snapshot.startpoints, draft.bootstraps, snapshot.now_us, snapshot.id_seed)
    while True:
        try:
            return _applied(draft, snapshot, asked)
        except HeadraceError as error:
            if not draft.terms.is_replan or not error.about:
                raise
            asked = replace(asked, refused={**asked.refused, **_guilty(draft, snapshot, asked, error)})


def _guilty(draft: Draft, snapshot: Snapshot, asked: StartpointRequests, error: HeadraceError) -> dict[str, str]:
    """The startpoints that are to be refused for an error, and why: of several that it is about those that cannot be applied
    alone, all where each of them could."""
    reasons = dict.fromkeys(error.about, error.message)
    for id_ in error.about if len(error.about) > 1 else ():
        others = {other: error.message for other in error.about if other != id_}
        try:
            _applied(draft, snapshot, replace(asked, refused={**asked.refused, **others}))
        except HeadraceError as alone:
            reasons[id_] = alone.message
        else:
            del reasons[id_]
    return reasons or dict.fromkeys(error.about, error.message)


def _born_in(draft: Draft) -> dict[SSP, Parents]:
    expansions = {name: one.expansions for name, one in draft.records.items() if one.expansions}
    return born_in(assignment_of(draft.job_model), expansions) if expansions else {}


def _applied(draft: Draft, snapshot: Snapshot, asked: StartpointRequests) -> Draft:
    terms = draft.terms
    rewinds = StateRewinds(
        StateHistory(snapshot.versions, snapshot.cuts, snapshot.rewinds),
        draft.flows,
        draft.offsets,
        snapshot.now_us,
        _born_in(draft),
        formerly_other_inputs(draft.job_model),
        draft.streams.recreated,
    )
    named = f"--application {terms.application} --system {terms.url}"
    applied = apply_startpoints(asked, snapshot.checkpoints, draft.checkpoints, rewinds, draft.read_from_start, named)
    in_force = rewinds.in_force(applied.checkpoints)
    return replace(
        draft,
        checkpoints=applied.checkpoints,
        startpoints=applied.records,
        changed_startpoints=applied.written,
        refused_startpoints=asked.refused,
        done=applied.done,
        waiting=applied.waiting,
        rewinds=in_force,
        rewound=rewinds.past,
        rewind_changes=rewinds.changes(in_force),
        handovers=handovers_set_elsewhere(
            snapshot.handovers, snapshot.checkpoints, applied.checkpoints, skipped_ranges_of(in_force)
        ),
        applied=(*draft.applied, *_refusals(asked), *applied.notes),
    )


def _refusals(asked: StartpointRequests) -> list[str]:
    return [f"startpoint {id_} is refused: {why}" for id_, why in sorted(asked.refused.items())]


def handovers_set_elsewhere(
    handovers: Mapping[str, Handover],
    stored: Mapping[TaskName, Checkpoint],
    checkpoints: Mapping[TaskName, Checkpoint],
    skipped_ranges: SkippedRanges,
) -> dict[str, Handover]:
    """What a new plan changes of the stored handovers, by the titles of sub-topologies: it begins with `checkpoints`, and
    `stored` are those that were committed last. `skipped_ranges` are skipped: what was handed out of them is written again. See
    `core.rounds.for_each_round.set_elsewhere`."""
    if not handovers:
        return {}
    before, now = lowest_positions(stored.values()), lowest_positions(checkpoints.values())
    moved = {ssp for ssp, position in before.items() if now.get(ssp, position) != position}
    committed = {checkpoint.round_id for checkpoint in stored.values()}
    changed: dict[str, Handover] = {}
    for title, found in handovers.items() if moved or skipped_ranges else ():
        passed = {piece.ssp for piece in found.ranges if _is_skipped_in(piece, skipped_ranges)}
        if (after := set_elsewhere(found, moved | passed, committed)) != found:
            changed[title] = after
    return changed


def _is_skipped_in(piece: OffsetRange, skipped_ranges: SkippedRanges) -> bool:
    return any(start < piece.end and piece.start < end for start, end in skipped_ranges.get(piece.ssp, ()))
