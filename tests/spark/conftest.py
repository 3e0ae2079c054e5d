"""One Spark session for all tests that need Spark, and a folder with a log for each of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

SOURCE = Path(hr.__file__).parents[1]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from headrace.adapters.spark import session

    folder = tmp_path_factory.mktemp("spark")
    started = session.started({"spark.master": "local[2,4]"}, "tests", folder, [str(SOURCE)])
    yield started
    session.released(started)


class World:
    """A log with one input stream `in` of 2 partitions, and applications on it that run in the shared session."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self.system = hr.open_system(f"log:{folder / 'data'}")
        self.system.create_stream("in", 2)

    def produce(self, values: list[Any], stream: str = "in") -> None:
        """Records with keys k0 to k4 in turn; bytes go as they are, all else as JSON."""
        records = [
            (f"k{i % 5}".encode(), value if isinstance(value, bytes) else json.dumps(value).encode())
            for i, value in enumerate(values)
        ]
        self.system.produce(stream, records)

    def app(self, name: str = "job", **keys: Any) -> hr.App:
        return hr.App(
            name,
            f"log:{self.folder / 'data'}",
            self.spark,
            local_store_dir=str(self.folder / f"stores-{name}"),
            trigger_interval_ms=20,
            **keys,
        )

    def run(self, app: hr.App) -> Any:
        """Run until caught up and give the job; raises what ended it."""
        job = app.start(until="caught-up")
        job.wait(100)
        return job

    def read(self, stream: str, value: Any = None, key: Any = None) -> list[hr.Record]:
        return list(self.system.consume(stream, key=key or hr.String(), value=value or hr.Json()))

    def values(self, stream: str, value: Any = None) -> list[Any]:
        return [record.value for record in self.read(stream, value)]


@pytest.fixture
def world(tmp_path: Path, spark: Any) -> Iterator[World]:
    made = World(tmp_path, spark)
    yield made
    made.system.close()


@pytest.fixture
def worker_steps(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """Set the traps of Spark's Python workers; gives the log of those that sprang. The driver has none."""
    log = tmp_path / "steps.log"
    environment = spark.sparkContext.environment

    def set_traps(*traps: str) -> Path:
        environment["HEADRACE_TEST_STEPS"] = ",".join(
            f"{trap}@{tmp_path / trap.replace(':', '-')}" for trap in traps
        )
        environment["HEADRACE_TEST_STEPS_LOG"] = str(log)
        return log

    yield set_traps
    for name in ("HEADRACE_TEST_STEPS", "HEADRACE_TEST_STEPS_LOG"):
        environment.pop(name, None)
