"""The last step: what is recorded of a change of plan, for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from headrace.core.affinity.members import moved_tasks
from headrace.core.elasticity.scales import ScaleDecision
from headrace.core.group.grants import holders_of
from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.startpoint_requests import SOURCE_START
from headrace.errors import HeadraceError, IncompatibleChangeError
from headrace.model.change import Change, ChangeKind, Outcome
from headrace.model.job_model import JobModel
from headrace.model.names import few, partitions_text
from headrace.model.scale import ScaleRequest, request_text, scale_text
from headrace.model.startpoint import StartpointStatus

CONFIGURATION = "configuration"  # in place of who has asked, where it was edited
ENTRIES_MAX = 1_000
_OUTCOMES = {StartpointStatus.REFUSED: Outcome.REFUSED, StartpointStatus.SUPERSEDED: Outcome.SUPERSEDED}


def history(draft: Draft, snapshot: Snapshot) -> Draft:
    """Say what the plan changes, and what it refuses."""
    changes = [*_start(draft, snapshot), *_rebalances(draft, snapshot)]
    changes += [*_expansions(draft, snapshot), *_startpoints(draft, snapshot)]
    changes += scale_entries(draft.scaling, snapshot.scales.requests, draft.job_model.version, snapshot.now_us)
    return replace(draft, changes=dict(zip(new_keys(snapshot.epoch, snapshot.history), changes, strict=False)))


def key_of(epoch: int, number: int) -> str:
    """The key of an entry: entries sort by the plans that they are of.

    >>> key_of(9, 0) < key_of(10, 0) < key_of(10, 1)
    True
    """
    return f"{epoch:012d}-{number:06d}"


def new_keys(epoch: int, stored: Collection[str]) -> Iterator[str]:
    """The keys of entries that come after those that are `stored`. The leader of a standalone group makes many plans under one
    epoch.

    >>> stored = [key_of(9, 1), key_of(10, 0), key_of(10, 4)]
    >>> next(new_keys(10, stored)) == key_of(10, 5), next(new_keys(11, stored)) == key_of(11, 0)
    (True, True)
    """
    begin = key_of(epoch, 0).partition("-")[0]
    numbers = (int(number) for before, _, number in (key.partition("-") for key in stored) if before == begin)
    return (key_of(epoch, number) for number in count(1 + max(numbers, default=-1)))


def to_forget(stored: Collection[str], new: Collection[str]) -> frozenset[str]:
    """The keys of the entries that are too many: all but the newest `ENTRIES_MAX`."""
    return frozenset(sorted({*stored, *new})[:-ENTRIES_MAX])


def _start(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    """At a start, where the job model is another one."""
    before, after = snapshot.model, draft.job_model
    if draft.terms.is_replan or (before is not None and before.version == after.version):
        return
    if (draft.streams.grown or draft.scaling.changes) and not draft.notes:  # which have entries of their own
        return
    was = "" if before is None else f"job model {before.version}"
    what = "first start" if before is None else "start with another plan"
    now, why = f"job model {after.version}", "; ".join(draft.notes)
    yield Change(snapshot.now_us, ChangeKind.START, what, Outcome.APPLIED, after.version, "", was, now, why)


def _rebalances(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    """What came or went of a cluster, or of a group, and how many tasks have another processor for it."""
    if snapshot.model is None:
        return
    asked = [(one.subject, one.requested_by) for one in snapshot.requests if one.kind is ChangeKind.REBALANCE]
    if draft.terms.processors and draft.terms.is_replan and (what := _group_change(snapshot.model, draft)):
        asked.append((what, ""))
    if not asked:
        return
    before, now = (
        [one for sub in model.sub_topologies for one in sub.containers] for model in (snapshot.model, draft.job_model)
    )
    after = f"{len(moved_tasks(before, now)):,} of {sum(len(one.tasks) for one in now):,} tasks moved"
    version = draft.job_model.version
    for subject, by in asked:
        yield Change(snapshot.now_us, ChangeKind.REBALANCE, subject, Outcome.APPLIED, version, by, "", after)


def _group_change(before: JobModel, draft: Draft) -> str:
    """Which processors of a group have tasks now and had none, or the other way round: one without any that comes and leaves
    changes nothing."""
    had, have = holders_of(before), holders_of(draft.job_model)
    return ", ".join([f"{name} came" for name in sorted(have - had)] + [f"{name} left" for name in sorted(had - have)])


def _expansions(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    seen, found = draft.streams, snapshot.streams
    changed = [(one.stream, Outcome.APPLIED, one.before, one.after, one.warning or "") for one in seen.grown]
    changed += [
        (stream, Outcome.REFUSED, seen.counts[stream], found[stream].partitions, error.message)
        for stream, error in sorted(seen.refused.items())
        if snapshot.refused_before.get(f"stream {stream}") != partitions_text(found[stream].partitions)
    ]
    for stream, outcome, before, after, why in changed:
        by, was, now = snapshot.requested_by(ChangeKind.EXPANSION, stream), partitions_text(before), partitions_text(after)
        kind, what = ChangeKind.EXPANSION, f"stream {stream}"
        yield Change(snapshot.now_us, kind, what, outcome, draft.job_model.version, by, was, now, why)
    yield from _joined(draft, snapshot)


def refused_changes(history: Iterable[Change]) -> dict[str, str]:
    """Of streams whose last change their readers could not follow, by what the entry is of, what they changed to."""
    return {what: one.after for what, one in _last_refused(history).items()}


def refusals_of(history: Iterable[Change], counts: Mapping[str, int]) -> dict[str, HeadraceError]:
    """Of streams that have so many partitions now those whose change to that number a plan has refused, and why."""
    refused = _last_refused(history)
    found = {stream: refused.get(f"stream {stream}") for stream in counts}
    return {
        stream: IncompatibleChangeError(one.why, "stop the application and start it: the error of that start says what to do")
        for stream, one in found.items()
        if one is not None and one.after == partitions_text(counts[stream])
    }


def _last_refused(history: Iterable[Change]) -> dict[str, Change]:
    last = {one.what: one for one in history if one.kind is ChangeKind.EXPANSION}
    return {what: one for what, one in last.items() if one.outcome is Outcome.REFUSED}


def _joined(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    """Streams that a job which runs reads from now on, as they match a pattern."""
    before = {} if snapshot.model is None else snapshot.model.partition_counts
    for one in snapshot.requests:
        count = draft.job_model.partition_counts.get(one.subject)
        if one.kind is ChangeKind.EXPANSION and one.subject not in before and count is not None:
            what, now = f"stream {one.subject}", f"{partitions_text(count)}, read by a pattern"
            yield Change(snapshot.now_us, one.kind, what, Outcome.APPLIED, draft.job_model.version, "", "not read", now)


def scale_entries(
    decision: ScaleDecision, requests: Mapping[str, ScaleRequest], version: int, now_us: int
) -> Iterator[Change]:
    """What has come of requests for other scales, under job model `version`."""
    for one in decision.changes:
        what, was, now = _scale_subject(one.sub_topology), scale_text(one.before), scale_text(one.after)
        yield Change(now_us, ChangeKind.SCALE, what, Outcome.APPLIED, version, one.by or CONFIGURATION, was, now, one.reason)
    for id_ in dict.fromkeys((*decision.superseded, *decision.refused)):
        request = requests.get(id_)
        outcome = Outcome.REFUSED if id_ in decision.refused else Outcome.SUPERSEDED
        why = decision.refused.get(id_, "" if request is None else request.reason)
        by, after = ("", "") if request is None else (request.requested_by, request_text(request))
        what = _scale_subject(None if request is None else request.sub_topology)
        yield Change(now_us, ChangeKind.SCALE, what, outcome, version, by, "", after, why)


def _scale_subject(sub_topology: str | None) -> str:
    return "all sub-topologies" if sub_topology is None else sub_topology


def _startpoints(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    for id_, record in sorted(draft.changed_startpoints.items()):
        if record is None or record.entry.written_by == SOURCE_START:
            continue
        entry, is_new = record.entry, id_ not in snapshot.startpoints.records
        is_deleted = record.status is StartpointStatus.DELETED
        if not (is_new or is_deleted):
            continue
        task = "" if entry.key.task is None else f", task {entry.key.task}"
        ones = record.resolutions if is_new else ()
        yield Change(
            snapshot.now_us,
            ChangeKind.STARTPOINT,
            f"startpoint {id_} of {entry.key.ssp}{task}{' is deleted' if is_deleted else ''}",
            _OUTCOMES.get(record.status, Outcome.APPLIED),
            draft.job_model.version,
            entry.written_by,
            few([f"{one.task} {one.ssp} at {one.before}" for one in ones]),
            few([f"{one.task} {one.ssp} at {one.offset}" for one in ones]),
            draft.refused_startpoints.get(id_, ""),
        )
