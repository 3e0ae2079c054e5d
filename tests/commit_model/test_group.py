"""The grants of a group under every schedule of a small world: what is moved while others work is committed once."""

from __future__ import annotations

import pytest

from commit_model import Exploration, GroupBounds, GroupModel, GroupSafeguards, explore

SAME_LANE = GroupBounds()
OTHER_LANE = GroupBounds(lane_to=2)
RESTART = GroupBounds(restarts=True)
LATE_MARKERS = GroupBounds(delays=1)
TWO_LEADERS = GroupBounds(leaders=2)
THREE_ATTEMPTS = GroupBounds(attempts=3)
GAINS = GroupBounds(gains=True)
NO_ANSWER = GroupBounds(unanswered=1)

WORLDS = {
    "a task moves, its lane too": SAME_LANE,
    "a task moves to another lane": OTHER_LANE,
    "a processor is restarted": RESTART,
    "late markers": LATE_MARKERS,
    "two leaders": TWO_LEADERS,
    "three attempts": THREE_ATTEMPTS,
    "no answer": NO_ANSWER,
    "a processor is restarted, no answer": GroupBounds(restarts=True, unanswered=1),
    "a processor gains a task, no answer": GroupBounds(gains=True, unanswered=1),
    "a processor gains a task": GAINS,
    "a processor gains a task, three attempts": GroupBounds(gains=True, attempts=3),
}

LARGE_WORLDS = {
    "two leaders, another lane": GroupBounds(leaders=2, lane_to=2),
    "two leaders, two without an answer": GroupBounds(leaders=2, unanswered=2),
    "two leaders, a processor is restarted": GroupBounds(leaders=2, restarts=True),
    "three attempts, late markers": GroupBounds(attempts=3, delays=1),
    "a processor gains a task, two leaders": GroupBounds(gains=True, leaders=2),
    "a processor gains a task, late markers": GroupBounds(gains=True, attempts=3, delays=1),
}

# Per safeguard: the smallest world in which nothing else does its work, the steps of the shortest schedule that breaks an
# invariant there, and a word of what breaks.
INDISPENSABLE = {
    "take_back_first": (SAME_LANE, 9, "task A: a record is to be processed again"),
    "fence": (SAME_LANE, 9, "task A: a record is to be processed again"),
    "fence_before_read": (SAME_LANE, 10, "task A: a record is to be processed again"),
    "changed_only": (SAME_LANE, 10, "task B: a record is to be processed again"),
    "grant_check": (SAME_LANE, 10, "task A: a record is to be processed again"),
    "init_before_check": (SAME_LANE, 10, "task A: a record is to be processed again"),
    "base_check": (SAME_LANE, 11, "task A: a record is twice"),
    "stable_reads": (LATE_MARKERS, 13, "task A: a record is twice"),
    "leader_fenced": (TWO_LEADERS, 7, "grants [10] are in force"),
    "list_after_take": (TWO_LEADERS, 8, "grants [10] are in force"),
    "former_kept": (GAINS, 5, "processor 1 keeps its containers, and its grant 11 is not in force"),
    "fresh_grant": (SAME_LANE, 7, "rounds of two processors have one id"),
    "written_once": (NO_ANSWER, 12, "task A: a record is to be processed again"),
    "list_read_again": (NO_ANSWER, 12, "task A: a record is to be processed again"),
    "list_with_epoch": (SAME_LANE, 1, "processor 1 keeps its containers, and its grant 11 is not in force"),
}

# Without one of these alone nothing breaks, in the world that it is there for; why, is said in `group_model`.
REDUNDANT = {
    "read_back": LATE_MARKERS,
    "new_grant_with_plan": SAME_LANE,
    "start_after_plan": SAME_LANE,
    "stamp": SAME_LANE,
    "fence_to_begin": GAINS,
}

# Two that cover for each other: without both a schedule breaks an invariant.
COVERED_BY = {
    "read_back": ("stable_reads", LATE_MARKERS),
    "new_grant_with_plan": ("start_after_plan", SAME_LANE),
    "fence_to_begin": ("base_check", GAINS),
}


@pytest.mark.parametrize("world", WORLDS)
def test_no_schedule_breaks_an_invariant(world: str) -> None:
    assert_sound(explore(GroupModel(WORLDS[world])), world)


@pytest.mark.search
@pytest.mark.parametrize("world", LARGE_WORLDS)
def test_no_schedule_of_a_large_world_breaks_an_invariant(world: str) -> None:
    found = explore(GroupModel(LARGE_WORLDS[world]))
    assert_sound(found, world)
    assert found.states > 10_000
    assert found.depth > 15


def test_every_safeguard_is_accounted_for() -> None:
    assert sorted([*INDISPENSABLE, *REDUNDANT]) == sorted(GroupSafeguards.names())


@pytest.mark.parametrize("safeguard", INDISPENSABLE)
def test_without_one_safeguard_a_schedule_breaks_an_invariant(safeguard: str) -> None:
    world, steps, what = INDISPENSABLE[safeguard]
    found = explore(GroupModel(world, GroupSafeguards().without(safeguard)))
    print(f"without {safeguard}: {found}")
    assert found.counterexample is not None, f"{safeguard} is redundant in {world}: {found}"
    assert what in found.counterexample.violation, str(found)
    assert len(found.counterexample.steps) == steps


@pytest.mark.parametrize("safeguard", REDUNDANT)
def test_a_redundant_safeguard_is_seen_to_be_redundant(safeguard: str) -> None:
    assert_sound(explore(GroupModel(REDUNDANT[safeguard], GroupSafeguards().without(safeguard))), f"without {safeguard}")


@pytest.mark.parametrize("safeguard", COVERED_BY)
def test_two_safeguards_cover_for_each_other(safeguard: str) -> None:
    other, world = COVERED_BY[safeguard]
    found = explore(GroupModel(world, GroupSafeguards().without(safeguard, other)))
    print(f"without {safeguard} and {other}: {found}")
    assert found.counterexample is not None
    assert ": a record is" in found.counterexample.violation


def test_where_a_grant_comes_back_the_stamp_refuses_what_was_planned_before_the_plan() -> None:
    """A leader that has read the grants before it was the coordinator puts one in force again that was taken back."""
    alone = GroupSafeguards().without("list_after_take")
    both = explore(GroupModel(TWO_LEADERS, alone.without("stamp"), outputs_only=True))
    print(both)
    assert both.counterexample is not None
    assert "to be processed again" in both.counterexample.violation
    stamped = GroupModel(TWO_LEADERS, alone)
    (state,) = stamped.initial()
    for label in both.counterexample.steps:
        steps = dict(stamped.steps(state))
        if label not in steps:
            break
        state = steps[label]
    assert label == "[kafka 2] an attempt of round 10:1 of processor 0, onto 0 finds its base"
    assert "[kafka 2] an attempt of round 10:1 of processor 0, onto 0 finds another base and stops" in steps


def test_the_processor_that_keeps_its_containers_can_commit_at_every_moment_of_a_rebalance() -> None:
    """From each state where it has planned nothing yet, task B's round commits without a step of anybody else."""
    model = GroupModel(SAME_LANE)
    (first,) = model.initial()
    todo, known, grants = [first], {first}, set()
    while todo:
        state = todo.pop()
        if state.processors[1] == first.processors[1] and state.attempts_left:
            grants.add(state.grants)
            alone = state
            for tag in ("[start 12] processor 1 plans", *["of processor 1, onto 0"] * 4):
                (alone,) = [after for label, after in model.steps(alone) if tag in label]
            assert alone.checkpoints[1].position == 1
        for _, after in model.steps(state):
            if after not in known:
                known.add(after)
                todo.append(after)
    assert grants == {frozenset({10, 11}), frozenset({11}), frozenset({11, 12})}


def test_a_counterexample_can_be_replayed_and_names_the_steps_of_the_protocol() -> None:
    model = GroupModel(SAME_LANE, GroupSafeguards().without("take_back_first"))
    counterexample = explore(model).counterexample
    assert counterexample is not None
    (state,) = model.initial()
    for label in counterexample.steps:
        assert model.broken(state) is None, "a shortest schedule breaks nothing before its end"
        state = dict(model.steps(state))[label]
    assert model.broken(state) == counterexample.violation
    tags = {label[1 : label.index("]")] for label in counterexample.steps if label.startswith("[")}
    assert {"start 2-4", "start 5", "start 6", "start 9", "start 12", "kafka 1", "kafka 2", "kafka 8, 9"} == tags


@pytest.mark.parametrize("world", [LATE_MARKERS, THREE_ATTEMPTS], ids=["late markers", "three attempts"])
def test_labels_tell_the_steps_of_a_state_apart(world: GroupBounds) -> None:
    model = GroupModel(world)
    todo, known = model.initial(), set(model.initial())
    while todo and len(known) < 10_000:
        steps = list(model.steps(todo.pop()))
        assert len({label for label, _ in steps}) == len(steps), [label for label, _ in steps]
        for _, state in steps:
            if state not in known:
                known.add(state)
                todo.append(state)


def assert_sound(found: Exploration, title: str) -> None:
    print(f"{title}: {found}")
    assert found.counterexample is None, str(found)
    assert found.complete
    assert found.finishes, "no schedule processes all records under the new plan"
