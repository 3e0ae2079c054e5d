"""The pauses that a leader requests, as others see and report them: numbers, what comes of them, and when there is another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.core.elasticity.recut import Recut
from headrace.core.group.pauses import CUT_AGAIN_S, CUT_EVERY_S, PAUSE_S_MAX, REST_S, PauseOf
from headrace.core.group.state import PauseRequest, Registration
from headrace.driver.group.group_pauses import GroupPauses
from headrace.errors import UnavailableError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from headrace.model.change import ChangeKind, ChangeRequest
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import KeyBucket, PartitionGroup, TaskName
from support.zookeepers import MemoryPlace

NOW_S = 1000.0


class Pair:
    """`a`, which leads, and `b`: it reports that it rests when the test says so."""

    def __init__(self) -> None:
        self.place = place = MemoryPlace()
        self.tree = place.tree()
        trees = self.tree, place.tree()
        self.a, self.b = (ProcessorGroup(tree, "/headrace", GroupName("delays"), place.clock) for tree in trees)
        for id_, group in (("a", self.a), ("b", self.b)):
            group.register(Registration(id_, "host", 1, "code", "host", 1, "1@1", "boot"))
        self.cuts: list[str] = []

    def leads(self, group: ProcessorGroup) -> GroupPauses:
        assert group.sequence is not None
        return GroupPauses(group, group.leading(group.sequence), group.sequence, dict)

    def cut(self, pauses: GroupPauses, by: ProcessorGroup, title: str, now_s: float = NOW_S) -> int:
        """Request one in which `b` is to rest; its number."""
        assert self.b.sequence is not None
        pauses.cut(by.state(), PauseOf(frozenset({title}), frozenset({self.b.sequence})), self._taker(title), now_s)
        found = by.state().pause
        assert found is not None
        return found.number

    def _taker(self, title: str) -> Callable[[], None]:
        return lambda: self.cuts.append(title)


def test_a_cut_is_taken_once_all_rest_and_then_they_continue() -> None:
    pair = Pair()
    pauses = pair.leads(pair.a)
    number = pair.cut(pauses, pair.a, "source")
    pauses.look(pair.a.state(), NOW_S)
    assert not pair.cuts
    assert pair.b.rest(number)
    pauses.look(pair.a.state(), NOW_S)
    assert pair.cuts == ["source"] and pair.a.state().pause is None and not pauses.is_active


def test_who_has_rested_for_another_pause_and_has_not_seen_its_end_does_not_rest_for_this_one() -> None:
    """It sees the newest request alone: were the number the same, what it has reported would stand for sub-topologies that
    run."""
    pair = Pair()
    pauses = pair.leads(pair.a)
    assert pair.b.rest(pair.cut(pauses, pair.a, "source"))
    pauses.end()
    pair.cut(pauses, pair.a, "by-digit")
    pauses.look(pair.a.state(), NOW_S)
    assert not pair.cuts and pauses.is_active


def test_the_next_leader_uses_no_number_that_is_reported() -> None:
    pair = Pair()
    pauses = pair.leads(pair.a)
    assert pair.b.rest(pair.cut(pauses, pair.a, "source"))
    pauses.end()
    pair.a.leave()
    pauses = pair.leads(pair.b)
    pair.cut(pauses, pair.b, "by-digit")
    pauses.look(pair.b.state(), NOW_S)
    assert not pair.cuts and pauses.is_active


def test_a_request_of_the_leader_before_has_another_number_than_the_next() -> None:
    pair = Pair()
    before = pair.cut(pair.leads(pair.a), pair.a, "source")
    pair.a.leave()
    assert pair.cut(pair.leads(pair.b), pair.b, "source") > before


def test_a_sub_topology_is_in_its_pause_only_while_what_that_is_for_is_done() -> None:
    """Who asks before may have read what was committed before all rested."""
    pair, found = Pair(), list[object]()
    pauses = pair.leads(pair.a)
    assert pair.b.sequence is not None
    of = PauseOf(frozenset({"source"}), frozenset({pair.b.sequence}))
    pauses.cut(pair.a.state(), of, lambda: found.extend(map(pauses.pause_of, (None, "by-digit"))), NOW_S)
    asked = pair.a.state().pause
    assert asked is not None and pair.b.rest(asked.number)
    assert pauses.pause_of(None) is None
    pauses.look(pair.a.state(), NOW_S)
    assert found == [asked.number, None] and pauses.pause_of(None) is None


def test_one_that_continues_while_a_cut_is_taken_ends_the_pause() -> None:
    pair, found = Pair(), list[object]()
    pauses = pair.leads(pair.a)
    assert pair.b.sequence is not None

    def take() -> None:
        found.append(pauses.pause_of(None))
        pair.b.rest(None)
        found.append(pauses.pause_of(None))

    pauses.cut(pair.a.state(), PauseOf(frozenset({"source"}), frozenset({pair.b.sequence})), take, NOW_S)
    asked = pair.a.state().pause
    assert asked is not None and pair.b.rest(asked.number)
    pauses.look(pair.a.state(), NOW_S)
    assert found == [asked.number, None]


# --- how often ------------------------------------------------------------------------------------------------------


def test_cuts_have_some_time_between_them() -> None:
    pair = Pair()
    pauses = pair.leads(pair.a)
    assert pauses.may_cut(NOW_S)
    assert pair.b.rest(pair.cut(pauses, pair.a, "source"))
    pauses.look(pair.a.state(), NOW_S + 1)
    assert not pauses.may_cut(NOW_S + CUT_EVERY_S - 0.1) and pauses.may_cut(NOW_S + CUT_EVERY_S)


def test_rounds_begin_before_the_first_cut_of_a_plan() -> None:
    pauses = Pair().leads(Pair().a)
    pauses.planned(NOW_S)
    assert not pauses.may_cut(NOW_S + CUT_EVERY_S - 0.1) and pauses.may_cut(NOW_S + CUT_EVERY_S)


def test_others_do_not_rest_again_at_once_for_one_that_does_not() -> None:
    """Else they would rest nearly all the time, for as long as that one cannot come to rest: where Kafka does not answer it,
    say. And a startpoint that waits for the version would wait for ever."""
    pair = Pair()
    pauses = pair.leads(pair.a)
    pair.cut(pauses, pair.a, "source")
    pauses.look(pair.a.state(), late_s := NOW_S + REST_S)
    assert not pauses.is_active and pair.a.state().pause is None and not pair.cuts
    assert not pauses.may_cut(late_s) and not pauses.may_cut(late_s + CUT_AGAIN_S - 0.1)
    assert pauses.may_cut(late_s + CUT_AGAIN_S)


def test_where_one_was_lost_the_next_cut_does_not_wait_longer() -> None:
    pair = Pair()
    pauses = pair.leads(pair.a)
    pair.cut(pauses, pair.a, "source")
    pair.b.leave()
    pauses.look(pair.a.state(), NOW_S + 1)
    assert not pauses.is_active and not pair.cuts
    assert pauses.may_cut(NOW_S + CUT_EVERY_S)


# --- its end ---------------------------------------------------------------------------------------------------------


def test_a_request_whose_end_could_not_be_written_is_withdrawn_later() -> None:
    """Else all would rest for as long as a processor rests for one request."""
    pair = Pair()
    pauses = pair.leads(pair.a)
    assert pair.b.rest(pair.cut(pauses, pair.a, "source"))
    state = pair.a.state()
    pair.place.cut(pair.tree)
    with pytest.raises(UnavailableError):
        pauses.look(state, NOW_S)
    pair.place.heal(pair.tree)
    assert not pauses.is_active and pair.b.state().pause is not None
    pauses.withdraw_left_over(pair.a.state())
    assert pair.b.state().pause is None


def test_a_leader_withdraws_what_the_one_before_has_requested_and_nothing_of_its_own() -> None:
    pair = Pair()
    pair.cut(pair.leads(pair.a), pair.a, "source")
    pair.a.leave()
    pauses = pair.leads(pair.b)
    pauses.withdraw_left_over(pair.b.state())
    assert pair.b.state().pause is None
    number = pair.cut(pauses, pair.b, "by-digit")
    pauses.withdraw_left_over(pair.b.state())
    found = pair.b.state().pause
    assert found is not None and found.number == number


# --- what does not succeed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_lost", [False, True])
def test_where_tasks_do_not_come_together_what_was_requested_is_decided_all_the_same(is_lost: bool) -> None:
    """The plan says then what waits, and the rest of it is done."""
    pair = Pair()
    pauses, of = pair.leads(pair.a), PauseOf(frozenset({"source"}), frozenset({pair.b.sequence or 0}))
    merging, scales = {"source": cast(Recut, None)}, (ChangeRequest(ChangeKind.SCALE, "1"),)
    pauses.bring_together(pair.a.state(), of, merging, scales, NOW_S)
    assert pauses.is_merging
    if is_lost:
        pair.b.leave()
    assert pauses.look(pair.a.state(), NOW_S + (1 if is_lost else REST_S)) == scales
    assert not pauses.is_active and pair.a.state().pause is None


def test_tasks_that_stay_apart_though_all_say_that_they_rest_are_not_waited_for_without_end() -> None:
    """All would rest meanwhile. Each request has its own wait; together they last no longer than a pause."""
    pair, words = Pair(), SSP("kafka", "words", 0)
    assert pair.a.sequence is not None and pair.b.sequence is not None
    both = TaskName(PartitionGroup(0))
    one, other = (replace(both, bucket=KeyBucket(index, 2)) for index in (0, 1))
    apart = {task: Checkpoint(task, RoundId(1, None, 1), 1, {words: at}) for at, task in enumerate((one, other))}
    pauses = GroupPauses(pair.a, pair.a.leading(pair.a.sequence), pair.a.sequence, lambda: apart)
    scales, of = (ChangeRequest(ChangeKind.SCALE, "1"),), PauseOf(frozenset({"source"}), frozenset({pair.b.sequence}))
    pauses.bring_together(pair.a.state(), of, {"source": Recut(None, 1, {both: (one, other)})}, scales, NOW_S)
    due: tuple[ChangeRequest, ...] = ()
    for second in range(60):
        if (asked := pair.a.state().pause) is None:
            break
        assert pair.b.rest(asked.number)
        due = pauses.look(pair.a.state(), NOW_S + second)
    assert second == PAUSE_S_MAX + 1 and due == scales and not pauses.is_active


def test_sub_topologies_that_read_one_partition_are_brought_together_where_the_last_task_of_both_is() -> None:
    """A global table is read by each that joins it, and in each they are elsewhere."""
    pair, table = Pair(), SSP("kafka", "table", 0)
    assert pair.a.sequence is not None and pair.b.sequence is not None
    checkpoints, merging = dict[TaskName, Checkpoint](), dict[str, Recut]()
    for sub, places in (("x", (60, 80)), ("y", (40, 50))):
        whole = TaskName(PartitionGroup(0), sub)
        parts = tuple(replace(whole, bucket=KeyBucket(index, 2)) for index in (0, 1))
        pairs = zip(parts, places, strict=True)
        checkpoints |= {task: Checkpoint(task, RoundId(1, sub, 1), 1, {table: at}) for task, at in pairs}
        merging[sub] = Recut(sub, 1, {whole: parts})
    pauses = GroupPauses(pair.a, pair.a.leading(pair.a.sequence), pair.a.sequence, lambda: checkpoints)
    of = PauseOf(frozenset({"x", "y"}), frozenset({pair.b.sequence}))
    pauses.bring_together(pair.a.state(), of, merging, (ChangeRequest(ChangeKind.SCALE, "1"),), NOW_S)
    for second in range(2):
        asked = pair.a.state().pause
        assert asked is not None
        if not second:
            assert pair.b.rest(asked.number)
            pauses.look(pair.a.state(), NOW_S + 1)
    assert asked.positions == {str(table): 80}


def test_a_request_is_of_the_leader_that_made_it() -> None:
    pair = Pair()
    pair.cut(pair.leads(pair.a), pair.a, "source")
    found: Any = pair.b.state().pause
    assert isinstance(found, PauseRequest) and found.leader == pair.a.sequence and found.sub_topologies == ("source",)


def test_a_cut_for_which_one_did_not_rest_is_taken_again_after_a_minute_whatever_is_planned() -> None:
    pair = Pair()
    pauses = pair.leads(pair.a)
    pair.cut(pauses, pair.a, "source")
    pauses.look(pair.a.state(), late_s := NOW_S + REST_S)
    pauses.planned(late_s)  # one that was restarted gets its grant
    assert not pauses.may_cut(late_s + CUT_AGAIN_S - 1.0)
    assert pauses.may_cut(late_s + CUT_AGAIN_S)
