"""The process that forks the runs which tests kill, the system that they run on, and the application of a test on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from headrace.adapters.zookeeper_server.server import ZooKeeperServer
from headrace.errors import SetupError
from support.children import Children
from support.ensembles import Ensemble
from support.world import Place, World
from support.zookeepers import MemoryPlace, RealPlace, delete_nodes


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


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer | str]:
    """One ZooKeeper for all tests of a run, or why there is none. A test may stop it, and starts it again."""
    try:
        server = ZooKeeperServer().start()
    except SetupError as error:
        yield str(error)
        return
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def real_zookeeper(
    zookeeper_server: ZooKeeperServer | str, without_server: Callable[[str, str], NoReturn]
) -> Iterator[RealPlace]:
    """The session's server, without the nodes of the test before."""
    if isinstance(zookeeper_server, str):
        without_server("ZooKeeper", zookeeper_server)
    if zookeeper_server.pid is None:
        zookeeper_server.restart()
    place = RealPlace(zookeeper_server)
    place.delete_all()
    try:
        yield place
    finally:
        place.close()


@pytest.fixture(params=["memory", "zookeeper"])
def zookeeper(request: pytest.FixtureRequest) -> Any:
    """Each of the implementations of the port `headrace.coordination`."""
    return MemoryPlace() if request.param == "memory" else request.getfixturevalue("real_zookeeper")


@pytest.fixture(scope="session")
def zookeeper_ensemble() -> Iterator[Ensemble | str]:
    """One ensemble for all tests of a run, or why there is none. A test may kill its servers."""
    try:
        ensemble = Ensemble()
    except SetupError as error:
        yield str(error)
        return
    try:
        yield ensemble
    finally:
        ensemble.stop()


@pytest.fixture
def ensemble(zookeeper_ensemble: Ensemble | str, without_server: Callable[[str, str], NoReturn]) -> Ensemble:
    """All of its servers serve, without the nodes of the test before."""
    if isinstance(zookeeper_ensemble, str):
        without_server("ZooKeeper", zookeeper_ensemble)
    zookeeper_ensemble.start()
    delete_nodes(zookeeper_ensemble.address)
    return zookeeper_ensemble
