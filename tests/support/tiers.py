"""What a test needs besides this process, and the tiers that follow from it: `make test-unit`, `make test`.

A test of the tier `unit` needs no server, no Spark, and kills nothing. The marker is set here, by what a test's markers and
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
ZOOKEEPER_FIXTURES = ("zookeeper_server", "real_zookeeper", "own_zookeeper", "ensemble")
MEMORY = Path("/dev/shm")  # an fsync costs nothing there, and milliseconds on a disk
MEMORY_BYTES_MIN = 4 << 30


class Need(IntEnum):
    """What a test needs, from the least to the most."""

    NOTHING = 0
    ZOOKEEPER = 1
    KAFKA = 2
    KILLS = 3
    SPARK = 4


def need_of(item: pytest.Item) -> Need:
    """The most that one test needs."""
    if item.get_closest_marker("spark"):
        return Need.SPARK
    if item.get_closest_marker("chaos"):
        return Need.KILLS
    if item.get_closest_marker("kafka") or _names(item, "kafka", BROKER_FIXTURES):
        return Need.KAFKA
    return Need.ZOOKEEPER if _names(item, "zookeeper", ZOOKEEPER_FIXTURES) else Need.NOTHING


def _names(item: pytest.Item, parameter: str, fixtures: tuple[str, ...]) -> bool:
    """Whether it has a fixture that is a server, or the parameter by which a suite asks for one."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return parameter in map(str, parameters) or any(name in fixtures for name in getattr(item, "fixturenames", ()))


def mark_soaking(items: Iterable[pytest.Item]) -> None:
    """Give the marker `soak` to what is marked `soak_on(KIND)` where it is of that kind of system: the other one is in each
    run."""
    for item in items:
        for marker in item.iter_markers("soak_on"):
            if hasattr(item, "callspec") and marker.args[0] in map(str, item.callspec.params.values()):
                item.add_marker(pytest.mark.soak)


def leave_soaking_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `soak` run where these are requested (`-m soak`), or one by its name; long searches also by `-m search`."""
    if "soak" in config.option.markexpr or any("::" in one for one in config.args):
        return
    runs_searches = "search" in config.option.markexpr

    def is_left_out(item: pytest.Item) -> bool:
        return bool(item.get_closest_marker("soak")) and not (runs_searches and item.get_closest_marker("search"))

    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        items[:] = [item for item in items if not is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


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
    """Make a broker, a ZooKeeper or a Spark that is started from now on an error of the test."""
    from pyspark import SparkContext

    from headrace.adapters.kafka_server.cluster import Cluster
    from headrace.adapters.zookeeper_server.server import ZooKeeperServer
    from support.ensembles import Ensemble

    def refuse(*_: Any, **__: Any) -> NoReturn:
        pytest.fail("a test of the tier `unit` starts a server: mark it `kafka`, `spark` or `chaos`")

    monkeypatch.setattr(Cluster, "start", refuse)
    monkeypatch.setattr(ZooKeeperServer, "start", refuse)
    monkeypatch.setattr(Ensemble, "start", refuse)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", refuse)


def keep_files_in_memory(tier: str, memory: Path = MEMORY) -> None:
    """Have the tests of the tier `unit` make their folders in memory, if there is room and nobody has said where (`TMPDIR`).

    A process that is killed loses nothing there either: it is the machine that must not go down.
    """
    if tier == "unit" and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_BYTES_MIN:
        os.environ.setdefault("TMPDIR", str(memory))
        tempfile.tempdir = None  # it is looked up again
