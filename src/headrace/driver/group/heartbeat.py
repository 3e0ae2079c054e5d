"""The heartbeat of a leadership: by it others know that the application is held."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headrace.errors import FencedError
from headrace.group.processor_group import ProcessorGroup
from headrace.ports.coordinator_store import CoordinatorStore

LOG = logging.getLogger("headrace.group")
HEARTBEAT_S = 2.0


class Heartbeat:
    """Sent by a thread of its own, from `begin` to `end`. Not once the session has ended: others lead by then, or one that was
    started in place of this one waits for the application. `holding`: held while the epoch, or the plan, is being written."""

    def __init__(self, store: CoordinatorStore, group: ProcessorGroup, clock_us: Callable[[], int]) -> None:
        self._store, self._group, self._clock_us = store, group, clock_us
        self.holding = threading.Lock()
        self._ended = threading.Event()
        self._failed: BaseException | None = None

    def begin(self, epoch: int) -> None:
        threading.Thread(target=self._beat, args=(epoch,), name="headrace-heartbeat", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def check(self) -> None:
        """`FencedError` where it was refused, as another processor has taken the application."""
        if self._failed is not None:
            raise self._failed

    def _beat(self, epoch: int) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            if not self._group.lease.session_holds(self._group.now_s()):
                continue
            try:
                with self.holding:
                    if not self._ended.is_set():
                        self._store.heartbeat(epoch, self._clock_us())
            except FencedError as error:
                self._failed = error
                return
            except Exception as error:
                LOG.warning("heartbeat: %s", getattr(error, "message", error))
