"""The steps that settle where tasks begin: at what is stored, checked against the streams, else at what the source says.

A start is resolved once and stored with the plan; from then on only the stored offset counts (protocol.md 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from headrace.core.job_plan.checkpoint_inheritance import InheritedPositions, carrying_notes, inherited_positions_of
from headrace.core.job_plan.draft import Draft, PlanTerms
from headrace.core.job_plan.snapshot import Offsets, Snapshot
from headrace.core.rewind.rewinds import skipped_ranges_of
from headrace.core.rewind.skipped_ranges import beyond_skipped
from headrace.core.rewind.startpoint_rules import start_of, start_offset_of
from headrace.core.rounds.lost_offsets import lost_offsets
from headrace.core.rounds.offset_ranges import check_positions
from headrace.core.rounds.partition_barrier import inherited_watermarks
from headrace.core.rounds.purging import lowest_positions
from headrace.core.topology.sub_topologies import SubTopology, short_name_of
from headrace.errors import IncompatibleChangeError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Source, SourceKind


def stranded(draft: Draft, snapshot: Snapshot) -> Draft:
    """Refuse to take out a repartition stream that holds records which were not read: nothing else ever would."""
    terms = draft.terms
    for stream, count in _unread(draft, snapshot).items():
        if count:
            name = short_name_of(terms.application, stream)
            raise IncompatibleChangeError(
                f"repartition stream {name!r} was removed from application {terms.application!r}, and "
                f"holds {count} offsets that were not read: their records would be lost",
                "run the application as it was until it is caught up (headrace run --until caught-up; with a "
                "dead_letter_stream if it fails at one of them), then edit it; or run the edited application under another "
                "application name, from the beginning",
            )
    return draft


def _unread(draft: Draft, snapshot: Snapshot) -> dict[str, int]:
    """Of the application's repartition streams that it reads no more, how many offsets it has not read."""
    terms, seen = draft.terms, draft.streams
    unread: dict[str, int] = {}
    removed = {one.name for one in seen.existing.values() if one.internal_of == terms.application} - seen.counts.keys()
    lowest = lowest_positions(snapshot.checkpoints.values()) if removed else {}
    for ssp, position in sorted(lowest.items(), key=lambda one: one[0].sort_key):
        if ssp.stream not in removed:
            continue
        ends = draft.offsets.high_watermarks(ssp.stream)
        unread[ssp.stream] = unread.get(ssp.stream, 0) + max(0, ends.get(ssp.partition, 0) - position)
    return unread


def inheritance(draft: Draft, snapshot: Snapshot) -> Draft:
    """Find the positions that the job continues from; `OffsetOutOfRangeError` for one that its stream does not hold."""
    seen, stored = draft.streams, snapshot.checkpoints
    known = {name: seen.existing[name].id if name in seen.existing else None for name in seen.counts}
    carried = inherited_positions_of(snapshot.model, stored, known)
    _check_stored(carried, draft, snapshot)
    return replace(draft, inherited=carried, notes=(*draft.notes, *carrying_notes(snapshot.model, stored, known)))


def _check_stored(carried: InheritedPositions, draft: Draft, snapshot: Snapshot) -> None:
    """Raise `OffsetOutOfRangeError` for a position that its stream does not reach, or does not hold any more.

    The latter only where `on_lost_offsets` does not let it pass: then the first round skips it. Streams that are to be read
    from another place anyway are left out, and so are partitions that startpoints are about to set, and positions in a gap:
    the first round resumes behind that.
    """
    terms, seen = draft.terms, draft.streams
    sources = {source.stream: source for sub in terms.subs for source in sub.sources if not source.reset_offset}
    checked = sources.keys() & seen.counts.keys() & seen.existing.keys() - seen.refused.keys()
    skipped_ranges, to_set = skipped_ranges_of(snapshot.rewinds), snapshot.startpoints.ssps
    positions = [
        (ssp, position)
        for ssp, position in carried.positions()
        if ssp.stream in checked and ssp not in to_set and not beyond_skipped({ssp: position}, skipped_ranges)
    ]
    streams = sorted({ssp.stream for ssp, _ in positions})
    beginnings = {SSP(terms.system, s, p): offset for s in streams for p, offset in draft.offsets.beginnings(s).items()}
    ends = {SSP(terms.system, s, p): offset for s in streams for p, offset in draft.offsets.high_watermarks(s).items()}
    internal = {ssp for ssp, _ in positions if sources[ssp.stream].kind is SourceKind.REPARTITION}
    for ssp, position in positions:  # of several tasks that read a partition, each
        check_positions({ssp: position}, {}, ends)
        lost_offsets({ssp: position}, beginnings, ends, terms.on_lost_offsets, internal)


def positions(draft: Draft, snapshot: Snapshot) -> Draft:
    """Give every task its checkpoint: the stored one, with positions that were another's, and starts where there are none.

    A partition that is born since the job model before begins at its first record, whatever the stream's default
    (protocol.md 1), and with the watermark of those whose keys it takes. While a job runs, no task starts over.
    """
    carried, model = draft.inherited, draft.job_model
    versions = model.versions
    starts = _Starts(draft.offsets, draft.streams.before)
    checkpoints: dict[TaskName, Checkpoint] = {}
    for sub in draft.terms.subs:
        begin = _Beginnings(sub, draft, starts)
        for task in model.sub_topology(sub.name).tasks:
            version, found = versions[task.name], carried.stored.get(task.name)
            own = begin.kept(carried.positions_of(task.name))
            begun = own
            if len(own) != len(task.partitions) or not all(ssp in own for ssp in task.partitions):
                begun = {ssp: own[ssp] if ssp in own else begin[ssp] for ssp in task.partitions}
            watermarks = carried.watermarks_of(task, found)
            if carried.watermarks and (unknown := [ssp for ssp in begun if ssp not in watermarks]):
                watermarks |= inherited_watermarks(unknown, carried.watermarks, draft.streams.before)
            if found is None:
                new = RoundId(snapshot.epoch, sub.name, 0)
                found = Checkpoint(task.name, new, version, begun, watermarks=watermarks, broadcast=task.broadcast)
            checkpoints[task.name] = _continued(found, begun, watermarks, version, task.broadcast)
    return replace(draft.saying(*starts.notes), checkpoints=checkpoints, bootstraps=frozenset(starts.bootstraps))


def _continued(
    found: Checkpoint, positions: Mapping[SSP, int], watermarks: Mapping[SSP, int], version: int, broadcast: frozenset[str]
) -> Checkpoint:
    """`found` with these; itself where nothing changes."""
    is_same = found.job_model_version == version and found.broadcast == broadcast
    if is_same and found.positions == positions and found.watermarks == watermarks:
        return found
    return replace(found, positions=positions, watermarks=watermarks, job_model_version=version, broadcast=broadcast)


def _starts_over(source: Source, terms: PlanTerms) -> bool:
    """Whether its tasks begin at its start again, and not at what is stored."""
    return source.reset_offset and not terms.is_replan


class _Beginnings(dict[SSP, int]):
    """Where tasks of a sub-topology begin in partitions that they have no position in, each partition found once for all."""

    def __init__(self, sub: SubTopology, draft: Draft, starts: _Starts) -> None:
        self._sources = {source.stream: source for source in sub.sources}
        self._over = {source.stream for source in sub.sources if _starts_over(source, draft.terms)}
        self._lowest, self._starts = draft.inherited.lowest, starts

    def kept(self, positions: Mapping[SSP, int]) -> Mapping[SSP, int]:
        """A task's own positions, as far as it continues there."""
        return {ssp: at for ssp, at in positions.items() if ssp.stream not in self._over} if self._over else positions

    def __missing__(self, ssp: SSP) -> int:
        source, is_over = self._sources[ssp.stream], ssp.stream in self._over
        # of a broadcast stream, a task that is new has to read what the others have read
        position = None if source.broadcast or is_over else self._lowest.get(ssp)
        self[ssp] = found = self._starts.of(source, ssp, as_a_new_job=is_over) if position is None else position
        return found


class _Starts:
    """Where partitions without a position begin, each resolved once. `before`: how many partitions the streams had that the
    job model before read.

    `bootstraps`: those that hold something and whose source begins with BOOTSTRAP: they are read up to their present end before
    any other stream.
    """

    def __init__(self, offsets: Offsets, before: Mapping[str, int]) -> None:
        self._before = before
        # Kept, as those of a stream to be created are made of its number of partitions each time.
        self._beginnings, self._ends, self._for_time = cache(offsets.beginnings), cache(offsets.ends), cache(offsets.for_time)
        self._start_of = cache(start_of)
        self._known: dict[tuple[SSP, Startpoint], int] = {}
        self._empty: set[SSP] = set()
        self.bootstraps: set[SSP] = set()
        self.notes: list[str] = []

    def of(self, source: Source, ssp: SSP, as_a_new_job: bool) -> int:
        is_born = not as_a_new_job and ssp.partition >= self._before.get(ssp.stream, ssp.partition + 1)
        is_at_first = is_born or source.kind is SourceKind.REPARTITION
        start = self._start_of("earliest" if is_at_first else source.start)
        if (ssp, start) not in self._known:
            self._known[ssp, start] = self._resolved(ssp, start)
        if start.position_type is PositionType.BOOTSTRAP and ssp not in self._empty:
            self.bootstraps.add(ssp)
        return self._known[ssp, start]

    def _resolved(self, ssp: SSP, start: Startpoint) -> int:
        stream, partition = ssp.stream, ssp.partition
        low, high = self._beginnings(stream)[partition], self._ends(stream)[partition]
        if low == high:
            self._empty.add(ssp)
        found = start_offset_of(start, ssp, low, high, lambda time_us: self._for_time(stream, time_us)[partition])
        if start.position_type is PositionType.SPECIFIC_OFFSET and found != start.position:
            held = f"offsets {low} to {high - 1}" if high > low else "no record"
            self.notes.append(
                f"stream {stream!r} partition {partition} begins at offset {found}, the nearest to start={start.position}: "
                f"it holds {held}"
            )
        return found
