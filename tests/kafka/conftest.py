"""One Spark session for the tests here that need Spark; the connector comes to it as to a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

SOURCE = Path(hr.__file__).parents[1]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from headrace.adapters.spark import session

    folder = tmp_path_factory.mktemp("spark")
    started = session.started({"spark.master": "local[2,4]"}, "tests", folder, [str(SOURCE)])
    yield started
    session.released(started)
