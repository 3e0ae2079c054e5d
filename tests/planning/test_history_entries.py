"""Entries of a job's history, and the requests that expansions leave: their stored forms, and how many are kept."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headrace.codec.documents import decode, encode
from headrace.codec.job_records import expanders_of, expansion_request
from headrace.core.job_plan.history import ENTRIES_MAX, key_of, refusals_of, to_forget
from headrace.core.job_plan.snapshot import Snapshot
from headrace.errors import StorageError
from headrace.model.change import Change, ChangeKind, ChangeRequest, Outcome
from planning.planned_model import Table

CHANGE = Change(17, ChangeKind.EXPANSION, "stream clicks", Outcome.APPLIED, 3, "ann@desk", "2 partitions", "4 partitions")


@given(st.text(), st.text(), st.none() | st.integers(0, 2**53), st.sampled_from(Outcome))
def test_an_entry_is_read_back_as_it_was_written(who: str, why: str, pause_us: int | None, outcome: Outcome) -> None:
    change = replace(CHANGE, requested_by=who, why=why, pause_us=pause_us, outcome=outcome)
    assert decode(Change, encode(change), "entry") == change


def test_the_form_stays() -> None:
    """What is stored today has to be readable by every later version."""
    stored = (
        b'{"wire":1,"change":{"at_us":17,"kind":"expansion","what":"stream clicks","outcome":"applied","job_model":3,'
        b'"requested_by":"ann@desk","before":"2 partitions","after":"4 partitions","why":"","pause_us":null}}'
    )
    assert (encode(CHANGE), decode(Change, stored, "entry")) == (stored, CHANGE)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"wire":99,"change":{}}', b'{"wire":1,"change":{"at_us":"x"}}'])
def test_what_is_no_entry_is_named(data: bytes) -> None:
    with pytest.raises(StorageError, match="entry 'k' of the history"):
        decode(Change, data, "entry 'k' of the history")


def test_a_growth_is_refused_by_the_last_entry_of_its_stream_and_for_that_number_alone() -> None:
    refused = replace(CHANGE, outcome=Outcome.REFUSED, why="no task can take it")
    (error,) = refusals_of([CHANGE, refused], {"clicks": 4, "views": 4}).values()
    assert error.message == "no task can take it"
    assert refusals_of([refused], {"clicks": 8}) == refusals_of([refused, CHANGE], {"clicks": 4}) == {}
    assert refusals_of([refused, replace(CHANGE, what="stream views")], {"clicks": 4}).keys() == {"clicks"}
    scaled = replace(refused, kind=ChangeKind.SCALE)
    assert refusals_of([scaled], {"clicks": 4}) == {}


@given(st.integers(0, 1_100), st.integers(0, 30))
def test_the_newest_entries_are_kept(stored: int, new: int) -> None:
    before = [key_of(epoch, 0) for epoch in range(stored)]
    now = [key_of(stored, number) for number in range(new)]
    forgotten = to_forget(before, now)
    assert forgotten == set(sorted([*before, *now])[: max(0, stored + new - ENTRIES_MAX)])
    assert forgotten.isdisjoint(now)


def test_a_request_says_who_has_expanded_which_stream() -> None:
    assert expanders_of([expansion_request("clicks", 8, "ann@desk")]) == {("clicks", 8): "ann@desk"}


def test_who_asked_is_known_though_the_change_was_also_seen() -> None:
    seen = ChangeRequest(ChangeKind.EXPANSION, "clicks")
    asked = ChangeRequest(ChangeKind.EXPANSION, "clicks", "ann@desk")
    snapshot = replace(Snapshot(Table(), {}), requests=(seen, asked))
    assert snapshot.requested_by(ChangeKind.EXPANSION, "clicks") == "ann@desk"
    assert replace(snapshot, requests=(seen,)).requested_by(ChangeKind.EXPANSION, "clicks") == ""


@pytest.mark.parametrize("request_", [b"", b"{}", b"[]", b'{"stream":"clicks","partitions":8}', b'{"stream":1,"by":"x"}'])
def test_a_request_that_does_not_say_so_is_still_one(request_: bytes) -> None:
    assert expanders_of([request_]) == {}
