"""Stores that are given up or renamed, and the operators of an edit: decided from job model to job model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.topology.compatibility import check_compatible, in_use, lost, refusals, remembered
from headrace.core.topology.operator_changes import OperatorChanges, RunOperator, changes_between
from headrace.core.topology.store_changes import (
    StoreRequests,
    change_notes,
    databases_of,
    emptied_databases,
    requested,
    requests_of,
)
from headrace.errors import ConfigError, IncompatibleChangeError
from headrace.model.job_model import JobModel

COUNT, SUM = "source|count key=string value=long", "source|named s=sum(value) key=string value=json<s bigint>"


def model(**stores: str) -> JobModel:
    return JobModel("shop", 1, (), stores=stores)


def started(previous: JobModel, stores: dict[str, str], drops: str = "", renames: str = "") -> JobModel:
    """The job model of a start with these requests, as a driver stores it."""
    requests = requests_of(drops, renames)
    carried = requested(previous, stores, requests)
    assert carried is not None
    check_compatible(carried, stores, begun=requests.drops)
    return replace(carried, stores=remembered(carried, stores), databases=databases_of(carried, stores))


def database(found: JobModel, name: str) -> str:
    return found.databases.get(name, name)


def test_a_renamed_store_keeps_its_database_and_may_be_renamed_back() -> None:
    renamed = started(model(old=COUNT), {"new": COUNT}, renames="old=new")
    assert (in_use(renamed.stores), renamed.databases) == ({"new": COUNT}, {"new": "old"})
    again = started(renamed, {"new": COUNT}, renames="old=new")
    assert (again.stores, again.databases) == (renamed.stores, renamed.databases), "it was done before"
    third = started(again, {"third": COUNT}, renames="new=third")
    assert third.databases == {"third": "old"}
    back = started(third, {"old": COUNT}, renames="third=old")
    assert (in_use(back.stores), back.databases) == ({"old": COUNT}, {})


def test_a_store_that_takes_a_name_that_was_free_does_not_take_the_state_of_who_had_it() -> None:
    renamed = started(model(old=COUNT), {"new": COUNT}, renames="old=new")
    both = started(renamed, {"new": COUNT, "old": SUM})
    assert (database(both, "new"), database(both, "old")) == ("old", "old~2")


def test_state_that_is_given_up_under_a_name_that_stays_is_deleted_in_its_database() -> None:
    dropped = started(model(n=COUNT), {"n": SUM}, drops="n")
    assert (in_use(dropped.stores), dropped.databases) == ({"n": SUM}, {"n": "n~2"})
    assert emptied_databases(dropped, "source") == ("n", "n~times")
    assert emptied_databases(dropped, "by-x") == ()
    again = started(dropped, {"n": SUM}, drops="n")
    assert (again.stores, again.databases, again.dropped) == (dropped.stores, dropped.databases, dropped.dropped)
    assert database(started(again, {"n": COUNT}, drops="n"), "n") == "n~3"


def test_a_store_that_was_taken_out_comes_back_empty_where_that_is_asked_for() -> None:
    gone = started(model(n=COUNT, m=COUNT), {"m": COUNT})
    assert emptied_databases(gone, "source") == ("n", "n~times")
    with pytest.raises(IncompatibleChangeError, match="store 'n' was removed from the application before") as refused:
        started(gone, {"m": COUNT, "n": COUNT})
    assert "undo that edit" not in str(refused.value)
    assert "--drop-store n" in str(refused.value)
    back = started(gone, {"m": COUNT, "n": COUNT}, drops="n")
    assert (database(back, "n"), emptied_databases(back, "source")) == ("n~2", ("n", "n~times"))
    assert change_notes(gone, requested(gone, {"m": COUNT, "n": COUNT}, StoreRequests(frozenset("n")))) == []


def test_a_store_that_continues_is_not_given_up() -> None:
    assert started(model(n=COUNT), {"n": COUNT}, drops="n") == model(n=COUNT)


def test_what_may_have_been_renamed_is_refused_and_what_is_taken_out_is_not() -> None:
    assert lost(model(a=COUNT, b=SUM), {"c": COUNT, "d": SUM}) == {"a": "c", "b": "d"}
    assert lost(model(a=COUNT), {"c": SUM}) == {"a": None}
    assert lost(model(a=COUNT, b=SUM), {"b": SUM}) == {}
    assert lost(model(a=COUNT), {"a": COUNT, "c": COUNT}) == {}
    with pytest.raises(IncompatibleChangeError, match="store 'a' is no longer in the application") as refused:
        check_compatible(model(a=COUNT), {"c": COUNT}, ["orders"], "kafka://b:9092")
    hint = str(refused.value.hint)
    assert "undo that edit" not in hint
    assert hint.startswith("keep the old name 'a'; or rename with the state: `headrace run ... --rename-store a=c`; or drop")
    command = "headrace startpoint set orders --application shop --system kafka://b:9092 --earliest --state rewind"
    assert "`headrace run ... --drop-store a` (in Python: drop_stores='a'), and rebuild the empty stores" in hint
    assert command in hint


@pytest.mark.parametrize(
    ("before", "stores", "drops", "renames", "error", "words"),
    [
        ({"a": COUNT}, {"a": COUNT}, "b", "", ConfigError, "application 'shop' has no store 'b'"),
        ({"a": COUNT}, {"a": COUNT}, "", "b=c", ConfigError, "rename_stores: application 'shop' has no store 'b'"),
        ({"a": COUNT}, {"c": COUNT}, "", "a=b", ConfigError, "the application has no store 'b', which 'a' is to be named"),
        ({"a": COUNT}, {"a": COUNT, "b": COUNT}, "", "a=b", IncompatibleChangeError, "'a' is still in the application"),
        ({"a": COUNT, "b": COUNT}, {"b": COUNT}, "", "a=b", IncompatibleChangeError, "that store has state of its own"),
        ({"a": COUNT}, {"b": SUM}, "", "a=b", IncompatibleChangeError, "store 'b': it held counts, would hold named"),
        ({"a": COUNT}, {"b": COUNT}, "", "a", ConfigError, "expected OLD=NEW, found 'a'"),
        ({"a": COUNT}, {"b": COUNT}, "", "a=b,a=c", ConfigError, "'a=c' names a store twice"),
        ({"a": COUNT}, {"b": COUNT}, "a", "a=b", ConfigError, "store 'a' is in drop_stores and in rename_stores"),
    ],
)
def test_requests_that_cannot_be(
    before: dict[str, str], stores: dict[str, str], drops: str, renames: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        started(model(**before), stores, drops, renames)


NAMES = ["a", "b", "c", "d"]
EDITS = st.lists(st.tuples(st.sets(st.sampled_from(NAMES)), st.sampled_from([COUNT, SUM]), st.booleans()), max_size=6)


@given(EDITS)
def test_no_two_stores_share_a_database_and_none_has_one_that_another_left(edits: list[tuple[set[str], str, bool]]) -> None:
    """After any edits, in which whatever is in the way is given up, or renamed where that can be."""
    found = JobModel("shop", 1, ())
    states = {}  # store to what it is the state of: the edit in which it began
    for number, (names, form, renaming) in enumerate(edits):
        stores = dict.fromkeys(sorted(names), form)
        pairs = {old: new for old, new in lost(found, stores).items() if new is not None} if renaming else {}
        in_the_way = {name for name in stores if name in found.stores and refusals(found, {name: stores[name]})}
        drops = ((lost(found, stores).keys() - pairs.keys()) | in_the_way) - set(pairs.values())
        kept = {name: state for name, state in states.items() if name in stores and name not in drops}
        kept |= {new: states[old] for old, new in pairs.items()}
        states = {name: kept.get(name, (number, name)) for name in stores}
        before = found
        found = started(found, stores, ",".join(sorted(drops)), ",".join(f"{old}={new}" for old, new in pairs.items()))
        databases = [database(found, name) for name in found.stores]
        assert len(databases) == len({*databases, *found.dropped} - set(found.dropped))
        for name in stores:
            began_now = states[name] == (number, name)
            had = {database(before, each) for each in before.stores} | set(before.dropped)
            assert (database(found, name) in had) is not began_now
        assert not set(emptied_databases(found, "source")) & {database(found, name) for name in stores}


# --- operators --------------------------------------------------------------------------------------------------------


def operators(text: str) -> tuple[RunOperator, ...]:
    """`name:kind<parent` for each; a kind with a `!` has a store in the database behind it."""
    found = []
    for item in text.split():
        place, _, parent = item.partition("<")
        name, _, kind = place.partition(":")
        kind, _, held = kind.partition("!")
        parents = (parent,) if parent else ()
        found.append(RunOperator(name, kind, "source", parents, "", (held,) if held else (), name))
    return tuple(found)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("s:stream f:filter<s", "s:stream f:filter<s", OperatorChanges((), (), {})),
        ("s:stream", "s:stream f:filter<s", OperatorChanges(("f",), (), {})),
        ("s:stream f:filter<s", "s:stream", OperatorChanges((), ("f",), {})),
        ("s:stream f:filter<s t:to<f", "s:stream g:filter<s t:to<g", OperatorChanges((), (), {"f": "g"})),
        ("s:stream f:filter<s t:to<f", "s:stream g:filter<s u:to<g", OperatorChanges((), (), {"f": "g", "t": "u"})),
        ("s:stream f:filter<s", "s:stream f2:map<s", OperatorChanges(("f2",), ("f",), {})),
        ("s:stream c:count!c<s", "s:stream d:count!c<s", OperatorChanges((), (), {"c": "d"})),
        ("s:stream c:count!c<s", "s:stream p:peek<s d:count!c<p", OperatorChanges(("p",), (), {"c": "d"})),
        ("s:stream c:count!c<s", "s:stream d:count!d<s", OperatorChanges((), (), {"c": "d"})),
    ],
)
def test_what_was_added_removed_and_renamed(before: str, now: str, expected: OperatorChanges) -> None:
    assert changes_between(operators(before), operators(now)) == expected


def test_of_a_run_that_left_no_record_nothing_is_said() -> None:
    assert changes_between(None, operators("s:stream")).notes() == []
