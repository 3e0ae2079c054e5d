"""The process that forks the runs which tests kill, and the system that they run on: fixtures of all suites with faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.children import Children
from support.world import Place


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
    broker = request.getfixturevalue("kafka_server")
    return Place(broker.bootstrap, broker.client_settings())


@pytest.fixture(params=["kafka", "log"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the systems."""
    return place_of(request, request.param)


@pytest.fixture
def on_kafka(request: pytest.FixtureRequest) -> Place:
    return place_of(request, "kafka")
