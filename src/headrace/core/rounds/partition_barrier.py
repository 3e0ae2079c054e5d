"""The order of records across a partition expansion (protocol.md 24), and what is recorded of one. Seed: SEP-5.

When a stream grows from n partitions to m, the keys of a new partition q were in partition q mod n before: its parent. So
that a key's records keep their order, a round reads a born partition up to an end that was taken FIRST only once its
parents have reached the high watermarks that were taken AFTER: that pair is a `ReadBarrier`. It is right for every producer
that writes a key's records one after the other, whether it has learned of the new partitions yet or not. Once all have
(`settle_time_s`), the parents' ends are stored, and a born partition is read only where its parents are past those: that costs
nothing unless somebody rewinds.

A stream may have grown several times between two looks: 4 to 16 may have been 4 to 8 to 16, and then the keys of 13 were in 5
before they came there. So a parent is what any number of partitions in between makes one (`steps_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.model.expansion import Expansion, PartitionRecord
from headrace.model.streams import SSP

MAX_OFFSET = (1 << 63) - 1
Parents = tuple[tuple[Expansion, SSP], ...]


@dataclass(frozen=True, slots=True)
class ReadBarrier:
    """A born partition may be read up to `end` once every one of `parents` has reached its offset."""

    end: int
    parents: Mapping[SSP, int]

    def is_met(self, positions: Mapping[SSP, int]) -> bool:
        return all(positions.get(ssp, offset) >= offset for ssp, offset in self.parents.items())


def steps_of(expansion: Expansion) -> tuple[int, ...]:
    """The numbers of partitions that a stream may have had on the way, the last one left out, highest first.

    >>> steps_of(Expansion(4, 16, 0)), steps_of(Expansion(4, 20, 0))
    ((8, 4), (4,))
    """
    times = expansion.after // expansion.before
    return tuple(expansion.before * step for step in range(times - 1, 0, -1) if times % step == 0)


def _steps(expansions: Iterable[Expansion]) -> list[tuple[int, Expansion]]:
    """All numbers of partitions on the way, highest first, each with its expansion."""
    return sorted(((count, expansion) for expansion in expansions for count in steps_of(expansion)), key=lambda one: -one[0])


def born_in(ssps: Iterable[SSP], expansions: Mapping[str, Collection[Expansion]]) -> dict[SSP, Parents]:
    """Of these partitions those that were born in an expansion on record, sorted, with their parents: the partitions that may
    have held their keys before, with the expansion that took them away, youngest first.

    4 partitions grew to 8, and these to 32: the keys of partition 29 were in 13 before (had there been 16 for a while), in
    5 before that, and in 1 at first.

    >>> ssps = [SSP("k", "s", 3), SSP("k", "s", 29)]
    >>> born = born_in(ssps, {"s": [Expansion(4, 8, 0), Expansion(8, 32, 0)]})
    >>> {ssp.partition: [parent.partition for _, parent in parents] for ssp, parents in born.items()}
    {29: [13, 5, 1]}
    """
    steps = {stream: _steps(grown) for stream, grown in expansions.items()}  # once: a stream may have thousands of partitions
    found: dict[SSP, Parents] = {}
    for ssp in sorted(ssps):
        over = [(count, one) for count, one in steps.get(ssp.stream, ()) if ssp.partition >= count]
        if over:
            found[ssp] = tuple((one, replace(ssp, partition=ssp.partition % count)) for count, one in over)
    return found


def needs_barrier(
    born: Mapping[SSP, Parents], holds: Mapping[SSP, ReadBarrier], positions: Mapping[SSP, int], ends: Mapping[SSP, int]
) -> frozenset[SSP]:
    """The born partitions that need a new hold: they have something to read, and what they were held for is read.

    Those whose expansions are all settled need none. The high watermarks for `held` are to be requested after `ends`.
    """
    return frozenset(
        ssp
        for ssp, parents in born.items()
        if any(expansion.settled is None for expansion, _ in parents)
        and ends.get(ssp, 0) > positions[ssp]
        and (ssp not in holds or positions[ssp] >= holds[ssp].end)
    )


def held(
    born: Mapping[SSP, Parents],
    wanting: Collection[SSP],
    ends: Mapping[SSP, int],
    high_watermarks: Mapping[SSP, int],
    limit: Mapping[SSP, int] | None = None,
) -> dict[SSP, ReadBarrier]:
    """The new holds of `wanting`: `ends` were taken first, and `high_watermarks` (of the parents) after them."""
    most = limit or {}
    return {
        ssp: ReadBarrier(
            ends[ssp],
            {
                parent: min(high_watermarks[parent], most.get(parent, MAX_OFFSET))
                for expansion, parent in born[ssp]
                if expansion.settled is None
            },
        )
        for ssp in sorted(wanting)
    }


def allowed_ends(
    born: Mapping[SSP, Parents],
    holds: Mapping[SSP, ReadBarrier],
    positions: Mapping[SSP, int],
    ends: Mapping[SSP, int],
    limit: Mapping[SSP, int] | None = None,
) -> dict[SSP, int]:
    """Up to where each partition may be read in this round: `ends`, but for those that wait for their parents.

    `limit`: nothing is read behind it (`ends` are not either), so no reader waits for it.

    >>> old, new = SSP("k", "s", 0), SSP("k", "s", 1)
    >>> born = born_in([old, new], {"s": [Expansion(1, 2, 0)]})
    >>> holds = {new: ReadBarrier(end=7, parents={old: 50})}
    >>> allowed_ends(born, holds, {old: 40, new: 3}, {old: 60, new: 9})[new]
    3
    >>> allowed_ends(born, holds, {old: 50, new: 3}, {old: 60, new: 9})[new]
    7
    """
    allowed = dict(ends)
    for ssp, parents in born.items():
        if ssp not in ends:
            continue
        reached = all(
            positions.get(parent, offset) >= offset
            for expansion, parent in parents
            for offset in [min((expansion.settled or {}).get(parent.partition, 0), (limit or {}).get(parent, MAX_OFFSET))]
        )
        is_open = all(expansion.settled is not None for expansion, _ in parents)
        hold = holds.get(ssp)
        if not reached or not (is_open or (hold is not None and hold.is_met(positions))):
            allowed[ssp] = positions[ssp]
        elif not is_open:
            assert hold is not None
            allowed[ssp] = max(positions[ssp], min(hold.end, ends[ssp]))
    return allowed


def inherited_watermarks(ssps: Iterable[SSP], known: Mapping[SSP, int], before: Mapping[str, int]) -> dict[SSP, int]:
    """Of those of `ssps` that are born, the watermark that they begin with: their parent's, so that none goes back.

    `known`: of the partitions that were there. `before`: how many those were, by stream.
    """
    born = (ssp for ssp in ssps if ssp.partition >= before.get(ssp.stream, ssp.partition + 1))
    parents = {ssp: replace(ssp, partition=ssp.partition % before[ssp.stream]) for ssp in born}
    return {ssp: known[parent] for ssp, parent in sorted(parents.items()) if parent in known}


# --- what is on record --------------------------------------------------------------------------------------------------


def recorded(
    before: Mapping[str, PartitionRecord],
    known: Mapping[str, int],
    counts: Mapping[str, int],
    ids: Mapping[str, str],
    unordered: Collection[str],
    now_us: int,
) -> dict[str, PartitionRecord]:
    """The records of a new job model: those of `before`, with what is noticed now.

    `counts`, `ids`: of the streams that it reads. `known`: how many partitions the job model before was made from, for
    streams without a record. `unordered`: streams in which a key's records have no order that could be kept. Records of
    streams that are not read any more stay, for when they are again; a stream that was recreated begins a new one.
    """
    records = dict(before)
    for stream, count in counts.items():
        found = records.get(stream)
        if found is None and stream in known:
            found = PartitionRecord(ids[stream], known[stream])
        if found is None or found.stream_id != ids[stream]:
            records[stream] = PartitionRecord(ids[stream], count)
        elif count > found.partitions:
            grown = () if stream in unordered else (Expansion(found.partitions, count, now_us),)
            records[stream] = replace(found, partitions=count, expansions=(*found.expansions, *grown))
        else:
            records[stream] = replace(found, partitions=count)
    return dict(sorted(records.items()))


def to_settle(records: Mapping[str, PartitionRecord], streams: Collection[str], now_us: int, settle_us: int) -> tuple[str, ...]:
    """The streams with an expansion whose producers have all learned of it by now, sorted."""
    return tuple(
        sorted(
            stream
            for stream in streams
            if stream in records
            and any(e.settled is None and now_us - e.noticed_us >= settle_us for e in records[stream].expansions)
        )
    )


def settled(record: PartitionRecord, high_watermarks: Mapping[int, int], now_us: int, settle_us: int) -> PartitionRecord:
    """The record with the lasting barrier of what is due; `high_watermarks` (by partition) were requested after `now_us`."""
    return replace(
        record,
        expansions=tuple(
            replace(e, settled={p: high_watermarks[p] for p in range(steps_of(e)[0])})
            if e.settled is None and now_us - e.noticed_us >= settle_us
            else e
            for e in record.expansions
        ),
    )
