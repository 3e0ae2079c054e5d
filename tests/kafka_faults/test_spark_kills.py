"""SIGKILL of Spark's Python workers at numbered steps of a container, on Kafka: Spark runs the task again by itself.

An attempt that has committed before it died is known by its round: it is not worked off twice (protocol.md 8).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from chaos.usual_job import usual
from chaos.world import SeededWorld
from headrace.adapters.artifacts.connector import with_connector
from headrace.config.loading import Config
from headrace.driver.rounds import round_planner
from support.checker import KillReport
from support.children import Children
from support.world import Place

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(300)]
SEED = 20274
SOURCE = Path(hr.__file__).parents[1]
STEPS = (1, 4, 7, 8, 9, 10, 11)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark import SparkContext

    from headrace.adapters.spark import session

    running = SparkContext._active_spark_context
    if running is not None:  # another test's, which may not try a task again whose worker was killed
        running.stop()
    settings = with_connector({"spark.master": "local[2,4]"}, Config().artifact_dir, print)
    tests = Path(__file__).parents[1]
    started = session.started(settings, "tests", tmp_path_factory.mktemp("spark"), [str(SOURCE), str(tests)])
    yield started
    session.released(started)


THREADED = {"elasticity_factor": 4, "task_threads": 4, "max_round_ms": 50}
WAYS = {"whole tasks": (3, {}), "threads": (3, THREADED), "slices of one partition": (1, {})}
IN_EACH_RUN = "slices of one partition"


@pytest.mark.parametrize("way", [pytest.param(way, marks=[] if way == IN_EACH_RUN else [pytest.mark.soak]) for way in WAYS])
def test_nothing_is_lost_or_doubled_when_python_workers_are_killed(
    tmp_path: Path, children: Children, on_kafka: Place, spark: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = spark.sparkContext.environment
    report = KillReport()
    partitions, own = WAYS[way]
    keys: dict[str, Any] = {"max_records_per_round": 100, **own}
    if partitions == 1:  # each container is a Spark task of its own, whose rows come to it by an exchange
        monkeypatch.setattr(round_planner, "is_small_round", lambda records, few: False)
        packed = round_planner.spark_tasks_of
        monkeypatch.setattr(round_planner, "spark_tasks_of", lambda weights, slots: packed(weights, slots, 0))
        keys |= {"elasticity_factor": 4, "containers": 2}
    world = SeededWorld(tmp_path, on_kafka, children, SEED, partitions=partitions)
    world.produce(200)
    run = world.run_of(keys=keys, pause_s=0.002 if way == "threads" else 0.0)
    app = usual(run, spark)
    log = tmp_path / "steps.log"
    traps = [f"kill:kafka:{step}:2@{tmp_path / f'step-{step}'}" for step in STEPS]
    environment |= {"HEADRACE_TEST_STEPS": ",".join(traps), "HEADRACE_TEST_STEPS_LOG": str(log)}
    try:
        app.start(until="caught-up").wait(150)
    finally:
        for name in ("HEADRACE_TEST_STEPS", "HEADRACE_TEST_STEPS_LOG"):
            environment.pop(name, None)
    killed = {line.rpartition(" ")[0] for line in log.read_text().splitlines()}
    for step in STEPS:
        report.fault(f"kafka {step}", "SIGKILL of a Python worker", landed=f"kill kafka {step}" in killed)
    world.judge(report)
    print(report)
    report.verify(landed_min=len(STEPS))


def test_a_container_that_has_committed_does_not_wait_for_one_of_its_spark_task_that_was_killed(
    tmp_path: Path, children: Children, on_kafka: Place, spark: Any
) -> None:
    """Both are in one Spark task, which Spark tries again: the second's transaction, still open, ends in that try only. One of
    some kills comes when the second has sent its checkpoint, and what it sent has arrived."""
    environment = spark.sparkContext.environment
    report = KillReport()
    world = SeededWorld(tmp_path, on_kafka, children, SEED)
    world.produce(200)
    run = world.run_of(keys={"config": {"kafka.transaction.timeout.ms": "600000", "kafka.linger.ms": "0"}})
    log = tmp_path / "steps.log"
    kills = [f"kill:kafka:8:{count}@{tmp_path / f'step-8-{count}'}" for count in range(2, 22, 4)]
    environment |= {"HEADRACE_TEST_STEPS": ",".join(kills), "HEADRACE_TEST_STEPS_LOG": str(log)}
    try:
        usual(run, spark).start(until="caught-up").wait(60)
    finally:
        for name in ("HEADRACE_TEST_STEPS", "HEADRACE_TEST_STEPS_LOG"):
            environment.pop(name, None)
    for number, _ in enumerate(kills):
        report.fault("kafka 8", "SIGKILL of a Python worker", landed=number < len(log.read_text().splitlines()))
    world.judge(report)
    report.verify(landed_min=len(kills))
