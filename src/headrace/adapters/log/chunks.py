"""`Chunk`: where consecutive records of one partition lie. Driver and workers tell each other of chunks as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec


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
    """The chunks as the runtime carries them (`ports.Terms`)."""
    return [msgspec.to_builtins(chunk) for chunk in chunks]


def chunks_from(terms: Any) -> tuple[Chunk, ...]:
    return msgspec.convert(terms or [], tuple[Chunk, ...])
