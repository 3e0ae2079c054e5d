"""The log of a job as JSON lines: each says of which job it is, and where it is of a round, of which one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from headrace.model.checkpoint import RoundId
from headrace.model.durations import time_text

_ROUND: ContextVar[RoundId | None] = ContextVar("headrace-round", default=None)
LOG = logging.getLogger("headrace")


@contextmanager
def logged_as(round_id: RoundId) -> Iterator[None]:
    """What this thread logs while the context is open is of this round."""
    token = _ROUND.set(round_id)
    try:
        yield
    finally:
        _ROUND.reset(token)


def current_round() -> RoundId | None:
    """The round that this thread is in."""
    return _ROUND.get()


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, job; and within a round its sub-topology, epoch and number. The
    stack trace of an error is in `error`."""

    def __init__(self, application: str) -> None:
        super().__init__()
        self._application = application

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": time_text(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "job": self._application,
            "thread": record.threadName,
        }
        if (round_id := current_round()) is not None:
            said |= {"sub_topology": round_id.sub_topology or "source", "epoch": round_id.epoch, "round": round_id.number}
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(said, enc_hook=str).decode()


class JsonLog:
    """Has what Headrace logs from INFO on written to standard error as JSON lines, until `close`."""

    def __init__(self, application: str) -> None:
        self._handler = logging.StreamHandler(sys.stderr)
        self._handler.setFormatter(JsonLines(application))
        self._before = LOG.level, LOG.propagate
        LOG.addHandler(self._handler)
        LOG.setLevel(logging.INFO)
        LOG.propagate = False  # or it would be there a second time, as text

    def close(self) -> None:
        LOG.removeHandler(self._handler)
        LOG.setLevel(self._before[0])
        LOG.propagate = self._before[1]
