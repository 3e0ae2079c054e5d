"""What an application is called on a broker: nobody else's names, and back to what they were made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adapters.kafka import names
from headrace.adapters.kafka.names import entries_of, entry_key


def test_the_names_are_those_that_rights_and_lag_tools_are_set_up_for() -> None:
    assert names.metadata_topic("flight") == "flight-metadata"
    assert names.checkpoint_topic("flight") == "flight-checkpoints"
    assert names.coordinator_id("flight") == "flight/coordinator"
    assert names.coordinator_group("flight") == "flight.coordinator"
    assert names.lane_id("flight", "source", 3) == "flight/source/3"
    assert names.group_of("flight", "by-carrier") == "flight.by-carrier"
    assert names.group_of("flight", "source", 3) == "flight.source/3"


@pytest.mark.parametrize("other", ["flight-delays", "flights", "flight2"])
def test_a_prefix_of_one_application_covers_no_other(other: str) -> None:
    """Rights are given on `flight/` and `flight.`, on all ids and groups of the application."""
    for made in (names.coordinator_id(other), names.lane_id(other, "source", 0)):
        assert not made.startswith("flight/")
    for made in (names.coordinator_group(other), names.group_of(other, "source")):
        assert not made.startswith("flight.")


def test_no_sub_topology_takes_the_coordinators_place() -> None:
    """Its name is reserved; a lane's id has a number behind it besides."""
    assert names.lane_id("a", "coordinator", 0) != names.coordinator_id("a")


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.binary(), max_size=6))
def test_entries_are_found_in_their_namespace_alone(entries: dict[tuple[str, str], bytes]) -> None:
    stands = {entry_key(space, name): value for (space, name), value in entries.items()}
    assert len(stands) == len(entries)
    for space in {space for space, _ in entries} | {"another"}:
        wanted = {name: value for (own, name), value in entries.items() if own == space}
        assert entries_of(stands, space) == wanted
        assert list(entries_of(stands, space)) == sorted(wanted)


def test_keys_of_another_form_are_somebody_elses() -> None:
    assert entries_of({b"a/1": b"x", b"a": b"y", b"ab/1": b"z", b"\xff/1": b"w"}, "a") == {"1": b"x"}
