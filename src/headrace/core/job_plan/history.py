"""The last step: what is recorded of a change of plan, for people."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.startpoint_requests import SOURCE_START
from headrace.model.change import Change, ChangeKind, Outcome
from headrace.model.startpoint import Resolution, StartpointRecord, StartpointStatus

ENTRIES_MAX = 1_000
PLACES_MAX = 8  # that one entry names


def history(draft: Draft, snapshot: Snapshot) -> Draft:
    """Say what the plan changes, and what it refuses."""
    changes = [*_start(draft, snapshot), *_expansions(draft, snapshot), *_startpoints(draft, snapshot)]
    return replace(draft, changes={key_of(snapshot.epoch, number): one for number, one in enumerate(changes)})


def key_of(epoch: int, number: int) -> str:
    """The key of an entry: entries sort by the plans that they are of.

    >>> key_of(9, 0) < key_of(10, 0) < key_of(10, 1)
    True
    """
    return f"{epoch:012d}-{number:06d}"


def to_forget(stored: Collection[str], new: Collection[str]) -> frozenset[str]:
    """The keys of the entries that are too many: all but the newest `ENTRIES_MAX`."""
    return frozenset(sorted({*stored, *new})[:-ENTRIES_MAX])


def _start(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    """At a start, where the job model is another one."""
    before, after = snapshot.model, draft.job_model
    if draft.terms.is_replan or (before is not None and before.version == after.version):
        return
    was = "" if before is None else f"job model {before.version}"
    what = "first start" if before is None else "start with another plan"
    why = "; ".join(draft.notes)
    yield Change(
        snapshot.now_us, ChangeKind.START, what, Outcome.APPLIED, after.version, "", was, f"job model {after.version}", why
    )


def _expansions(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    version = draft.job_model.version
    for one in draft.streams.grown:
        yield Change(
            snapshot.now_us,
            ChangeKind.EXPANSION,
            f"stream {one.stream}",
            Outcome.APPLIED,
            version,
            snapshot.requested_by(ChangeKind.EXPANSION, one.stream),
            _partitions(one.before),
            _partitions(one.after),
            one.warning or "",
        )
    for stream, error in sorted(draft.streams.refused.items()):
        if snapshot.refused_before.get(stream) != snapshot.streams[stream].partitions:
            yield Change(
                snapshot.now_us,
                ChangeKind.EXPANSION,
                f"stream {stream}",
                Outcome.REFUSED,
                version,
                snapshot.requested_by(ChangeKind.EXPANSION, stream),
                _partitions(draft.streams.counts[stream]),
                _partitions(snapshot.streams[stream].partitions),
                error.message,
            )


def _startpoints(draft: Draft, snapshot: Snapshot) -> Iterator[Change]:
    known, refused = snapshot.startpoints.records, draft.refused_startpoints
    for id_, record in sorted(draft.changed_startpoints.items()):
        if record is None or record.entry.written_by == SOURCE_START:
            continue
        is_new = id_ not in known
        if is_new or record.status is StartpointStatus.DELETED:
            yield _startpoint(record, draft.job_model.version, snapshot.now_us, refused, is_new)


def _startpoint(record: StartpointRecord, version: int, now_us: int, refused: Mapping[str, str], is_new: bool) -> Change:
    entry = record.entry
    is_refused = record.status is StartpointStatus.REFUSED
    what = f"startpoint {entry.id} of {entry.key.ssp}{'' if entry.key.task is None else f', task {entry.key.task}'}"
    ones = record.resolutions if is_new else ()
    return Change(
        now_us,
        ChangeKind.STARTPOINT,
        what if record.status is not StartpointStatus.DELETED else f"{what} is deleted",
        Outcome.REFUSED if is_refused else Outcome.APPLIED,
        version,
        entry.written_by,
        _places(ones, is_before=True),
        _places(ones, is_before=False),
        refused.get(entry.id, ""),
    )


def _places(ones: Collection[Resolution], is_before: bool) -> str:
    named = [f"{one.task} {one.ssp} at {one.before if is_before else one.offset}" for one in ones]
    more = len(named) - PLACES_MAX
    return ", ".join(named[:PLACES_MAX]) + (f" and {more} more" if more > 0 else "")


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
