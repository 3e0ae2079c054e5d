"""Virtual tasks of one SSP under every schedule of a small world: no record lost, twice, or late by a sibling's reading."""

from __future__ import annotations

import pytest

from commit_model import Exploration, SiblingBounds, SiblingModel, SiblingSafeguards, explore
from commit_model.sibling_model import LATE

THREE = ((0, 1), (1, 2), (0, 3))
OUT_OF_ORDER = ((1, 3), (0, 1), (1, 2), (0, 4))

ON_LOG = SiblingBounds(is_log=True, drivers=2, epochs=2, rounds_given_up=1)
ON_LOG_OUT_OF_ORDER = SiblingBounds(OUT_OF_ORDER, is_log=True, drivers=2, epochs=3, rounds_given_up=1)
TOGETHER = SiblingBounds(THREE, apart=False, attempts_per_lane=2, rounds_given_up=1)
APART = SiblingBounds(rounds_given_up=1)
APART_RETRIED = SiblingBounds(THREE, attempts_per_lane=2)
APART_TWO_DRIVERS = SiblingBounds(THREE, drivers=2, epochs=2)
ON_LOG_SET_BACK = SiblingBounds(is_log=True, epochs=2, sets_back=True)
SET_BACK = SiblingBounds(THREE, drivers=2, epochs=2, sets_back=True)

WORLDS = {
    "log, two drivers": ON_LOG,
    "log, records out of order": ON_LOG_OUT_OF_ORDER,
    "log, one task set back": ON_LOG_SET_BACK,
    "kafka, one container": TOGETHER,
    "kafka, a container each": APART,
    "kafka, a container each, retried": APART_RETRIED,
    "kafka, a container each, two drivers": APART_TWO_DRIVERS,
}

# Per safeguard: a world in which nothing else does its work, and a word of what breaks there.
INDISPENSABLE = {
    "join_at_lowest": (ON_LOG, "all have read up to"),
    "own_generation": (ON_LOG_SET_BACK, "all have read up to"),
    "never_back": (ON_LOG_OUT_OF_ORDER, "W goes back"),
    "lowest_start": (ON_LOG, "lost"),
    "skip_by_own_position": (ON_LOG, "twice"),
    "cut_per_task": (TOGETHER, "lost"),
    "lane_fencing": (APART, "twice"),
    "base_check": (TOGETHER, "twice"),
}

# Two that cover for each other where no plan changes the tasks: without one the world is safe, without both it is not.
COVERED_BY = {"epoch_check": "base_check"}


@pytest.mark.parametrize("world", WORLDS)
def test_no_schedule_breaks_an_invariant(world: str) -> None:
    assert_sound(explore(SiblingModel(WORLDS[world])), world)


@pytest.mark.search
def test_the_search_is_large_enough_to_mean_something() -> None:
    found = explore(SiblingModel(SET_BACK))
    assert_sound(found, "kafka, a container each, two drivers, one task set back")
    assert found.states > 100_000
    assert found.depth > 40


def test_every_safeguard_is_accounted_for() -> None:
    assert sorted([*INDISPENSABLE, *COVERED_BY]) == sorted(SiblingSafeguards.names())


@pytest.mark.parametrize("safeguard", INDISPENSABLE)
def test_without_one_safeguard_a_schedule_breaks_an_invariant(safeguard: str) -> None:
    world, what = INDISPENSABLE[safeguard]
    found = explore(SiblingModel(world, SiblingSafeguards().without(safeguard)))
    print(f"without {safeguard}: {found}")
    assert found.counterexample is not None, f"{safeguard} is redundant in {world}: {found}"
    assert what in found.counterexample.violation, str(found)


@pytest.mark.parametrize("world", [ON_LOG, APART_TWO_DRIVERS], ids=["log", "kafka"])
@pytest.mark.parametrize("safeguard", COVERED_BY)
def test_two_safeguards_cover_for_each_other(safeguard: str, world: SiblingBounds) -> None:
    for name in (safeguard, COVERED_BY[safeguard]):
        assert_sound(explore(SiblingModel(world, SiblingSafeguards().without(name))), f"without {name}")
    both = explore(SiblingModel(world, SiblingSafeguards().without(safeguard, COVERED_BY[safeguard])))
    assert both.counterexample is not None
    assert "twice" in both.counterexample.violation, str(both)


@pytest.mark.parametrize("world", [ON_LOG, TOGETHER, APART], ids=["log", "one container", "a container each"])
def test_with_the_highest_report_a_record_is_late_by_what_its_sibling_has_read(world: SiblingBounds) -> None:
    """What a wrong watermark does to the records: those of the sibling that is behind are dropped."""
    found = explore(SiblingModel(world, SiblingSafeguards().without("join_at_lowest"), records_only=True))
    print(found)
    assert found.counterexample is not None
    assert "was late, and no record before it is newer" in found.counterexample.violation


def test_a_task_that_is_set_back_is_late_by_the_watermark_of_the_generation_before() -> None:
    found = explore(SiblingModel(SET_BACK, SiblingSafeguards().without("own_generation"), records_only=True))
    print(found)
    assert found.counterexample is not None
    assert "record 0 of time 1 was late" in found.counterexample.violation


def test_records_can_be_late_at_all() -> None:
    """Where records are out of order a schedule makes one late; else the invariant of late records would hold of itself."""
    model = SiblingModel(ON_LOG_OUT_OF_ORDER)
    todo, known = model.initial(), set(model.initial())
    late: set[int] = set()
    while todo:
        for _, state in model.steps(todo.pop()):
            late |= {offset for offset, became in enumerate(state.became) if became == LATE}
            if state not in known:
                known.add(state)
                todo.append(state)
    assert late == {1, 2}


@pytest.mark.parametrize("world", [ON_LOG, APART_TWO_DRIVERS], ids=["log", "kafka"])
def test_labels_tell_the_steps_of_a_state_apart(world: SiblingBounds) -> None:
    model = SiblingModel(world)
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
    assert found.finishes, "no schedule processes all records"
