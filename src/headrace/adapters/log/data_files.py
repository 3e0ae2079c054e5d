"""The embedded log's data files: how chunks are written, made durable and read. Workers use it: no catalog here.

A data file holds chunks of several streams and partitions, what one container writes in one round (or one call of
`produce`), so that a round costs few fsyncs. A chunk is one Arrow IPC record-batch message without its
schema, which is fixed: `RECORD_SCHEMA`; before it is a header (`chunks`). Files hold no offsets; the catalog
gives them at the commit (protocol.md 15).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.adapters.log.chunks import Chunk, header_of
from headrace.adapters.log.file_names import new_file_name
from headrace.codec.record_batches import HEADERS_TYPE, RECORD_SCHEMA, refuse_too_large
from headrace.errors import DEFECT, StorageError
from headrace.state_files.durable import make_durable_folder, sync_folder

CHUNK_RECORDS_MAX = 50_000
CHUNK_BYTES_MAX = 32 * 1024 * 1024  # of its Arrow buffers; a single record may be larger
_BUFFERED_BYTES_MAX = 256 * 1024 * 1024  # over all partitions of one writer


@dataclass(slots=True)
class _Pending:
    """What one partition has been given and is not yet in the file."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    records: int = 0
    bytes: int = 0


class ChunkWriter:
    """Writes one data file, made when it is first needed. Nothing counts before the chunks that `close` gives are committed.
    `root` is the log's folder; `name_parts` (see `file_names`) say who writes, for the collection of garbage."""

    def __init__(self, root: Path, name_parts: Sequence[str]) -> None:
        self._root = root
        self._name = new_file_name(name_parts)
        self._path = root / self._name
        self._file: BinaryIO | None = None
        self._position = 0
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._buffered = 0
        self._chunks: list[Chunk] = []

    def write(self, stream: str, partition: int, batch: pa.RecordBatch) -> None:
        """Append a batch of `RECORD_SCHEMA` to a partition; batches are cut and joined into chunks in their order.
        `RecordTooLargeError` for a record above `RECORD_BYTES_MAX`, then nothing of the batch was taken."""
        batch = _conformed(batch)
        refuse_too_large(batch, f"{stream!r} partition {partition}")
        pending = self._pending.setdefault((stream, partition), _Pending())
        for piece in _pieces(batch):
            if pending.bytes + piece.nbytes > CHUNK_BYTES_MAX:
                self._flush(stream, partition, pending)
            fits = CHUNK_RECORDS_MAX - pending.records
            self._add(pending, piece.slice(0, fits))
            if pending.records == CHUNK_RECORDS_MAX:
                self._flush(stream, partition, pending)
                self._add(pending, piece.slice(fits))
        while self._buffered > _BUFFERED_BYTES_MAX:
            key, largest = max(self._pending.items(), key=lambda item: item[1].bytes)
            self._flush(*key, largest)

    def close(self) -> tuple[Chunk, ...]:
        """Write what is left, make file and folder durable, and give the chunks in the order they were written."""
        for (stream, partition), pending in sorted(self._pending.items()):
            self._flush(stream, partition, pending)
        self._pending.clear()
        if self._file is not None:
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                sync_folder(self._path.parent)
            except OSError as error:
                raise _write_error(self._path, error) from error
            self._file = None
        return tuple(self._chunks)

    def discard(self) -> None:
        """Take the file away: its chunks will not be committed. To be called instead of, or after, `close`."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        self._pending.clear()
        self._chunks.clear()
        with suppress(OSError):
            self._path.unlink()

    def _add(self, pending: _Pending, piece: pa.RecordBatch) -> None:
        if piece.num_rows:
            pending.batches.append(piece)
            pending.records += piece.num_rows
            pending.bytes += piece.nbytes
            self._buffered += piece.nbytes

    def _flush(self, stream: str, partition: int, pending: _Pending) -> None:
        if not pending.batches:
            return
        batch = pending.batches[0] if len(pending.batches) == 1 else pa.concat_batches(pending.batches)
        self._buffered -= pending.bytes
        pending.batches, pending.records, pending.bytes = [], 0, 0
        message = _slim(batch).serialize()
        try:
            if self._file is None:
                make_durable_folder(self._path.parent, self._root)
                self._file = self._path.open("xb")
            chunk = Chunk(
                stream=stream,
                partition=partition,
                records=batch.num_rows,
                file=self._name,
                position=0,
                length=message.size,
                checksum=xxhash.xxh3_64_hexdigest(message),
                max_timestamp_us=pc.max(batch.column(2)).as_py(),
            )
            header, chunk = header_of(chunk, self._position, time.time_ns() // 1000)
            self._file.write(header)
            self._file.write(message)
        except OSError as error:
            raise _write_error(self._path, error) from error
        self._chunks.append(chunk)
        self._position = chunk.position + chunk.length


def read_chunk(root: Path, chunk: Chunk) -> pa.RecordBatch:
    """The records of a chunk, a view of the mapped file (no copy), once its checksum has been verified. `StorageError`,
    naming the file and the range, if it is missing or damaged."""
    try:
        with pa.memory_map(str(root / chunk.file), "r") as file:
            size = file.size()
            if chunk.position + chunk.length > size:
                raise _damaged(root, chunk, f"the file ends at byte {size}")
            file.seek(chunk.position)
            message = file.read_buffer(chunk.length)
    except FileNotFoundError as error:
        raise StorageError(
            f"data file {root / chunk.file} is missing; it holds {_range_text(chunk)}",
            "restore it from a copy; if it is lost, these records are",
        ) from error
    except OSError as error:
        raise _damaged(root, chunk, str(error)) from error
    found = xxhash.xxh3_64_hexdigest(message)
    if found != chunk.checksum:
        raise _damaged(root, chunk, f"expected checksum {chunk.checksum}, found {found}")
    batch = pa.ipc.read_record_batch(message, RECORD_SCHEMA)
    if batch.num_rows != chunk.records:
        raise _damaged(root, chunk, f"expected {chunk.records} records, found {batch.num_rows}")
    return batch


def read_range(root: Path, chunks: Sequence[Chunk], start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records start <= offset < end of ONE partition, as (offset of the first row, batch), in order. `chunks` are
    committed ones that cover the range, in order; `StorageError` if they leave a gap."""
    position = start
    for chunk in chunks:
        assert chunk.base_offset is not None, "only committed chunks have offsets"
        base, chunk_end = chunk.base_offset, chunk.base_offset + chunk.records
        if position >= end or base >= end:
            break
        if chunk_end <= position:
            continue
        if base > position:
            break
        stop = min(end, chunk_end)
        yield position, read_chunk(root, chunk).slice(position - base, stop - position)
        position = stop
    if position < end:
        name = f"{chunks[0].stream!r} partition {chunks[0].partition}" if chunks else "the partition"
        raise StorageError(f"offset {position} of {name} is in none of the given chunks, expected all up to {end}", DEFECT)


def _conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.schema.equals(RECORD_SCHEMA):
        return batch
    # Arrow's compute functions make every field nullable and list items of any name: same types, another schema.
    assert batch.schema.names == RECORD_SCHEMA.names, f"expected {RECORD_SCHEMA.names}, found {batch.schema.names}"
    assert batch.column(2).null_count == 0, "every record has a timestamp"
    return pa.RecordBatch.from_arrays(
        [column.cast(wanted.type) for column, wanted in zip(batch.columns, RECORD_SCHEMA, strict=True)], schema=RECORD_SCHEMA
    )


def _slim(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch`, to be written alone. Where none of its records has headers, Arrow would write the offsets of the headers' names
    and values of all the batch that this is a slice of, twice 4 bytes per record of that, into each chunk."""
    headers = batch.column(3)
    if len(headers.flatten()):
        return batch
    bounds, values = pa.array(np.zeros(len(headers) + 1, np.int32)), pa.array([], HEADERS_TYPE.value_type)
    none = pa.ListArray.from_arrays(bounds, values, HEADERS_TYPE, mask=headers.is_null())
    return pa.RecordBatch.from_arrays([*batch.columns[:3], none], schema=RECORD_SCHEMA)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` cut so that each piece fits into a chunk, or is a single record."""
    if batch.num_rows > CHUNK_RECORDS_MAX:
        for start in range(0, batch.num_rows, CHUNK_RECORDS_MAX):
            yield from _pieces(batch.slice(start, CHUNK_RECORDS_MAX))
    elif batch.num_rows > 1 and batch.nbytes > CHUNK_BYTES_MAX:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    else:
        yield batch


def _range_text(chunk: Chunk) -> str:
    where = f"of {chunk.stream!r} partition {chunk.partition}"
    if chunk.base_offset is None:
        return f"{chunk.records} records {where}"
    return f"offsets {chunk.base_offset} to {chunk.base_offset + chunk.records - 1} {where}"


def _damaged(root: Path, chunk: Chunk, found: str) -> StorageError:
    return StorageError(
        f"data file {root / chunk.file} is damaged in bytes {chunk.position} to {chunk.position + chunk.length - 1}, "
        f"which hold {_range_text(chunk)}: {found}",
        "restore the file from a copy, and check the disk",
    )


def _write_error(path: Path, error: OSError) -> StorageError:
    return StorageError(f"data file {path} cannot be written: {error.strerror or error}", "check the disk's space and rights")
