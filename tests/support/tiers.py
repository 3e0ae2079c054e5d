"""What a test needs besides this process, and the tiers that follow from it: `make test-unit`, `make test`.

A test of the tier `unit` needs no Kafka, no Spark, and kills nothing. The marker is set here, by what a test's markers and
fixtures say; a test that has it and starts a broker or Spark all the same fails with a word on how to mark it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

import pytest

BROKER_FIXTURES = ("kafka_server", "broker", "own_broker", "on_kafka")
MEMORY = Path("/dev/shm")  # an fsync costs nothing there, and milliseconds on a disk
MEMORY_BYTES_MIN = 4 << 30


class Need(IntEnum):
    """What a test needs, from the least to the most."""

    NOTHING = 0
    KAFKA = 1
    KILLS = 2
    SPARK = 3


def need_of(item: pytest.Item) -> Need:
    """The most that one test needs."""
    if item.get_closest_marker("spark"):
        return Need.SPARK
    if item.get_closest_marker("chaos"):
        return Need.KILLS
    if item.get_closest_marker("kafka") or _names_a_broker(item):
        return Need.KAFKA
    return Need.NOTHING


def _names_a_broker(item: pytest.Item) -> bool:
    """A fixture that is a broker, or the parameter by which a suite asks for one on Kafka."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "kafka" in map(str, parameters) or any(name in BROKER_FIXTURES for name in getattr(item, "fixturenames", ()))


def mark_units(items: Iterable[pytest.Item]) -> None:
    """Give the marker `unit` to each test that needs nothing, but for long searches."""
    for item in items:
        if need_of(item) is Need.NOTHING and not item.get_closest_marker("search"):
            item.add_marker(pytest.mark.unit)


def heaviest_files_first(items: list[pytest.Item]) -> None:
    """Sort by what a file needs, then by the longest time that one of its tests may take; a file's own order stays."""
    weights: dict[Any, tuple[int, float]] = {}
    for item in items:
        limit = item.get_closest_marker("timeout")
        weight = (int(need_of(item)), float(limit.args[0]) if limit and limit.args else 0.0)
        weights[item.path] = max(weights.get(item.path, weight), weight)
    items.sort(key=lambda item: weights[item.path], reverse=True)


def forbid_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a broker or a Spark that is started from now on an error of the test."""
    from pyspark import SparkContext

    from headrace.adapters.kafka_server.cluster import Cluster

    def refuse(*_: Any, **__: Any) -> NoReturn:
        pytest.fail("a test of the tier `unit` starts a server: mark it `kafka`, `spark` or `chaos`")

    monkeypatch.setattr(Cluster, "start", refuse)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)


def keep_files_in_memory(tier: str, memory: Path = MEMORY) -> None:
    """Have the tests of the tier `unit` make their folders in memory, if there is room and nobody has said where (`TMPDIR`).

    A process that is killed loses nothing there either: it is the machine that must not go down.
    """
    if tier == "unit" and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_BYTES_MIN:
        os.environ.setdefault("TMPDIR", str(memory))
        tempfile.tempdir = None  # it is looked up again
