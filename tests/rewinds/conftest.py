"""A `World` per test, on each of the systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.driver import job
from rewinds.jobs import TIDY_S
from rewinds.world import RewindWorld
from support.children import Children
from support.world import Place

MakeWorld = Callable[..., RewindWorld]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that runs looks for requests, and keeps versions, as often as tests have patience for."""
    monkeypatch.setattr(job, "LOOK_S", 0.05)
    monkeypatch.setattr(job, "TIDY_S", TIDY_S)


@pytest.fixture
def make_world(tmp_path: Path, place: Place, children: Children) -> Iterator[MakeWorld]:
    """Makes one, on either system; arguments as those of `RewindWorld` behind its children."""
    made: list[RewindWorld] = []

    def make(*arguments: Any) -> RewindWorld:
        made.append(RewindWorld(tmp_path, place, children, *arguments))
        made[-1].prepare()
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> RewindWorld:
    return make_world()
