"""A `World` per test, on each of the systems; and the process that forks runs which tests kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from chaos.children import Children
from headrace.driver import job
from rewinds.jobs import TIDY_S
from rewinds.world import World

MakeWorld = Callable[..., World]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that runs looks for requests, and keeps versions, as often as tests have patience for."""
    monkeypatch.setattr(job, "LOOK_S", 0.05)
    monkeypatch.setattr(job, "TIDY_S", TIDY_S)


@pytest.fixture(params=["kafka", "log"])
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes one, on either system; arguments as those of `World` behind its place."""
    broker = request.getfixturevalue("kafka_server") if request.param == "kafka" else None
    url = f"log:{tmp_path / 'log'}" if broker is None else f"kafka://{broker.bootstrap}"
    settings = None if broker is None else broker.client_settings()
    made: list[World] = []
    with hr.open_system(url) as system:

        def make(*arguments: Any) -> World:
            made.append(World(system, url, tmp_path, settings, *arguments))
            made[-1].prepare()
            return made[-1]

        try:
            yield make
        finally:
            for world in made:
                world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


@pytest.fixture(scope="session")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("rewinds"), Path(__file__).with_name("child.py")) as started:
        yield started
