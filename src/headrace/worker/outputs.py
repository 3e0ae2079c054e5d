"""What a container writes in a round: gathered task by task, and joined at the end in the order of the records it came of.

Tasks may run in several threads, and how they take turns is chance. So each gathers alone, and what it gathered keeps its
order; between tasks the order is made: by when in a round it was emitted (`SECTIONS`), then by SSP and offset of origin. So the
virtual tasks of a partition write what the whole task would have written, in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.codec.record_batches import RECORD_SCHEMA, split
from headrace.worker.batch_keys import partitions_of
from headrace.worker.rows import flat

Batch = tuple[pa.RecordBatch, "np.ndarray[Any, Any]"]  # records, and the partition of each
FEW_PARTITIONS = 32  # up to here batches are put in order one by one: what is small stays in the processor's cache
PIECE_RECORDS = 50_000  # of several tasks, joined at once: they stay in the processor's cache, too
PIECE_BYTES = 256 * 1024 * 1024  # put in order at once: an Arrow array of bytes ends at 2 GiB
BEGIN, RECORDS, FINISH = 0, 1, 2  # sections of a round: timers, records, and from here on the ends of operators, one each
_PLACES_MAX = 1 << 62
_SPAN_MAX = 4  # numbers per record, up to which records are put in their places


@dataclass(frozen=True, slots=True)
class _Emitted:
    """Records of one stream that a task emitted at once. `partitions`, `ssps`, `offsets`: of each its partition, and which
    record it came of."""

    section: int
    batch: pa.RecordBatch
    partitions: Any
    ssps: Any
    offsets: Any


class TaskOutputs:
    """What one task writes. Only the thread that the task is in adds to it."""

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        self._counts = partition_counts
        self.section = BEGIN
        self.emitted: dict[str, list[_Emitted]] = {}
        self.records = Counter[str]()

    def add(
        self, stream: str, records: pa.Table, routing: Any, offsets: Any, partitions: Any = None, *, ssps: Any = None
    ) -> None:
        """Take `records` (of `output_table`). `routing`: the bytes that choose the partition of each, where it is not known
        already (`partitions`). `ssps`, `offsets`: which records they came of."""
        if stream not in self._counts:
            known = ", ".join(sorted(self._counts)) or "none"
            raise KeyError(f"output stream {stream!r} is not known to the plan (it knows: {known})")
        mine = self.emitted.setdefault(stream, [])
        origin = np.zeros(len(offsets), np.int32) if ssps is None else ssps
        start = 0
        for batch in records.to_batches():  # cut where the data are in several arrays: no copy
            for piece in _pieces(batch):
                stop = start + piece.num_rows
                if partitions is None:
                    keys = flat(routing.slice(start, piece.num_rows))
                    numbers = partitions_of(keys, offsets[start:stop], self._counts[stream])
                else:
                    numbers = partitions[start:stop]
                mine.append(_Emitted(self.section, piece, numbers, origin[start:stop], offsets[start:stop]))
                start = stop
        self.records[stream] += records.num_rows


class Outputs:
    """What a container writes. `tasks`: what its tasks have emitted; and at the end its dead letters (`add`)."""

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        self._counts = partition_counts
        self._tasks: list[TaskOutputs] = []
        self._last = TaskOutputs(partition_counts)
        self.add = self._last.add

    def of_task(self) -> TaskOutputs:
        """Where a further task puts what it emits."""
        self._tasks.append(TaskOutputs(self._counts))
        return self._tasks[-1]

    @property
    def records(self) -> Counter[str]:
        """How many records are written to each stream."""
        found = Counter[str]()
        for task in (*self._tasks, self._last):
            found.update(task.records)
        return found

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch, np.ndarray[Any, Any]]]:
        """(stream, records, the partition of each), in their order."""
        for stream in self._streams():
            for batch, partitions in self._joined(stream):
                yield stream, batch, partitions

    def by_partition(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """(stream, partition, records of it): of each partition in their order, in as many batches as it takes for none to be
        larger than `PIECE_BYTES` (or one batch that was added)."""
        for stream in self._streams():
            mine = self._joined(stream)
            for group in ([one] for one in mine) if self._counts[stream] <= FEW_PARTITIONS else _groups(mine):
                batch = group[0][0] if len(group) == 1 else pa.concat_batches([batch for batch, _ in group])
                for partition, part in split(batch, np.concatenate([numbers for _, numbers in group])):
                    yield stream, partition, part

    def _streams(self) -> list[str]:
        return sorted({stream for task in (*self._tasks, self._last) for stream in task.emitted})

    def _joined(self, stream: str) -> Iterator[Batch]:
        given = [found for task in self._tasks if (found := task.emitted.get(stream))]
        if len(given) == 1:
            yield from ((one.batch, one.partitions) for one in given[0])
        else:
            for section in sorted({one.section for mine in given for one in mine}):
                yield from _in_order([found for mine in given if (found := [one for one in mine if one.section == section])])
        yield from ((one.batch, one.partitions) for one in self._last.emitted.get(stream, ()))


def _in_order(given: Sequence[list[_Emitted]]) -> Iterator[Batch]:
    """What each of some tasks has emitted, joined: by the highest (SSP, offset) that its task came to, so that no task's
    records change places."""
    emitted = [one for mine in given for one in mine]
    runs = [run if _ascends(run) else np.maximum.accumulate(run) for run in _places(given)]
    if all(before[-1] <= after[0] for before, after in pairwise(runs)):
        yield from ((one.batch, one.partitions) for one in emitted)
        return
    starts = np.cumsum([0, *(len(one.offsets) for one in emitted)])
    firsts = np.cumsum([0, *map(len, runs)]).tolist()
    lowest, end = min(int(run[0]) for run in runs), max(int(run[-1]) for run in runs) + 1
    pieces = -(-firsts[-1] // PIECE_RECORDS)
    cuts = [lowest + (end - lowest) * number // pieces for number in range(pieces + 1)]
    bounds = [np.searchsorted(run, cuts).tolist() for run in runs]
    for number in range(pieces):
        parts = [(first, run, *bound[number : number + 2]) for first, run, bound in zip(firsts, runs, bounds, strict=False)]
        rows = np.concatenate([np.arange(first + start, first + stop) for first, _, start, stop in parts])
        if len(rows):
            yield from _taken(emitted, starts, rows, _order(np.concatenate([run[start:stop] for _, run, start, stop in parts])))


def _places(given: Sequence[list[_Emitted]]) -> list[Any]:
    """Of each task numbers that are ordered as the pairs (SSP, offset) are."""
    ssps = [_one([one.ssps for one in mine]) for mine in given]
    offsets = [_one([one.offsets for one in mine]) for mine in given]
    if all(ssp.min() == ssp.max() == ssps[0][0] for ssp in ssps):
        return offsets
    lowest, span = min(int(each.min()) for each in offsets), max(int(each.max()) for each in offsets) + 1
    span -= lowest
    if span * (max(int(ssp.max()) for ssp in ssps) + 1) < _PLACES_MAX:
        return [ssp.astype(np.int64) * span + (each - lowest) for ssp, each in zip(ssps, offsets, strict=True)]
    order = np.lexsort((np.concatenate(offsets), np.concatenate(ssps)))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return np.split(places, np.cumsum([len(each) for each in offsets])[:-1])


def _one(arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _ascends(numbers: Any) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def _order(places: Any) -> Any:
    """What sorts them; equal ones keep their order."""
    lowest, span = int(places.min()), int(places.max()) - int(places.min()) + 1
    if span <= _SPAN_MAX * len(places):  # each its place, if none is taken twice: a third of the time of sorting
        taken = np.full(span, -1, np.int64)
        taken[places - lowest] = np.arange(len(places))
        order = taken[taken >= 0]
        if len(order) == len(places):
            return order
    return np.argsort(places, kind="stable")


def _taken(emitted: Sequence[_Emitted], starts: Any, rows: Any, order: Any) -> Iterator[Batch]:
    """Some rows of all batches, which lie one behind the other from `starts` on, in the order given: in pieces of up to
    `PIECE_BYTES`. `rows` ascend, `order` are places in them."""
    parts: list[pa.RecordBatch] = []
    partitions: list[Any] = []
    bounds = np.searchsorted(rows, starts)
    for number in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
        # in the order of the tasks no record leaves its place: what a piece has of a batch lies together
        first, count = int(rows[bounds[number]] - starts[number]), int(bounds[number + 1] - bounds[number])
        parts.append(emitted[number].batch.slice(first, count))
        partitions.append(emitted[number].partitions[first : first + count])
    if len(order) > 1 and sum(part.nbytes for part in parts) > PIECE_BYTES:
        for half in np.array_split(order, 2):
            of_half = np.sort(half)
            yield from _taken(emitted, starts, rows[of_half], np.searchsorted(of_half, half))
    else:
        yield pa.concat_batches(parts).take(pa.array(order)), np.concatenate(partitions)[order]


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` cut so that each piece has at most `PIECE_BYTES`, or is a single record."""
    if batch.num_rows > 1 and batch.nbytes > PIECE_BYTES:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    elif batch.num_rows:
        yield batch


def _groups(batches: Iterator[Batch]) -> Iterator[list[Batch]]:
    """The batches in groups of up to `PIECE_BYTES`, or of a single one."""
    group: list[Batch] = []
    size = 0
    for batch in batches:
        if group and size + batch[0].nbytes > PIECE_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += batch[0].nbytes
    if group:
        yield group


def output_table(key: Any, value: Any, timestamp_us: Any, headers: Any) -> pa.Table:
    """Records in the row shape of all systems (`ports`). Keys and values of 2 GiB and more are in several arrays."""
    count, kinds = len(timestamp_us), RECORD_SCHEMA.types
    columns = [key, value, pa.array(timestamp_us, pa.int64()), pa.nulls(count, kinds[3]) if headers is None else headers]
    cast = [column if column.type == kind else column.cast(kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays(cast, schema=RECORD_SCHEMA)
