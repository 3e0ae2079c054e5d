"""How many partitions a repartition stream has, against a dumb solver that repeats until nothing changes."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.topology import partition_counts
from headrace.core.topology.partition_families import CountRequests, Meetings
from headrace.errors import IncompatibleChangeError, TopologyError

Streams = Mapping[str, Sequence[str]]


def partition_counts_of(
    feeds: Streams,
    explicit: Mapping[str, int],
    external: Mapping[str, int],
    existing: Mapping[str, int],
    hints: Mapping[str, int] | None = None,
    joined: Streams | None = None,
    recorded: Mapping[str, tuple[int, ...]] | None = None,
    bases: Mapping[str, int] | None = None,
    **met: Streams,
) -> dict[str, int]:
    asked = requests_of(feeds, explicit, hints or {}, joined=joined or {}, **met)
    return partition_counts.partition_counts_of(asked, external, existing, recorded, bases)


def requests_of(feeds: Streams, explicit: Mapping[str, int], hints: Mapping[str, int], **met: Streams) -> CountRequests:
    meetings = {kind: {name: tuple(streams) for name, streams in of_kind.items()} for kind, of_kind in met.items()}
    return CountRequests({stream: tuple(of) for stream, of in feeds.items()}, explicit, hints, Meetings(**meetings))


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
    with pytest.raises(IncompatibleChangeError, match=r"'by-carrier' exists with 2 .* requests 6") as raised:
        partition_counts_of({"by-carrier": ["x"]}, {"by-carrier": 6}, EXTERNAL, {"by-carrier": 2})
    assert "request 2" in str(raised.value)
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


def join_error(external: dict[str, int], bases: dict[str, int] | None = None) -> str:
    with pytest.raises(TopologyError) as raised:
        partition_counts_of({}, {}, external, {}, joined={"named": sorted(external)}, bases=bases)
    assert raised.value.hint is not None
    return raised.value.hint


def test_inputs_that_do_not_meet_may_be_made_to_by_expanding_the_smaller() -> None:
    command = "`headrace stream expand orders --partitions 8`"
    way = f"expand 'orders' before anything is written to it that is to be joined: {command}"
    assert way in join_error({"orders": 4, "users": 8})
    assert way in join_error({"users": 8, "orders": 4})
    assert way in join_error({"orders": 4, "users": 16}, bases={"users": 8})  # its keys are in the tasks of 8
    assert "expand" not in join_error({"orders": 4, "users": 8}, bases={"orders": 4})  # its tasks stay 4


# --- joins ----------------------------------------------------------------------------------------------------------

joins_of_some = st.dictionaries(
    st.sampled_from(["j", "k", "l"]), st.lists(st.sampled_from(STREAMS), min_size=2, max_size=3, unique=True), max_size=3
)


def grown(feeds: dict[str, list[str]], fixed: dict[str, int], joined: dict[str, list[str]]) -> dict[str, int] | None:
    """Every count that is not given grows to the highest of its feeds, and of those it is joined with, until none does."""
    counts = {stream: fixed.get(stream, 0) for stream in feeds}
    for _ in range(len(feeds) ** 2):
        for streams in joined.values():
            given = [stream for stream in streams if stream in fixed]
            if len({fixed[stream] for stream in given}) > 1:
                return None
            if given:
                fixed = fixed | dict.fromkeys(streams, fixed[given[0]])
    for _ in range(len(feeds) ** 2):
        known = EXTERNAL | counts | fixed
        counts = {stream: fixed.get(stream) or max([counts[stream], *(known[f] for f in feeds[stream])]) for stream in feeds}
        for streams in joined.values():
            counts |= {stream: fixed.get(stream) or max(counts[one] for one in streams) for stream in streams}
    return counts


@given(feeds_of_all, some_counts, joins_of_some)
def test_joined_streams_against_the_dumb_solver(
    feeds: dict[str, list[str]], explicit: dict[str, int], joined: dict[str, list[str]]
) -> None:
    expected = grown(feeds, explicit, joined)
    if expected is None or 0 in expected.values():
        with pytest.raises(TopologyError):
            partition_counts_of(feeds, explicit, EXTERNAL, {}, {}, joined)
    else:
        found = partition_counts_of(feeds, explicit, EXTERNAL, {}, {}, joined)
        assert found == expected
        assert all(len({found[stream] for stream in streams}) == 1 for streams in joined.values())


def test_a_diamond_of_joins_has_one_count() -> None:
    feeds = {"left": ["x"], "right": ["z"], "again": ["left", "right"], "other": ["y"]}
    joined = {"first": ["left", "right"], "second": ["again", "other"]}
    expected = {"left": 3, "right": 3, "again": 5, "other": 5}
    assert partition_counts_of(feeds, {}, EXTERNAL, {}, {}, joined) == expected
    assert partition_counts_of(feeds, {"right": 8}, EXTERNAL, {}, {}, joined) == expected | {
        "left": 8, "right": 8, "again": 8, "other": 8
    }


def test_streams_that_are_joined_follow_an_input() -> None:
    assert partition_counts_of({"a": ["y"]}, {}, EXTERNAL, {}, {"a": 9}, {"join": ["a", "x"]}) == {"a": 2}


def test_a_hint_counts_for_all_that_is_joined_and_nothing_against_what_is_there() -> None:
    feeds = {"a": ["x"], "b": ["x"]}
    assert partition_counts_of(feeds, {}, EXTERNAL, {}, {"a": 7}, {"join": ["a", "b"]}) == {"a": 7, "b": 7}
    assert partition_counts_of(feeds, {}, EXTERNAL, {"b": 4}, {"a": 7}, {"join": ["a", "b"]}) == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("feeds", "explicit", "existing", "streams", "words"),
    [
        ({}, {}, {}, ["x", "y"], r"'x' \(2 partitions\) and 'y' \(5 partitions\)(.|\n)*repartition\(\) before the join"),
        ({"a": ["x"]}, {"a": 1}, {}, ["a", "y"], r"'a' \(1 partition\) and 'y' \(5 .*(.|\n)*same number_of_partitions"),
        ({"a": ["x"], "b": ["x"]}, {"b": 6}, {"a": 4}, ["a", "b"], r"'a' \(4 .*'b' \(6 .*(.|\n)*another name"),
    ],
)
def test_counts_that_meet_and_differ_are_refused_with_both(
    feeds: dict[str, list[str]], explicit: dict[str, int], existing: dict[str, int], streams: list[str], words: str
) -> None:
    with pytest.raises(TopologyError, match=f"'together' joins the streams {words}"):
        partition_counts_of(feeds, explicit, EXTERNAL, existing, {}, {"together": streams})


# --- streams that have grown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [2, 4, 16])
def test_an_explicit_count_is_compared_with_every_count_that_the_stream_had(asked: int) -> None:
    found = partition_counts_of({"a": ["x"]}, {"a": asked}, EXTERNAL, {"a": 16}, recorded={"a": (2, 4, 16)})
    assert found == {"a": 16}


def test_an_explicit_count_that_the_stream_never_had_is_refused_and_names_the_expansion() -> None:
    with pytest.raises(IncompatibleChangeError, match=r"exists with 8 partitions \(it was expanded from 2, 4\).* requests 6"):
        partition_counts_of({"a": ["x"]}, {"a": 6}, EXTERNAL, {"a": 8}, recorded={"a": (2, 4, 8)})


@pytest.mark.parametrize(("asked", "possible"), [(12, True), (8, True), (6, False), (2, False)])
def test_expanding_is_a_way_out_where_what_is_asked_for_is_a_multiple(asked: int, possible: bool) -> None:
    with pytest.raises(IncompatibleChangeError) as raised:
        partition_counts_of({"a": ["x"]}, {"a": asked}, EXTERNAL, {"a": 4}, recorded={"a": (4,)})
    assert (f"headrace stream expand a --partitions {asked}" in str(raised.value)) is possible


def test_a_source_that_grows_later_does_not_change_what_was_inherited_from_it() -> None:
    feeds = {"a": ["x"], "b": ["a"], "new": ["x"]}
    found = partition_counts_of(feeds, {}, {"x": 8}, {"a": 4, "b": 4}, recorded={"x": (4, 8), "a": (4,), "b": (4,)})
    assert found == {"a": 4, "b": 4, "new": 8}


GROWN = {"x": (4, 8), "a": (4,), "b": (4, 16), "y": (8,)}


def test_joined_streams_that_grew_apart_keep_their_counts() -> None:
    feeds = {"a": ["x"], "b": ["x"]}
    found = partition_counts_of(feeds, {"b": 4}, {"x": 8}, {"a": 4, "b": 16}, {}, {"j": ["a", "b", "x"]}, GROWN)
    assert found == {"a": 4, "b": 16}


def test_a_stream_that_is_made_to_meet_one_that_grew_has_the_count_of_its_tasks() -> None:
    joined = {"j": ["new", "x"]}
    assert partition_counts_of({"new": ["x"]}, {}, {"x": 8}, {}, {}, joined, GROWN) == {"new": 4}
    without_state = partition_counts_of({"new": ["x"]}, {}, {"x": 8}, {}, {}, joined, GROWN, {"x": 8})
    assert without_state == {"new": 8}, "partitions 4 to 7 have tasks of their own"


def test_joined_streams_that_were_never_alike_are_refused() -> None:
    words = r"'a' \(4 partitions\) and 'y' \(8 partitions\)"
    with pytest.raises(TopologyError, match=words):
        partition_counts_of({"a": ["x"]}, {}, {"x": 8, "y": 8}, {"a": 4}, {}, {"j": ["a", "y"]}, GROWN)
    feeds = {stream: ["x"] for stream in "abc"}
    existing, recorded = {"a": 8, "b": 8, "c": 4}, {"a": (8,), "b": (4, 8), "c": (4,)}
    with pytest.raises(TopologyError, match=r"'a' \(8 partitions\) and 'c' \(4 partitions\)"):
        partition_counts_of(feeds, {}, EXTERNAL, existing, {}, {"j": ["a", "b", "c"]}, recorded)
    words = r"'x' \(8 partitions, in the tasks of 4\) and 'z' \(2 partitions\)"
    with pytest.raises(TopologyError, match=words):
        partition_counts_of({}, {}, {"x": 8, "z": 2}, {}, {}, {"j": ["x", "z"]}, GROWN)


@given(
    st.dictionaries(st.sampled_from(STREAMS), st.tuples(st.integers(1, 4), st.lists(st.integers(2, 3), max_size=2)), min_size=2)
)
def test_of_streams_that_are_joined_those_that_began_alike_may_grow_as_they_like(
    began: dict[str, tuple[int, list[int]]],
) -> None:
    recorded: dict[str, tuple[int, ...]] = {}
    for stream, (count, factors) in began.items():
        counts = [count]
        for factor in factors:
            counts.append(counts[-1] * factor)
        recorded[stream] = tuple(counts)
    existing = {stream: counts[-1] for stream, counts in recorded.items()}
    feeds: dict[str, list[str]] = {stream: ["x"] for stream in existing}
    joined = {"j": list(existing)}
    explicit = {stream: counts[0] for stream, counts in recorded.items()}
    if len({counts[0] for counts in recorded.values()}) == 1 or len(set(existing.values())) == 1:
        assert partition_counts_of(feeds, explicit, EXTERNAL, existing, {}, joined, recorded) == existing
    else:
        with pytest.raises(TopologyError, match="joins the streams"):
            partition_counts_of(feeds, explicit, EXTERNAL, existing, {}, joined, recorded)


# --- merges -----------------------------------------------------------------------------------------------------------

UPSTREAM = {"a": ["x"], "b": ["y"]}  # of 2 and 5


def test_streams_that_meet_in_a_merge_have_the_largest_count_of_all_that_they_come_of() -> None:
    assert partition_counts_of(UPSTREAM, {}, EXTERNAL, {}) == {"a": 2, "b": 5}
    for meeting in ({"keyed": {"m": ["a", "b"]}}, {"merged": {"m": ["a", "b"]}}):
        assert partition_counts_of(UPSTREAM, {}, EXTERNAL, {}, **meeting) == {"a": 5, "b": 5}
        assert partition_counts_of(UPSTREAM, {"a": 3}, EXTERNAL, {}, **meeting) == {"a": 3, "b": 3}
        assert partition_counts_of(UPSTREAM, {}, EXTERNAL, {"b": 7}, **meeting) == {"a": 7, "b": 7}
        assert partition_counts_of(UPSTREAM, {"a": 3}, EXTERNAL, {"b": 7}, **meeting) == {"a": 3, "b": 7}, "no refusal here"


def test_a_hint_counts_for_its_own_stream_but_where_state_needs_the_same_of_both() -> None:
    hints = {"a": 7, "b": 3}
    assert partition_counts_of(UPSTREAM, {}, EXTERNAL, {}, hints, merged={"m": ["a", "b"]}) == hints
    assert partition_counts_of(UPSTREAM, {}, EXTERNAL, {}, hints, keyed={"m": ["a", "b"]}) == {"a": 7, "b": 7}
    assert partition_counts_of(UPSTREAM, {}, EXTERNAL, {}, {"a": 7}, merged={"m": ["a", "b"]}) == {"a": 7, "b": 7}
    assert partition_counts_of(UPSTREAM, {"b": 4}, EXTERNAL, {}, {"a": 7}, merged={"m": ["a", "b"]}) == {"a": 7, "b": 4}
    assert partition_counts_of(UPSTREAM, {"b": 4}, EXTERNAL, {}, {"a": 7}, keyed={"m": ["a", "b"]}) == {"a": 4, "b": 4}


def test_a_stream_that_is_made_to_meet_state_of_one_that_grew_has_the_count_of_its_tasks() -> None:
    found = partition_counts_of({"new": ["x"]}, {}, {"x": 8}, {}, {}, {}, GROWN, keyed={"s": ["new", "x"]})
    assert found == {"new": 4}


@given(feeds_of_all, joins_of_some, joins_of_some)
def test_what_meets_has_one_number_where_none_is_given(
    feeds: dict[str, list[str]], keyed: dict[str, list[str]], merged: dict[str, list[str]]
) -> None:
    expected = grown(feeds, {}, {**keyed, **{f"m-{name}": streams for name, streams in merged.items()}})
    assert expected is not None
    if 0 in expected.values():
        with pytest.raises(TopologyError):
            partition_counts_of(feeds, {}, EXTERNAL, {}, keyed=keyed, merged=merged)
    else:
        assert partition_counts_of(feeds, {}, EXTERNAL, {}, keyed=keyed, merged=merged) == expected
