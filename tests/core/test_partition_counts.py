"""How many partitions a repartition stream has, against a dumb solver that repeats until nothing changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.partition_counts import partition_counts_of
from headrace.errors import IncompatibleChangeError, TopologyError

EXTERNAL = {"x": 2, "y": 5, "z": 3}
STREAMS = ["a", "b", "c", "d", "e"]

feeds_of_all = st.fixed_dictionaries(
    {stream: st.lists(st.sampled_from(STREAMS + list(EXTERNAL)), max_size=3, unique=True) for stream in STREAMS}
)
some_counts = st.dictionaries(st.sampled_from(STREAMS), st.integers(1, 9), max_size=2)


def counts_by_repetition(feeds: dict[str, list[str]], fixed: dict[str, int]) -> dict[str, int]:
    """Raise every count to the largest of its feeds until nothing changes; 0 where none is known."""
    counts = {stream: fixed.get(stream, 0) for stream in feeds}
    for _ in feeds:
        known = EXTERNAL | counts
        counts = {
            stream: fixed.get(stream) or max((known[feed] for feed in feeds[stream]), default=0) for stream in feeds
        }
    return counts


@given(feeds_of_all, some_counts, some_counts, some_counts)
def test_against_the_dumb_solver(
    feeds: dict[str, list[str]], explicit: dict[str, int], existing: dict[str, int], hints: dict[str, int]
) -> None:
    existing = {stream: explicit.get(stream, count) for stream, count in existing.items()}
    expected = counts_by_repetition(feeds, hints | existing | explicit)
    if 0 in expected.values():
        with pytest.raises(TopologyError) as raised:
            partition_counts_of(feeds, explicit, EXTERNAL, existing, hints)
        assert any(repr(stream) in raised.value.message for stream, count in expected.items() if not count)
    else:
        assert partition_counts_of(feeds, explicit, EXTERNAL, existing, hints) == expected


def test_the_largest_source_counts_through_a_chain() -> None:
    feeds = {"first": ["x", "y"], "second": ["first", "z"], "third": ["second"]}
    assert partition_counts_of(feeds, {}, EXTERNAL, {}) == {"first": 5, "second": 5, "third": 5}
    assert partition_counts_of(feeds, {"first": 1}, EXTERNAL, {}) == {"first": 1, "second": 3, "third": 3}


def test_an_inherited_count_is_fixed_by_the_first_creation() -> None:
    assert partition_counts_of({"a": ["x"], "b": ["a"]}, {}, {"x": 8}, {"a": 4}) == {"a": 4, "b": 4}


def test_a_hint_counts_only_for_a_stream_that_is_new() -> None:
    assert partition_counts_of({"a": ["x"]}, {}, EXTERNAL, {}, hints={"a": 7}) == {"a": 7}
    assert partition_counts_of({"a": ["x"]}, {}, EXTERNAL, {"a": 4}, hints={"a": 7}) == {"a": 4}


def test_a_cycle_with_a_source_takes_the_sources_count() -> None:
    assert partition_counts_of({"a": ["x", "b"], "b": ["a"]}, {}, EXTERNAL, {}) == {"a": 2, "b": 2}


def test_an_explicit_count_that_is_not_the_existing_one_names_both_and_the_ways_out() -> None:
    with pytest.raises(IncompatibleChangeError, match=r"'by-carrier' exists with 2 .* asks for 6") as raised:
        partition_counts_of({"by-carrier": ["x"]}, {"by-carrier": 6}, EXTERNAL, {"by-carrier": 2})
    assert "ask for 2" in str(raised.value)
    assert "another name" in str(raised.value)


def test_a_cycle_without_a_count_names_its_streams() -> None:
    with pytest.raises(TopologyError, match=r"'a', 'b' feed only each other") as raised:
        partition_counts_of({"a": ["b"], "b": ["a"], "c": ["x"]}, {}, EXTERNAL, {})
    assert "number_of_partitions" in str(raised.value)


def test_an_unknown_source_is_named() -> None:
    with pytest.raises(TopologyError, match=r"'b': .* source 'nowhere' is not known"):
        partition_counts_of({"a": ["b"], "b": ["nowhere"]}, {}, EXTERNAL, {})


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_is_at_least_1(count: int) -> None:
    with pytest.raises(TopologyError, match=f"'a': {count} partitions"):
        partition_counts_of({"a": ["x"]}, {"a": count}, EXTERNAL, {})
