"""Fixtures: a place for a task's state, and worker processes that end with the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no packages: this is how they share a module

from state_place import Place, Worker

from headrace.adapters.lmdb import close_idle


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)
    close_idle()


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(steps: str = "") -> Worker:
        workers.append(Worker(tmp_path, steps))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()
