"""A round of which only lost executors are left: what the others gave is heard before Spark's job ends, which is cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from headrace.adapters.spark.in_worker import Containers, WorkerFunctions, text_of
from headrace.adapters.spark.placement import collected, collected_without_query
from headrace.adapters.spark.running_rounds import RoundAnswers, RunningRounds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
NAME = "test-of-a-round"


def by_query(spark: Any, worker: Containers) -> list[str]:
    return collected(spark.sparkContext, spark.range(0, 2, 1, 2).mapInArrow(worker.directly, "summary string"), False, [[], []])


def without_query(spark: Any, worker: Containers) -> list[str]:
    return collected_without_query(spark.sparkContext, worker.of_items, [[], []], list(enumerate(worker.groups)))


@pytest.mark.parametrize("run", [by_query, without_query])
def test_what_is_lost_is_not_waited_for_once_the_others_have_answered(
    spark: Any, tmp_path: Path, run: Callable[[Any, Containers], list[str]]
) -> None:
    context, lost = spark.sparkContext, tmp_path / "lost"

    def container(payloads: Any, program: Any) -> list[bytes]:
        if payloads == [b"at host-2"]:
            lost.touch()
            time.sleep(60.0)
        while not lost.exists():
            time.sleep(0.01)
        time.sleep(1.0)  # it is lost while the other one still works
        return [*payloads]

    cancelled = []

    def cancel(name: str) -> None:
        cancelled.append((name, dict(answers.given)))
        context.cancelJobGroup(name)

    rounds = RunningRounds(context, lambda: {"host-1"} if lost.exists() else {"host-1", "host-2"}, cancel)
    try:
        answers = RoundAnswers(["host-1", "host-2"])
        functions = WorkerFunctions(container, lambda *of: [], lambda *of: iter(()))  # type: ignore[arg-type]  # not called
        groups = [[b"at host-1"], [b"at host-2"]]
        worker = Containers(cloudpickle.dumps(None), "program", groups, functions, NAME, rounds.given)
        context.setJobGroup(NAME, "a round")
        with rounds.running(NAME, answers), pytest.raises(Exception, match="cancel"):
            run(spark, worker)
    finally:
        rounds.close()
    assert answers.is_cut
    assert cancelled == [(NAME, {0: text_of([b"at host-1"])})]
    assert answers.left == ["host-2"]
