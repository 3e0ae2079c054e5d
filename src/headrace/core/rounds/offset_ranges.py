"""What a round reads and how its containers are packed into Spark tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.errors import OffsetOutOfRangeError
from headrace.model.streams import SSP, SystemStreamPartition

SMALL_ROUND_RECORDS = 20_000  # up to here one Spark task is done sooner than a second one starts (40-50 ms)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets start <= o < end of one whole partition."""

    ssp: SystemStreamPartition
    start: int
    end: int

    @property
    def records(self) -> int:
        """How many offsets, which is at least the number of records (a log may have holes)."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Extent:
    """Offsets start <= o < end of one partition take `size_bytes` (at least 1 each, taken to be alike)."""

    start: int
    end: int
    size_bytes: int

    def bytes_between(self, start: int, end: int) -> int:
        """How many of its bytes lie at start <= o < end."""
        inside = max(0, min(end, self.end) - max(start, self.start))
        return self.size_bytes * inside // (self.end - self.start)


def check_positions(positions: Mapping[SSP, int], beginnings: Mapping[SSP, int], ends: Mapping[SSP, int]) -> None:
    """Raise `OffsetOutOfRangeError` for the first SSP whose position is not between its beginning and its end.

    Behind the end the stream was cut off or restored from an older copy, and the next records would be taken
    for records that were read already. Before the beginning records were deleted that were never read.
    """
    outside = [ssp for ssp, at in positions.items() if not beginnings.get(ssp, at) <= at <= ends.get(ssp, -1)]
    for ssp in sorted(outside):
        position, end = positions[ssp], ends.get(ssp)
        if end is None:
            raise OffsetOutOfRangeError(
                f"stream {ssp.stream!r} has no partition {ssp.partition}, but the job has position {position} in it",
                "the stream was recreated with fewer partitions: restore it, or run the application under another name",
            )
        if position > end:
            raise OffsetOutOfRangeError(
                f"stream {ssp.stream!r} partition {ssp.partition}: the position is {position}, but the end offset is {end}",
                "the stream was truncated or recreated: restore it, or set a startpoint for this partition",
            )
        beginning = beginnings.get(ssp, position)
        if position < beginning:
            raise OffsetOutOfRangeError(
                f"stream {ssp.stream!r} partition {ssp.partition}: the position is {position}, but the first offset is "
                f"{beginning}: {beginning - position} offsets were deleted before they were processed "
                f"({position} to {beginning - 1})",
                "nothing was consumed; to skip them set on_lost_offsets=earliest (resume at the first record that is still "
                "there) or latest (at the end), or restore the stream. To keep records longer raise retention.ms of the topic",
            )


def lags_of(positions: Mapping[SSP, int], ends: Mapping[SSP, int]) -> dict[SSP, int]:
    """How many offsets of each SSP lie before it, sorted; an SSP at its end is left out. Errors as `check_positions`."""
    check_positions(positions, {}, ends)
    return {ssp: ends[ssp] - positions[ssp] for ssp in sorted(ssp for ssp, at in positions.items() if at < ends[ssp])}


def ranges_of(positions: Mapping[SSP, int], ends: Mapping[SSP, int], max_records: int | None) -> tuple[OffsetRange, ...]:
    """What the next round reads, by SSP; an SSP with nothing to read is left out.

    `positions`: per SSP the lowest position among its tasks. `ends`: per SSP (of at least those) the offset behind the
    last available record. The ranges together have at most `max_records` offsets, None for no limit: small lags are
    served in full, and the others share what is left evenly.

    >>> a, b, c = (SSP("k", "s", partition) for partition in range(3))
    >>> [r.records for r in ranges_of({a: 0, b: 0, c: 0}, {a: 10, b: 500, c: 900}, max_records=100)]
    [10, 45, 45]

    Raises `OffsetOutOfRangeError` for a position behind the end, changing nothing (`check_positions`).
    """
    assert max_records is None or max_records >= 1, max_records
    lags = lags_of(positions, ends)
    shares = lags if max_records is None else _shared(lags, positions, max_records)
    return tuple(OffsetRange(ssp, positions[ssp], positions[ssp] + share) for ssp, share in shares.items() if share)


def _shared(lags: Mapping[SSP, int], positions: Mapping[SSP, int], budget: int) -> dict[SSP, int]:
    """At most `budget` shared out by water-filling; the odd ones over go round among those not served in full.

    Whose turn it is follows from the sum of their positions, which grows by just what they were given. 3 SSPs far
    behind, budget 2: sum 0 serves numbers 0 and 1, sum 2 serves 2 and 0, sum 4 serves 1 and 2. So even a budget below
    the number of SSPs starves none of them.
    """
    shares = dict.fromkeys(lags, 0)
    waiting = sorted(lags, key=lambda ssp: (lags[ssp], ssp.sort_key))
    for number, ssp in enumerate(waiting):
        if lags[ssp] > budget // (len(waiting) - number):
            break
        shares[ssp] = lags[ssp]
        budget -= lags[ssp]
    else:
        return shares
    large = sorted(waiting[number:])
    even, odd = divmod(budget, len(large))
    turn = sum(positions[ssp] for ssp in large)
    for number, ssp in enumerate(large):
        # Never more than the lag: each is larger than `even`.
        shares[ssp] = even + ((number - turn) % len(large) < odd)
    return shares


def within_bytes(
    ranges: Sequence[OffsetRange], extents: Mapping[SSP, Sequence[Extent]], max_bytes: int, turn: int
) -> tuple[OffsetRange, ...]:
    """The beginnings of `ranges` that take at most `max_bytes` together, shared out as by `ranges_of`.

    `extents`: where the bytes of each range are, in order; an SSP without them stays as it is, its sizes are not known.
    One SSP, another one at each `turn`, is given at least one record, so that records above its share are read as well.

    >>> a, b = SSP("k", "s", 0), SSP("k", "s", 1)
    >>> cut = within_bytes([OffsetRange(a, 0, 10), OffsetRange(b, 5, 9)],
    ...                    {a: [Extent(0, 10, 100)], b: [Extent(5, 9, 4000)]}, max_bytes=1000, turn=1)
    >>> [(piece.ssp.partition, piece.start, piece.end) for piece in cut]
    [(0, 0, 10), (1, 5, 6)]
    """
    assert max_bytes >= 1, max_bytes
    known = sorted(piece.ssp for piece in ranges if extents.get(piece.ssp))
    by_ssp = {piece.ssp: piece for piece in ranges}
    sizes = {ssp: sum(e.bytes_between(by_ssp[ssp].start, by_ssp[ssp].end) for e in extents[ssp]) for ssp in known}
    if sum(sizes.values()) <= max_bytes:
        return tuple(ranges)
    shares = _shared(sizes, {ssp: by_ssp[ssp].start for ssp in known}, max_bytes)
    favoured = known[turn % len(known)]
    cut = []
    for piece in ranges:
        end = piece.end
        if piece.ssp in shares and shares[piece.ssp] < sizes[piece.ssp]:
            end = max(_reach(piece, extents[piece.ssp], shares[piece.ssp]), piece.start + (piece.ssp == favoured))
        if end > piece.start:
            cut.append(OffsetRange(piece.ssp, piece.start, end))
    return tuple(cut)


def _reach(piece: OffsetRange, extents: Sequence[Extent], budget: int) -> int:
    """Up to which offset `budget` bytes take a reader of `piece`."""
    reached = piece.start
    for extent in extents:
        end = min(piece.end, extent.end)
        size = extent.bytes_between(reached, end)
        if size > budget:
            return reached + budget * (extent.end - extent.start) // extent.size_bytes
        budget -= size
        reached = max(reached, end)
    return reached


TASK_RECORDS = 1_000  # what a task costs beside its records, in records: to open its store and write its segment takes ms
WAITING_RECORDS = 100  # at least what a record is worth whose function waits: containers in one Spark task wait in turn
READER_RECORDS = 1_000  # likewise what it costs that the engine reads a partition, which is a Spark task of its own


def is_small_round(records: Iterable[int], small_round_records: int = SMALL_ROUND_RECORDS) -> bool:
    """Whether containers with so many records are one Spark task."""
    return sum(records) <= small_round_records


def weight_of(records: int, tasks: int, *, wait: bool) -> int:
    """What the work of a container amounts to, in records that cost about 1 µs: `tasks` of it have records, and their functions
    `wait` or do not.

    >>> weight_of(500, 2, wait=False), weight_of(500, 2, wait=True)
    (2500, 52000)
    """
    return records * (WAITING_RECORDS if wait else 1) + TASK_RECORDS * tasks


def spark_tasks_of(
    containers: Sequence[tuple[int, int]], slots: int, small_round_records: int = SMALL_ROUND_RECORDS
) -> tuple[tuple[int, ...], ...]:
    """Pack containers, given as (lane, records), into Spark tasks, given as their lanes: each lane in exactly one.

    A small round is one Spark task. A larger one has as many as there are slots, or as containers with records, and the
    heaviest is as light as a greedy choice makes it. A container without records (only its timers are due) comes along.
    A container with many tasks counts `TASK_RECORDS` for each: a few records for each of 500 are seconds of work.

    >>> spark_tasks_of([(0, 100_000), (1, 50_000), (2, 40_000), (3, 0)], slots=2)
    ((0,), (1, 2, 3))
    """
    assert slots >= 1, slots
    assert len({lane for lane, _ in containers}) == len(containers), containers
    if is_small_round((records for _, records in containers), small_round_records):
        return (tuple(sorted(lane for lane, _ in containers)),) if containers else ()
    count = min(slots, sum(records > 0 for _, records in containers))
    loads = [(0, index) for index in range(count)]  # a heap: the lightest first
    lanes: list[list[int]] = [[] for _ in range(count)]
    for lane, records in sorted(containers, key=lambda container: (-container[1], container[0])):
        load, index = loads[0]
        heapq.heapreplace(loads, (load + records, index))
        lanes[index].append(lane)
    return tuple(sorted(tuple(sorted(own)) for own in lanes))


GALLOP = 16  # a search that found nothing in a piece continues with one this many times as long


def first_failing(offsets: OffsetRange, failure_of: Callable[[OffsetRange], Found | None]) -> tuple[int, Found] | None:
    """The first offset of a range that fails by itself, and what `failure_of` says of it; None if no single one does.

    `failure_of` a range is what reading all of it fails with. Where many records fail, one question is enough: pieces are
    short at the start and grow; one that fails is halved. So a single failing record takes about log16(n) + log2(n)
    questions and twice the reading of what lies before it.
    """
    start, length = offsets.start, 1
    while start < offsets.end:
        piece = OffsetRange(offsets.ssp, start, min(offsets.end, start + length))
        failure = failure_of(piece)
        if failure is not None:
            break
        start, length = piece.end, length * GALLOP
    else:
        return None
    is_asked = True
    while piece.records > 1:
        left, right = halves(piece)
        in_left = failure_of(left)
        is_asked = in_left is not None
        piece = left if is_asked else right
        failure = in_left if in_left is not None else failure
    if not is_asked:  # the right halves were taken for granted: do they fail together only, or did they not fail again?
        failure = failure_of(piece)
    return None if failure is None else (piece.start, failure)


def halves(offsets: OffsetRange) -> tuple[OffsetRange, OffsetRange]:
    """Both halves of a range of at least 2 offsets: one step in the search for a record that takes a Spark job down."""
    assert offsets.records >= 2, offsets
    middle = offsets.start + offsets.records // 2
    return OffsetRange(offsets.ssp, offsets.start, middle), OffsetRange(offsets.ssp, middle, offsets.end)
