"""`produce` and `consume` of the embedded log: records in batches to data files, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from headrace.adapters.common.dead_letter_marks import refuse_marked
from headrace.adapters.common.offset_resolver import ranges_to_read
from headrace.adapters.log import stream_tables
from headrace.adapters.log.catalog import Catalog
from headrace.adapters.log.chunks import Chunk
from headrace.adapters.log.data_files import ChunkWriter, read_chunk, read_range
from headrace.adapters.log.file_names import PRODUCER_PARTS
from headrace.adapters.log.metadata import LogMetadataStore
from headrace.adapters.log.metadata import write as write_metadata
from headrace.adapters.log.stream_tables import StreamRow
from headrace.codec.job_records import DEAD_LETTERS
from headrace.codec.record_batches import ProducedBatches, records_of, split
from headrace.errors import StreamNotFoundError
from headrace.model.serde import Serde
from headrace.record import Record

COMMIT_RECORDS = 100_000  # one commit, all or nothing
_COMMIT_BYTES = 256 * 1024 * 1024


def produce(catalog: Catalog, name: str, records: Iterable[Any], key: Serde | None, value: Serde | None) -> int:
    """Append `records`; the number written. Each `COMMIT_RECORDS` are one commit, all or nothing, or several if they are
    large: when one fails, those before it stay."""
    with catalog.read() as db:
        stream = stream_tables.stream_row(db, name)
        length = sum(end for _, end in stream_tables.bounds_of(db, stream).values())
    batches = ProducedBatches(key, value, round_robin=length)  # so that single records spread as well
    written, rest = 0, iter(records)
    for first in rest:
        writer = ChunkWriter(catalog.root, PRODUCER_PARTS)
        try:
            count = _write(writer, stream, batches, chain([first], islice(rest, COMMIT_RECORDS - 1)))
            chunks = writer.close()
        except BaseException:
            writer.discard()
            raise
        # An interrupt may strike when the commit is done already: the file is left to the collection of garbage.
        with catalog.write() as db:
            now = stream_tables.stream_row(db, name)
            if now.description.id != stream.description.id:  # partitions are of the stream as it was at the call
                raise StreamNotFoundError(
                    f"stream {name!r} was deleted and recreated meanwhile; {written} records were written",
                    "produce the other records again",
                )
            stream_tables.check_files(catalog.root, chunks)
            stream_tables.append_chunks(db, chunks)
        written += count
        stream = now  # it may have grown: a call that never ends must come to know
    return written


def put_back(
    catalog: Catalog, application: str, records: Mapping[str, Sequence[Record]], marks: Mapping[str, bytes | None]
) -> None:
    """Append encoded records to their streams, and set marks of dead letters, in one commit: `ports.system.System.put_back`."""
    writer = ChunkWriter(catalog.root, PRODUCER_PARTS)
    try:
        for name, mine in sorted(records.items()):
            with catalog.read() as db:
                stream = stream_tables.stream_row(db, name)
            _write(writer, stream, ProducedBatches(None, None, round_robin=0), iter(mine))
        chunks = writer.close() if records else []
    except BaseException:
        writer.discard()
        raise
    with catalog.write() as db:
        refuse_marked(marks, LogMetadataStore(catalog, application).all(DEAD_LETTERS), application)
        for name in records:
            stream_tables.stream_row(db, name)  # it may be deleted by now
        stream_tables.check_files(catalog.root, chunks)
        stream_tables.append_chunks(db, chunks)
        write_metadata(db, application, DEAD_LETTERS, marks, ())


def _write(writer: ChunkWriter, stream: StreamRow, batches: ProducedBatches, records: Iterator[Any]) -> int:
    """Write `records`, up to `_COMMIT_BYTES` of them; how many."""
    count = size = 0
    for batch, partitions in batches.of(records, stream.description.partitions):
        for partition, part in split(batch, partitions):
            writer.write(stream.description.name, partition, part)
        count += batch.num_rows
        size += batch.nbytes
        if size >= _COMMIT_BYTES:
            break
    return count


def consume(
    catalog: Catalog, name: str, key: Serde | None, value: Serde | None, partitions: Sequence[int] | None, start: Any
) -> Iterator[Record]:
    """What to read is settled at the call, the records are read lazily."""
    with catalog.read() as db:
        stream = stream_tables.stream_row(db, name)
        ranges = ranges_to_read(name, stream_tables.bounds_of(db, stream), partitions, start)
        pieces = [(stream_tables.chunks_of(db, stream, *piece), *piece) for piece in ranges]
    return _records(catalog, name, pieces, key, value)


def offsets_for_time(catalog: Catalog, name: str, timestamp_us: int) -> dict[int, int]:
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


def _records(
    catalog: Catalog, name: str, pieces: Sequence[tuple[list[Chunk], int, int, int]], key: Serde | None, value: Serde | None
) -> Iterator[Record]:
    for chunks, partition, start, end in pieces:
        for offset, batch in read_range(catalog.root, chunks, start, end):
            yield from records_of(batch, name, partition, range(offset, offset + batch.num_rows), key, value)
