"""Where the engine's workers are, as plans and rounds go by it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from headrace.core.affinity.sightings import Sightings
from headrace.exchange.engine import Engine, EngineFailure

LOG = logging.getLogger("headrace.job")
LOOK_S = 0.2


class ClusterView:
    """The locations of a cluster. Any thread may ask. What is there is at most `LOOK_S` old; where the engine does not say it,
    what it said last."""

    def __init__(self, engine: Engine, return_wait_s: float) -> None:
        self._engine, self._sightings = engine, Sightings(return_wait_s)
        self._lock = threading.Lock()
        self._looked_s = 0.0

    def present(self) -> Mapping[str, int]:
        """How many Spark tasks run at once at each location that is there now."""
        return self.looked().present

    def for_plan(self) -> Mapping[str, int]:
        """The same with what is away for a moment: what a plan is made with, as it was at the last look that saw something. No
        heartbeat is sent meanwhile, and an engine that hangs would be waited for."""
        return self._sightings.counted or self.looked().counted

    def looked(self) -> Sightings:
        """What was seen by now. An engine that hangs takes a minute to say that it does."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked_s >= LOOK_S or not self._looked_s:
                try:
                    self._sightings = self._sightings.with_look(self._engine.locations(), now_s)
                except EngineFailure as failure:
                    LOG.warning("where Spark's executors are is not known: %s", failure.message)
                self._looked_s = now_s
            return self._sightings
