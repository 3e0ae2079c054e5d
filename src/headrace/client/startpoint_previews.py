"""The making of startpoints that somebody asks for, and of what they would do: checked and resolved as the driver
does it, so that what cannot be is refused before anything is written.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from headrace.client.job_view import StoredJob
from headrace.client.startpoint_manager import KnownStartpoint
from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.startpoints import startpoints
from headrace.core.rewind.previews import (
    StartpointPreview,
    further_back,
    moves_between,
    moves_of,
    older_skipped,
    read_already,
    stores_behind,
    with_skipped_ranges,
)
from headrace.core.rewind.rewinds import skipped_ranges_of
from headrace.core.rewind.startpoint_rules import BY_WORD, places_of, start_of, startpoint_text, winners
from headrace.core.topology.compatibility import check_same_streams
from headrace.environment import this_user
from headrace.errors import ConfigError, HeadraceError, StateError
from headrace.model.durations import time_ago_us, time_us
from headrace.model.startpoint import PositionType, Startpoint, StartpointEntry, StartpointKey, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

_END = Startpoint(PositionType.LATEST)


def startpoint_of(given: Any, now_us: int) -> Startpoint:
    """A position as users write it: "earliest", "latest", "bootstrap", an offset, a time, or how long before now. `ConfigError`
    for anything else."""
    match given:
        case bool():
            pass
        case int() if given < 0:
            raise ConfigError(f"offset {given}: expected 0 or more", "the first record of a partition has offset 0")
        case Startpoint() | int():
            return start_of(given)
        case str() if given in BY_WORD:
            return start_of(given)
        case timedelta():
            return Startpoint(PositionType.TIMESTAMP, time_ago_us(given, now_us))
        case str() | datetime():
            return Startpoint(PositionType.TIMESTAMP, time_us(given, "startpoint"))
    raise ConfigError(
        f"startpoint {given!r}: expected a position, found {type(given).__name__}",
        "give 'earliest', 'latest', 'bootstrap', an offset, a time (ISO 8601 with a zone, or an aware datetime) or a timedelta",
    )


# --- requests ------------------------------------------------------------------------------------------------------


def entries_for(
    job: StoredJob, stream: str, startpoint: Startpoint, partition: int | None, task: str | TaskName | None, state: StatePolicy
) -> list[StartpointEntry]:
    """Startpoints for a partition of a stream, or for all that it has now or the task reads."""
    check_partition(partition)
    stream = job.stream(stream)
    named = None if task is None else job.task(task, stream)
    ssps = [ssp for ssp in _ssps(job, stream) if named is None or named in job.owners.get(ssp, ())]
    chosen = [ssp for ssp in ssps if partition in (None, ssp.partition)]
    if partition is not None and not chosen:
        reads = f"task {named} reads" if named is not None else f"stream {stream!r} has"
        raise ConfigError(
            f"partition {partition} of stream {stream!r}: {reads} {_numbers([ssp.partition for ssp in ssps])}",
            "give one of those, or leave the partition out for all of them",
        )
    return entries_of(job, [(StartpointKey(ssp, named), startpoint) for ssp in chosen], state)


def check_partition(partition: Any) -> None:
    """`ConfigError` unless it is the number of a partition, or None."""
    if partition is not None and type(partition) is not int:  # True is equal to 1, and is no partition
        raise ConfigError(
            f"partition {partition!r:.80}: expected a whole number, found {type(partition).__name__}",
            "give the number of a partition, or None for all of them",
        )


def entries_of(job: StoredJob, wanted: Sequence[tuple[StartpointKey, Startpoint]], state: StatePolicy) -> list[StartpointEntry]:
    """Startpoints with ids and a time of their own: later than any that is known here, whatever the clocks say."""
    now_us = _written_at_us(job, {key.ssp for key, _ in wanted})
    user = this_user()
    return [StartpointEntry(uuid.uuid4().hex[:12], key, one, user, now_us, state) for key, one in wanted]


def stamped(job: StoredJob, entries: Sequence[StartpointEntry]) -> list[StartpointEntry]:
    """The same as of now: between their making and their writing somebody was asked, and others may have written."""
    now_us = _written_at_us(job, {entry.key.ssp for entry in entries})
    return [replace(entry, written_at_us=now_us) for entry in entries]


def _written_at_us(job: StoredJob, ssps: Collection[SSP]) -> int:
    latest_us = max((known.entry.written_at_us for known in job.known.values() if known.entry.key.ssp in ssps), default=0)
    return max(time.time_ns() // 1000, latest_us + 1)


def _ssps(job: StoredJob, stream: str) -> list[SSP]:
    """All partitions that the stream has now, also those that the job does not read yet."""
    described = job.snapshot.streams.get(stream) or job.system.describe_stream(stream)
    check_same_streams(job.model, {stream: described.id}, {stream: described.partitions})
    return [SSP(job.system.name, stream, partition) for partition in range(described.partitions)]


def _numbers(partitions: Sequence[int]) -> str:
    if not partitions:
        return "none"
    if list(partitions) == list(range(len(partitions))) and len(partitions) > 1:
        return f"0 to {partitions[-1]}"
    return ", ".join(map(str, partitions))


# --- what it would do -----------------------------------------------------------------------------------------------


def preview_of(job: StoredJob, entries: Sequence[StartpointEntry]) -> StartpointPreview:
    """What `entries`, all of one state policy, would do now: the difference of two plans, one that has what waits already, and
    one that has these too. Raises what a start would be refused with."""
    state = entries[0].state if entries else StatePolicy.KEEP
    snapshot, terms = job.snapshot, job.terms
    draft = replace(
        terms.draft(snapshot.offsets),
        flows=terms.flows if job.topology is not None else snapshot.flows or (),
        model=snapshot.model,
        records=snapshot.partition_records,
        checkpoints=snapshot.checkpoints,
    )
    offsets = {entry.id: draft.offsets.register(entry.key.ssp, entry.startpoint) for entry in entries}
    given = moves_of(entries, offsets, job.owners, job.positions)
    if job.topology is None and snapshot.flows is None and state is StatePolicy.REWIND and any(move.is_back for move in given):
        raise StateError(
            f"application {job.application!r} last ran under an older version, which has not stored what its sub-topologies "
            "read and write: which tasks go back together is not known",
            "name the application's file, or run it once; or leave the state as it is (--state keep)",
        )
    before = startpoints(replace(draft, terms=replace(terms, is_replan=True)), snapshot)
    asked = snapshot.with_startpoints(entries)
    after = _applied(draft, replace(asked, startpoints=replace(asked.startpoints, refused=before.refused_startpoints)))
    moves = moves_between(given, before.checkpoints, after.checkpoints, job.positions)
    moves = with_skipped_ranges(moves, skipped_ranges_of(after.rewinds))
    tasks = {move.task for move in given}
    stores = stores_behind(job.model, {move.ssp.stream for move in moves if move.task in tasks}, job.topology)
    back = [move for move in given if move.task in after.rewound.versions]
    timed = [entry for entry in entries if _time_of(entry) is not None]
    at_end = [entry for entry in timed if offsets[entry.id] >= draft.offsets.register(entry.key.ssp, _END)]
    held = [move for move in given if move not in back]
    reached = {(move.task, move.ssp): move.after for move in moves}
    said = (
        read_already(held, [replace(move, after=reached[move.task, move.ssp]) for move in held]),
        further_back(back, moves),
        older_skipped(moves, skipped_ranges_of(snapshot.rewinds), after.rewound),
    )
    notes = [*(text for text in said if text is not None), *_notes(job, entries, at_end)]
    unit = "offsets" if job.url.startswith("kafka:") else "records"
    return StartpointPreview(
        job.application, tuple(entries), moves, state, stores, tuple(notes), after.rewound, draft.flows, unit
    )


def _applied(draft: Draft, snapshot: Snapshot) -> Draft:
    try:
        return startpoints(draft, snapshot)
    except HeadraceError as error:  # which says that the startpoint is there: none is yet
        raise error.__cause__ if error.about and error.__cause__ is not None else error from None


def _notes(job: StoredJob, entries: Sequence[StartpointEntry], at_end: Sequence[StartpointEntry]) -> list[str]:
    """What should be said besides. `at_end`: those of a time that come to the end of their partitions."""
    now_us = time.time_ns() // 1000
    future = {one.startpoint for one in entries if (_time_of(one) or 0) > now_us}
    notes = [f"{startpoint_text(one)} is in the future: the end offsets are used" for one in sorted(future, key=str)]
    ended = [_place_text(entry.key.ssp) for entry in at_end if entry.startpoint not in future]
    if ended:
        notes.append(f"no record at or after this timestamp in {', '.join(ended)}; the end offset is used")
    if any(entry.startpoint.position_type is PositionType.BOOTSTRAP for entry in entries):
        notes.append("until a task reaches the end offset as of its start, it reads none of its other streams")
    reset = {source.stream for source in job.topology.sources if source.reset_offset} if job.topology is not None else set()
    for stream in sorted(reset & {entry.key.ssp.stream for entry in entries}):
        notes.append(f"stream {stream!r} is reset at every start (reset_offset): a startpoint counts once, at the next one")
    unread = [_place_text(entry.key.ssp) for entry in entries if not job.owners.get(entry.key.ssp)]
    if unread:
        notes.append(f"the job does not read {', '.join(unread)} yet: it starts there when it picks the partitions up")
    places = {place for entry in entries for place in places_of(entry, job.owners)}
    counting = winners([known.entry for known in job.unspent], job.owners)
    displaced = {counting[place].id for place in places if place in counting}
    for known in (one for one in job.unspent if one.entry.id in displaced):
        status = "waiting to be picked up" if known.status is None else "pending"
        text = f"takes the place of startpoint {known.entry.id} ({startpoint_text(known.entry.startpoint)}), which is {status}"
        undone = ": what went back for it is put where it was first, if nothing was committed there since"
        notes.append(text + (undone if _is_rewound(known) else ""))
    if job.url.startswith("kafka:"):
        notes.append("what is counted are offsets: on Kafka some of them may be markers of transactions, which are no records")
    return notes


def _is_rewound(known: KnownStartpoint) -> bool:
    """Whether state went back for a startpoint that a driver applied."""
    record = known.record
    if record is None or record.entry.state is not StatePolicy.REWIND:
        return False
    return any(one.offset < one.before for one in record.resolutions)


def _time_of(entry: StartpointEntry) -> int | None:
    return entry.startpoint.position if entry.startpoint.position_type is PositionType.TIMESTAMP else None


def _place_text(ssp: SSP) -> str:
    return f"{ssp.stream}/{ssp.partition}"
