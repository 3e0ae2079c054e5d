"""What a processor of a group publishes of itself, for people: that it is there, whether it leads, and what it waits for."""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Any

from headrace.errors import HeadraceError
from headrace.ports.processor_store import ProcessorStore

LOG = logging.getLogger("headrace.group")
PUBLISH_S = 5.0  # a third of what `core.group.statuses.FRESH_US` allows


class Presence:
    """Of one processor. Its sub-topologies are published by their rounds; one without tasks has only this. Nothing is to be
    shown before a job model is stored: the leader's record is to be the first of the application's."""

    def __init__(self, store: ProcessorStore, processor_id: str) -> None:
        self._store, self._id = store, processor_id
        self._shown: dict[str, Any] | None = None
        self._shown_s = 0.0

    def show(self, *, leads: bool, waiting_for: str, now_us: int) -> None:
        """Publish it, where it is another than before, or was published a while ago."""
        found = {"is_leader": leads, "waiting_for": waiting_for, "host": socket.gethostname(), "pid": os.getpid()}
        if found == self._shown and time.monotonic() - self._shown_s < PUBLISH_S:
            return
        try:
            self._store.publish_processor(self._id, {**found, "updated_us": now_us})
        except HeadraceError as error:
            LOG.warning("the status of this processor could not be published: %s", error.message)
        self._shown, self._shown_s = found, time.monotonic()

    def leave(self) -> None:
        """Have it forgotten."""
        if self._shown is None:
            return
        try:
            self._store.publish_processor(self._id, None)
        except HeadraceError as error:
            LOG.warning("that this processor leaves could not be published: %s", error.message)
