"""The embedded log's commit under every schedule of a small world."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commit_model import Bounds, Exploration, LogModel, Safeguards, explore

TWO_DRIVERS = Bounds(collects=True)
THREE_ATTEMPTS = Bounds(attempts=3)
NEW_JOB_MODEL = Bounds(new_job_model=True, collects=True)
LOST_ANSWER = Bounds(drivers=1, epochs=1, answers_lost=1)
FORMER_LIFE = Bounds(drivers=1, epochs=1, former_store=True, committed_before=1)
LOST_FILE = Bounds(drivers=1, epochs=1, file_losses=1, collects=True)
BEHIND = Bounds(records=3, committed_before=2, store_losses=1)
CHAIN = Bounds(records=3, records_per_round_max=1, committed_before=1, drivers=1, epochs=1, attempts=3)

WORLDS = {
    "two drivers": TWO_DRIVERS,
    "three attempts": THREE_ATTEMPTS,
    "new job model": NEW_JOB_MODEL,
    "lost answer": LOST_ANSWER,
    "store of a former life": FORMER_LIFE,
    "lost file": LOST_FILE,
    "store behind": BEHIND,
    "chain of rounds": CHAIN,
}

# Per safeguard: the smallest world in which nothing else does its work, and a word of what breaks there.
INDISPENSABLE = {
    "epoch_check": (NEW_JOB_MODEL, "output log"),
    "base_check": (LOST_ANSWER, "twice"),
    "compare_and_set": (BEHIND, "the store at head"),
    "unique_names": (TWO_DRIVERS, "the state at position"),
    "head_identity": (FORMER_LIFE, "output log"),
    "stat_files": (LOST_FILE, "missing"),
    "collect_finished_only": (TWO_DRIVERS, "in flight"),
    "collect_unreferenced_only": (TWO_DRIVERS, "missing"),
    "read_after_acquire": (NEW_JOB_MODEL, "output log"),
    "apply_committed_only": (TWO_DRIVERS, "no checkpoint builds on"),
    "head_check_at_read": (CHAIN, "output log"),
    "one_snapshot": (CHAIN, "output log"),
    "one_summary": (TWO_DRIVERS, "twice"),
    "one_transaction": (TWO_DRIVERS, "output log"),
}

# Two safeguards that cover for each other where there is no new job model and no answer is lost: without one the world
# is still safe, without both it is not.
COVERED_BY = [("epoch_check", "base_check"), ("read_after_acquire", "base_check")]


@pytest.mark.parametrize("world", WORLDS)
def test_no_schedule_breaks_an_invariant(world: str) -> None:
    found = explore(LogModel(WORLDS[world]))
    print(f"{world}: {found}")
    assert found.counterexample is None, str(found)
    assert found.complete
    assert found.finishes, "no schedule works all records off"


def test_the_search_is_large_enough_to_mean_something() -> None:
    found = explore(LogModel(Bounds(attempts=3, new_job_model=True)))
    print(found)
    assert found.counterexample is None, str(found)
    assert found.complete
    assert found.finishes
    assert found.states > 50_000
    assert found.depth > 25


def test_every_safeguard_is_shown_indispensable_somewhere() -> None:
    assert sorted(INDISPENSABLE) == sorted(Safeguards.names())


@pytest.mark.parametrize("safeguard", Safeguards.names())
def test_without_one_safeguard_a_schedule_breaks_an_invariant(safeguard: str) -> None:
    world, what = INDISPENSABLE[safeguard]
    found = explore(LogModel(world, Safeguards().without(safeguard)))
    print(f"without {safeguard}: {found}")
    assert found.counterexample is not None, f"{safeguard} is redundant in {world}: {found}"
    assert what in found.counterexample.violation, str(found)


@pytest.mark.parametrize("pair", COVERED_BY, ids="-".join)
def test_two_safeguards_cover_for_each_other_in_the_simple_world(pair: tuple[str, str]) -> None:
    for name in pair:
        alone = explore(LogModel(TWO_DRIVERS, Safeguards().without(name)))
        assert alone.counterexample is None, f"without {name}: {alone}"
        assert alone.complete
    both = explore(LogModel(TWO_DRIVERS, Safeguards().without(*pair)))
    assert both.counterexample is not None
    assert "twice" in both.counterexample.violation, str(both)


def test_a_counterexample_reads_as_a_numbered_schedule_and_can_be_replayed() -> None:
    model = LogModel(FORMER_LIFE, Safeguards().without("head_identity"))
    counterexample = explore(model).counterexample
    assert counterexample is not None
    (state,) = model.initial()
    for label in counterexample.steps:
        assert model.broken(state) is None, "a shortest schedule breaks nothing before its end"
        state = dict(model.steps(state))[label]
    assert model.broken(state) == counterexample.violation
    lines = str(counterexample).splitlines()
    assert lines[0] == "  1. [start 3] driver 1 acquires epoch 1"
    assert lines[3] == "  4. [log 3] attempt 1 of round 1:1 opens the store: head former, is at its base"
    assert lines[-1] == f"  => {counterexample.violation}"


def test_the_labels_name_every_log_step_but_the_last() -> None:
    model = LogModel(Bounds(drivers=1, epochs=1, committed_before=1))
    seen: set[str] = set()
    todo, known = model.initial(), set(model.initial())
    while todo:
        for label, state in model.steps(todo.pop()):
            tag = label[label.find("[") + 1 : label.find("]")] if label.startswith("[log") else ""
            seen.update(tag.removeprefix("log ").split(", ") if tag else [])
            if state not in known:
                known.add(state)
                todo.append(state)
    assert sorted(seen, key=int) == [str(step) for step in range(1, 13)]


def test_labels_tell_the_steps_of_a_state_apart() -> None:
    model = LogModel(NEW_JOB_MODEL)
    todo, known = model.initial(), set(model.initial())
    while todo and len(known) < 3_000:
        steps = list(model.steps(todo.pop()))
        assert len({label for label, _ in steps}) == len(steps), [label for label, _ in steps]
        for _, state in steps:
            if state not in known:
                known.add(state)
                todo.append(state)


class Walk:
    """Two walkers on 0..3 that each step by one; `broken` where both stand on `bad`."""

    def __init__(self, bad: int | None) -> None:
        self.bad = bad

    def initial(self) -> list[tuple[int, int]]:
        return [(0, 0)]

    def steps(self, state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        left, right = state
        if left < 3:
            yield "left", (left + 1, right)
        if right < 3:
            yield "right", (left, right + 1)

    def broken(self, state: tuple[int, int]) -> str | None:
        return f"both on {self.bad}" if state == (self.bad, self.bad) else None

    def finished(self, state: tuple[int, int]) -> bool:
        return state == (3, 3)


def test_explore_sees_each_state_once() -> None:
    assert explore(Walk(None)) == Exploration(16, 24, 6, True, True, None)


def test_explore_finds_a_shortest_schedule() -> None:
    found = explore(Walk(2))
    assert found.counterexample is not None
    assert sorted(found.counterexample.steps) == ["left", "left", "right", "right"]
    assert not found.complete


def test_explore_says_when_it_has_not_seen_all() -> None:
    found = explore(Walk(None), states_max=5)
    assert not found.complete
    assert found.counterexample is None
    assert str(found).endswith("no violation, but not all was seen")
