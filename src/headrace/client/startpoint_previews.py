"""The making of startpoints that somebody asks for, and of what they would do: checked and resolved as the driver
does it, so that what cannot be is refused before anything is written.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from headrace.client.job_view import StoredJob
from headrace.client.startpoint_manager import KnownStartpoint
from headrace.codec.rewind_records import cuts_of, rewinds_of, stored_flows
from headrace.core.job_plan.assignment import assignment_of
from headrace.core.job_plan.checkpoint_inheritance import begun_otherwise
from headrace.core.rewind.previews import (
    Move,
    Preview,
    further_back,
    minding_gaps,
    moves_of,
    moves_with,
    older_gaps,
    read_already,
    stores_behind,
    targets_of,
)
from headrace.core.rewind.replays import going_back, not_forward_within
from headrace.core.rewind.rewinds import Flow, Past, flows_of, gaps_of, past_of, rewind_of
from headrace.core.rewind.startpoints import places_of, winners
from headrace.core.rounds.partition_barrier import born_in
from headrace.core.topology.compatibility import check_same_streams
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.driver.maintenance.state_history import versions_of
from headrace.driver.planning.stored_assignment import SystemStreamPartitionAssignmentManager
from headrace.errors import ConfigError, StateError
from headrace.model.durations import time_ago_us, time_text, time_us
from headrace.model.startpoint import PositionType, Startpoint, StartpointEntry, StartpointKey, StatePolicy
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports import MetadataStore

_END = Startpoint(PositionType.LATEST)
_WORDS = {
    "earliest": Startpoint(PositionType.EARLIEST),
    "latest": _END,
    "bootstrap": Startpoint(PositionType.BOOTSTRAP),
}


def startpoint_of(given: Any, now_us: int) -> Startpoint:
    """A position as users write it: "earliest", "latest", "bootstrap", an offset, a time, or how long before now.

    `ConfigError` for anything else.
    """
    match given:
        case Startpoint():
            return given
        case str() if given in _WORDS:
            return _WORDS[given]
        case bool():
            pass
        case int():
            if given < 0:
                raise ConfigError(f"offset {given}: expected 0 or more", "the first record of a partition has offset 0")
            return Startpoint(PositionType.SPECIFIC_OFFSET, given)
        case timedelta():
            return Startpoint(PositionType.TIMESTAMP, time_ago_us(given, now_us))
        case str() | datetime():
            return Startpoint(PositionType.TIMESTAMP, time_us(given, "startpoint"))
    raise ConfigError(
        f"startpoint {given!r}: expected a position, found {type(given).__name__}",
        "give 'earliest', 'latest', 'bootstrap', an offset, a time (ISO 8601 with a zone, or an aware datetime) or a timedelta",
    )


def startpoint_text(startpoint: Startpoint) -> str:
    """For people.

    >>> startpoint_text(Startpoint(PositionType.SPECIFIC_OFFSET, 7)), startpoint_text(Startpoint(PositionType.LATEST))
    ('offset 7', 'latest')
    """
    match startpoint.position_type, startpoint.position:
        case PositionType.SPECIFIC_OFFSET, offset:
            return f"offset {offset}"
        case PositionType.TIMESTAMP, int(moment_us):
            return f"time {time_text(moment_us)}"
    return startpoint.position_type.lower()


# --- requests ------------------------------------------------------------------------------------------------------


def entries_for(
    job: StoredJob,
    stream: str,
    startpoint: Startpoint,
    partition: int | None,
    task: str | TaskName | None,
    state: StatePolicy,
    written_by: str,
) -> list[StartpointEntry]:
    """Startpoints for a partition of a stream, or for all that it has now or the task reads."""
    check_partition(partition)
    stream = job.stream(stream)
    named = None if task is None else job.task(task, stream)
    ssps = [ssp for ssp in _ssps(job, stream) if named is None or named in job.owners.get(ssp, ())]
    if partition is not None:
        chosen = [ssp for ssp in ssps if ssp.partition == partition]
        if not chosen:
            reads = f"task {named} reads" if named is not None else f"stream {stream!r} has"
            raise ConfigError(
                f"partition {partition} of stream {stream!r}: {reads} {_numbers([ssp.partition for ssp in ssps])}",
                "give one of those, or leave the partition out for all of them",
            )
        ssps = chosen
    wanted = [(StartpointKey(ssp, named), startpoint) for ssp in ssps]
    return entries_of(job, wanted, state, written_by)


def check_partition(partition: Any) -> None:
    """`ConfigError` unless it is the number of a partition, or None."""
    if partition is not None and type(partition) is not int:  # True is equal to 1, and is no partition
        raise ConfigError(
            f"partition {partition!r:.80}: expected a whole number, found {type(partition).__name__}",
            "give the number of a partition, or None for all of them",
        )


def entries_of(
    job: StoredJob, wanted: Iterable[tuple[StartpointKey, Startpoint]], state: StatePolicy, written_by: str
) -> list[StartpointEntry]:
    """Startpoints with ids and a time of their own: later than any that is known here, whatever the clocks say."""
    wanted = list(wanted)
    now_us = _written_at_us(job, {key.ssp for key, _ in wanted})
    return [StartpointEntry(uuid.uuid4().hex[:12], key, one, written_by, now_us, state) for key, one in wanted]


def stamped(job: StoredJob, entries: Sequence[StartpointEntry]) -> list[StartpointEntry]:
    """The same as of now: between their making and their writing somebody was asked, and others may have written."""
    now_us = _written_at_us(job, {entry.key.ssp for entry in entries})
    return [replace(entry, written_at_us=now_us) for entry in entries]


def _written_at_us(job: StoredJob, ssps: Collection[SSP]) -> int:
    latest_us = max((known.entry.written_at_us for known in job.known.values() if known.entry.key.ssp in ssps), default=0)
    return max(time.time_ns() // 1000, latest_us + 1)


def _ssps(job: StoredJob, stream: str) -> list[SSP]:
    """All partitions that the stream has now, also those that the job does not read yet."""
    described = job.system.describe_stream(stream)
    check_same_streams(job.model, {stream: described.id}, {stream: described.partitions})
    return [SSP(job.system.name, stream, partition) for partition in range(described.partitions)]


def _numbers(partitions: Sequence[int]) -> str:
    if not partitions:
        return "none"
    if list(partitions) == list(range(len(partitions))) and len(partitions) > 1:
        return f"0 to {partitions[-1]}"
    return ", ".join(map(str, partitions))


# --- what it would do -----------------------------------------------------------------------------------------------


def preview_of(job: StoredJob, entries: Sequence[StartpointEntry]) -> Preview:
    """What `entries`, all of one state policy, would do now; raises what the driver would stop with."""
    state = entries[0].state if entries else StatePolicy.KEEP
    consumer = job.system.consumer()
    offsets = {entry.id: consumer.register(entry.key.ssp, entry.startpoint) for entry in entries}
    given = moves_of(entries, offsets, job.owners, job.positions)
    asked = _not_forward(job, given) if state is StatePolicy.REWIND else given
    targets = targets_of(asked) if state is StatePolicy.REWIND else {}
    metadata = job.system.metadata_store(job.application)
    flows = _flows(job, metadata) if targets else ()
    past = _past(job, metadata, flows, targets) if targets else Past()
    before = rewinds_of(metadata)
    gaps = gaps_of([*before, rewind_of(past, job.checkpoints, time.time_ns() // 1000)])
    moves = minding_gaps(moves_with(asked, past.versions, job.positions), gaps)
    asked_of = {move.task for move in asked}
    stores = stores_behind(job.model, {move.ssp.stream for move in moves if move.task in asked_of}, job.topology)
    at_end = [one for one in entries if _time_of(one) is not None and offsets[one.id] >= consumer.register(one.key.ssp, _END)]
    said = read_already(given, asked), further_back(asked, moves), older_gaps(moves, gaps_of(before), past)
    notes = [*(text for text in said if text is not None), *_notes(job, entries, at_end)]
    unit = "offsets" if job.url.startswith("kafka:") else "records"
    return Preview(job.application, tuple(entries), moves, state, stores, tuple(notes), past, flows, unit)


def _not_forward(job: StoredJob, asked: Iterable[Move]) -> tuple[Move, ...]:
    """Of tasks that are going back with their states: what they have not come to again is not skipped."""
    replays = going_back([known.record for known in job.known.values() if known.record is not None], job.checkpoints)
    return tuple(
        move
        if move.task is None or move.before is None
        else replace(move, after=not_forward_within(replays.get((move.task, move.ssp)), move.before, move.after))
        for move in asked
    )


def _flows(job: StoredJob, metadata: MetadataStore) -> tuple[Flow, ...]:
    """What the job's sub-topologies read and write: by the application's file, else as it last ran."""
    if job.topology is not None:
        return flows_of(sub_topologies_of(job.topology))
    stored = stored_flows(metadata)
    if stored is None:
        raise StateError(
            f"application {job.application!r} last ran under an older version, which has not stored what its sub-topologies "
            "read and write: which tasks go back together is not known",
            "name the application's file, or run it once; or leave the state as it is (--state keep)",
        )
    return stored


def _past(
    job: StoredJob,
    metadata: MetadataStore,
    flows: Sequence[Flow],
    targets: Mapping[TaskName, Mapping[SSP, int]],
) -> Past:
    """What goes back, and to where, as the driver decides it; `StateError` where no kept version suits."""
    cuts = cuts_of(metadata)  # before the versions: those of a cut are on record before it is
    records = SystemStreamPartitionAssignmentManager(metadata).read_partition_records()
    born = born_in(assignment_of(job.model), {stream: record.expansions for stream, record in records.items()})
    beginnings, ends = cache(job.system.beginning_offsets), cache(job.system.high_watermarks)
    checkpoints = {task.name: job.checkpoints[task.name] for task in job.model.tasks if task.name in job.checkpoints}
    return past_of(
        flows,
        checkpoints,
        targets,
        versions_of(metadata),
        cuts,
        lambda ssp: beginnings(ssp.stream)[ssp.partition],
        lambda ssp: ends(ssp.stream)[ssp.partition],
        born,
        begun_otherwise(job.model),
    )


def _notes(job: StoredJob, entries: Sequence[StartpointEntry], at_end: Sequence[StartpointEntry]) -> list[str]:
    """What should be said besides. `at_end`: those of a time that come to the end of their partitions."""
    notes: list[str] = []
    now_us = time.time_ns() // 1000
    future = {one.startpoint for one in entries if (_time_of(one) or 0) > now_us}
    notes += [f"{startpoint_text(one)} is in the future: the end offsets are used" for one in sorted(future, key=str)]
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
    for known in job.unspent:
        if known.entry.id in displaced:
            became = "waiting for a driver" if known.became is None else "pending"
            said = startpoint_text(known.entry.startpoint)
            text = f"takes the place of startpoint {known.entry.id} ({said}), which is {became}"
            undone = "what went back for it is put where it was first, if nothing was committed there since"
            notes.append(f"{text}: {undone}" if _is_rewound(known) else text)
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
