"""The contract suites run against every implementation of a port: add one to `OPENERS` and all of them hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.adapters.log.system import open_system


def _open_log(folder: Path) -> Any:
    return open_system(f"log:{folder / 'log'}")


OPENERS: dict[str, Callable[[Path], Any]] = {"log": _open_log}


@pytest.fixture(params=sorted(OPENERS))
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with OPENERS[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def metadata_store(system: Any) -> Any:
    return system.metadata_store("delays")


@pytest.fixture
def job_store(system: Any) -> Any:
    return system.job_store("delays")
