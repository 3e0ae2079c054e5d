"""A change of the elasticity factor under every schedule of a small world: outputs, state, requests and files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commit_model import ElasticityBounds, ElasticityModel, ElasticitySafeguards, Exploration, dead_end, explore
from commit_model.elasticity_values import Checkpoint, ElasticityState, recut

LOG_SPLIT = ElasticityBounds(records=3, is_log=True)
LOG_MERGE = ElasticityBounds((1, 1), (1,), is_log=True)
LOG_THERE_AND_BACK = ElasticityBounds((1,), (2, 1), records=3, is_log=True)
LOG_BACK_AND_THERE = ElasticityBounds((1, 1), (1, 2), records=3, is_log=True)
SPLIT = ElasticityBounds(records=2)
MERGE_APART = ElasticityBounds((1, 2), (1,), records=3)
MERGE = ElasticityBounds((1, 1), (1,), records=3, drivers=1, takeovers=0, rounds_given_up=1)
MERGE_RETRIED = ElasticityBounds((1, 1), (1,), records=3, attempts_per_lane=2)
THERE_AND_BACK = ElasticityBounds((1,), (2, 1), records=3)
BACK_AND_THERE = ElasticityBounds((1, 1), (1, 2), records=3)
MERGE_TWO_DRIVERS = ElasticityBounds((1, 1), (1,), records=3, rounds_given_up=1)

LOG_SPLIT_STATE = ElasticityBounds((2,), is_log=True, has_state=True, folds=1)
LOG_STATE = ElasticityBounds((2,), (2, 1), is_log=True, has_state=True, folds=1, keeps=1, drivers=1, takeovers=0)
LOG_MERGE_STATE = ElasticityBounds((2, 2), (1,), is_log=True, has_state=True, folds=1, keeps=1, drivers=1, takeovers=0)
SPLIT_STATE = ElasticityBounds((2,), records=3, has_state=True, folds=1, keeps=1)
STATE = ElasticityBounds((2,), (2, 1), records=3, has_state=True, folds=1, keeps=1, drivers=1, takeovers=0)
MERGE_STATE = ElasticityBounds((1, 2), (1,), has_state=True, folds=1)

WORLDS = {
    "log, split": LOG_SPLIT,
    "log, merge": LOG_MERGE,
    "log, there and back": LOG_THERE_AND_BACK,
    "log, back and there": LOG_BACK_AND_THERE,
    "kafka, split": SPLIT,
    "kafka, merge of siblings that are apart": MERGE_APART,
    "kafka, merge, a round given up": MERGE,
    "kafka, merge, retried": MERGE_RETRIED,
    "log, split of state": LOG_SPLIT_STATE,
    "log, state there and back": LOG_STATE,
    "log, merge of state": LOG_MERGE_STATE,
    "kafka, split of state": SPLIT_STATE,
    "kafka, state there and back": STATE,
}
LARGE_WORLDS = {
    "kafka, there and back": THERE_AND_BACK,
    "kafka, back and there": BACK_AND_THERE,
    "kafka, merge, two drivers, a round given up": MERGE_TWO_DRIVERS,
    "kafka, merge of state": MERGE_STATE,
}

# Per safeguard: a world in which nothing else does its work, and a word of what breaks there.
INDISPENSABLE = {
    "judged_after_fence": (MERGE, "records [2] will be processed again"),
    "one_transaction": (LOG_SPLIT, "the job model has factor 2, the checkpoints are of factor 1"),
    "ids_on_record": (LOG_THERE_AND_BACK, "the factor is 2, the newest request that was answered asked for 1"),
    "removed_after": (LOG_SPLIT, "request 1 is lost"),
    "epoch_check": (SPLIT, "will be processed again"),
    "base_check": (MERGE, "will be processed again"),
    "fence_before_read": (MERGE, "will be processed again"),
    "all_lanes_fenced": (MERGE, "will be processed again"),
    "lowest_start": (MERGE, "lost"),
    "own_skip": (MERGE, "there twice"),
    "cut_by_keys": (LOG_STATE, "has counts"),
    "live_union": (LOG_STATE, "files that a checkpoint names are missing"),
    "kept_is_live": (LOG_STATE, "files that a kept version names are missing"),
    "asked_after_listing": (LOG_SPLIT_STATE, "files that a checkpoint names are missing"),
}

# Without one of these alone nothing breaks, in the world that it is there for; why, is said in `elasticity_model`.
REDUNDANT = {
    "aligned_first": MERGE,
    "version_stamp": LOG_BACK_AND_THERE,
    "round_stamp": LOG_BACK_AND_THERE,
}

# Without these nothing breaks, and the change is never made.
FOR_PROGRESS = ("target_follows",)


@pytest.mark.parametrize("world", WORLDS)
def test_no_schedule_breaks_an_invariant(world: str) -> None:
    assert_sound(explore(ElasticityModel(WORLDS[world])), world)


@pytest.mark.search
@pytest.mark.parametrize("world", LARGE_WORLDS)
def test_no_schedule_of_a_larger_world_breaks_an_invariant(world: str) -> None:
    found = explore(ElasticityModel(LARGE_WORLDS[world]))
    assert_sound(found, world)
    assert found.states > 20_000
    assert found.depth >= 25


@pytest.mark.parametrize("world", WORLDS)
def test_from_every_state_the_change_can_still_be_made(world: str) -> None:
    found = dead_end(ElasticityModel(WORLDS[world]))
    assert found is None, str(found)


def test_closing_rounds_follow_a_sibling_that_is_past_their_target() -> None:
    """An attempt of a round that was given up commits past the target: with the target of before siblings never meet."""
    found = dead_end(ElasticityModel(MERGE, ElasticitySafeguards().without(*FOR_PROGRESS)))
    print(found)
    assert found is not None
    assert_sound(explore(ElasticityModel(MERGE, ElasticitySafeguards().without(*FOR_PROGRESS))), "without target_follows")


def test_every_safeguard_is_accounted_for() -> None:
    assert sorted([*INDISPENSABLE, *REDUNDANT, *FOR_PROGRESS]) == sorted(ElasticitySafeguards.names())


@pytest.mark.parametrize("safeguard", INDISPENSABLE)
def test_without_one_safeguard_a_schedule_breaks_an_invariant(safeguard: str) -> None:
    world, what = INDISPENSABLE[safeguard]
    found = explore(ElasticityModel(world, ElasticitySafeguards().without(safeguard)))
    print(f"without {safeguard}: {found}")
    assert found.counterexample is not None, f"{safeguard} is redundant in {world}: {found}"
    assert what in found.counterexample.violation, str(found)


@pytest.mark.parametrize("safeguard", REDUNDANT)
def test_a_redundant_safeguard_is_seen_to_be_redundant(safeguard: str) -> None:
    assert_sound(explore(ElasticityModel(REDUNDANT[safeguard], ElasticitySafeguards().without(safeguard))), safeguard)


@pytest.mark.parametrize("world", [LOG_MERGE, MERGE_APART], ids=["log", "kafka"])
def test_siblings_that_are_merged_where_they_are_process_records_again(world: ElasticityBounds) -> None:
    found = explore(ElasticityModel(world, ElasticitySafeguards().without("aligned_first", "judged_after_fence")))
    print(found)
    assert found.counterexample is not None
    assert "will be processed again" in found.counterexample.violation


def test_an_attempt_that_was_believed_dead_is_why_alignment_is_judged_again() -> None:
    """It commits between the last look of the old generation and the fence."""
    found = explore(ElasticityModel(MERGE, ElasticitySafeguards().without("judged_after_fence")))
    assert found.counterexample is not None
    labels = found.counterexample.steps
    ended = next(number for number, label in enumerate(labels) if "ends its generation" in label)
    fenced = next(number for number, label in enumerate(labels) if "takes epoch 2" in label)
    assert any("commits position" in label for label in labels[ended:fenced]), str(found)


@pytest.mark.parametrize("world", [LOG_THERE_AND_BACK, MERGE, STATE], ids=["log", "kafka", "with state"])
def test_before_the_commit_point_nothing_has_changed(world: ElasticityBounds) -> None:
    """Only the plan's transaction, with the requests that it answers, changes the job model and what is on record of them."""
    for label, before, after in transitions(ElasticityModel(world)):
        then, now = before.stored, after.stored
        if not label.startswith("[start 9]") and "on record" not in label:
            assert (then.version, then.factor, then.done) == (now.version, now.factor, now.done), label
        if label.startswith(("[start 8]", "[scale", "a user")):
            assert (then.checkpoints, then.files, then.outputs) == (now.checkpoints, now.files, now.outputs), label


def test_a_merge_waits_for_siblings_that_are_apart_and_is_made_after_closing_rounds() -> None:
    labels = {label for label, _, _ in transitions(ElasticityModel(MERGE_APART))}
    assert "[scale 1] driver 1 sees requests [1], sets target 2" in labels
    assert "[start 8] driver 1 finds siblings apart, keeps the factor, target 2" in labels
    assert any("plans closing round" in label and label.endswith("[1, 2)") for label in labels)
    assert any("factor 1, at 2" in label for label in labels)


def test_a_split_that_is_undone_before_a_commit_gives_the_same_heads() -> None:
    safeguards = ElasticitySafeguards()
    whole = Checkpoint(4, (("a", (0, 1)), ("b", (0, 1))), (1, 2))
    children = recut((whole,), 2, 2, safeguards)
    assert [child.head for child in children] == [(("a", (0,)), ("b", (0,))), (("a", (1,)), ("b", (1,)))]
    assert recut(children, 1, 3, safeguards) == (whole._replace(round_key=(3, 0)),)


@pytest.mark.parametrize("world", [LOG_STATE, MERGE, THERE_AND_BACK], ids=["log", "kafka merge", "kafka there and back"])
def test_labels_tell_the_steps_of_a_state_apart(world: ElasticityBounds) -> None:
    model = ElasticityModel(world)
    for state in states(model, 8_000):
        labels = [label for label, _ in model.steps(state)]
        assert len(set(labels)) == len(labels), labels


def transitions(model: ElasticityModel) -> Iterator[tuple[str, ElasticityState, ElasticityState]]:
    for state in states(model):
        for label, after in model.steps(state):
            yield label, state, after


def states(model: ElasticityModel, states_max: int = 1_000_000) -> Iterator[ElasticityState]:
    todo, known = model.initial(), set(model.initial())
    while todo and len(known) < states_max:
        state = todo.pop()
        yield state
        for _, after in model.steps(state):
            if after not in known:
                known.add(after)
                todo.append(after)


def assert_sound(found: Exploration, title: str) -> None:
    print(f"{title}: {found}")
    assert found.counterexample is None, str(found)
    assert found.complete
    assert found.finishes, "no schedule makes the change and processes all records"
