"""The vectorised twins of `core.keys.hashing` and `core.keys.key_layout`: the same results, for many keys at once. All that is
decided here is decided there too; the tests hold one against the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from headrace.core.keys.hashing import KEY_HASH_SEED, MURMUR2_FACTOR, MURMUR2_SEED, murmur2
from headrace.core.keys.key_layout import (
    KEY_BYTES_MAX,
    LENGTH_BYTES,
    REVERSED_BYTE,
    SLOT_BITS,
    SLOT_BYTES,
    SLOTS,
    SUB_BYTES_MAX,
    TIME_BYTES,
    state_key,
)

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_VECTOR_BYTES_MAX = 256  # keys above are hashed one by one: each further 4 bytes cost a further loop for keys of that length
_TIME_BIAS = np.uint64(1 << 63)  # makes the order of unsigned bytes that of signed numbers, as `key_layout` does
_M = np.uint32(MURMUR2_FACTOR)
_WORD, _XXH64_STRIPE = 8, 32  # xxh64 takes stripes of longer keys, of shorter ones words
_TAILS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)  # what of a word the last 0 to 3 bytes of a key are
_AT_ONCE = 8_192  # keys hashed at once: what is computed on the way stays in the processor's cache
_FEW = 16  # keys of one length: fewer are hashed one by one
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(number)
    for number in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip
_LENGTHS = [length.to_bytes(LENGTH_BYTES, "big") for length in range(KEY_BYTES_MAX + 1)]
_REVERSED_BYTE = np.frombuffer(REVERSED_BYTE, dtype=np.uint8)


def murmur2_many(keys: pa.BinaryArray) -> U32:
    """`core.keys.hashing.murmur2` of each key of a binary array; what stands for a null key means nothing."""
    if len(keys) > _AT_ONCE:
        return np.concatenate([murmur2_many(keys.slice(start, _AT_ONCE)) for start in range(0, len(keys), _AT_ONCE)])
    starts, lengths, data = _layout(keys)
    state = np.uint32(MURMUR2_SEED) ^ lengths.astype(np.uint32)
    whole = np.where(lengths <= _VECTOR_BYTES_MAX, lengths & ~3, 0)
    for done in range(0, int(whole.max(initial=0)), 4):
        some = np.flatnonzero(whole > done)
        if len(some) == len(starts):  # the usual case: keys of about one length
            state = _with_word(state, _words(data, starts + done))
        else:
            state[some] = _with_word(state[some], _words(data, starts[some] + done))
    state = _with_tail(state, starts + whole, lengths - whole, data)
    state = (state ^ (state >> np.uint32(13))) * _M
    state ^= state >> np.uint32(15)
    for index in np.flatnonzero(lengths > _VECTOR_BYTES_MAX).tolist():
        state[index] = murmur2(data[starts[index] : starts[index] + lengths[index]].tobytes())
    return state


def partitions_of(keys: pa.BinaryArray, offsets: I64, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each record: by its key as `partition_of`, or by its offset as `null_key_partition`."""
    assert partitions >= 1, partitions
    assert len(keys) == len(offsets), (len(keys), len(offsets))
    if partitions == 1:
        return np.zeros(len(keys), np.int32)
    hashes = murmur2_many(keys) & np.uint32(0x7FFFFFFF)
    result = (hashes % np.uint32(partitions)).astype(np.int32)
    if keys.null_count:
        nulls = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
        result[nulls] = (null_key_hashes(offsets[nulls]) % np.uint64(partitions)).astype(np.int32)
    return result


def key_hashes(keys: Sequence[bytes]) -> U64:
    """`core.keys.hashing.key_hash` of each key."""
    return np.fromiter(map(xxh64_intdigest, keys, repeat(KEY_HASH_SEED)), dtype=np.uint64, count=len(keys))


def key_lows(keys: pa.BinaryArray, offsets: I64) -> npt.NDArray[np.int32]:
    """The low bits of `core.keys.hashing.routing_hash` of each record, as many as the highest elasticity factor has: a record's
    key bucket are those of them that the factor has."""
    hashes = xxh64_many(keys)
    if keys.null_count:
        nulls = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
        hashes[nulls] = null_key_hashes(offsets[nulls])
    return (hashes & np.uint64(SLOTS - 1)).astype(np.int32)


def xxh64_many(keys: pa.BinaryArray) -> U64:
    """`core.keys.hashing.key_hash` of each key of a binary array; what stands for a null key means nothing."""
    if len(keys) > _AT_ONCE:
        return np.concatenate([xxh64_many(keys.slice(start, _AT_ONCE)) for start in range(0, len(keys), _AT_ONCE)])
    starts, lengths, data = _layout(keys)
    shortest, longest = int(lengths.min(initial=KEY_BYTES_MAX)), int(lengths.max(initial=0))
    if shortest == longest < _XXH64_STRIPE:
        return _xxh64_of_length(data, starts, longest)
    hashes = np.empty(len(starts), np.uint64)
    for length in np.unique(lengths).tolist():  # keys of one length take the same steps: most streams have few lengths
        some = np.flatnonzero(lengths == length)
        if length < _XXH64_STRIPE and len(some) >= _FEW:
            hashes[some] = _xxh64_of_length(data, starts[some], length)
        else:
            found = (data[starts[i] : starts[i] + length].tobytes() for i in some.tolist())
            hashes[some] = np.fromiter(map(xxh64_intdigest, found, repeat(KEY_HASH_SEED)), np.uint64, len(some))
    return hashes


def _xxh64_of_length(data: npt.NDArray[np.uint8], at: I64, length: int) -> U64:
    """Of the `length` bytes, less than a stripe, from each place on. In place: new arrays would take as long as the sums."""
    state = np.full(len(at), (KEY_HASH_SEED + int(_P5) + length) % (1 << 64), np.uint64)
    spare = np.empty_like(state)
    for done in range(0, length - length % _WORD, _WORD):
        word = _words(data, at + done, "<u8")
        word *= _P2
        _rotate(word, 31, spare)
        word *= _P1
        state ^= word
        _rotate(state, 27, spare)
        state *= _P1
        state += _P4
    done = length - length % _WORD
    if length - done >= _WORD // 2:
        np.multiply(_words(data, at + done), _P1, out=spare)
        state ^= spare
        _rotate(state, 23, spare)
        state *= _P2
        state += _P3
        done += _WORD // 2
    for place in range(done, length):
        np.multiply(data[at + place], _P5, out=spare)
        state ^= spare
        _rotate(state, 11, spare)
        state *= _P1
    for bits, factor in ((33, _P2), (29, _P3)):
        np.right_shift(state, np.uint64(bits), out=spare)
        state ^= spare
        state *= factor
    np.right_shift(state, np.uint64(32), out=spare)
    state ^= spare
    return state


def null_key_hashes(offsets: I64) -> U64:
    """`core.keys.hashing.null_key_hash` of each offset."""
    return np.fromiter(
        map(xxh64_intdigest, np.ascontiguousarray(offsets, dtype="<i8").view("V8").tolist(), repeat(KEY_HASH_SEED)),
        dtype=np.uint64,
        count=len(offsets),
    )


def state_keys(keys: Sequence[bytes], sub: bytes | Sequence[bytes] = b"") -> list[bytes]:
    """`core.keys.key_layout.state_key` of each key, all with one sub-key or each with its own."""
    one_sub = isinstance(sub, bytes)
    subs: Iterable[bytes] = repeat(sub, len(keys)) if isinstance(sub, bytes) else sub
    assert one_sub or len(sub) == len(keys), (len(sub), len(keys))
    longest = len(sub) if one_sub else max(map(len, subs), default=0)
    assert longest <= SUB_BYTES_MAX, f"sub-key of {longest} bytes, at most {SUB_BYTES_MAX}"
    if max(map(len, keys), default=0) > KEY_BYTES_MAX:
        return [state_key(key, own) for key, own in zip(keys, subs, strict=True)]
    # Little-endian bytes are the bytes in reverse order; what is left is to reverse the bits in each.
    raw = key_hashes(keys).astype("<u8", copy=False).view(np.uint8)
    heads = _REVERSED_BYTE[raw].view("V8").tolist()
    if not sub:
        return [head + _LENGTHS[len(key)] + key for head, key in zip(heads, keys, strict=True)]
    return [head + _LENGTHS[len(key)] + key + own for head, key, own in zip(heads, keys, subs, strict=True)]


def time_heads(layouts: Sequence[bytes], times_us: Sequence[int]) -> list[bytes]:
    """The beginning of `core.keys.key_layout.time_key` of each layout key, which says its slot, and time."""
    slots = np.frombuffer(b"".join([layout[:SLOT_BYTES] for layout in layouts]), ">u2") >> (8 * SLOT_BYTES - SLOT_BITS)
    heads = np.empty((len(layouts), SLOT_BYTES + TIME_BYTES), np.uint8)
    heads[:, :SLOT_BYTES] = slots.astype(">u2").view(np.uint8).reshape(-1, SLOT_BYTES)
    heads[:, SLOT_BYTES:] = time_rows(times_us)
    return as_bytes(heads)


def time_rows(times_us: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """`core.keys.key_layout.time_bytes` of each time, as rows of 8 bytes."""
    unsigned = np.asarray(times_us, np.int64).view(np.uint64) ^ _TIME_BIAS
    return unsigned.astype(">u8").view(np.uint8).reshape(-1, TIME_BYTES)


def times_from_rows(rows: npt.NDArray[np.uint8]) -> I64:
    """The times that `time_rows` has made them of."""
    unsigned = np.ascontiguousarray(rows).view(">u8").ravel().astype(np.uint64) ^ _TIME_BIAS
    return unsigned.view(np.int64)


def as_bytes(rows: npt.NDArray[np.uint8]) -> list[bytes]:
    """Rows of bytes, each as `bytes`."""
    listed: list[bytes] = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist()
    return listed


def _layout(keys: pa.BinaryArray) -> tuple[I64, I64, npt.NDArray[np.uint8]]:
    """Start and length of each key in the array's data, and the data."""
    large = pa.types.is_large_binary(keys.type)
    assert large or pa.types.is_binary(keys.type), f"keys of Arrow type {keys.type}, expected binary"
    count = len(keys)
    _, bounds_buffer, data_buffer = keys.buffers()
    if not count or data_buffer is None:
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    every_bound = np.frombuffer(bounds_buffer, dtype=np.int64 if large else np.int32)
    bounds: I64 = every_bound[keys.offset : keys.offset + count + 1].astype(np.int64)
    lengths: I64 = np.diff(bounds)
    return bounds[:-1], lengths, np.frombuffer(data_buffer, dtype=np.uint8)


def _words(data: npt.NDArray[np.uint8], starts: I64, kind: str = "<u4") -> npt.NDArray[Any]:
    size = np.dtype(kind).itemsize
    every = np.ndarray((len(data) - size + 1,), dtype=kind, buffer=data, strides=(1,))  # one number per byte, overlapping
    return every[starts]


def _rotate(state: U64, bits: int, spare: U64) -> None:
    """By `bits` to the left, in place; what was in `spare` is lost."""
    np.right_shift(state, np.uint64(64 - bits), out=spare)
    np.left_shift(state, np.uint64(bits), out=state)
    state |= spare


def _with_word(state: U32, word: U32) -> U32:
    mixed = word * _M
    mixed ^= mixed >> np.uint32(24)
    mixed *= _M
    return (state * _M) ^ mixed


def _with_tail(state: U32, starts: I64, lengths: I64, data: npt.NDArray[np.uint8]) -> U32:
    """Mix in the last 1 to 3 bytes of the keys that have such (more: the key is not ours to hash)."""
    ours = (lengths > 0) & (lengths < 4)
    if not ours.any():
        return state
    if len(data) < 4:
        data = np.concatenate([data, np.zeros(4, np.uint8)])
    at = np.minimum(starts, len(data) - 4)  # of the data's last bytes there is no word of their own
    words = _words(data, at) >> (8 * (starts - at)).astype(np.uint32)
    mixed = (state ^ (words & _TAILS[np.where(ours, lengths, 0)])) * _M
    return np.where(ours, mixed, state)
