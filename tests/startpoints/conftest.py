"""A `World` per test, on each of the systems: an application, its streams, and what somebody asks for from outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.driver import job
from startpoints.world import World


@pytest.fixture(autouse=True)
def often_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that runs looks for requests as often as tests have patience for."""
    monkeypatch.setattr(job, "LOOK_S", 0.05)


@pytest.fixture(params=["kafka", "log"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Run the test on both systems."""
    broker = request.getfixturevalue("kafka_server") if request.param == "kafka" else None
    url = f"log:{tmp_path / 'log'}" if broker is None else f"kafka://{broker.bootstrap}"
    with hr.open_system(url) as system:
        made = World(system, url, tmp_path, None if broker is None else broker.client_settings())
        try:
            yield made
        finally:
            made.close()
