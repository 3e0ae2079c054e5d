"""The steps that settle where tasks begin: at what is stored, checked against the streams, else at what the source says.

A start is resolved once and stored with the plan; from then on only the stored offset counts (protocol.md 1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from headrace.core.job_plan.checkpoint_inheritance import InheritedPositions, carrying_notes, inherited_positions_of
from headrace.core.job_plan.draft import Draft
from headrace.core.job_plan.snapshot import Offsets, Snapshot
from headrace.core.rewind.rewinds import SkippedRanges, beyond_gaps, gaps_of
from headrace.core.rewind.startpoints import start_of, start_offset_of
from headrace.core.rounds.lost_offsets import OnLostOffsets, lost_offsets
from headrace.core.rounds.offset_ranges import check_positions
from headrace.core.rounds.partition_barrier import inherited_watermarks
from headrace.core.rounds.purging import lowest_positions
from headrace.core.topology.sub_topologies import SubTopology, short_name_of
from headrace.errors import IncompatibleChangeError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP, StreamDescription
from headrace.model.tasks import TaskName
from headrace.model.topology import Source, SourceKind


@dataclass(frozen=True, slots=True)
class Begun:
    """A checkpoint for every task, and what is to be done and said of partitions without a position.

    `bootstraps`: those that hold something and whose source begins with BOOTSTRAP: they are read up to their present end before
    any other stream.
    """

    checkpoints: Mapping[TaskName, Checkpoint]
    bootstraps: frozenset[SSP]
    notes: tuple[str, ...]


def stranded(draft: Draft, snapshot: Snapshot) -> Draft:
    """Refuse to take out a repartition stream that holds records which were not read: nothing else ever would."""
    terms, seen = draft.terms, draft.streams
    check_nothing_stranded(terms.application, snapshot.checkpoints, seen.counts, seen.existing, draft.offsets)
    return draft


def inheritance(draft: Draft, snapshot: Snapshot) -> Draft:
    """Find the positions that the job continues from; `OffsetOutOfRangeError` for one that its stream does not hold."""
    terms, seen, stored = draft.terms, draft.streams, snapshot.checkpoints
    known = {name: seen.existing[name].id if name in seen.existing else None for name in seen.counts}
    carried = inherited_positions_of(snapshot.model, stored, known)
    as_planned = {name: n for name, n in seen.counts.items() if name in seen.existing and name not in seen.refused}
    gaps, to_set = gaps_of(snapshot.rewinds), snapshot.startpoints.ssps
    check_stored(terms.subs, carried, as_planned, terms.system, draft.offsets, terms.on_lost_offsets, to_set, gaps)
    return replace(draft, inherited=carried, notes=(*draft.edit.notes(), *carrying_notes(snapshot.model, stored, known)))


def positions(draft: Draft, snapshot: Snapshot) -> Draft:
    """Give every task its checkpoint: the stored one, or the start of its sources."""
    terms = draft.terms
    begun = resolved_starts(
        terms.subs,
        draft.job_model,
        snapshot.checkpoints,
        draft.inherited,
        draft.offsets,
        snapshot.epoch,
        draft.streams.before,
        is_start=not terms.is_replan,
    )
    return replace(draft.saying(*begun.notes), checkpoints=begun.checkpoints, bootstraps=begun.bootstraps)


def resolved_starts(
    subs: tuple[SubTopology, ...],
    model: JobModel,
    stored: Mapping[TaskName, Checkpoint],
    carried: InheritedPositions,
    offsets: Offsets,
    epoch: int,
    before: Mapping[str, int],
    is_start: bool = True,
) -> Begun:
    """A checkpoint for every task: the stored one, with positions that were another's, and starts where there are none.

    `before`: how many partitions the streams had that the job model before read. One that is born since then begins at its
    first record, whatever the stream's default (protocol.md 1), and with the watermark of those whose keys it takes.
    Without `is_start`, a running job continues: then no task starts over.
    """
    starts = _Starts(offsets, before)
    checkpoints: dict[TaskName, Checkpoint] = {}
    for sub in subs:
        sources = {source.stream: source for source in sub.sources}
        for task in model.sub_topology(sub.name).tasks:
            found = stored.get(task.name)
            positions: dict[SSP, int] = {}
            for ssp in task.ssps:
                source, position = sources[ssp.stream], carried.position(task.name, ssp)
                if source.broadcast:  # a task that is new has to read what the others have read
                    position = carried.by_task.get((task.name, ssp))
                is_reset = source.reset_offset and is_start
                if position is None or is_reset:
                    position = starts.of(source, ssp, as_a_new_job=is_reset)
                positions[ssp] = position
            watermarks = carried.watermarks_of(task, found)
            watermarks |= inherited_watermarks(set(task.ssps) - set(watermarks), carried.watermarks, before)
            if found is None:
                found = Checkpoint(task.name, RoundId(epoch, sub.name, 0), model.version, positions)
            checkpoints[task.name] = replace(
                found, positions=positions, watermarks=watermarks, job_model_version=model.version
            )
    return Begun(checkpoints, frozenset(starts.bootstraps), tuple(starts.notes))


def check_stored(
    subs: tuple[SubTopology, ...],
    carried: InheritedPositions,
    counts: Mapping[str, int],
    system: str,
    offsets: Offsets,
    on_lost: OnLostOffsets,
    to_set: Collection[SSP] = (),
    gaps: SkippedRanges | None = None,
) -> None:
    """Raise `OffsetOutOfRangeError` for a position that its stream does not reach, or does not hold any more.

    The latter only where `on_lost` does not let it pass: then the first round skips it. `counts`: of the streams
    that exist. Streams that are to be read from another place anyway are left out, and so are partitions that startpoints are
    about to set, and positions in a gap: the first round resumes behind that.
    """
    sources = {source.stream: source for sub in subs for source in sub.sources}
    positions = [
        (ssp, position)
        for ssp, position in carried.positions()
        if ssp.stream in counts and ssp.stream in sources and not sources[ssp.stream].reset_offset and ssp not in to_set
        if not beyond_gaps({ssp.whole: position}, gaps or {})
    ]
    streams = sorted({ssp.stream for ssp, _ in positions})
    beginnings = {SSP(system, s, p): offset for s in streams for p, offset in offsets.beginnings(s).items()}
    ends = {SSP(system, s, p): offset for s in streams for p, offset in offsets.high_watermarks(s).items()}
    internal = {ssp for ssp, _ in positions if sources[ssp.stream].kind is SourceKind.REPARTITION}
    for ssp, position in positions:  # of several tasks that read a partition, each
        check_positions({ssp: position}, {}, ends)
        lost_offsets({ssp: position}, beginnings, ends, on_lost, internal)


def check_nothing_stranded(
    application: str,
    stored: Mapping[TaskName, Checkpoint],
    streams: Mapping[str, int],
    existing: Mapping[str, StreamDescription],
    offsets: Offsets,
) -> None:
    """Refuse to take out a repartition stream that holds records which were not read: no task ever would.

    `IncompatibleChangeError`; `streams` are those that the job reads now.
    """
    unread: dict[str, int] = {}
    for ssp, position in sorted(lowest_positions(stored.values()).items()):
        found = existing.get(ssp.stream)
        if ssp.stream in streams or found is None or found.internal_of != application:
            continue
        ends = offsets.high_watermarks(ssp.stream)
        unread[ssp.stream] = unread.get(ssp.stream, 0) + max(0, ends.get(ssp.partition, 0) - position)
    for stream, count in unread.items():
        if count:
            raise IncompatibleChangeError(
                f"repartition stream {short_name_of(application, stream)!r} was removed from application {application!r}, and "
                f"holds {count} offsets that were not read: their records would be lost",
                "run the application as it was until it is caught up (headrace run --until caught-up; with a "
                "dead_letter_stream if it fails at one of them), then edit it; or run the edited application under another "
                "application name, from the beginning",
            )


class _Starts:
    """Where partitions without a position begin, each resolved once. `before`: see `resolved_starts`.

    `bootstraps` and `notes` are those of `Begun`.
    """

    def __init__(self, offsets: Offsets, before: Mapping[str, int]) -> None:
        self._offsets, self._before = offsets, before
        self._known: dict[tuple[str, Startpoint], Mapping[int, int]] = {}
        self._empty: set[SSP] = set()
        self.bootstraps: set[SSP] = set()
        self.notes: list[str] = []

    def of(self, source: Source, ssp: SSP, as_a_new_job: bool) -> int:
        is_born = not as_a_new_job and ssp.partition >= self._before.get(ssp.stream, ssp.partition + 1)
        is_at_first = is_born or source.kind is SourceKind.REPARTITION
        start = start_of("earliest" if is_at_first else source.start)
        if (ssp.stream, start) not in self._known:
            self._known[ssp.stream, start] = self._resolved(ssp, start)
        if start.position_type is PositionType.BOOTSTRAP and ssp.whole not in self._empty:
            self.bootstraps.add(ssp.whole)
        return self._known[ssp.stream, start][ssp.partition]

    def _resolved(self, ssp: SSP, start: Startpoint) -> Mapping[int, int]:
        """Per partition of the stream of `ssp`."""
        stream, found = ssp.stream, {}
        lows, highs = self._offsets.beginnings(stream), self._offsets.ends(stream)
        times: Mapping[int, int] = {}
        if start.position_type is PositionType.TIMESTAMP and start.position is not None:
            times = self._offsets.for_time(stream, start.position)
        for partition in sorted(lows):
            low, high = lows[partition], highs[partition]
            place = SSP(ssp.system, stream, partition)
            if low == high:
                self._empty.add(place)
            found[partition] = start_offset_of(start, place, low, high, partial(_at, times, partition))
            if start.position_type is PositionType.SPECIFIC_OFFSET and found[partition] != start.position:
                held = f"offsets {low} to {high - 1}" if high > low else "no record"
                self.notes.append(
                    f"stream {stream!r} partition {partition} begins at offset {found[partition]}, the nearest to "
                    f"start={start.position}: it holds {held}"
                )
        return found


def _at(times: Mapping[int, int], partition: int, time_us: int) -> int:
    return times[partition]
