"""What startpoints come to: which of several counts, the offset that one means, and what BOOTSTRAP holds back.

Seed: SEP-18. Of a startpoint for an SSP and one for the SSP and a task the later wins; at a tie the task's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from headrace.core.rewind.consistent_cuts import SubTopologyEdges
from headrace.core.topology.sub_topologies import SubTopology
from headrace.errors import OffsetOutOfRangeError
from headrace.model.checkpoint import Checkpoint
from headrace.model.durations import time_text
from headrace.model.startpoint import (
    PositionType,
    Resolution,
    Startpoint,
    StartpointEntry,
    StartpointKey,
    StartpointRecord,
    StartpointStatus,
)
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName

TaskPartition = tuple[TaskName, SSP]


def places_of(entry: StartpointEntry, owners: Mapping[SSP, Collection[TaskName]]) -> frozenset[TaskPartition]:
    """Where a startpoint counts: every task that reads its SSP (`owners`), or the one that it names.

    A virtual task that is not there any more, since the elasticity factor has changed, means those that have its keys now. Any
    other task that was removed, or no longer reads the SSP, means all that do: a startpoint is for an input, and tasks change
    their names.
    """
    reading = owners.get(entry.key.ssp, ())
    named = entry.key.task
    tasks: Collection[TaskName] = reading
    if named is not None:
        tasks = [named] if named in reading else [task for task in reading if task.shares_keys_with(named)] or reading
    return frozenset((task, entry.key.ssp) for task in tasks)


def winners(
    entries: Iterable[StartpointEntry], owners: Mapping[SSP, Collection[TaskName]]
) -> dict[TaskPartition, StartpointEntry]:
    """Of these, in the order in which they came, the one that counts for each task and SSP."""
    return {place: entry for entry in sorted(entries, key=_rank) for place in places_of(entry, owners)}


def counting_for(
    key: StartpointKey, entries: Iterable[StartpointEntry], reading: Collection[TaskName]
) -> StartpointEntry | None:
    """Of these, in the order in which they came, the one that counts for a key. `reading`: the tasks that read its SSP, none
    where that is not known. For an SSP alone those count that are for all tasks, and one whose task was removed."""
    of_ssp = [entry for entry in entries if entry.key.ssp == key.ssp]
    if key.task is not None:
        named = {entry.key.task for entry in of_ssp if entry.key.task is not None} if not reading else set(reading)
        return winners(of_ssp, {key.ssp: {*named, key.task}}).get((key.task, key.ssp))
    general = [entry for entry in of_ssp if entry.key.task is None or (reading and entry.key.task not in reading)]
    return max(reversed(general), key=_rank, default=None)


def newest_by_key(entries: Iterable[StartpointEntry]) -> dict[StartpointKey, StartpointEntry]:
    """Of these, in the order in which they came, the one that counts among those of each key."""
    return {entry.key: entry for entry in sorted(entries, key=_rank)}


def _rank(entry: StartpointEntry) -> tuple[int, bool]:
    return entry.written_at_us, entry.key.task is not None


def offset_of(startpoint: Startpoint, ssp: SSP, beginning: int, end: int, for_time: Callable[[int], int]) -> int:
    """The offset that a startpoint means in a partition that holds `beginning` <= offset < `end`.

    `for_time`: the first offset whose record is not older than a time in µs, the end where there is none.
    `OffsetOutOfRangeError` for an offset that is not there; the end itself is.
    """
    match startpoint.position_type, startpoint.position:
        case PositionType.SPECIFIC_OFFSET, int(offset):
            if not beginning <= offset <= end:
                held = f"{beginning} to {end - 1}" if end > beginning else f"nothing, and ends at {end}"
                raise OffsetOutOfRangeError(
                    f"offset {offset} of stream {ssp.stream!r} partition {ssp.partition} is not there: it holds {held}",
                    f"give an offset from {beginning} to {end}, the end",
                )
            return offset
        case PositionType.TIMESTAMP, int(time_us):
            return min(max(beginning, for_time(time_us)), end)
        case PositionType.LATEST, _:
            return end
        case _:
            return beginning


BY_WORD = {
    "earliest": PositionType.EARLIEST,
    "latest": PositionType.LATEST,
    "bootstrap": PositionType.BOOTSTRAP,
}


def start_of(given: str | int | Startpoint) -> Startpoint:
    """Where a source begins by default, whichever way a topology has it.

    >>> start_of(7), start_of("latest").position_type
    (Startpoint(position_type=<PositionType.SPECIFIC_OFFSET: 'SPECIFIC_OFFSET'>, position=7), <PositionType.LATEST: 'LATEST'>)
    """
    match given:
        case Startpoint():
            return given
        case int():
            return Startpoint(PositionType.SPECIFIC_OFFSET, given)
    return Startpoint(BY_WORD[given])


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


def start_offset_of(start: Startpoint, ssp: SSP, beginning: int, end: int, for_time: Callable[[int], int]) -> int:
    """As `offset_of`, for a default: an offset that the partition does not hold is the nearest that it does.

    A default is for all partitions of a stream, of which one may hold nothing yet.

    >>> seven = Startpoint(PositionType.SPECIFIC_OFFSET, 7)
    >>> [start_offset_of(seven, SSP("k", "s", 0), *bounds, int) for bounds in ((0, 9), (0, 3), (8, 9))]
    [7, 3, 8]
    """
    if start.position_type is PositionType.SPECIFIC_OFFSET and start.position is not None:
        return min(max(start.position, beginning), end)
    return offset_of(start, ssp, beginning, end, for_time)


def spent_of(records: Iterable[StartpointRecord], checkpoints: Mapping[TaskName, Checkpoint]) -> frozenset[str]:
    """Of the pending ones those of which a commit has moved a position; not one that a later startpoint has set."""
    return frozenset(
        record.entry.id
        for record, one in in_force(records).values()
        if record.status is StartpointStatus.PENDING
        and one.task in checkpoints
        and _has_moved(record, one, checkpoints[one.task])
    )


def _has_moved(record: StartpointRecord, one: Resolution, checkpoint: Checkpoint) -> bool:
    moved = checkpoint.positions.get(one.ssp, one.offset) != one.offset
    return moved or checkpoint.spent_startpoints.get(one.ssp) == record.entry.id


def streams_below(subs: Iterable[SubTopology | SubTopologyEdges], names: Collection[str | None]) -> frozenset[str]:
    """The repartition streams that sub-topologies of these `names` write, and those that come of these, and so on."""
    found: set[str] = set()
    left = list(subs)
    while new := [sub for sub in left if sub.name in names or found.intersection(sub.reads)]:
        found.update(stream for sub in new for stream in sub.writes)
        left = [sub for sub in left if sub not in new]
    return frozenset(found)


def in_force(records: Iterable[StartpointRecord]) -> dict[TaskPartition, tuple[StartpointRecord, Resolution]]:
    """For each task and SSP the startpoint that its position began at last, spent or not."""
    return {(one.task, one.ssp): (record, one) for record, one in in_order(records)}


def in_order(records: Iterable[StartpointRecord]) -> Iterator[tuple[StartpointRecord, Resolution]]:
    """What startpoints that were neither deleted nor superseded came to, in the order in which positions were set."""
    for record in sorted(records, key=lambda record: (record.applied_at_us, *_rank(record.entry), record.entry.id)):
        if record.status in (StartpointStatus.PENDING, StartpointStatus.APPLIED):
            yield from ((record, one) for one in record.resolutions)


def bootstraps_of(records: Iterable[StartpointRecord]) -> dict[TaskPartition, int]:
    """Up to where tasks read a stream before any other, of those whose position began at a BOOTSTRAP."""
    return {place: one.until for place, (_, one) in in_force(records).items() if one.until is not None}


def held_for_bootstrap(
    ends: Mapping[SSP, int],
    checkpoints: Collection[Checkpoint],
    bootstraps: Mapping[TaskPartition, int],
    limit: Mapping[SSP, int] | None = None,
) -> dict[SSP, int]:
    """Up to where each partition may be read: where a task still reads a stream from its beginning (`bootstraps`: up to
    where), none of the other streams that it reads continues. Other partitions of the same stream do. `limit`: nothing is
    read behind it, so no reader waits for it."""
    allowed = dict(ends)
    most = limit or {}
    for checkpoint in checkpoints if bootstraps else ():
        first = {
            ssp
            for ssp, position in checkpoint.positions.items()
            for until in [bootstraps.get((checkpoint.task, ssp), 0)]
            if position < min(until, most.get(ssp, until))
        }
        streams = {ssp.stream for ssp in first}
        for ssp, position in checkpoint.positions.items() if first else ():
            if ssp.stream not in streams and ssp in allowed:
                allowed[ssp] = min(position, allowed[ssp])
    return allowed
