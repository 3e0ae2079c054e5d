"""Spark jobs that are cancelled where they take too long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.adapters.spark.failures import failure_of
from headrace.adapters.spark.placement import Preferences, collected_without_query

LOG = logging.getLogger("headrace.job")


@contextmanager
def ended_after(within_s: float, cancel: Callable[[], None]) -> Iterator[threading.Event]:
    """Call `cancel` where the context has not ended by then, in a thread of its own. Gives what is set before that."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        cancel()

    timer = threading.Timer(within_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()


def run_on(context: Any, places: Preferences, work: Callable[[], None], group: str, within_s: float) -> None:
    """Run `work` once at each place, as far as Spark places it there; after `within_s` it is cancelled."""

    def worked(numbers: Iterable[int]) -> Iterator[str]:
        for _ in numbers:
            work()
            yield ""

    def run() -> None:
        context.setJobGroup(group, "headrace: on each machine")
        try:
            collected_without_query(context, worked, places)
        except Exception as error:
            LOG.warning("work on each machine has failed: %s", failure_of(error).message)

    thread = threading.Thread(target=run, name="headrace-on-each-machine", daemon=True)
    thread.start()
    thread.join(within_s)
    if thread.is_alive():
        context._jsc.sc().cancelJobGroup(group)
        thread.join(within_s)
