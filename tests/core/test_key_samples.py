"""Which keys are sampled, and which of them cannot be where they were seen: against a model that remembers everything."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.core.keys.hashing import partition_of
from headrace.core.rounds import key_samples
from headrace.core.rounds.key_samples import KeySample, SeenKeys, looked_at, rank_of, sample_digest, sampled_streams
from headrace.core.topology.sub_topologies import sub_topologies_of

KEYS = st.binary(max_size=6)


def sample(key: bytes, partition: int, stream: str = "s") -> KeySample:
    return KeySample(stream, partition, sample_digest(key), key.hex())


def pairs_of(warnings: tuple[str, ...]) -> list[str]:
    return [text.partition("partitions ")[2].partition(";")[0] for text in warnings]


@pytest.mark.parametrize("limit", [3, 500])
@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(1, 4),
    rounds=st.lists(st.lists(st.tuples(KEYS, st.integers(0, 11)), max_size=12), max_size=6),
)
def test_what_is_found_is_what_a_look_at_everything_finds(
    limit: int, count: int, rounds: list[list[tuple[bytes, int]]]
) -> None:
    """Of the keys that are kept: those with the smallest digests of all that were ever seen."""
    known, warnings = dict[str, SeenKeys](), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_samples, "SAMPLED_MAX", limit)
        for seen in rounds:
            finding = looked_at(known, [sample(key, partition) for key, partition in seen], {"s": count})
            assert finding.found >= len(finding.known.get("s", SeenKeys({})).apart - known.get("s", SeenKeys({})).apart)
            known = dict(finding.known)
            warnings += finding.warnings
    partitions: dict[int, set[int]] = {}
    for seen in rounds:
        for key, partition in seen:
            partitions.setdefault(sample_digest(key), set()).add(partition)
    kept = sorted(partitions)[:limit]
    apart = {digest for digest in kept if len({p % count for p in partitions[digest]}) > 1}
    found = known.get("s", SeenKeys({}))
    assert (sorted(found.first), found.apart) == (kept, apart)
    said = pairs_of(tuple(warnings))
    assert len(said) == len(set(said)) <= key_samples.PAIRS_MAX
    every_pair = {
        f"{one} and {other}"
        for mine in partitions.values()
        for one, other in combinations(sorted(mine), 2)
        if one % count != other % count
    }
    assert set(said) <= every_pair
    assert bool(said) >= bool(apart)


@settings(max_examples=100, deadline=None)
@given(
    keys=st.lists(KEYS, min_size=1), count=st.sampled_from([1, 2, 3, 4, 6]), doublings=st.lists(st.integers(0, 3), max_size=8)
)
def test_a_producer_that_goes_by_the_hash_is_never_warned_of(keys: list[bytes], count: int, doublings: list[int]) -> None:
    """Through any growth to multiples, and with producers that have not learned of it."""
    samples = [sample(key, partition_of(key, count << times)) for times in (0, *doublings) for key in keys]
    finding = looked_at({}, samples, {"s": count})
    assert (finding.found, finding.warnings) == (0, ())


def test_a_key_in_two_partitions_is_told_once_with_all_that_is_known_of_it() -> None:
    first = looked_at({}, [sample(b"k", 1), sample(b"other", 2)], {"s": 4})
    assert (first.found, first.warnings) == (0, ())
    second = looked_at(first.known, [sample(b"k", 5)], {"s": 4})
    assert (second.found, second.warnings) == (0, ())
    third = looked_at(second.known, [sample(b"k", 6)], {"s": 4})
    assert (third.found, len(third.warnings)) == (1, 1)
    assert third.warnings[0].startswith(f"stream 's': key '{b'k'.hex()}' is in partitions 1 and 6; ")
    assert "number of partitions (4, or a multiple of it)" in third.warnings[0]
    assert 'partitioning="other"' in third.warnings[0]
    again = looked_at(third.known, [sample(b"k", 6), sample(b"k", 1)], {"s": 4})
    assert (again.found, again.warnings) == (0, ())
    other_key = looked_at(again.known, [sample(b"j", 6), sample(b"j", 1)], {"s": 4})
    assert (other_key.found, other_key.warnings) == (1, ())  # the pair was told


def test_streams_are_judged_by_themselves() -> None:
    finding = looked_at({}, [sample(b"k", 0, "a"), sample(b"k", 1, "b")], {"a": 2, "b": 2})
    assert (finding.found, finding.warnings, sorted(finding.known)) == (0, (), ["a", "b"])


def test_of_many_pairs_the_first_are_told_and_the_last_of_them_says_so() -> None:
    samples = [sample(b"k", partition) for partition in range(20)]
    finding = looked_at({}, samples, {"s": 20})
    assert pairs_of(finding.warnings) == [f"0 and {partition}" for partition in range(1, key_samples.PAIRS_MAX + 1)]
    assert [key_samples.METRIC in text for text in finding.warnings] == [False] * (key_samples.PAIRS_MAX - 1) + [True]
    assert looked_at(finding.known, samples, {"s": 20}).warnings == ()


@given(keys=st.sets(st.integers(0, 10**6), min_size=400, max_size=400), count=st.sampled_from([2, 4, 8, 16]))
@settings(max_examples=20, deadline=None)
def test_the_sample_favours_no_partition(keys: set[int], count: int) -> None:
    """The rank comes from the hash that the partition comes from, too: it must not choose by what the partition shows."""
    names = sorted((str(key).encode() for key in keys), key=rank_of)
    shown = [partition_of(key, count) for key in names[:100]]
    assert all(shown.count(partition) <= 5 * 100 / count for partition in range(count))
    assert len(set(shown)) >= count / 2


def test_the_inputs_that_go_by_their_keys_are_sampled() -> None:
    app = hr.App("shop")
    orders = app.stream("orders", key=hr.String(), value=hr.Long())
    app.stream("views", key=hr.String(), value=hr.Long(), partitioning="other")
    app.table("users", key=hr.String(), value=hr.Long())
    rates = app.global_table("rates", key=hr.String(), value=hr.Long())
    again = orders.repartition(name="again").join(rates, lambda left, right: left, value=hr.Long())
    again.group_by_key().count(store="n")
    counts = {"orders": 4, "views": 4, "users": 2, "rates": 1, "shop-again-repartition": 4}
    found = {sub.title: sampled_streams(sub, counts) for sub in sub_topologies_of(app.topology())}
    assert found == {"source": {"orders": 4, "users": 2}, "again": {}}
