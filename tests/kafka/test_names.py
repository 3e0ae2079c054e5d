"""What an application is called on a broker: nobody else's names, and back to what they were made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adapters.kafka import names
from headrace.adapters.kafka.names import entries_of
from headrace.errors import StorageError
from headrace.model.names import is_name


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


NAMES = st.from_regex(r"[a-c][a-c.-]{0,5}", fullmatch=True).filter(is_name)


@given(st.lists(st.tuples(NAMES, NAMES, st.none() | st.integers(0, 2)), unique=True))
def test_no_two_applications_have_one_group_though_names_have_dots(sub_topologies: list[tuple[str, str, int | None]]) -> None:
    groups = [names.group_of(*one) for one in sub_topologies]
    assert len(set(groups)) == len(groups)
    for (application, *_), group in zip(sub_topologies, groups, strict=True):
        assert group.rpartition(".")[0] == application
        assert group != names.coordinator_group(application)


def test_no_sub_topology_takes_the_coordinators_place() -> None:
    """Its name is reserved; a lane's id has a number behind it besides."""
    assert names.lane_id("a", "coordinator", 0) != names.coordinator_id("a")


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.binary(), max_size=6))
def test_entries_are_found_in_their_namespace_alone(entries: dict[tuple[str, str], bytes]) -> None:
    stands: dict[bytes, bytes | None] = {}
    for (space, name), value in entries.items():
        records = dict(names.records_of(space, name, value, {}))
        assert not stands.keys() & records.keys()
        stands |= records
    for space in {space for space, _ in entries} | {"another"}:
        wanted = {name: value for (own, name), value in entries.items() if own == space}
        assert entries_of(stands, space) == wanted
        assert list(entries_of(stands, space)) == sorted(wanted)


def test_keys_of_another_form_are_somebody_elses() -> None:
    assert entries_of({b"a/1": b"x", b"a": b"y", b"ab/1": b"z", b"\xff/1": b"w"}, "a") == {"1": b"x"}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=9))), st.integers(1, 4))
def test_a_value_that_is_too_large_is_in_pieces_and_none_of_it_is_left(
    writes: list[tuple[str, bytes | None]], piece_bytes: int
) -> None:
    """Records are as compaction leaves them after each write."""
    stored: dict[bytes, bytes] = {}
    wanted: dict[str, bytes] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(names, "PIECE_BYTES", piece_bytes)
        for name, value in writes:
            for key, record in names.records_of("cuts", name, value, stored):
                stored = {at: there for at, there in stored.items() if at != key}
                assert record is None or len(record) <= max(piece_bytes, 2), "but for the number of pieces"
                if record is not None:
                    stored[key] = record
            wanted = {at: there for at, there in wanted.items() if at != name}
            if value is not None:
                wanted[name] = value
            assert entries_of(stored, "cuts") == wanted
            large = [one for one in wanted.values() if len(one) > piece_bytes or one.startswith((b"\0", b"\1"))]
            assert len(stored) == len(wanted) + sum(-(-len(one) // piece_bytes) for one in large)


@given(st.lists(st.none() | st.binary(max_size=9), min_size=1), st.integers(1, 4))
def test_a_reader_in_between_sees_the_former_value_or_the_new_one(values: list[bytes | None], piece_bytes: int) -> None:
    """Whatever the former one was: a status is written again and again."""
    stored, before = dict[bytes, bytes](), dict[str, bytes]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(names, "PIECE_BYTES", piece_bytes)
        for value in values:
            after = {} if value is None else {"1": value}
            records = names.records_of("status", "1", value, stored)
            for number, (key, record) in enumerate(records):
                stored = {at: there for at, there in stored.items() if at != key} | ({} if record is None else {key: record})
                is_new = names.entry_key("status", "1") in [done for done, _ in records[: number + 1]]
                assert entries_of(stored, "status") == (after if is_new else before)
            before = after


def test_a_value_of_which_a_piece_is_missing_is_an_error() -> None:
    stored = {key: value for key, value in names.records_of("cuts", "1", bytes(names.PIECE_BYTES + 1), {}) if value is not None}
    del stored[min(stored)]
    with pytest.raises(StorageError, match="piece 0 of 2 is missing"):
        entries_of(stored, "cuts")
