"""Which growth of a stream an application can follow: against a dumb look at every hash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.job_plan.growth_rules import (
    PARTITIONS_MAX,
    Growth,
    changes_of,
    check_expansion,
    growth_of,
    next_doubling,
    next_multiple,
)
from headrace.core.job_plan.stream_readers import Reader, count_for_all
from headrace.errors import ConfigError, IncompatibleChangeError

counts = st.integers(1, 24)


def keeps_every_key(before: int, after: int) -> bool:
    """Whether the partition that a hash comes to says which one it was in before, looked up hash by hash."""
    return all(hash_ % after % before == hash_ % before for hash_ in range(before * after))


@given(counts, counts)
def test_what_is_accepted_keeps_every_key_in_its_task(before: int, after: int) -> None:
    if after >= before and keeps_every_key(before, after):
        growth = growth_of("s", before, after)
        assert (growth.before, growth.after, after % before) == (before, after, 0)
    else:
        with pytest.raises(IncompatibleChangeError):
            growth_of("s", before, after)


@given(counts, counts)
def test_the_ways_out_are_counts_that_are_accepted(before: int, after: int) -> None:
    multiple, doubling = next_multiple(before, after), next_doubling(before, after)
    assert after <= multiple <= doubling
    assert growth_of("s", before, multiple).after == multiple
    assert growth_of("s", before, doubling) == Growth("s", before, doubling)  # without a warning


@given(st.integers(1, 9), st.integers(0, 5))
def test_powers_of_two_are_no_matter_for_a_warning(before: int, power: int) -> None:
    assert growth_of("s", before, before * 2**power).warning is None


def test_another_multiple_is_accepted_with_a_warning() -> None:
    growth = growth_of("flights", 4, 12)
    assert (growth.before, growth.after) == (4, 12)
    assert growth.warning is not None
    assert growth.warning.startswith("stream 'flights' grew from 4 to 12 partitions, 3 times as many, which is no power of two")


@pytest.mark.parametrize(
    ("before", "after", "text", "ways"),
    [
        (4, 6, "stream 'flights' had 4 partitions and now has 6, which is no multiple", ["12", "8 --force"]),
        (8, 4, "stream 'flights' had 8 partitions and now has 4, which is no multiple", ["8"]),
        (4, 9, "stream 'flights' had 4 partitions and now has 9", ["36", "12 --force", "16 --force"]),
        (16, 24, "stream 'flights' had 16 partitions and now has 24", ["48", "32 --force"]),
    ],
)
def test_a_refusal_names_stream_counts_and_ways_out(before: int, after: int, text: str, ways: list[str]) -> None:
    with pytest.raises(IncompatibleChangeError) as raised:
        growth_of("flights", before, after)
    assert raised.value.message.startswith(text)
    assert raised.value.hint is not None
    commands = " or ".join(f"`headrace stream expand flights --partitions {way}`" for way in ways)
    assert raised.value.hint.startswith(f"{commands} (records written by hash(key) mod {after} until then")


@given(counts, counts)
def test_what_needs_no_force_comes_first_and_is_what_the_command_offers(before: int, after: int) -> None:
    refused = changes_of({"s": before}, {"s": after}).refused
    hint = refused["s"].hint or "" if refused else ""
    found = [way.partition("`")[0] for way in hint.split("`headrace stream expand s --partitions ")[1:]]
    assert found[:1] == ([str(count_for_all([Reader("a", before)], after, 1))] if refused else [])
    for way in found:
        count = int(way.removesuffix(" --force"))
        assert growth_of("s", before, count).after == count
        assert way.endswith(" --force") is (count % after != 0)


def test_a_command_line_is_whole() -> None:
    changes = changes_of({"s": 4}, {"s": 6}, system="kafka://localhost:9092")
    assert "`headrace stream expand s --partitions 12 --system kafka://localhost:9092`" in (changes.refused["s"].hint or "")
    with pytest.raises(IncompatibleChangeError) as raised:
        growth_of("s", 99_991, 99_992)
    assert "headrace stream expand" not in str(raised.value)  # no stream has so many


def test_only_what_has_state_is_told_of_state_and_only_what_has_none_is_told_to_declare_it_otherwise() -> None:
    refused = changes_of({"s": 4, "t": 4}, {"s": 6, "t": 6}, stateless={"t"}).refused
    assert refused["s"].message.endswith("other tasks than its older ones and its state")
    ways = (refused["s"].hint or "").split("; or ")
    assert len(ways) == 2
    assert ways[1].startswith('run the application under another name, from the beginning (with partitioning="other" if its')
    assert refused["t"].message.endswith("other tasks than its older ones, and might overtake them")
    assert "state" not in str(refused["t"])
    ways = (refused["t"].hint or "").split("; or ")
    assert ways[1].startswith('declare the stream with partitioning="other"')
    assert ways[2] == "run the application under another name, from the beginning"


@pytest.mark.parametrize("after", [0, -4, True, "8", 8.0, None])
def test_what_is_no_count_is_no_expansion(after: object) -> None:
    with pytest.raises(ConfigError, match="expected a whole number, at least 1"):
        check_expansion("s", 4, after)


@pytest.mark.parametrize("after", [PARTITIONS_MAX + 1, 99_999_999_999])
def test_a_count_that_is_a_typing_error_is_no_expansion(after: int) -> None:
    with pytest.raises(ConfigError, match=f"'s' with {after} partitions: expected a whole number, at least 1, at most 100,000"):
        check_expansion("s", 4, after)
    check_expansion("s", 4, PARTITIONS_MAX)


@pytest.mark.parametrize(
    ("before", "hint"),
    [
        (50_000, "name more than 50000: 100000 keeps keys in the tasks of the applications that read it"),
        (60_000, "name more than 60000"),
        (100_000, "a stream has at most 100,000"),
    ],
)
def test_what_a_refusal_says_to_name_can_be_named(before: int, hint: str) -> None:
    with pytest.raises(IncompatibleChangeError) as raised:
        check_expansion("s", before, before)
    assert raised.value.hint == hint


@pytest.mark.parametrize("after", [1, 3, 4])
def test_partitions_are_only_ever_added(after: int) -> None:
    with pytest.raises(IncompatibleChangeError, match=f"'s' has 4 partitions, and cannot be expanded to {after}"):
        check_expansion("s", 4, after)
    check_expansion("s", 4, 5)
