"""What `describe` says of numbers of partitions is what a start makes of them, where nothing exists yet."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.test_partition_counts import partition_counts_of, requests_of
from headrace.core.topology.partition_counts import Stated, StatedCount, stated_counts_of
from headrace.errors import TopologyError

INPUTS = {"x": 2, "y": 5, "z": 3}
STREAMS = ["a", "b", "c", "d", "e"]
FEEDS = st.fixed_dictionaries(
    {stream: st.lists(st.sampled_from(STREAMS + list(INPUTS)), max_size=3, unique=True) for stream in STREAMS}
)
COUNTS = st.dictionaries(st.sampled_from(STREAMS), st.integers(1, 9), max_size=2)
MEETINGS = st.dictionaries(
    st.sampled_from(["j", "k"]), st.lists(st.sampled_from(STREAMS), min_size=2, max_size=3, unique=True), max_size=2
)
Met = dict[str, list[str]]


@given(FEEDS, COUNTS, COUNTS, MEETINGS, MEETINGS, MEETINGS)
def test_what_is_said_is_what_a_start_makes(
    feeds: Met, explicit: dict[str, int], hints: dict[str, int], joined: Met, keyed: Met, merged: Met
) -> None:
    hints = {stream: count for stream, count in hints.items() if stream not in explicit}
    try:
        made = partition_counts_of(feeds, explicit, INPUTS, {}, hints, joined, keyed=keyed, merged=merged)
    except TopologyError:
        assume(False)
        return
    said = stated_counts_of(requests_of(feeds, explicit, hints, joined=joined, keyed=keyed, merged=merged))
    assert said.keys() == made.keys()
    for stream, count in said.items():
        if count.partitions is None:
            assert count.stated is Stated.INHERITED
            assert made[stream] == max({**INPUTS, **made}[source] for source in count.of)
        else:
            assert made[stream] == count.partitions
            assert all(made[source] == count.partitions for source in count.of)
            assert bool(count.of) == (count.stated in (Stated.JOINED, Stated.MERGED))


FEEDS_OF_TWO = {"a": ["x"], "b": ["y"]}
BOTH = {"j": ["a", "b"]}


@pytest.mark.parametrize(
    ("explicit", "hints", "joined", "merged", "expected"),
    [
        ({"b": 8}, {}, BOTH, {}, StatedCount(Stated.JOINED, 8, of=("b",))),
        ({"b": 8}, {"a": 4}, BOTH, {}, StatedCount(Stated.JOINED, 8, of=("b",))),
        ({}, {"b": 8}, BOTH, {}, StatedCount(Stated.JOINED, 8, is_hint=True, of=("b",))),
        ({}, {"b": 8, "a": 4}, BOTH, {}, StatedCount(Stated.JOINED, 8, is_hint=True, of=("b",))),
        ({}, {}, BOTH, {}, StatedCount(Stated.INHERITED, of=("x", "y"))),
        ({"b": 8}, {}, {}, BOTH, StatedCount(Stated.MERGED, 8, of=("b",))),
        ({"b": 8}, {"a": 4}, {}, BOTH, StatedCount(Stated.HINT, 4, is_hint=True)),
        ({"b": 8}, {}, {}, {}, StatedCount(Stated.INHERITED, of=("x",))),
        ({"a": 3}, {}, {}, BOTH, StatedCount(Stated.EXPLICIT, 3)),
    ],
)
def test_of_a_stream_beside_another(
    explicit: dict[str, int], hints: dict[str, int], joined: Met, merged: Met, expected: StatedCount
) -> None:
    assert stated_counts_of(requests_of(FEEDS_OF_TWO, explicit, hints, joined=joined, merged=merged))["a"] == expected
