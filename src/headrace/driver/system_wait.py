"""Waiting for a system that does not answer: a job outlives the restart of its broker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import UnavailableError

LOG = logging.getLogger("headrace.job")
SYSTEM_WAIT_S = 300.0  # how long the system may be unavailable before the job gives up
TRY_S = 1.0
Answer = TypeVar("Answer")


def when_answered(
    what: str,
    ask: Callable[[], Answer],
    ended: threading.Event,
    told: Callable[[UnavailableError], None] = lambda _: None,
) -> Answer | None:
    """What `ask` gives, once the system answers; each refusal is `told`. None where `ended` is set before that.
    `UnavailableError` after `SYSTEM_WAIT_S`."""
    began_s = time.monotonic()
    while not ended.is_set():
        try:
            return ask()
        except UnavailableError as error:
            if time.monotonic() - began_s > SYSTEM_WAIT_S:
                raise
            LOG.warning("waiting for the system, %s: %s", what, error.message)
            told(error)
            ended.wait(TRY_S)
    return None
