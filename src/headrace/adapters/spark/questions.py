"""Asking executors of Spark what they are like: by Spark tasks that are to run on them.

Where Python, or a package, is missing the question itself fails. Spark tries it again, perhaps on another executor; so what
counts is which executor each of its Spark tasks failed on, not how the Spark job ended."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyspark

from headrace.adapters.spark.failures import last_line_of
from headrace.adapters.spark.placement import collected_without_query
from headrace.adapters.spark.spark_tasks import tasks_of
from headrace.adapters.spark.timed_jobs import ended_after
from headrace.core.affinity.admission import Rejected, Verdict, WorkerAnswer, rejection_for_failure
from headrace.exchange.engine import WorkerCheck

ANSWER_S_MAX = 60.0
PYSPARK_VERSION: str = pyspark.__version__
_TRIES = 4
_SILENT = f"it has not answered for {ANSWER_S_MAX:.0f} s: does its disk, or the file system of the state, hang?"


@dataclass(frozen=True, slots=True)
class Executor:
    """`id`: Spark's, which no other executor of the application ever has."""

    id: str
    host: str
    slots: int

    @property
    def preference(self) -> str:
        """How a Spark task is asked to run on it. A host with an underscore cannot be written with an id."""
        return self.host if "_" in self.host else f"executor_{self.host}_{self.id}"


def verdicts(context: Any, check: WorkerCheck, asked: Sequence[Executor]) -> dict[str, Verdict]:
    """By executor, what is decided by its answer; without those that have given none, such as one that is busy. One that does
    not answer at all is rejected."""
    found: dict[str, Verdict] = {}
    for _ in range(_TRIES + len(asked)):
        left = [one for one in asked if one.id not in found]
        if not left:
            break
        new = _verdicts_of_one_try(context, check, left)
        if not new.keys() & {one.id for one in left}:
            break
        found |= new
    return found


def _verdicts_of_one_try(context: Any, check: WorkerCheck, left: Sequence[Executor]) -> dict[str, Verdict]:
    """One Spark job for all that are left, which ends with the first Spark task that fails too often."""
    group, ask = f"headrace-executors-{uuid.uuid4().hex}", check.ask

    def answered(numbers: Iterable[int]) -> Iterator[str]:
        for _ in numbers:
            yield msgspec.json.encode(ask()).decode()

    context.setJobGroup(group, "headrace: what are the executors like?")
    said: list[str] = []
    failure: Exception | None = None
    with ended_after(ANSWER_S_MAX, lambda: context._jsc.sc().cancelJobGroup(group)) as is_late:
        try:
            said = collected_without_query(context, answered, [[one.preference] for one in left])
        except Exception as error:
            failure = error
    found: dict[str, Verdict] = {}
    for task in tasks_of(context, group):
        if task.status == "SUCCESS" and said:
            answer = msgspec.json.decode(said[task.partition], type=WorkerAnswer)
            found[task.executor] = check.verdict_on(answer)
        elif task.has_failed:
            found.setdefault(task.executor, rejection_for_failure(last_line_of(task.error)))
        elif is_late.is_set() and task.status != "SUCCESS":
            found.setdefault(task.executor, Rejected((_SILENT,)))
    if failure is not None and not found:
        raise failure
    return found
