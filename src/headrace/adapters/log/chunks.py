"""`Chunk`: where consecutive records of one partition lie, and the header before each in its data file.

A header is what the catalog says of the chunk, but for its offsets. Readers go by the catalog and never look at it. It is there
for the day when the catalog is lost: then a file shows what it holds. Files of an older Headrace have none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import xxhash

ALIGNMENT = 64  # of each message in its file: Arrow's own, for zero-copy reads
_MAGIC = b"HRCHUNK1"
_LENGTH = struct.Struct("<I")
_HEADER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition inside one data file of the embedded log.

    `file` is relative to the log's folder; the Arrow IPC message lies at [position, position + length); `checksum` is the
    16 hex digits of its xxh3_64. `base_offset` is the offset of its first record, None before the commit gives it.
    `max_timestamp_us` is the largest timestamp in it, None if unknown: a look-up by time skips chunks by it.
    """

    stream: str
    partition: int
    records: int
    file: str
    position: int
    length: int
    checksum: str
    base_offset: int | None = None
    max_timestamp_us: int | None = None


def terms_of(chunks: Iterable[Chunk]) -> list[Any]:
    """The chunks as the runtime carries them (`ports.processor_store.SystemPayload`)."""
    return [msgspec.to_builtins(chunk) for chunk in chunks]


def chunks_from(terms: Any) -> tuple[Chunk, ...]:
    return msgspec.convert(terms or [], tuple[Chunk, ...])


# --- headers ------------------------------------------------------------------------------------------------------------------


class _Written(msgspec.Struct, array_like=True):
    chunk: Chunk
    at_us: int


def header_of(chunk: Chunk, position: int, at_us: int) -> tuple[bytes, Chunk]:
    """What to write at `position`, the end of a file so far, before the chunk's message; and the chunk with its position."""
    start = position + -position % ALIGNMENT
    body = msgspec.json.encode(_Written(replace(chunk, file="", position=0), at_us))
    header = _MAGIC + _LENGTH.pack(len(body)) + body
    message = start + len(header) + -len(header) % ALIGNMENT
    return bytes(start - position) + header + bytes(message - start - len(header)), replace(chunk, position=message)


def chunks_in(root: Path, name: str) -> list[tuple[Chunk, int]] | None:
    """The chunks of a data file, in their order, each with the time at which it was written (µs); None unless all of the file
    is as it was written: one that was cut off, is damaged, or has no headers."""
    try:
        with (root / name).open("rb") as file:
            return list(_read(file, name, (root / name).stat().st_size))
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _read(file: BinaryIO, name: str, size: int) -> Iterator[tuple[Chunk, int]]:
    position = 0
    while position < size:
        start = position + -position % ALIGNMENT
        file.seek(start)
        head = file.read(len(_MAGIC) + _LENGTH.size)
        if head[: len(_MAGIC)] != _MAGIC or len(head) < len(_MAGIC) + _LENGTH.size:
            raise ValueError("no header")
        (length,) = _LENGTH.unpack(head[len(_MAGIC) :])
        if length > _HEADER_BYTES_MAX:
            raise ValueError("no header")
        written = msgspec.json.decode(file.read(length), type=_Written)
        message = start + len(head) + length
        message += -message % ALIGNMENT
        file.seek(message)
        data = file.read(written.chunk.length)
        if len(data) != written.chunk.length or xxhash.xxh3_64_hexdigest(data) != written.chunk.checksum:
            raise ValueError("damaged")
        yield replace(written.chunk, file=name, position=message), written.at_us
        position = message + written.chunk.length
