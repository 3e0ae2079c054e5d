"""Lives of groups and of clusters, by seeds: what holds after each quiet phase, and once all are back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import headrace
from affinity import simulation
from affinity.judge import (
    at_home,
    best,
    by_unit,
    has_every_task_once,
    is_balanced,
    is_level_by_units,
    least_moves,
    most_in_their_slots,
    most_in_their_units,
    stayed,
)
from affinity.simulation import AS_BEFORE, BACK_IN_TIME, Executors, Group, Phase, executors_of, group_of

SEEDS, EVENTS = range(30), 15


def is_valid(phase: Phase) -> bool:
    return has_every_task_once(phase.after, sorted(phase.before or phase.after), phase.processors)


def moves_are_least(phase: Phase) -> bool:
    """Of all assignments that are level the fewest tasks leave their process, or location, and of those that stay there the
    fewest leave their slot."""
    after, before, names = phase.after, phase.before, phase.processors
    if not before:
        return True
    if all("#" not in name for name in names):
        return len(before) - stayed(after, before) == least_moves(before, names, len(before))
    in_units = stayed(by_unit(after), by_unit(before)) == most_in_their_units(before, names, len(before))
    return in_units and stayed(after, before) == most_in_their_slots(after, before, names)


def is_sticky(phase: Phase) -> bool:
    """Whether a processor that is still there, and had no more than each has now at the least, has lost none of its tasks."""
    least = len(phase.after) // len(phase.processors)
    counts = Counter(phase.before.values())
    kept = {task: one for task, one in phase.before.items() if one in phase.processors and counts[one] <= least}
    return all(phase.after[task] == processor for task, processor in kept.items())


def share_at_home(phase: Phase) -> float:
    """Of the tasks that have run, how many are where they have run last."""
    return at_home(phase.after, phase.homes, phase.processors) / len(phase.homes)


def judged(phases: Iterable[Phase]) -> list[Phase]:
    seen = []
    for number, phase in enumerate(phases):
        where = f"phase {number}: {phase.event}"
        assert is_valid(phase), where
        assert is_balanced(phase.after, phase.processors), where
        assert is_level_by_units(phase.after, phase.processors), where
        assert moves_are_least(phase), where
        assert is_sticky(phase), where
        assert phase.event not in BACK_IN_TIME or share_at_home(phase) >= 0.99, where
        seen.append(phase)
    return seen


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_whose_ids_change(seed: int) -> None:
    judged(group_of(seed).life(EVENTS))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("life_of", [group_of, executors_of])
def test_tasks_come_home_when_a_location_is_back(life_of: Callable[[int], Group | Executors], seed: int) -> None:
    """Each of them, to where it was, though it ran elsewhere meanwhile: but for those that one slot has more than another, as
    they cannot be divided. Of few tasks these may be more than one of a hundred."""
    phases = [phase for phase in judged(life_of(seed).outages(3)) if phase.event == AS_BEFORE]
    for phase in phases:
        away = len(phase.after) - at_home(phase.after, phase.lived, phase.processors)
        assert away <= 0.01 * len(phase.after) or away <= len(phase.after) % len(phase.processors), away
    assert len(phases) == 3


def test_of_a_small_group_no_assignment_is_better() -> None:
    for seed in range(100):
        for phase in judged(group_of(seed, small=True).life(6)):
            most_stay, most_at_home = best(sorted(phase.after), phase.processors, phase.before, phase.homes)
            assert stayed(phase.after, phase.before) == most_stay, (seed, phase)
            assert at_home(phase.after, phase.homes, phase.processors) == most_at_home, (seed, phase)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_that_is_away_and_back(seed: int) -> None:
    """For what is back in time no plan is made, nor where all were away, for however long."""
    cluster = executors_of(seed)
    for phase in judged(cluster.life(EVENTS)):
        assert phase.event not in BACK_IN_TIME or phase.after == phase.before


def test_equal_inputs_give_equal_output_in_any_process() -> None:
    """Where sets and mappings of names have another order, too."""
    source = Path(headrace.__file__).parents[1]
    found = set()
    for seed in ("0", "1", "20261125"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{source}{os.pathsep}{source.parent / 'tests'}"}
        command = [sys.executable, str(simulation.__file__)]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout)
    (only,) = found
    assert len(only.splitlines()) == 12 + 8 + 4
