"""The hashes of keys: which partition a record is written to, and which key bucket it belongs to.

Two hashes, each for one purpose. murmur2 chooses the partition that a record is written to, because that is what every
Kafka producer does. xxh64 with seed 42 orders state and chooses key buckets (SEP-32), because Spark's `xxhash64` gives
the same 64 bits in the JVM (there signed). `hash()` is salted per process and is never used on keys.

A record whose key is null is hashed by its offset (protocol.md 22).
"""

from __future__ import annotations

import struct

from xxhash import xxh64_intdigest

KEY_HASH_SEED = 42  # the seed of Spark's `xxhash64`

MURMUR2_SEED = 0x9747B28C
MURMUR2_FACTOR = 0x5BD1E995
_LOW_32 = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The murmur2 of Kafka's Java client, as an unsigned 32-bit number.

    >>> murmur2(b"foobar") - 2**32   # Java shows it signed
    -790332482
    """
    length = len(data)
    whole = length & ~3
    state = (MURMUR2_SEED ^ length) & _LOW_32
    for (word,) in struct.iter_unpack("<I", memoryview(data)[:whole]):
        mixed = (word * MURMUR2_FACTOR) & _LOW_32
        mixed = ((mixed ^ (mixed >> 24)) * MURMUR2_FACTOR) & _LOW_32
        state = ((state * MURMUR2_FACTOR) & _LOW_32) ^ mixed
    if whole < length:
        state = ((state ^ int.from_bytes(data[whole:], "little")) * MURMUR2_FACTOR) & _LOW_32
    state = ((state ^ (state >> 13)) * MURMUR2_FACTOR) & _LOW_32
    return state ^ (state >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `partitions` that a Java producer would write `key` to."""
    assert partitions >= 1, partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def key_hash(key: bytes) -> int:
    """The hash that orders state and chooses buckets, as an unsigned 64-bit number."""
    return xxh64_intdigest(key, KEY_HASH_SEED)


def null_key_hash(offset: int) -> int:
    """The same for a record without a key: the hash of its offset as 8 little-endian bytes.

    The offsets of one-record transactions are all even (a marker follows each), hence not the offset itself.
    """
    return xxh64_intdigest(offset.to_bytes(8, "little", signed=True), KEY_HASH_SEED)


def routing_hash(key: bytes | None, offset: int) -> int:
    """The hash that a record is routed by: of its key, or of its offset where the key is null."""
    return null_key_hash(offset) if key is None else key_hash(key)


def key_bucket(key: bytes, factor: int) -> int:
    """The bucket of `key` under an elasticity factor: the low bits of its hash.

    A bucket of factor 4 is half of one of factor 2: hashes ..00 and ..10 are both bucket 0 of 2, and 0 and 2 of 4.
    """
    return key_hash(key) & (_checked_factor(factor) - 1)


def null_key_bucket(offset: int, factor: int) -> int:
    """The bucket of a record without a key."""
    return null_key_hash(offset) & (_checked_factor(factor) - 1)


def null_key_partition(offset: int, partitions: int) -> int:
    """The partition of a repartition stream that a record without a key is written to: its (unsigned) hash modulo n."""
    assert partitions >= 1, partitions
    return null_key_hash(offset) % partitions


def _checked_factor(factor: int) -> int:
    assert factor >= 1, factor
    assert factor & (factor - 1) == 0, f"elasticity factor {factor} is no power of two"
    return factor
