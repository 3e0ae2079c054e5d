"""The layout of keys in a task's local store, so that every key bucket of every factor is one contiguous range.

State (protocol.md 21):   reversed hash, 8 bytes | key length, 2 bytes | key | sub-key
Time indexes:             top 10 bits of the reversed hash, in 2 bytes | time, 8 bytes | rest

All numbers are big-endian, so that the order of bytes is the order of numbers. A bucket is made of the LOW bits of the
hash; reversed, they come first. With hashes of 3 bits:

    hash       000 100 010 110 001 101 011 111     (in the order of the layout)
    reversed   000 001 010 011 100 101 110 111
    factor 2   0   0   0   0   1   1   1   1       each bucket is one range ...
    factor 4   0   0   2   2   1   1   3   3       ... which halves when the factor doubles

LMDB takes keys of at most 511 bytes. A longer user key has a digest before it, marked by a length that no real key has:

    reversed hash, 8 bytes | 0xFFFF | BLAKE2b, 64 bytes | key length, 4 bytes | key | sub-key

Of this the key and its length are stored with the value, the rest is what an entry is stored under: see `long_keys`.
Whether a key has a digest depends on the key alone, never on the sub-key, so that `state_key(key)` is the prefix of all
entries of `key`, and of no other key's. A digest of 64 bytes makes the layout of a long key longer than 511 bytes, and a
time key is too short to look like one: so the two cannot be confused.
"""

from __future__ import annotations

from hashlib import blake2b

from headrace.core.keys.hashing import key_hash
from headrace.errors import OutOfRangeError
from headrace.model.checkpoint import ALL_SLOTS, Slots
from headrace.model.tasks import KeyBucket

LAYOUT_BYTES_MAX = 511  # LMDB's limit
SUB_BYTES_MAX = 64
HASH_BYTES = 8
LENGTH_BYTES = 2
HEAD_BYTES = HASH_BYTES + LENGTH_BYTES
KEY_BYTES_MAX = LAYOUT_BYTES_MAX - HEAD_BYTES - SUB_BYTES_MAX  # a longer key is replaced by a digest
DIGEST_LENGTH = 0xFFFF
DIGEST_BYTES = 64
DIGEST_HEAD_BYTES = HEAD_BYTES + DIGEST_BYTES
LONG_LENGTH_BYTES = 4

SLOT_BITS = 10
SLOTS = 1 << SLOT_BITS  # parts of a time index; also the highest elasticity factor
SLOT_BYTES = 2
TIME_INDEXES = frozenset({"~expiry", "~timers.event", "~timers.wall"})  # databases whose keys are time keys
TIMES = "~times"  # behind a database's name: the one with the times of its entries, where these are not in them
OF_THE_TASK = "~hints"  # a database of older versions, whose keys are no layouts: it is the whole task's
_FACTORS = frozenset(1 << bits for bits in range(SLOT_BITS + 1))
TIME_BYTES = 8
TIME_REST_BYTES_MAX = DIGEST_HEAD_BYTES - 1 - SLOT_BYTES - TIME_BYTES
_TIME_BIAS = 1 << 63  # makes the order of unsigned bytes that of signed numbers
_TIME_MAX = _TIME_BIAS - 1


REVERSED_BYTE = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def reversed_hash(key: bytes) -> bytes:
    """The key's hash with its 64 bits in reverse order, as 8 bytes."""
    # Little-endian bytes are the bytes in reverse order; what is left is to reverse the bits in each.
    return key_hash(key).to_bytes(HASH_BYTES, "little").translate(REVERSED_BYTE)


def state_key(key: bytes, sub: bytes = b"") -> bytes:
    """The store's key for `sub` under the routing key `key`; without `sub` the prefix of all entries of `key`."""
    assert len(sub) <= SUB_BYTES_MAX, f"sub-key of {len(sub)} bytes, at most {SUB_BYTES_MAX}"
    if len(key) > KEY_BYTES_MAX:
        head = reversed_hash(key) + DIGEST_LENGTH.to_bytes(LENGTH_BYTES, "big") + key_digest(key)
        return head + len(key).to_bytes(LONG_LENGTH_BYTES, "big") + key + sub
    return reversed_hash(key) + len(key).to_bytes(LENGTH_BYTES, "big") + key + sub


def key_digest(key: bytes) -> bytes:
    """What a long key is stored under. No user can make two keys with one digest, as they could with a fast hash."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def is_digest(layout_key: bytes) -> bool:
    """Whether the user's key is so long that it has a digest before it (or, as stored, in its place)."""
    return len(layout_key) >= DIGEST_HEAD_BYTES and int.from_bytes(layout_key[HASH_BYTES:HEAD_BYTES], "big") == DIGEST_LENGTH


def split_state_key(layout_key: bytes) -> tuple[bytes, bytes]:
    assert len(layout_key) >= HEAD_BYTES, layout_key
    start = HEAD_BYTES
    length = int.from_bytes(layout_key[HASH_BYTES:HEAD_BYTES], "big")
    if is_digest(layout_key):
        start = DIGEST_HEAD_BYTES + LONG_LENGTH_BYTES
        length = int.from_bytes(layout_key[DIGEST_HEAD_BYTES:start], "big")
    assert start + length <= len(layout_key), layout_key
    return layout_key[start : start + length], layout_key[start + length :]


def bucket_range(index: int, factor: int) -> tuple[bytes, bytes | None]:
    """The range low <= layout key < high that holds bucket `index` of `factor`; `high` None: to the end.

    `factor` is a power of two, 1 (everything) to 1,024.

    >>> [low.hex() for low, high in (bucket_range(index, 4) for index in (0, 2, 1, 3))]
    ['0000000000000000', '4000000000000000', '8000000000000000', 'c000000000000000']
    """
    return _range_of(_slots_of(index, factor), 64 - SLOT_BITS, HASH_BYTES)


def range_in(database: str, slots: Slots) -> tuple[bytes, bytes | None]:
    """The range low <= key < high of some slots in a database of a task; `high` None: to the end. As entries are stored, too:
    a digest leaves the hash in its place."""
    return _range_of(slots, 0, SLOT_BYTES) if database in TIME_INDEXES else _range_of(slots, 64 - SLOT_BITS, HASH_BYTES)


def slots_of(bucket: KeyBucket | None) -> Slots | None:
    """The slots of a virtual task's key bucket; None for a task without, which has all.

    >>> slots_of(KeyBucket(2, 4)), slots_of(None)
    (Slots(low=256, high=512), None)
    """
    return None if bucket is None else _slots_of(bucket.index, bucket.factor)


def time_key(key: bytes, time_us: int, rest: bytes) -> bytes:
    """A time index's key: `time_us` (a signed 64-bit number) of something of the routing key `key`.

    `rest` makes it unique, at most 63 bytes; what to put there for a long key is the caller's affair.
    """
    assert len(rest) <= TIME_REST_BYTES_MAX, f"rest of {len(rest)} bytes, at most {TIME_REST_BYTES_MAX}"
    slot = int.from_bytes(reversed_hash(key)[:SLOT_BYTES], "big") >> (8 * SLOT_BYTES - SLOT_BITS)
    return _slot_bytes(slot) + time_bytes(time_us) + rest


def time_of(layout_key: bytes) -> int:
    return time_from(layout_key[SLOT_BYTES : SLOT_BYTES + TIME_BYTES])


def rest_of(layout_key: bytes) -> bytes:
    return layout_key[SLOT_BYTES + TIME_BYTES :]


def due_range(layout_key: bytes, until_us: int) -> tuple[bytes, bytes]:
    """The range low <= time key < high of all times <= `until_us` in the slot of `layout_key`."""
    slot = int.from_bytes(layout_key[:SLOT_BYTES], "big")
    low = _slot_bytes(slot)
    return low, low + time_bytes(until_us + 1) if until_us < _TIME_MAX else _slot_bytes(slot + 1)


def after_prefix(layout_key: bytes, prefix_bytes: int) -> bytes | None:
    """The lowest key behind all that begin as `layout_key` does; None behind the last prefix.

    Few slots of a small store are in use: one seek to here for each of these finds the first entries of all 1,024.

    >>> after_prefix(b"abc", 2), after_prefix(bytes([255, 255, 1]), 2)
    (b'ac', None)
    """
    following = int.from_bytes(layout_key[:prefix_bytes], "big") + 1
    return None if following >> (8 * prefix_bytes) else following.to_bytes(prefix_bytes, "big")


def time_bucket_range(index: int, factor: int) -> tuple[bytes, bytes | None]:
    """As `bucket_range`, of a time index."""
    return _range_of(_slots_of(index, factor), 0, SLOT_BYTES)


def _slots_of(index: int, factor: int) -> Slots:
    """The slots of a bucket: its bits reversed, then as many slots as there are to a bucket."""
    assert factor in _FACTORS, f"factor {factor}: a power of two, 1 to {SLOTS}"
    assert 0 <= index < factor, f"bucket {index} of factor {factor}"
    bits = factor.bit_length() - 1
    place = int(f"{index:0{bits}b}"[::-1], 2) if bits else 0
    width = SLOTS // factor
    return Slots(place * width, (place + 1) * width)


def _range_of(slots: Slots, shift: int, size: int) -> tuple[bytes, bytes | None]:
    high = None if slots.high == ALL_SLOTS.high else (slots.high << shift).to_bytes(size, "big")
    return (slots.low << shift).to_bytes(size, "big"), high


def _slot_bytes(slot: int) -> bytes:
    return slot.to_bytes(SLOT_BYTES, "big")


def time_bytes(time_us: int) -> bytes:
    """8 bytes whose order is the order of the times; `OutOfRangeError` for one that takes more."""
    if not -_TIME_BIAS <= time_us < _TIME_BIAS:
        raise OutOfRangeError(f"time {time_us}: expected µs since 1970 that fit into 64 bits")
    return (time_us + _TIME_BIAS).to_bytes(TIME_BYTES, "big")


def time_from(data: bytes) -> int:
    """The time that `time_bytes` has made them of."""
    return int.from_bytes(data, "big") - _TIME_BIAS
