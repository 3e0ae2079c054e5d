"""The tables of streams, partitions and chunks. Every function works inside its caller's transaction."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.adapters.common.offset_resolver import check_range, checked_bounds
from headrace.adapters.log.chunks import Chunk
from headrace.core.job_plan.growth_rules import PARTITIONS_MAX, bad_count, check_expansion
from headrace.errors import StorageError, StreamExistsError, StreamNotFoundError, hint_of_missing
from headrace.model.names import checked_name, checked_to_look_up
from headrace.model.streams import StreamDescription

_NAMES_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream and the number that stands for it in the other tables."""

    number: int
    description: StreamDescription


def create_stream(db: sqlite3.Connection, name: str, partitions: int, internal_of: str | None) -> StreamDescription:
    """`StreamExistsError` if there is one of that name, in whatever shape."""
    checked_name("stream", name)
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 1 <= partitions <= PARTITIONS_MAX:
        raise bad_count(name, partitions)
    found = db.execute("SELECT partitions FROM streams WHERE name = ?", (name,)).fetchone()
    if found is not None:
        raise StreamExistsError(
            f"stream {name!r} exists already, with {found[0]} partitions",
            "use it as it is, choose another name, or delete it first",
        )
    description = StreamDescription(name, partitions, uuid.uuid4().hex, internal_of)
    cursor = db.execute(
        "INSERT INTO streams (name, id, partitions, internal_of) VALUES (?, ?, ?, ?)",
        (name, description.id, partitions, internal_of),
    )
    number = cursor.lastrowid
    assert number is not None
    _add_partitions(db, number, range(partitions))
    return description


def expand_stream(db: sqlite3.Connection, name: str, partitions: int) -> StreamDescription:
    """Add empty partitions until there are `partitions`; `IncompatibleChangeError` if there are as many, or more. Chunks
    that were written for the old count are still committed: their partitions stay."""
    stream = stream_row(db, name)
    before = stream.description.partitions
    check_expansion(name, before, partitions)
    db.execute("UPDATE streams SET partitions = ? WHERE number = ?", (partitions, stream.number))
    _add_partitions(db, stream.number, range(before, partitions))
    return replace(stream.description, partitions=partitions)


def _add_partitions(db: sqlite3.Connection, number: int, partitions: range) -> None:
    db.executemany("INSERT INTO partitions VALUES (?, ?, 0, 0)", [(number, partition) for partition in partitions])


def all_streams(db: sqlite3.Connection) -> list[StreamDescription]:
    rows = db.execute("SELECT name, partitions, id, internal_of FROM streams ORDER BY name").fetchall()
    return [StreamDescription(*row) for row in rows]


def stream_row(db: sqlite3.Connection, name: str) -> StreamRow:
    """`StreamNotFoundError`, naming the streams that look like it, if there is none."""
    checked_to_look_up("stream", name)
    row = db.execute("SELECT number, name, partitions, id, internal_of FROM streams WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise _not_found(db, name)
    return StreamRow(row[0], StreamDescription(*row[1:]))


def delete_stream(db: sqlite3.Connection, name: str) -> None:
    """Forget the stream and its records; the files go when garbage is collected."""
    number = stream_row(db, name).number
    for table in ("chunks", "partitions"):
        db.execute(f"DELETE FROM {table} WHERE stream = ?", (number,))
    db.execute("DELETE FROM streams WHERE number = ?", (number,))


def bounds_of(db: sqlite3.Connection, stream: StreamRow) -> dict[int, tuple[int, int]]:
    """Per partition the first offset that can be read, and the end."""
    rows = db.execute(
        "SELECT partition, first_offset, end_offset FROM partitions WHERE stream = ? ORDER BY partition", (stream.number,)
    )
    return {partition: (first, end) for partition, first, end in rows.fetchall()}


def chunks_of(db: sqlite3.Connection, stream: StreamRow, partition: int, start: int, end: int) -> list[Chunk]:
    """The whole chunks that overlap start <= offset < end, in order."""
    columns = "records, file, position, length, checksum, base_offset, max_timestamp_us"
    rows = _overlapping(db, columns, stream, partition, start, end)
    return [Chunk(stream.description.name, partition, *row) for row in rows]


def lengths_of(db: sqlite3.Connection, stream: StreamRow, partition: int, start: int, end: int) -> list[tuple[int, int, int]]:
    """Of the chunks that overlap start <= offset < end, in order: base offset, number of records, bytes."""
    return _overlapping(db, "base_offset, records, length", stream, partition, start, end)


def _overlapping(db: sqlite3.Connection, columns: str, stream: StreamRow, partition: int, start: int, end: int) -> list[Any]:
    rows = db.execute(
        f"""
        SELECT {columns} FROM chunks
        WHERE stream = :stream AND partition = :partition AND base_offset < :end AND base_offset + records > :start
          AND base_offset >= coalesce((SELECT max(base_offset) FROM chunks
            WHERE stream = :stream AND partition = :partition AND base_offset <= :start), 0)
        ORDER BY base_offset
        """,
        {"stream": stream.number, "partition": partition, "start": start, "end": end},
    )
    return rows.fetchall()


def append_chunks(db: sqlite3.Connection, chunks: Iterable[Chunk]) -> None:
    """Give the chunks their offsets, partition by partition in the order given, and make their records readable."""
    ends: dict[tuple[int, int], int] = {}
    numbers: dict[str, int] = {}
    rows = []
    for chunk in chunks:
        assert chunk.records > 0, f"an empty chunk for {chunk.stream!r}"
        if chunk.stream not in numbers:
            stream = stream_row(db, chunk.stream)
            numbers[chunk.stream] = stream.number
            ends |= {(stream.number, partition): end for partition, (_, end) in bounds_of(db, stream).items()}
        key = (numbers[chunk.stream], chunk.partition)
        if key not in ends:
            raise StorageError(
                f"a chunk in {chunk.file} is for {chunk.stream!r} partition {chunk.partition}, which does not exist",
                "if the stream was recreated with fewer partitions, restart the job",
            )
        base = ends[key]
        ends[key] = base + chunk.records
        rows.append(
            (*key, base, chunk.records, chunk.file, chunk.position, chunk.length, chunk.checksum, chunk.max_timestamp_us)
        )
    db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    moved = {row[:2] for row in rows}
    db.executemany(
        "UPDATE partitions SET end_offset = ? WHERE stream = ? AND partition = ?", [(ends[key], *key) for key in sorted(moved)]
    )


def check_files(root: Path, chunks: Iterable[Chunk]) -> None:
    """`StorageError` unless every file is there and as long as its chunks say (protocol.md 15)."""
    lengths: dict[str, int] = {}
    for chunk in chunks:
        lengths[chunk.file] = max(lengths.get(chunk.file, 0), chunk.position + chunk.length)
    for file, expected in sorted(lengths.items()):
        try:
            found = (root / file).stat().st_size
        except OSError as error:
            raise StorageError(
                f"data file {root / file} is missing: {error.strerror}; nothing was committed", "run the round again"
            ) from error
        if found < expected:
            raise StorageError(
                f"data file {root / file} has {found} bytes, expected at least {expected}; nothing was committed",
                "run the round again, and check the disk",
            )


def purge(db: sqlite3.Connection, stream: StreamRow, offsets: Mapping[int, int]) -> None:
    """Make `offsets` the first ones that can be read; one that is below the first already changes nothing."""
    name, all_bounds = stream.description.name, bounds_of(db, stream)
    for partition, offset in sorted(offsets.items()):
        bounds = checked_bounds(name, all_bounds, partition)
        offset = max(offset, bounds[0])
        check_range(name, partition, bounds, offset, offset)
        db.execute(
            "UPDATE partitions SET first_offset = ? WHERE stream = ? AND partition = ?", (offset, stream.number, partition)
        )
        db.execute(
            "DELETE FROM chunks WHERE stream = ? AND partition = ? AND base_offset < ? AND base_offset + records <= ?",
            (stream.number, partition, offset, offset),
        )


def _not_found(db: sqlite3.Connection, name: str) -> StreamNotFoundError:
    names = [stream.name for stream in all_streams(db) if stream.internal_of is None]
    shown = ", ".join(names[:_NAMES_SHOWN_MAX]) + (" …" if len(names) > _NAMES_SHOWN_MAX else "")
    create = f"create it with create_stream, or `headrace stream create`; there are: {shown or 'none yet'}"
    return StreamNotFoundError(f"stream {name!r} does not exist", hint_of_missing(str(name), names, create))
