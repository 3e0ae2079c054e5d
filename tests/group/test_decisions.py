"""The decisions of a group, each against predicates, and where it is clever against one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.group.membership import (
    DuplicateAction,
    candidates_of,
    duplicate_action,
    duplicate_of,
    duplicate_text,
    leader_of,
    must_step_back,
    predecessor_of,
    spare_text,
    unique_members,
)
from headrace.core.group.proposals import (
    AwaitedRelease,
    BarrierOutcome,
    awaited_release,
    barrier_outcome,
    changed_processors,
    is_left_over,
    may_work,
    next_version,
)
from headrace.core.group.runs import forgets_affinity, keeps_affinity, run_as_leader, run_as_member, run_in_force
from headrace.core.group.settling import QUIET_S, SETTLE_S_MAX, Settling
from headrace.core.group.state import (
    BarrierState,
    GroupMember,
    GroupRun,
    GroupState,
    ModelOrigin,
    ModelVersions,
    Registration,
    ReleaseBarrier,
)
from headrace.errors import ConfigError


def member(sequence: int, id_: str | None, code: str = "old") -> GroupMember:
    made = None if id_ is None else Registration(id_, f"at-{id_}", 1, code, f"host-{id_}", 100 + sequence, "1@1", "boot")
    return GroupMember(sequence, made)


IDS, CODES = st.sampled_from("abcd"), st.sampled_from(["old", "new", "newer"])
GROUPS = st.lists(st.builds(member, st.integers(0, 30), st.none() | IDS, CODES), unique_by=lambda one: one.sequence, max_size=9)
PORTIONS = st.dictionaries(IDS, st.integers(0, 2))
SEQUENCES = st.frozensets(st.integers(0, 5))

# --- who leads ------------------------------------------------------------------------------------------------------


@given(GROUPS)
def test_one_leads_and_all_others_watch_one_that_no_other_watches(members: list[GroupMember]) -> None:
    leader = leader_of(members)
    watched = {one.sequence: predecessor_of(members, one.sequence) for one in members}
    assert [number for number, before in watched.items() if before is None] == ([leader.sequence] if leader else [])
    others = [before.sequence for before in watched.values() if before is not None]
    assert len(set(others)) == len(others) == max(0, len(members) - 1)
    assert all(before is None or before.sequence < number for number, before in watched.items())


@given(GROUPS, st.data())
def test_the_leader_changes_only_when_it_leaves(members: list[GroupMember], data: st.DataObject) -> None:
    leader = leader_of(members)
    if leader is not None:
        joined = [*members, member(31, "e")]
        assert leader_of(joined) == leader
        left = [one for one in members if one == leader or data.draw(st.booleans())]
        assert leader_of(left) == leader


# --- the same id ----------------------------------------------------------------------------------------------------


@given(GROUPS)
def test_of_each_id_the_first_takes_part_and_the_others_see_who_it_is(members: list[GroupMember]) -> None:
    unique = unique_members(members)
    assert {one.processor_id for one in unique} == {one.processor_id for one in members} - {None}
    for one in members:
        if one.processor_id is not None:
            other = duplicate_of(members, one)
            assert (other is None) is (one in unique) and (other is None or other in unique)


@given(st.booleans(), st.floats(0, 100), st.floats(0.4, 60))
def test_a_duplicate_is_removed_if_dead_and_refused_after_two_timeouts(dead: bool, waited_s: float, timeout_s: float) -> None:
    wanted = DuplicateAction.REMOVE if dead else DuplicateAction.REFUSE if waited_s >= 2 * timeout_s else DuplicateAction.WAIT
    assert duplicate_action(dead, waited_s, timeout_s) is wanted


def test_the_other_one_is_named() -> None:
    assert duplicate_text(member(7, "a")) == "processor 'a' is run by process 107 on host host-a (registration 7)"


# --- spares -----------------------------------------------------------------------------------------------------------


@given(GROUPS, st.none() | CODES)
def test_each_one_is_chosen_or_a_spare_with_a_reason(members: list[GroupMember], active: str | None) -> None:
    found = candidates_of(members, active)
    chosen = {one.sequence for one in found.chosen}
    assert chosen | found.spares.keys() == {one.sequence for one in members} and not chosen & found.spares.keys()
    assert all(found.spares.values())
    codes = {one.registration.code for one in found.chosen if one.registration is not None}
    assert len(codes) <= 1
    unique = unique_members(members)
    if any(one.registration is not None and one.registration.code == active for one in unique):
        assert codes <= {active}, "the new ones wait until the last old one has left"
    assert list(found.chosen) == [one for one in unique if one.registration is not None and one.registration.code in codes]


def test_when_the_last_old_one_has_left_the_new_ones_plan() -> None:
    members = [member(1, "a", "new"), member(2, "b", "old"), member(3, "c", "new"), member(4, "d", "newer")]
    assert [one.sequence for one in candidates_of(members, "old").chosen] == [2]
    assert [one.sequence for one in candidates_of([members[0], *members[2:]], "old").chosen] == [1, 3]


@given(GROUPS, st.none() | CODES)
def test_stepping_back_ends_with_a_leader_that_can_plan(members: list[GroupMember], active: str | None) -> None:
    steps, number = 0, 31
    while (leader := leader_of(members)) is not None and must_step_back(members, leader.sequence, active):
        members = [one for one in members if one != leader] + [replace(leader, sequence=number)]
        steps, number = steps + 1, number + 1
        assert steps <= len(members)
    codes = [one.registration.code for one in members if one.registration is not None]
    if leader is not None and leader.registration is not None and active in codes:
        assert leader.registration.code == active
    assert not any(must_step_back(members, one.sequence, active) for one in members if one != leader)


# --- settling -------------------------------------------------------------------------------------------------------

LOOKS = st.lists(
    st.tuples(st.floats(0, 3), st.frozensets(IDS), st.frozensets(IDS)), min_size=1, max_size=20
)  # time passed, who is there, who was stopped in order


def looked(settling: Settling, ids: frozenset[str], stopped: frozenset[str], now_s: float) -> Settling:
    members = [member(number, id_) for number, id_ in enumerate("abcd") if id_ in ids]
    return settling.with_look(members, stopped - ids, "abcd", now_s)


@given(LOOKS)
def test_a_decision_is_due_a_second_after_the_last_change_and_at_most_five_after_the_first(looks: list) -> None:  # type: ignore[type-arg]
    """At once where all that has changed is that such came as were waited for; one that leaves to come back changes nothing."""
    settling, now_s, changes, counted = Settling(10.0), 0.0, [], (frozenset(), frozenset())
    away: dict[str, float] = {}
    for passed_s, ids, stopped in looks:
        now_s += passed_s
        away = {id_: away.get(id_, now_s) for id_ in stopped - ids}
        now_counted = (ids, ids | {id_ for id_, since_s in away.items() if now_s - since_s < 10.0})
        if now_counted[1] != counted[1] or ids - counted[0]:
            changes.append((now_s, now_counted[1] != counted[1]))
        counted = now_counted
        settling = looked(settling, ids, stopped, now_s)
        assert settling.counted == counted[1] and frozenset(settling.present) == ids
        quiet_s = QUIET_S if any(is_of_plan for _, is_of_plan in changes) else 0.0
        due_s = min(changes[-1][0] + quiet_s, changes[0][0] + SETTLE_S_MAX) if changes else None
        assert settling.due_s == due_s and settling.is_due(now_s) is (due_s is not None and now_s >= due_s)
        if settling.is_due(now_s):
            settling, changes = settling.decided(), []
            assert settling.due_s is None


def test_one_that_comes_back_in_time_gets_its_grant_at_once() -> None:
    settling = looked(Settling(30.0), frozenset("abc"), frozenset(), 0.0).decided()
    settling = looked(settling, frozenset("ac"), frozenset("b"), 1.0)
    assert settling.due_s is None, "it is waited for: there is nothing to decide"
    back = looked(settling, frozenset("abc"), frozenset(), 2.0)
    assert back.is_due(2.0)
    assert looked(back, frozenset("abcd"), frozenset(), 2.1).due_s == 3.1, "another one came: a plan is made, which settles"
    assert back.again(2.0).due_s == 3.0, "what came to nothing is not tried again at once"


def test_one_that_was_replaced_between_two_looks_gets_its_grant_at_once() -> None:
    settling = Settling().with_look([member(0, "a"), member(1, "b")], (), "ab", 0.0).decided()
    replaced = settling.with_look([member(0, "a"), member(2, "b")], (), "ab", 1.0)
    assert replaced.present == {"a": 0, "b": 2} and replaced.is_due(1.0)


def test_one_that_stopped_in_order_is_waited_for_and_one_that_died_is_not() -> None:
    settling = looked(Settling(30.0), frozenset("abc"), frozenset(), 0.0).decided()
    settling = looked(settling, frozenset("a"), frozenset("b"), 1.0)
    assert settling.counted == {"a", "b"} and not settling.given_up
    assert looked(settling, frozenset("a"), frozenset("b"), 30.9).counted == {"a", "b"}
    late = looked(settling.decided(), frozenset("a"), frozenset("b"), 31.0)
    assert late.counted == {"a"} and late.given_up == {"b"} and late.due_s == 32.0
    assert looked(late, frozenset("a"), frozenset("b"), 40.0).counted == {"a"}, "it is not waited for twice"


def test_one_without_tasks_is_not_waited_for() -> None:
    assert Settling().with_look([member(0, "a")], {"b"}, {"a"}, 0.0).counted == {"a"}


def test_the_mark_of_one_that_is_there_is_deleted() -> None:
    """It came while the leader wrote the mark: when it is lost later it is not to be waited for."""
    settling = Settling().with_look([member(0, "a"), member(1, "b")], {"b"}, {"a", "b"}, 0.0)
    assert settling.given_up == {"b"} and settling.counted == {"a", "b"}
    assert not settling.with_look([member(0, "a"), member(1, "b")], (), {"a", "b"}, 1.0).given_up


# --- proposals ------------------------------------------------------------------------------------------------------


@given(PORTIONS, PORTIONS)
def test_changes_are_the_same_both_ways(before: Mapping[str, int], after: Mapping[str, int]) -> None:
    assert changed_processors(before, after) == changed_processors(after, before)
    assert not changed_processors(before, dict(before))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_new_version_is_above_all_that_were_used(proposed: int, active: int, highest: int, committed: int) -> None:
    state = GroupState(versions=ModelVersions(proposed, active), highest_version=highest)
    assert next_version(state, committed) > max(proposed, active, highest, committed)


def test_what_a_leader_before_has_left_is_seen() -> None:
    def left(barrier: ReleaseBarrier | None, mine: int | None = None) -> bool:
        return is_left_over(GroupState(versions=ModelVersions(8, 7), barrier=barrier), mine)

    assert left(None) and left(ReleaseBarrier(8, BarrierState.NEW)) and left(ReleaseBarrier(8, BarrierState.NEW), 7)
    assert not left(ReleaseBarrier(8, BarrierState.NEW), 8) and not left(ReleaseBarrier(8, BarrierState.TIMED_OUT))
    assert not is_left_over(GroupState(versions=ModelVersions(7, 7)), None)


@given(SEQUENCES, SEQUENCES, SEQUENCES, SEQUENCES, st.floats(0, 20))
def test_a_barrier_waits_for_those_that_are_there_and_not_for_ever(
    releasing: frozenset[int], receiving: frozenset[int], joined: frozenset[int], present: frozenset[int], now_s: float
) -> None:
    awaited = AwaitedRelease(8, releasing, receiving, 0.0)
    outcome, late = barrier_outcome(awaited, ReleaseBarrier(8, BarrierState.NEW, joined), present, now_s)
    if receiving - present:
        assert outcome is BarrierOutcome.TIMED_OUT, "who is to have tasks has left"
        return
    assert late == {one for one in releasing if one in present and one not in joined}
    assert (outcome is BarrierOutcome.RELEASED) is (not late)
    assert (outcome is BarrierOutcome.WAITING) is bool(late and now_s < 10)
    assert (outcome is BarrierOutcome.LATE) is bool(late and now_s >= 10)


def test_who_is_not_there_is_neither_waited_for_nor_given_anything() -> None:
    found = awaited_release(8, {"a", "b", "x"}, {"b", "c", "y"}, {"a": 1, "b": 2, "c": 3, "d": 4}, 5.0)
    assert found == AwaitedRelease(8, frozenset({1, 2}), frozenset({2, 3}), 5.0)


@pytest.mark.parametrize(
    "barrier",
    [
        None,
        ReleaseBarrier(8, BarrierState.TIMED_OUT),
        ReleaseBarrier(8, BarrierState.DONE),
        ReleaseBarrier(9, BarrierState.NEW),
    ],
)
def test_a_barrier_that_is_missing_final_or_another_is_void(barrier: ReleaseBarrier | None) -> None:
    awaited = AwaitedRelease(8, frozenset(), frozenset(), 0.0)
    assert barrier_outcome(awaited, barrier, [], 0.0)[0] is BarrierOutcome.TIMED_OUT


PORTION = st.none() | st.integers(0, 1)


@given(
    st.integers(0, 3),
    st.integers(0, 3),
    st.none() | st.sampled_from(BarrierState),
    st.integers(0, 3),
    PORTION,
    PORTION,
    st.booleans(),
)
def test_who_may_work(
    proposed: int, active: int, state: BarrierState | None, number: int, mine: int | None, next_: int | None, held: bool
) -> None:
    barrier = None if state is None else ReleaseBarrier(number, state)
    works = may_work(ModelVersions(proposed, active), barrier, mine, next_, held)
    if works:
        assert held and mine is not None
    if held and mine is not None and mine == next_:
        assert works, "who does not change works through it"
    is_abandoned = number == proposed and state is BarrierState.TIMED_OUT
    if proposed > active and mine != next_:
        assert works is (held and mine is not None and is_abandoned), "its tasks may be another's any moment"


# --- runs -----------------------------------------------------------------------------------------------------------

RUNS = st.none() | st.builds(
    GroupRun, st.sampled_from(["r1", "r2"]), st.booleans(), st.integers(0, 3), st.sampled_from(["running", "ended"])
)


@given(RUNS, st.none() | st.sampled_from(["r1", "r2"]), st.booleans())
def test_a_run_lasts_while_the_group_does_and_no_longer(stored: GroupRun | None, mine: str | None, bounded: bool) -> None:
    run = run_as_leader(stored, mine, bounded, "new", 9)
    if mine is None:
        assert run == GroupRun("new", bounded, 9), "an empty group begins another, whatever is left of those before"
    elif stored is not None and stored.has_ended:
        assert run == stored, "what has ended is not continued"
    else:
        assert (run.id, run.leader, run.has_ended) == (stored.id if stored else mine, 9, False)
    if stored is not None and mine is not None and not stored.has_ended:
        assert (run.bounded, run.targets) == (stored.bounded, stored.targets)


@given(RUNS, st.integers(0, 3), st.booleans())
def test_a_member_joins_the_run_that_its_leader_vouches_for(stored: GroupRun | None, leader: int, bounded: bool) -> None:
    if stored is None or stored.leader != leader or stored.has_ended:
        assert run_as_member(stored, leader, bounded) is None
    elif stored.bounded == bounded:
        assert run_as_member(stored, leader, bounded) == stored
    else:
        with pytest.raises(ConfigError, match="of the group"):
            run_as_member(stored, leader, bounded)


@given(RUNS, st.sets(st.integers(0, 3)))
def test_who_comes_sees_the_run_that_its_leader_would_have_it_join(stored: GroupRun | None, there: set[int]) -> None:
    members = tuple(GroupMember(sequence, None) for sequence in sorted(there))
    found = run_in_force(GroupState(members, run=stored))
    if not there or stored is None:
        assert found is None
    else:
        assert found == run_as_member(stored, min(there), stored.bounded)


@pytest.mark.parametrize(
    ("bounded", "before", "kept"),
    [
        (False, "r1", True),
        (False, "r2", True),
        (True, "r1", True),
        (True, "r2", False),
        (False, None, False),
        (True, None, False),
    ],
)
def test_a_bounded_run_keeps_affinity_within_itself_only(bounded: bool, before: str | None, kept: bool) -> None:
    origin = None if before is None else ModelOrigin("code", before)
    assert keeps_affinity(GroupRun("r1", bounded, 0), origin) is kept


@pytest.mark.parametrize("bounded", [False, True])
def test_what_was_planned_in_this_run_is_never_forgotten(bounded: bool) -> None:
    """`origin` None: ZooKeeper has come back empty, or is new."""
    run = GroupRun("r1", bounded, 0)
    for origin in (None, ModelOrigin("code", "r1"), ModelOrigin("code", "r2")):
        assert not forgets_affinity(run, origin, has_planned=True)
        assert forgets_affinity(run, origin, has_planned=False) is (bounded and origin != ModelOrigin("code", "r1"))


def test_a_spare_is_told_why_it_has_no_tasks() -> None:
    codes = {"a": "x", "b": "y"}
    old, new = (GroupMember(n, Registration(id_, "h", 1, codes[id_], "h", n, "1@1", "b")) for n, id_ in enumerate("ab", 1))
    assert "differ from those that the group runs" in spare_text([old, new], 2, "x")
    assert spare_text([old, new], 1, "x") == "" and spare_text([new], 2, "x") == ""
