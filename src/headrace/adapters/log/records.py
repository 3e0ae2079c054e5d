"""`produce` and `consume` of the embedded log: records in batches to data files, and back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from headrace.adapters.log import stream_tables
from headrace.adapters.log.catalog import Catalog
from headrace.adapters.log.chunks import Chunk
from headrace.adapters.log.data_files import ChunkWriter, read_chunk, read_range
from headrace.adapters.log.file_names import PRODUCER_PARTS
from headrace.adapters.log.stream_tables import StreamRow
from headrace.codec.record_batches import batch_of, partitions_of, records_of, split
from headrace.errors import OffsetOutOfRangeError, StreamNotFoundError
from headrace.model.serde import Serde, routing_keys
from headrace.record import Record

COMMIT_RECORDS = 100_000  # one commit, all or nothing
_COMMIT_BYTES = 256 * 1024 * 1024
_STEP_BYTES = 32 * 1024 * 1024  # encoded at once: bounds memory whatever the size of the records
_STEP_RECORDS_FIRST, _STEP_RECORDS_MAX = 100, 10_000
_KNOWN_KEYS_MAX = 1_000_000


def produce(catalog: Catalog, name: str, records: Iterable[Any], key: Serde | None, value: Serde | None) -> int:
    """Append `records`; the number written.

    Each `COMMIT_RECORDS` are one commit, all or nothing: when one fails, those before it stay.
    """
    with catalog.read() as db:
        stream = stream_tables.stream_row(db, name)
        bounds = stream_tables.bounds_of(db, stream)
    producer = _Producer(catalog, stream, key, value, round_robin=sum(end for _, end in bounds.values()))
    rest = iter(records)
    while (first := next(rest, _END)) is not _END:
        producer.commit(chain([first], islice(rest, COMMIT_RECORDS - 1)))
    return producer.written


_END = object()


class _Producer:
    """One call of `produce`: what carries on from commit to commit."""

    def __init__(self, catalog: Catalog, stream: StreamRow, key: Serde | None, value: Serde | None, round_robin: int) -> None:
        self._catalog, self._stream = catalog, stream
        self._key, self._value = key, value
        self._round_robin = round_robin  # begins at the stream's length, so that single records spread as well
        self._partition_of_key: dict[bytes, int] = {}
        self._step = _STEP_RECORDS_FIRST
        self.written = 0

    def commit(self, records: Iterator[Any]) -> None:
        """Write `records` to a data file and commit it; in several if they are large."""
        more = True
        while more:
            writer = ChunkWriter(self._catalog.root, PRODUCER_PARTS)
            try:
                count, more = self._write(writer, records)
                chunks = writer.close()
            except BaseException:
                writer.discard()
                raise
            # An interrupt may strike when the commit is done already: the file is left to the collection of garbage.
            with self._catalog.write() as db:
                now = stream_tables.stream_row(db, self._stream.description.name)
                self._check_stream(now)
                stream_tables.check_files(self._catalog.root, chunks)
                stream_tables.append_chunks(db, chunks)
            self.written += count
            if now != self._stream:  # it has grown: a call that never ends must come to know
                self._stream = now
                self._partition_of_key.clear()

    def _write(self, writer: ChunkWriter, records: Iterator[Any]) -> tuple[int, bool]:
        """Write up to `_COMMIT_BYTES` of `records`; how many, and whether there may be more."""
        count = size = 0
        description = self._stream.description
        while size < _COMMIT_BYTES:
            step = list(islice(records, self._step))
            if not step:
                return count, False
            batch, requested = batch_of(step, self._key, self._value, self.written + count, time.time_ns() // 1000)
            if len(self._partition_of_key) > _KNOWN_KEYS_MAX:
                self._partition_of_key.clear()
            keys = routing_keys(self._key, batch.column(0))
            partitions = partitions_of(keys, requested, description.partitions, self._round_robin, self._partition_of_key)
            self._round_robin += keys.null_count
            for partition, part in split(batch, partitions):
                writer.write(description.name, partition, part)
            count += len(step)
            size += batch.nbytes
            fits = _STEP_BYTES * len(step) // max(1, batch.nbytes)
            self._step = max(1, min(fits, self._step * 10, _STEP_RECORDS_MAX))
        return count, True

    def _check_stream(self, now: StreamRow) -> None:
        """Partitions were computed for the stream as it was when the call began."""
        if now.description.id != self._stream.description.id:
            raise StreamNotFoundError(
                f"stream {now.description.name!r} was deleted and recreated meanwhile; {self.written} records were written",
                "produce the other records again",
            )


def consume(
    catalog: Catalog, name: str, key: Serde | None, value: Serde | None, partitions: Sequence[int] | None, start: Any
) -> Iterator[Record]:
    """See `headrace.ports.Streams.consume`. What to read is settled at the call, the records are read lazily."""
    with catalog.read() as db:
        stream = stream_tables.stream_row(db, name)
        bounds = stream_tables.bounds_of(db, stream)
        ranges: list[tuple[list[Chunk], int, int]] = []
        for partition in bounds if partitions is None else partitions:
            begin = _start_of(start, partition, bounds.get(partition))
            end = bounds[partition][1] if partition in bounds else begin
            stream_tables.checked_range(name, partition, bounds.get(partition), begin, end)
            ranges.append((stream_tables.chunks_of(db, stream, partition, begin, end), begin, end))
    return _records(catalog, ranges, key, value)


def offsets_for_time(catalog: Catalog, name: str, timestamp_us: int) -> dict[int, int]:
    """See `headrace.ports.Streams.offsets_for_time`."""
    with catalog.read() as db:
        stream = stream_tables.stream_row(db, name)
        bounds = stream_tables.bounds_of(db, stream)
        candidates = {partition: stream_tables.chunks_of(db, stream, partition, *bounds[partition]) for partition in bounds}
    found = {}
    for partition, (first, end) in bounds.items():
        found[partition] = end
        for chunk in candidates[partition]:
            if chunk.max_timestamp_us is not None and chunk.max_timestamp_us < timestamp_us:
                continue
            offset = _first_not_older(catalog, chunk, first, timestamp_us)
            if offset is not None:
                found[partition] = offset
                break
    return found


def _first_not_older(catalog: Catalog, chunk: Chunk, first: int, timestamp_us: int) -> int | None:
    assert chunk.base_offset is not None
    skipped = max(0, first - chunk.base_offset)  # purged, but in a chunk that is still read
    times = read_chunk(catalog.root, chunk).column(2).to_numpy()[skipped:]
    not_older = (times >= timestamp_us).nonzero()[0]
    return chunk.base_offset + skipped + int(not_older[0]) if len(not_older) else None


def _start_of(start: Any, partition: int, bounds: tuple[int, int] | None) -> int:
    first = 0 if bounds is None else bounds[0]
    if start is None:
        return first
    requested = start.get(partition, first) if isinstance(start, Mapping) else start
    if not isinstance(requested, int) or isinstance(requested, bool):
        raise OffsetOutOfRangeError(f"start {requested!r}: expected an offset, a mapping partition to offset, or None")
    return requested


def _records(
    catalog: Catalog, ranges: Sequence[tuple[list[Chunk], int, int]], key: Serde | None, value: Serde | None
) -> Iterator[Record]:
    for chunks, start, end in ranges:
        for offset, batch in read_range(catalog.root, chunks, start, end):
            offsets = range(offset, offset + batch.num_rows)
            yield from records_of(batch, chunks[0].stream, chunks[0].partition, offsets, key, value)
