"""The form of what is stored: a checksum before each value, and the record that says which state a store holds.

A stored value is the low 32 bits of xxh3_64(database name | key | value), big-endian, and the value. LMDB itself does not
notice a flipped bit (protocol.md 19). The sum of all checksums and the number of entries, kept in the meta record, find what a
look at single values cannot: entries that vanished, or came twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
import numpy as np
import xxhash
from msgspec.structs import replace

from headrace.errors import StoreDamagedError
from headrace.model.checkpoint import EMPTY

CHECKSUM_BYTES = 4
META_DB = "~meta"  # no store can be named so: see headrace.model.names
_SUM_MODULUS = 1 << 64

_digest = xxhash.xxh3_64_digest  # big-endian: the low 32 bits are its last 4 bytes


def packed(db: str, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    prefix = db.encode()
    return [_digest(prefix + key + value)[4:] + value for key, value in zip(keys, values, strict=True)]


def unpacked(db: str, key: bytes, stored: bytes) -> bytes:
    """The value in `stored`; `StoreDamagedError` if its checksum is not that of this entry."""
    value = stored[CHECKSUM_BYTES:]
    if _digest(db.encode() + key + value)[4:] != stored[:CHECKSUM_BYTES]:
        raise StoreDamagedError(f"store {db}: the value under key {key.hex()} differs from its checksum")
    return value


def unpacked_many(db: str, found: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Key to value for stored entries; errors as for `unpacked`."""
    prefix = db.encode()
    values = {key: stored[4:] for key, stored in found}
    expected = [_digest(prefix + key + value)[4:] for key, value in values.items()]
    if len(values) < len(found):  # keys that were requested twice
        found = list(dict(found).items())
    if b"".join(expected) != b"".join([stored[:4] for _, stored in found]):
        for key, stored in found:
            unpacked(db, key, stored)
    return values


def checksum_sum(stored: Iterable[bytes]) -> int:
    joined = b"".join([value[:CHECKSUM_BYTES] for value in stored])
    return int(np.frombuffer(joined, dtype=">u4").sum(dtype=np.uint64))


class Build(msgspec.Struct, frozen=True):
    """How far a store is that is being made: all of the files up to `files`, and of those up to `reading` also the first
    `batches` of the last one. Both as `core.keys.heads.chain_of` names them."""

    files: str
    reading: str
    batches: int


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a store holds: the identity of the state, the number of its entries, and the sum of their checksums; or how far it
    is, while it is being made."""

    identity: str = EMPTY
    entries: int = 0
    checksums: int = 0
    build: Build | None = None

    KEY: ClassVar[bytes] = b"state"

    def changed_by(self, added: Sequence[bytes], removed: Sequence[bytes]) -> Meta:
        total = (self.checksums + checksum_sum(added) - checksum_sum(removed)) % _SUM_MODULUS
        return replace(self, entries=self.entries + len(added) - len(removed), checksums=total)

    def to_stored(self) -> bytes:
        return packed(META_DB, [self.KEY], [_ENCODER.encode(self)])[0]

    @classmethod
    def from_stored(cls, stored: bytes) -> Meta:
        return _DECODER.decode(unpacked(META_DB, cls.KEY, stored))


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Meta)
