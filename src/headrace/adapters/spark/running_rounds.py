"""The rounds that run on a cluster: what their Spark tasks have given by now, and which of them wait for lost executors only.

Spark hands over the results of a job once all its Spark tasks have ended. One whose executor was lost is held for
`spark.locality.wait`, then run elsewhere, where its container declines; the results of the others lie there meanwhile. So on a
cluster each Spark task also adds what it gives to an accumulator of Spark, which the driver hears as that task ends, once. A
round of which nothing is left but what was lost is cancelled, and has the results that were heard."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.core.affinity.sitting_out import waits_for_lost
from headrace.exchange.engine import EngineFailure

LOG = logging.getLogger("headrace.job")
LOOK_S = 0.2
Given = tuple[str, int, str]  # the round's name, the number of its Spark task, and what that gives


class _Appended:
    """How Spark adds up what Spark tasks give (`pyspark.AccumulatorParam`): in a worker to a list, and in the driver that is
    handed to `RunningRounds`."""

    def zero(self, value: Any) -> Any:
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 - Spark's name
        value1.extend(value2)
        return value1


class RoundAnswers:
    """What the Spark tasks of one round have given. `locations`: where each is to run. Thread-safe."""

    def __init__(self, locations: Sequence[str | None]) -> None:
        self._locations = tuple(locations)
        self.given: dict[int, str] = {}  # by the number of the Spark task
        self.is_cut = False

    @property
    def left(self) -> list[str | None]:
        """Where those are to run that have given nothing yet."""
        given = self.given.copy()
        return [location for number, location in enumerate(self._locations) if number not in given]


class RunningRounds:
    """`present`: the locations that have an executor now; `cancel` ends a round of that name. Thread-safe."""

    def __init__(self, context: Any, present: Callable[[], Collection[str]], cancel: Callable[[str], None]) -> None:
        self._rounds: dict[str, RoundAnswers] = {}
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self.given: Any = context.accumulator(self, _Appended())  # what workers add to; Spark keeps it, and this, for good
        name, known = "headrace-lost-executors", (present, cancel)
        threading.Thread(target=self._look_after, args=known, name=name, daemon=True).start()

    @contextmanager
    def running(self, name: str, answers: RoundAnswers) -> Iterator[None]:
        """Have the answers of a round come to `answers` while the context is open."""
        with self._lock:
            self._rounds[name] = answers
        try:
            yield
        finally:
            with self._lock:
                del self._rounds[name]

    def extend(self, given: Iterable[Given]) -> None:
        """Hear what a Spark task gives: the accumulator of the driver calls this."""
        with self._lock:
            for name, number, text in given:
                if name in self._rounds:
                    self._rounds[name].given[number] = text

    def close(self) -> None:
        self._is_closed.set()

    def _look_after(self, look: Callable[[], Collection[str]], cancel: Callable[[str], None]) -> None:
        while not self._is_closed.wait(LOOK_S):
            with self._lock:
                rounds = {name: answers for name, answers in self._rounds.items() if not answers.is_cut}
            if not rounds:
                continue
            try:
                present = look()
                for name, answers in rounds.items():
                    if waits_for_lost(answers.left, present):
                        answers.is_cut = True
                        cancel(name)
            except EngineFailure:  # Spark has ended, and the round fails with it
                continue
            except Exception:  # a thread that ends in silence would have rounds wait for good
                LOG.exception("lost executors could not be looked for, trying again")
