"""Kafka's commit under every schedule of a small world."""

from __future__ import annotations

import pytest

from commit_model import Exploration, KafkaBounds, KafkaModel, KafkaSafeguards, explore

pytestmark = pytest.mark.search
ONE_BY_ONE = KafkaBounds(drivers=1, records_per_round_max=1)
THREE_ATTEMPTS = KafkaBounds(drivers=1, attempts=3, records_per_round_max=1, answers_lost=1, expiries=1)
TWO_DRIVERS = KafkaBounds()
MOVED_LANE = KafkaBounds(moves_lane=True)
LOST_POSITIONS = KafkaBounds(expiries=1, attempts_per_round=1)
LOST_ANSWER = KafkaBounds(drivers=1, answers_lost=1)
LATE_MARKERS = KafkaBounds(delays=1, attempts_per_round=1)
LOST_HEARTBEAT = KafkaBounds(heartbeats_lost=1, attempts=1)
KEPT_PRODUCERS = KafkaBounds(drivers=1, attempts=3, attempts_per_round=1, reuses=True, records_per_round_max=1)
OPEN_INPUT = KafkaBounds(drivers=1, input_open=True)

WORLDS = {
    "rounds of one record": ONE_BY_ONE,
    "three attempts, a lost answer, expired positions": THREE_ATTEMPTS,
    "two drivers": TWO_DRIVERS,
    "two drivers, expired positions": LOST_POSITIONS,
    "two drivers, late markers": LATE_MARKERS,
    "two drivers, a lost heartbeat": LOST_HEARTBEAT,
    "producers kept by two processes": KEPT_PRODUCERS,
    "an open transaction on the input": OPEN_INPUT,
}

# Per safeguard: the smallest world in which nothing else does its work, and a word of what breaks there.
INDISPENSABLE = {
    "init_before_check": (ONE_BY_ONE, "twice"),
    "epoch_check": (TWO_DRIVERS, "the outputs are not those"),
    "base_check": (ONE_BY_ONE, "twice"),
    "fenced_never_inits": (ONE_BY_ONE, "twice"),
    "committed_checkpoints": (TWO_DRIVERS, "lost"),
    "end_at_stable_offset": (OPEN_INPUT, "records [1] are lost"),
    "one_transaction": (ONE_BY_ONE, "the outputs are not those"),
    "compare_and_set": (ONE_BY_ONE, "the store at"),
    "epoch_before_fence": (TWO_DRIVERS, "the outputs are not those"),
    "fence_before_read": (TWO_DRIVERS, "the outputs are not those"),
    "lanes_recorded": (MOVED_LANE, "the outputs are not those"),
    "seed_by_lane": (ONE_BY_ONE, "the group's position"),
    "look_before_seed": (MOVED_LANE, "the group's position"),
    "ask_after_retaking": (LOST_HEARTBEAT, "driver 1 of epoch 1 writes in epoch 2"),
}

# Without one of these alone nothing breaks, in the world that it is there for; why, is said in `kafka_model`.
REDUNDANT = {
    "version_stamp": MOVED_LANE,
    "done_answers": LOST_ANSWER,
    "fence_to_recover": ONE_BY_ONE,
    "reuse_by_last_committer": KEPT_PRODUCERS,
    "stable_positions": LATE_MARKERS,
    "read_back_epoch": LATE_MARKERS,
    "ask_before_retaking": LOST_HEARTBEAT,
}


@pytest.mark.parametrize("world", WORLDS)
def test_no_schedule_breaks_an_invariant(world: str) -> None:
    assert_sound(explore(KafkaModel(WORLDS[world])), world)


def test_the_search_is_large_enough_to_mean_something() -> None:
    found = explore(KafkaModel(MOVED_LANE))
    assert_sound(found, "two drivers, the task moves to another lane")
    assert found.states > 50_000
    assert found.depth > 30


def test_every_safeguard_is_accounted_for() -> None:
    assert sorted([*INDISPENSABLE, *REDUNDANT]) == sorted(KafkaSafeguards.names())


@pytest.mark.parametrize("safeguard", INDISPENSABLE)
def test_without_one_safeguard_a_schedule_breaks_an_invariant(safeguard: str) -> None:
    world, what = INDISPENSABLE[safeguard]
    found = explore(KafkaModel(world, KafkaSafeguards().without(safeguard)))
    print(f"without {safeguard}: {found}")
    assert found.counterexample is not None, f"{safeguard} is redundant in {world}: {found}"
    assert what in found.counterexample.violation, str(found)


@pytest.mark.parametrize("safeguard", REDUNDANT)
def test_a_redundant_safeguard_is_seen_to_be_redundant(safeguard: str) -> None:
    assert_sound(explore(KafkaModel(REDUNDANT[safeguard], KafkaSafeguards().without(safeguard))), f"without {safeguard}")


def test_waiting_for_positions_and_reading_the_epoch_back_cover_for_each_other() -> None:
    found = explore(KafkaModel(LATE_MARKERS, KafkaSafeguards().without("stable_positions", "read_back_epoch")))
    print(found)
    assert found.counterexample is not None
    assert "the outputs are not those" in found.counterexample.violation


def test_where_the_epoch_goes_back_the_version_keeps_the_outputs_right() -> None:
    world = KafkaBounds(heartbeats_lost=1, moves_lane=True, attempts_per_round=1)
    alone = KafkaSafeguards().without("ask_after_retaking")
    both = explore(KafkaModel(world, alone.without("version_stamp"), outputs_only=True))
    print(both)
    assert both.counterexample is not None
    assert "twice" in both.counterexample.violation
    stamped = KafkaModel(world, alone)
    (state,) = stamped.initial()
    for label in both.counterexample.steps:
        steps = dict(stamped.steps(state))
        if label not in steps:
            break
        state = steps[label]
    assert "attempt 1 of round 1:1 finds its base" in label
    assert "[kafka 2] attempt 1 of round 1:1 finds 0 of round 0:0, not its base, and fails" in steps


def test_a_position_seeded_over_a_late_commit_duplicates_records() -> None:
    """A fence does not reach an attempt that has not inited yet: it may commit while a driver of its epoch recovers."""
    world, safeguards = KafkaBounds(drivers=1), KafkaSafeguards().without("seed_by_lane")
    found = explore(KafkaModel(world, safeguards, outputs_only=True))
    print(found)
    assert found.counterexample is not None
    assert "records [0, 1] are there twice" in found.counterexample.violation
    seeded = next(n for n, label in enumerate(found.counterexample.steps) if "seeds the group with position 0" in label)
    assert any("commits position 2" in label for label in found.counterexample.steps[:seeded])


def test_a_counterexample_reads_as_a_numbered_schedule_and_can_be_replayed() -> None:
    model = KafkaModel(ONE_BY_ONE, KafkaSafeguards().without("init_before_check"))
    counterexample = explore(model).counterexample
    assert counterexample is not None
    (state,) = model.initial()
    for label in counterexample.steps:
        assert model.broken(state) is None, "a shortest schedule breaks nothing before its end"
        state = dict(model.steps(state))[label]
    assert model.broken(state) == counterexample.violation
    lines = str(counterexample).splitlines()
    assert lines[0] == "  1. [start 2] driver 1 inits the coordinator's id"
    assert lines[-1] == f"  => {counterexample.violation}"


def test_the_labels_name_the_steps_of_the_protocol_and_tell_steps_apart() -> None:
    model = KafkaModel(THREE_ATTEMPTS)
    tags: set[str] = set()
    todo, known = model.initial(), set(model.initial())
    while todo:
        steps = list(model.steps(todo.pop()))
        assert len({label for label, _ in steps}) == len(steps), [label for label, _ in steps]
        for label, state in steps:
            if label.startswith("["):
                tags.add(label[1 : label.index("]")])
            if state not in known:
                known.add(state)
                todo.append(state)
    container = {"kafka 1", "kafka 2", "kafka 3-7", "kafka 8", "kafka 8, 9", "kafka 10, 11"}
    assert tags == container | {"start 2", "start 3", "start 4", "start 5", "start 6", "start 9, 10", "start 12"}


def test_a_retried_task_of_a_round_that_has_committed_ends_that_round() -> None:
    model = KafkaModel(KafkaBounds(drivers=1, answers_lost=1))
    (state,) = model.initial()
    for label in (
        "[start 2] driver 1 inits the coordinator's id",
        "[start 3] driver 1 writes epoch 1",
        "[start 4] driver 1 reads epoch 1 back",
        "[start 5] driver 1 fences lanes: none",
        "[start 6] driver 1 reads position 0 of round 0:0",
        "[start 9, 10] driver 1 commits job model 1, its task on lane 0 at position 0",
        "[start 12] driver 1 plans round 1:1, [0, 2), starts attempt 1",
        "[kafka 1] attempt 1 of round 1:1 inits lane 0",
        "[kafka 2] attempt 1 of round 1:1 finds epoch 1",
        "[kafka 2] attempt 1 of round 1:1 finds its base, 0 of round 0:0",
        "[kafka 3-7] attempt 1 of round 1:1 processes [0, 2), writes s1, sends all of it",
        "[kafka 8] attempt 1 of round 1:1 commits position 2 and does not learn that it did",
        "Spark starts attempt 2 of driver 1's round",
        "[kafka 1] attempt 2 of round 1:1 inits lane 0",
        "[kafka 2] attempt 2 of round 1:1 finds epoch 1",
        "[kafka 2] attempt 2 of round 1:1 finds that its round has committed",
    ):
        state = dict(model.steps(state))[label]
    assert (state.drivers[0].at, state.drivers[0].base) == ("ready", state.broker.topic)
    assert state.broker.outputs == ((0, (1, 0)), (1, (1, 1)))


def assert_sound(found: Exploration, title: str) -> None:
    print(f"{title}: {found}")
    assert found.counterexample is None, str(found)
    assert found.complete
    assert found.finishes, "no schedule works all records off"
