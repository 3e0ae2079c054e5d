"""The hashes of keys, against the vectors of Kafka's Java client and the values that Spark's `xxhash64` gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.keys.hashing import (
    key_bucket,
    key_hash,
    murmur2,
    null_key_bucket,
    null_key_hash,
    null_key_partition,
    partition_of,
    routing_hash,
)

FACTORS = [1 << bits for bits in range(11)]


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # UtilsTest of Kafka's Java client
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_the_partition_is_made_of_the_positive_part() -> None:
    assert partition_of(b"foobar", 7) == (-790332482 & 0x7FFFFFFF) % 7
    assert partition_of(b"foobar", 1) == 0


@given(st.binary(max_size=40), st.integers(1, 50), st.integers(1, 6))
def test_a_multiple_of_the_partitions_keeps_a_key_in_line(key: bytes, partitions: int, times: int) -> None:
    """What partition expansion rests on: the new partition modulo the old count is the old partition."""
    assert partition_of(key, partitions * times) % partitions == partition_of(key, partitions)


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # seen in Spark 4.2: SELECT xxhash64(CAST('Spark' AS BINARY))
        (b"", -7444071767201028348),
        (b"Spark", -4294468057691064905),
        (b"a-little-bit-longer-string-of-more-than-32-bytes", 4162391348763355844),
    ],
)
def test_the_hash_of_a_key_is_sparks_xxhash64(key: bytes, signed: int) -> None:
    assert key_hash(key) == signed % 2**64


@pytest.mark.parametrize(
    ("offset", "signed"),
    [(0, -5252525462095825812), (123456789012, 3056854389786727671)],  # SELECT xxhash64(CAST(0 AS BIGINT))
)
def test_the_hash_of_an_offset_is_sparks_xxhash64_of_a_bigint(offset: int, signed: int) -> None:
    assert null_key_hash(offset) == signed % 2**64


@given(st.binary(max_size=40), st.integers(0, 2**63 - 1), st.sampled_from(FACTORS[:-1]))
def test_a_bucket_splits_in_two(key: bytes, offset: int, factor: int) -> None:
    """The bucket under the double factor is the same one, or the same one plus the factor."""
    assert key_bucket(key, 2 * factor) in (key_bucket(key, factor), key_bucket(key, factor) + factor)
    assert null_key_bucket(offset, 2 * factor) % factor == null_key_bucket(offset, factor)


@given(st.none() | st.binary(max_size=8), st.integers(0, 2**63 - 1))
def test_a_record_is_routed_by_its_key_or_its_offset(key: bytes | None, offset: int) -> None:
    routed = routing_hash(key, offset)
    assert routed == (null_key_hash(offset) if key is None else key_hash(key))
    assert 0 <= routed < 2**64
    if key is not None:
        assert routed & 7 == key_bucket(key, 8)


def test_records_without_a_key_spread_even_if_all_offsets_are_even() -> None:
    counts = [0] * 4
    for offset in range(0, 8000, 2):
        assert null_key_partition(offset, 4) == null_key_hash(offset) % 4
        counts[null_key_partition(offset, 4)] += 1
    assert min(counts) > 900


@pytest.mark.parametrize("factor", [0, 3, -2, 12])
def test_a_factor_is_a_power_of_two(factor: int) -> None:
    with pytest.raises(AssertionError):
        key_bucket(b"a", factor)
