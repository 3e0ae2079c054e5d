"""A `World` per test, on each of the systems: an application, its streams, and what somebody asks for from outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.driver import job
from startpoints.world import PassingWorld
from support.world import Place


@pytest.fixture(autouse=True)
def often_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that runs looks for requests as often as tests have patience for."""
    monkeypatch.setattr(job, "LOOK_S", 0.05)


@pytest.fixture
def world(tmp_path: Path, place: Place) -> Iterator[PassingWorld]:
    """Run the test on both systems."""
    made = PassingWorld(tmp_path, place)
    yield made
    made.close()
