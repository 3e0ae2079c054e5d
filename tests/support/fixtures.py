"""The process that forks the runs which tests kill, the system that they run on, and the application of a test on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.children import Children
from support.world import Place, World


@pytest.fixture(scope="session")
def run_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    """One for all: it imports everything once."""
    with Children(tmp_path_factory.mktemp("runs")) as started:
        yield started


@pytest.fixture(scope="module")
def module_children(run_server: Children) -> Iterator[Children]:
    """For a fixture of a module; what its runs leave is ended with the module."""
    yield run_server
    run_server.end_all()


@pytest.fixture
def children(run_server: Children) -> Iterator[Children]:
    """Nothing that a test starts or stops lives longer than the test."""
    yield run_server
    run_server.end_all()


def place_of(request: pytest.FixtureRequest, kind: str) -> Place:
    """The log of a test's own, or the broker of the test session."""
    if kind == "log":
        return Place()
    return place_on(request.getfixturevalue("kafka_server"))


def place_on(broker: Any) -> Place:
    return Place(broker.bootstrap, broker.client_settings())


@pytest.fixture(params=["kafka", "log"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the systems."""
    return place_of(request, request.param)


def only_on(kind: str) -> Any:
    """A module's own fixture `place`: `place = only_on("log")`."""

    @pytest.fixture(name="place", params=[kind])
    def the_one(request: pytest.FixtureRequest) -> Place:
        return place_of(request, kind)

    return the_one


@pytest.fixture
def on_kafka(request: pytest.FixtureRequest) -> Place:
    return place_of(request, "kafka")


@pytest.fixture
def world(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Iterator[World]:
    """An application on each of the systems: of the class `WORLD` of the test's module, where it has one."""
    with getattr(request.module, "WORLD", World)(tmp_path, place) as made:
        yield made
