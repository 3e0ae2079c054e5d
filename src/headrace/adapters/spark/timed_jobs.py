"""Spark jobs that are cancelled where they take too long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from headrace.adapters.spark.failures import failure_of
from headrace.adapters.spark.placement import collected_without_query
from headrace.adapters.spark.questions import Executor

LOG = logging.getLogger("headrace.job")


def run_on(context: Any, executors: Sequence[Executor], work: Callable[[], None], group: str, within_s: float) -> None:
    """Run `work` once on each executor, as far as Spark places it there; after `within_s` it is cancelled."""

    def worked(numbers: Iterable[int]) -> Iterator[str]:
        for _ in numbers:
            work()
            yield ""

    def run() -> None:
        context.setJobGroup(group, "headrace: on each machine")
        try:
            collected_without_query(context, worked, [[one.preference] for one in executors])
        except Exception as error:
            LOG.warning("work on each machine has failed: %s", failure_of(error).message)

    thread = threading.Thread(target=run, name="headrace-on-each-machine", daemon=True)
    thread.start()
    thread.join(within_s)
    if thread.is_alive():
        context._jsc.sc().cancelJobGroup(group)
        thread.join(within_s)
