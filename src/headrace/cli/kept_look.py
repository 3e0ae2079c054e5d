"""A look at a job that is kept up to date in the background, while somebody asks for it: an answer then waits for nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger("headrace.http")
FRESH_S = 0.9  # so long after a look the next one begins
REST_PER_LOOK = 4  # and so many times as long as a look took there is none: it costs no more than a fifth of a core
STALE_S = 5.0  # what is older is not shown: who asks waits for a new look, or gets its error
ASKED_S = 120.0  # for so long after somebody has asked it is kept up to date


class KeptLook:
    """`look` gives what is shown; it may take long, and raise. Threads may share it. `close` it at the end."""

    def __init__(self, look: Callable[[], bytes]) -> None:
        self._look = look
        self._looking, self._lock = threading.Lock(), threading.Lock()
        self._shown: tuple[float, bytes] | None = None  # when it was looked up, and what
        self._outdated = 0  # so often
        self._asked_s = 0.0
        self._renewing: threading.Thread | None = None
        self._closed = threading.Event()

    def get(self) -> tuple[float, bytes]:
        """How old it is, in seconds, and what was seen then; raises what a look raises."""
        self.ask()
        found = self._shown
        if found is None or time.monotonic() - found[0] > STALE_S:
            found = self._looked()
        return max(0.0, time.monotonic() - found[0]), found[1]

    def ask(self) -> None:
        """Have it kept up to date for the next minutes."""
        with self._lock:
            self._asked_s = time.monotonic()
            if self._renewing is None and not self._closed.is_set():
                self._renewing = threading.Thread(target=self._renew, name="headrace-ui", daemon=True)
                self._renewing.start()

    def outdate(self) -> None:
        """What was seen so far is shown no more."""
        self._outdated += 1
        self._shown = None

    def close(self) -> None:
        self._closed.set()

    def _looked(self) -> tuple[float, bytes]:
        """Look, unless another thread has done so meanwhile."""
        before = self._shown
        with self._looking:
            now = self._shown
            if now is None or now is before:
                outdated, now = self._outdated, (time.monotonic(), self._look())
                if outdated != self._outdated:  # while it was looked up
                    now = time.monotonic(), self._look()
                self._shown = now
            return now

    def _renew(self) -> None:
        while self._goes_on():
            began_s = time.monotonic()
            try:
                self._looked()
            except Exception as error:  # who asks when it is stale gets the error
                LOG.info("the overview could not be looked up: %s", getattr(error, "message", error))
            self._closed.wait(max(FRESH_S, REST_PER_LOOK * (time.monotonic() - began_s)))

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._closed.is_set() and time.monotonic() - self._asked_s < ASKED_S:
                return True
            self._renewing = None
            return False
