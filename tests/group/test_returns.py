"""Whom a leader that begins waits for, and who has left its grant behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from group.test_decisions import IDS, member
from headrace.core.group import returns
from headrace.core.group.grants import Grant
from headrace.core.group.returns import left_behind
from headrace.core.group.state import GroupState, ModelVersions, incarnation_of


def to_await(
    state: GroupState, holders: Collection[str], grants: Mapping[str, Grant], followed_s: float = 0.0, forgets: bool = False
) -> frozenset[str]:
    return returns.to_await(state, holders, grants, followed_s=followed_s, timeout_s=10.0, forgets=forgets)


def group_state(*ids: str, active: int = 7) -> GroupState:
    return GroupState(tuple(member(number, id_) for number, id_ in enumerate(ids, 10)), ModelVersions(active, active))


def granted(state: GroupState, *others: str) -> dict[str, Grant]:
    """Those that are there have one, and those of `others` that are of an incarnation that is not."""
    present = {str(one.processor_id): Grant(one.sequence, incarnation_of(one)) for one in state.members}
    return present | {id_: Grant(1, f"another {id_}") for id_ in others}


def test_where_none_is_at_work_all_that_have_tasks_are_waited_for() -> None:
    state = group_state("d")
    assert to_await(state, "abcd", granted(group_state(), *"abcd")) == set("abc")
    assert to_await(state, "abcd", {}) == set("abc"), "a leader before has taken the grants back"
    assert to_await(state, "bd", {}, 20.0) == {"b"}, "the sessions of those that were killed have just ended"


def test_one_that_is_lost_while_another_works_is_not_waited_for() -> None:
    state = group_state("b", "c")
    assert not to_await(state, "abc", granted(state, "a"))
    grants = granted(state, "a")
    del grants["b"]
    assert not to_await(state, "abc", grants)


def test_a_spare_that_has_seen_another_at_work_waits_for_none() -> None:
    assert not to_await(group_state("c"), "ab", granted(group_state(), *"ab"), 20.1)


def test_where_zookeeper_is_empty_those_that_look_as_before_are_as_new() -> None:
    """Numbers of registrations begin again: a process may have the one that it had."""
    state = group_state("a", active=0)
    assert to_await(state, "abc", granted(state, "b", "c")) == {"b", "c"}


@given(st.frozensets(IDS), st.frozensets(IDS), st.frozensets(IDS), st.floats(0, 60), st.booleans())
def test_those_that_are_waited_for_have_tasks_and_are_not_there(
    there: frozenset[str], holders: frozenset[str], left: frozenset[str], followed_s: float, is_empty: bool
) -> None:
    state = group_state(*sorted(there), active=0 if is_empty else 7)
    found = to_await(state, holders, granted(group_state(), *left), followed_s)
    assert found in (frozenset(), holders - there)
    assert left_behind(granted(state, *left), state.members) == left


def test_one_without_a_grant_of_its_own_has_left_its_work_behind() -> None:
    state = group_state("a", "b")
    assert left_behind({**granted(state), "b": Grant(3, "5 boot"), "c": Grant(4, "6 boot")}, state.members) == {"b", "c"}


def test_those_that_were_stopped_in_order_are_waited_for_unless_the_run_forgets_them() -> None:
    state = replace(group_state("b"), awaited=frozenset("a"))
    assert to_await(state, "ab", granted(state)) == {"a"}
    assert not to_await(state, "abc", {}, forgets=True)
