"""SIGKILL of the driver at every numbered step of a new job model, and of its first rounds, while partitions are born."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.checker import KillReport
from chaos.children import Children
from expansion.killing import AT_RANDOM, CHANGE_STEPS, ROUND_STEPS, drawn_pairs, kill_in_changes
from expansion.world import SERVER, World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
SEED = 20280


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("grown"), SERVER) as started:
        yield started


@pytest.fixture(params=["kafka", "log"])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a `World` is told of the system that it is on."""
    if request.param == "log":
        return {}
    broker = request.getfixturevalue("kafka_server")
    return {"servers": broker.bootstrap, "settings": broker.client_settings()}


def killed(folder: Path, children: Children, build: str, place: dict[str, Any], steps: list[tuple[str, int]]) -> KillReport:
    report, draw = KillReport(), random.Random(SEED)
    for pair in drawn_pairs(draw, steps):
        world = World(folder, children, build, **place)
        kill_in_changes(world, draw, pair, report)
        world.judge(report)
        world.close()
    print(report)
    report.verify(landed_min=len(steps))
    return report


def test_state_and_order_are_kept_when_the_driver_is_killed_at_every_step_of_a_change(
    tmp_path: Path, children: Children, place: dict[str, Any]
) -> None:
    killed(tmp_path, children, "stateful", place, [*CHANGE_STEPS])


def test_state_and_order_are_kept_when_the_driver_is_killed_in_the_first_rounds_of_a_new_model(
    tmp_path: Path, children: Children, place: dict[str, Any]
) -> None:
    killed(tmp_path, children, "stateful", place, [*ROUND_STEPS[bool(place)], AT_RANDOM])


def test_a_stateless_job_keeps_each_keys_order_when_it_is_killed_as_its_tasks_grow(
    tmp_path: Path, children: Children, place: dict[str, Any]
) -> None:
    in_rounds = [("kafka", 6), ("kafka", 9)] if place else [("log", 6), ("log", 12)]
    killed(tmp_path, children, "stateless", place, [("start", 9), ("start", 10), *in_rounds, AT_RANDOM, AT_RANDOM])
