"""The header before each chunk in a data file: what the catalog says of the chunk, but for its offsets.

Readers go by the catalog and never look at it. It is there for the day when the catalog is lost: then a file shows what it
holds. Files of an older Headrace have none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import msgspec
import xxhash

from headrace.adapters.log.chunks import Chunk

ALIGNMENT = 64  # of each message in its file: Arrow's own, for zero-copy reads
_MAGIC = b"HRCHUNK1"
_LENGTH = struct.Struct("<I")
_HEADER_BYTES_MAX = 64 * 1024


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
