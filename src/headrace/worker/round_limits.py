"""When the tasks of a container end: all its threads ask here. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from headrace.worker.ports import RoundSignals


class Stopped(Exception):
    """The driver cancelled this round; what was done is thrown away."""


class RoundLimits:
    """`deadline_s`: when the round's time is over, by `clock`."""

    def __init__(self, signals: RoundSignals, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.has_begun = False  # to take rows: a round that is cut short before would make no progress, however often
        self._signals, self._deadline_s = signals, deadline_s
        self._lock = Lock()  # signals are looked at by one thread at a time

    def check(self) -> None:
        """`Stopped` where the driver has signalled it."""
        with self._lock:
            if self._signals.is_stopped():
                raise Stopped

    def is_time(self) -> bool:
        """Whether to end here and commit what was reached: after `max_round_ms`, or as soon as the driver asks for it."""
        with self._lock:
            if self._signals.is_cut():
                self._deadline_s, self.has_begun = 0.0, True
            return self.has_begun and self.clock() > self._deadline_s

    def is_over(self) -> bool:
        """Whether the round's time is over, also before any row was taken: for what can wait for the next round."""
        self.check()
        with self._lock:
            return self.clock() > self._deadline_s or self._signals.is_cut()
