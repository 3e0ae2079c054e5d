"""The layout of store keys: what is written is found again, in order, and every bucket is one range."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.keys.hashing import key_bucket, key_hash
from headrace.core.keys.key_layout import (
    KEY_BYTES_MAX,
    LAYOUT_BYTES_MAX,
    SUB_BYTES_MAX,
    TIME_REST_BYTES_MAX,
    after_prefix,
    bucket_range,
    due_range,
    is_digest,
    rest_of,
    reversed_hash,
    split_state_key,
    state_key,
    time_bucket_range,
    time_key,
    time_of,
)

keys = st.binary(max_size=30) | st.integers(KEY_BYTES_MAX - 2, KEY_BYTES_MAX + 3).map(lambda n: b"k" * n)
subs = st.binary(max_size=SUB_BYTES_MAX)
times = st.integers(-(2**63), 2**63 - 1)
factors = st.integers(0, 10).map(lambda bits: 1 << bits)


def inside(layout_key: bytes, bounds: tuple[bytes, bytes | None]) -> bool:
    low, high = bounds
    return low <= layout_key and (high is None or layout_key < high)


def is_partition_of_everything(ranges: list[tuple[bytes, bytes | None]]) -> bool:
    """The ranges, sorted, begin at zero, each where the one before ends, and the last has no end."""
    ordered = sorted(ranges, key=lambda bounds: bounds[0])
    ends = [high for _, high in ordered]
    return not any(ordered[0][0]) and ends[:-1] == [low for low, _ in ordered[1:]] and ends[-1] is None


@given(keys)
def test_the_reversed_hash_is_the_hash_written_backwards(key: bytes) -> None:
    assert f"{int.from_bytes(reversed_hash(key), 'big'):064b}" == f"{key_hash(key):064b}"[::-1]


@given(keys, subs)
def test_a_state_key_comes_apart_again(key: bytes, sub: bytes) -> None:
    layout_key = state_key(key, sub)
    assert (len(layout_key) > LAYOUT_BYTES_MAX) == is_digest(layout_key) == (len(key) > KEY_BYTES_MAX)
    assert split_state_key(layout_key) == (key, sub)


def test_the_longest_key_with_the_longest_sub_key_just_fits() -> None:
    assert len(state_key(b"k" * KEY_BYTES_MAX, b"s" * SUB_BYTES_MAX)) == LAYOUT_BYTES_MAX
    assert not is_digest(state_key(b"k" * KEY_BYTES_MAX))
    assert is_digest(state_key(b"k" * (KEY_BYTES_MAX + 1)))


@given(st.lists(st.tuples(keys, subs), max_size=20, unique=True))
def test_different_entries_have_different_keys(entries: list[tuple[bytes, bytes]]) -> None:
    assert len({state_key(key, sub) for key, sub in entries}) == len(entries)


@given(keys, subs, keys, subs)
def test_a_key_is_the_prefix_of_its_own_entries_only(key: bytes, sub: bytes, other: bytes, other_sub: bytes) -> None:
    assert state_key(key, sub).startswith(state_key(key))
    assert state_key(other, other_sub).startswith(state_key(key)) == (other == key)


@given(keys, subs, subs)
def test_entries_of_a_key_are_in_the_order_of_their_sub_keys(key: bytes, one: bytes, two: bytes) -> None:
    assert (state_key(key, one) < state_key(key, two)) == (one < two)


@given(keys, subs, times, st.binary(max_size=20), factors)
def test_a_key_lies_in_the_range_of_its_bucket(key: bytes, sub: bytes, time_us: int, rest: bytes, factor: int) -> None:
    bucket = key_bucket(key, factor)
    assert inside(state_key(key, sub), bucket_range(bucket, factor))
    assert inside(time_key(key, time_us, rest), time_bucket_range(bucket, factor))


def test_the_buckets_of_every_factor_cover_everything_once() -> None:
    for bits in range(11):
        factor = 1 << bits
        assert is_partition_of_everything([bucket_range(index, factor) for index in range(factor)])
        assert is_partition_of_everything([time_bucket_range(index, factor) for index in range(factor)])


def test_a_range_halves_when_the_factor_doubles() -> None:
    for factor in (1, 2, 4, 256, 512):
        for index in range(factor):
            low, high = bucket_range(index, factor)
            first, second = bucket_range(index, 2 * factor), bucket_range(index + factor, 2 * factor)
            assert (first[0], first[1], second[1]) == (low, second[0], high)


@given(keys, times, st.binary(max_size=TIME_REST_BYTES_MAX))
def test_a_time_key_comes_apart_again(key: bytes, time_us: int, rest: bytes) -> None:
    layout_key = time_key(key, time_us, rest)
    assert len(layout_key) <= LAYOUT_BYTES_MAX and not is_digest(layout_key)
    assert (time_of(layout_key), rest_of(layout_key)) == (time_us, rest)


@given(keys, times, times, st.binary(max_size=9), st.binary(max_size=9))
def test_of_one_key_the_earlier_time_comes_first(key: bytes, one: int, two: int, rest: bytes, other: bytes) -> None:
    if one != two:
        assert (time_key(key, one, rest) < time_key(key, two, other)) == (one < two)


@given(st.lists(st.tuples(st.binary(max_size=3), times, st.binary(max_size=4)), max_size=30), times)
def test_due_in_a_slot_are_the_times_up_to_the_moment(entries: list[tuple[bytes, int, bytes]], until_us: int) -> None:
    index = [time_key(*entry) for entry in entries]
    for key, at, rest in entries:
        low, high = due_range(time_key(key, at, rest), until_us)
        found = [layout_key for layout_key in index if low <= layout_key < high]
        assert found == [
            time_key(other, when, more)
            for other, when, more in entries
            if when <= until_us and time_key(other, when, more)[:2] == time_key(key, at, rest)[:2]
        ]


@given(st.lists(st.binary(min_size=2, max_size=4), min_size=1, max_size=30), st.integers(1, 2))
def test_behind_a_prefix_comes_the_next_one(index: list[bytes], prefix_bytes: int) -> None:
    for key in index:
        following = after_prefix(key, prefix_bytes)
        behind = [] if following is None else [other for other in index if other >= following]
        assert behind == [other for other in index if other[:prefix_bytes] > key[:prefix_bytes]]
