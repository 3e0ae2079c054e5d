"""What the tests of kills behind a startpoint share: the process that forks their runs, and both systems."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.children import Children
from startpoint_kills.world import SERVER, Place


@pytest.fixture(scope="session")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("back"), SERVER) as started:
        yield started


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """By its parameter: "log", or the suite's broker."""
    if request.param == "log":
        return Place()
    broker = request.getfixturevalue("kafka_server")
    return Place(broker.bootstrap, broker.client_settings())
