"""The Spark session of the tests that need Spark, and a folder with a log for each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from support.world import Place, World, caught_up_on_spark

SOURCE = Path(hr.__file__).parents[1]


@pytest.fixture(scope="session")
def spark_that_tries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Any]]:
    """Gives the session in which a Spark task runs so many times at most; the other one is stopped: a process has one Spark."""
    from headrace.adapters.spark import session

    held: dict[int, Any] = {}

    def that_tries(times: int) -> Any:
        if times not in held:
            for other in list(held):
                session.released(held.pop(other))
            folder = tmp_path_factory.mktemp("spark")
            held[times] = session.started({"spark.master": f"local[2,{times}]"}, "tests", folder, [str(SOURCE)])
        return held[times]

    yield that_tries
    for started in held.values():
        session.released(started)


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, spark_that_tries: Callable[[int], Any]) -> Any:
    """With the tries of a job that nobody has configured, unless the module has `SPARK_TASK_TRIES`."""
    return spark_that_tries(getattr(request.module, "SPARK_TASK_TRIES", 4))


class SparkWorld(World):
    """A log with one input stream `in` of 2 partitions, and applications on it that run in the shared session."""

    NAME = "job"
    STREAMS: ClassVar = {"in": 2}
    KEYS: ClassVar = {"trigger_interval_ms": 20}

    def __init__(self, folder: Path, spark: Any) -> None:
        super().__init__(folder, Place())
        self.spark = spark

    def produce(self, values: list[Any], stream: str = "in") -> None:
        """Records with keys k0 to k4 in turn; bytes go as they are, all else as JSON."""
        records = [
            (f"k{i % 5}".encode(), value if isinstance(value, bytes) else json.dumps(value).encode())
            for i, value in enumerate(values)
        ]
        self.system.produce(stream, records)

    def app(self, name: str = "", **keys: Any) -> hr.App:
        return super().app(name, self.spark, **keys)

    def run(self, app: hr.App) -> Any:
        return caught_up_on_spark(app)

    def read(self, stream: str, value: Any = None, key: Any = None) -> list[hr.Record]:
        return super().read(stream, value or hr.Json(), key or hr.String())

    def values(self, stream: str, value: Any = None) -> list[Any]:
        return [record.value for record in self.read(stream, value)]


@pytest.fixture
def world(tmp_path: Path, spark: Any) -> Iterator[SparkWorld]:
    with SparkWorld(tmp_path, spark) as made:
        yield made


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
