"""The vectorised hashes and key layouts, against the scalar ones in `core`."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.keys.hashing import key_hash, murmur2, null_key_hash, null_key_partition, partition_of, routing_hash
from headrace.core.keys.key_layout import KEY_BYTES_MAX, SUB_BYTES_MAX, state_key
from headrace.worker.batch_keys import (
    _AT_ONCE,
    key_hashes,
    key_lows,
    murmur2_many,
    null_key_hashes,
    partitions_of,
    state_keys,
    xxh64_many,
)
from headrace.worker.rows import order_of

keys = st.binary(max_size=13) | st.integers(250, 262).map(lambda n: bytes(range(1, 251)) + b"\xff" * (n - 250))
long_keys = keys | st.integers(KEY_BYTES_MAX - 2, KEY_BYTES_MAX + 3).map(lambda n: b"k" * n)
subs = st.binary(max_size=SUB_BYTES_MAX)
offsets_max = 2**63 - 1


@given(st.lists(keys), st.integers(0, 5), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_murmur2_of_many(found: list[bytes], skipped: int, arrow_type: pa.DataType) -> None:
    array = pa.array(found, arrow_type).slice(skipped)
    hashes = murmur2_many(array)
    assert hashes.dtype == np.uint32
    assert hashes.tolist() == [murmur2(key) for key in found[skipped:]]


longer = st.binary(min_size=14, max_size=40)


@given(st.lists(keys | longer), st.integers(0, 5), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_xxh64_of_many(found: list[bytes], skipped: int, arrow_type: pa.DataType) -> None:
    hashes = xxh64_many(pa.array(found, arrow_type).slice(skipped))
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [key_hash(key) for key in found[skipped:]]


@pytest.mark.parametrize("length", range(36))
def test_xxh64_of_many_of_one_length(length: int) -> None:
    random = np.random.default_rng(length)
    found = [random.bytes(length) for _ in range(100)]
    assert xxh64_many(pa.array(found, pa.binary())).tolist() == [key_hash(key) for key in found]


def test_more_keys_than_are_hashed_at_once() -> None:
    random = np.random.default_rng(5)
    found = [random.bytes(int(length)) for length in random.integers(0, 12, 2 * _AT_ONCE + 3)]
    array = pa.array([b"skipped", *found], pa.binary()).slice(1)
    assert murmur2_many(array).tolist() == [murmur2(key) for key in found]
    assert xxh64_many(array).tolist() == [key_hash(key) for key in found]


@given(st.lists(st.integers(0, 5) | st.integers(0, 70_000) | st.integers(0, 2**32 - 1)))
def test_the_order_of_numbers(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    assert order_of(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(st.lists(st.tuples(st.none() | keys, st.integers(0, offsets_max))))
def test_the_low_bits_that_choose_key_buckets(found: list[tuple[bytes | None, int]]) -> None:
    array = pa.array([key for key, _ in found], pa.binary())
    lows = key_lows(array, np.array([offset for _, offset in found], dtype=np.int64))
    assert lows.tolist() == [routing_hash(key, offset) & 1023 for key, offset in found]


@given(st.lists(st.none() | keys), st.integers(0, 5), st.integers(0, 5), st.integers(1, 40), st.data())
def test_partitions(found: list[bytes | None], skipped: int, kept: int, partitions: int, data: st.DataObject) -> None:
    offsets = data.draw(st.lists(st.integers(0, offsets_max), min_size=len(found), max_size=len(found)))
    some = slice(skipped, skipped + kept) if kept else slice(None)
    array = pa.array(found, pa.binary())[some]
    result = partitions_of(array, np.array(offsets, dtype=np.int64)[some], partitions)
    assert result.dtype == np.int32
    assert result.tolist() == [
        null_key_partition(offset, partitions) if key is None else partition_of(key, partitions)
        for key, offset in list(zip(found, offsets, strict=True))[some]
    ]


def test_bytes_under_a_null_count_for_nothing() -> None:
    """Arrow allows a null to have bytes; Spark's arrays do."""
    bounds = pa.py_buffer(np.array([0, 3, 6, 9], dtype=np.int32))
    array = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), bounds, pa.py_buffer(b"abcdefghi")])
    assert array.to_pylist() == [b"abc", None, b"ghi"]
    offsets = np.array([7, 8, 9], dtype=np.int64)
    expected = [partition_of(b"abc", 9), null_key_partition(8, 9), partition_of(b"ghi", 9)]
    assert partitions_of(array, offsets, 9).tolist() == expected


@pytest.mark.parametrize("found", [[], [b""], [None], [None, None], [b"", b"a"]])
def test_arrays_of_next_to_nothing(found: list[bytes | None]) -> None:
    offsets = np.arange(len(found), dtype=np.int64)
    expected = [
        null_key_partition(offset, 5) if key is None else partition_of(key, 5) for offset, key in enumerate(found)
    ]
    assert partitions_of(pa.array(found, pa.binary()), offsets, 5).tolist() == expected


def test_the_array_is_left_alone() -> None:
    array = pa.array([b"abcdefg", None, b""], pa.binary())
    partitions_of(array, np.array([1, 2, 3], dtype=np.int64), 4)
    assert array.to_pylist() == [b"abcdefg", None, b""]


@given(st.lists(keys), st.lists(st.integers(0, offsets_max)))
def test_hashes_of_keys_and_of_offsets(found: list[bytes], offsets: list[int]) -> None:
    assert key_hashes(found).tolist() == [key_hash(key) for key in found]
    assert null_key_hashes(np.array(offsets, dtype=np.int64)).tolist() == list(map(null_key_hash, offsets))
    every_other = np.array(offsets, dtype=np.int64)[::2]  # not contiguous
    assert null_key_hashes(every_other).tolist() == list(map(null_key_hash, offsets[::2]))


@given(st.lists(keys) | st.lists(long_keys), subs)
def test_state_keys_with_one_sub_key(found: list[bytes], sub: bytes) -> None:
    assert state_keys(found, sub) == [state_key(key, sub) for key in found]
    assert state_keys(found) == [state_key(key) for key in found]


@given(st.lists(st.tuples(keys, subs)) | st.lists(st.tuples(long_keys, subs)))
def test_state_keys_with_a_sub_key_each(entries: list[tuple[bytes, bytes]]) -> None:
    assert state_keys([key for key, _ in entries], [sub for _, sub in entries]) == [state_key(*e) for e in entries]


def test_what_is_no_binary_array_or_does_not_fit_is_refused() -> None:
    with pytest.raises(AssertionError):
        murmur2_many(pa.array(["text"]))
    with pytest.raises(AssertionError):
        partitions_of(pa.array([b"a"]), np.array([], dtype=np.int64), 2)
    with pytest.raises(AssertionError):
        state_keys([b"a"], b"s" * (SUB_BYTES_MAX + 1))
    with pytest.raises(AssertionError):
        state_keys([b"a", b"b"], [b"s"])
