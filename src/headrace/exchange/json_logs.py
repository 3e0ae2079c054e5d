"""The log of a job as JSON lines: each says of which job it is, and where it is of a round, of which one.

In the process of the job and in its workers: what is logged, and what else is written to standard error there, one line of
JSON for each line. What a worker writes reaches the process of the job through Spark's JVM, line by line, and stays as it is.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

import msgspec

from headrace.model.checkpoint import RoundId
from headrace.model.durations import time_text

_ROUND: ContextVar[RoundId | None] = ContextVar("headrace-round", default=None)
_TITLE: ContextVar[str | None] = ContextVar("headrace-sub-topology", default=None)
LOG = logging.getLogger("headrace")


@contextmanager
def logged_as(round_id: RoundId) -> Iterator[None]:
    """What this thread logs while the context is open is of this round."""
    token = _ROUND.set(round_id)
    try:
        yield
    finally:
        _ROUND.reset(token)


def logged_of(sub_topology: str) -> None:
    """What this thread logs from now on is of this sub-topology, by its title."""
    _TITLE.set(sub_topology)


def current_round() -> RoundId | None:
    """The round that this thread is in."""
    return _ROUND.get()


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, job; its sub-topology, where the thread works for one; within
    a round its epoch and number. The stack trace of an error is in `error`. `round_id`: that of threads that know of none."""

    def __init__(self, application: str) -> None:
        super().__init__()
        self.application = application
        self.round_id: RoundId | None = None

    def format(self, record: logging.LogRecord) -> str:
        about = {"level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            about["error"] = self.formatException(record.exc_info)
        return self.line(time_text(round(record.created * 1e6)), about, record.threadName)

    def of_text(self, text: str) -> str:
        """The line of something that was written, and not logged; as it is where it is such a line already."""
        if text.startswith("{"):
            try:
                found = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                found = None
            if isinstance(found, dict) and {"time", "job", "message"} <= found.keys():
                return text
        about = {"level": "info", "logger": "stderr", "message": text}
        return self.line(time_text(time.time_ns() // 1000), about, threading.current_thread().name)

    def line(self, at: str, about: dict[str, Any], thread: str | None) -> str:
        said: dict[str, Any] = {"time": at, **about, "job": self.application, "thread": thread}
        round_id, title = current_round() or self.round_id, _TITLE.get()
        if round_id is not None:
            said |= {"sub_topology": round_id.sub_topology or "source", "epoch": round_id.epoch, "round": round_id.number}
        elif title is not None:
            said["sub_topology"] = title
        return msgspec.json.encode(said, enc_hook=str).decode()


class JsonStream:
    """A text stream in the place of `raw`: each line that is written to it is one of JSON. What a thread writes is held until
    its line ends. Empty lines are left out."""

    def __init__(self, raw: TextIO, lines: JsonLines) -> None:
        self.raw, self._lines = raw, lines
        self._held = threading.local()

    def write(self, text: str) -> int:
        *whole, self._held.text = (getattr(self._held, "text", "") + text).split("\n")
        for line in whole:
            self._put(line)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """What is no whole line yet is held all the same."""
        self.raw.flush()

    def end(self) -> None:
        """Put what this thread has written of a line."""
        self._put(getattr(self._held, "text", ""))
        self._held.text = ""

    def _put(self, line: str) -> None:
        if line.strip():
            self.raw.write(f"{self._lines.of_text(line.rstrip())}\n")
            self.raw.flush()

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Ours, on the root of all loggers."""


class JsonLog:
    """Has all that this process writes to standard error be JSON lines, until `close`: what Headrace logs, from INFO on; what
    others log, as far as their loggers let it through; and what is printed. The last one that was made is closed first."""

    def __init__(self, application: str) -> None:
        self._before = sys.stderr
        self._lines = JsonLines(application)
        self._stream = JsonStream(self._before, self._lines)
        root = logging.getLogger()
        self._formatters = [(one, one.formatter) for one in root.handlers if getattr(one, "stream", None) is self._before]
        for handler, _ in self._formatters:  # of the user's; what they write goes to the stream itself
            handler.setFormatter(self._lines)
        self._handler = _Handler(self._before)
        self._handler.setFormatter(self._lines)
        self._level = LOG.level
        LOG.setLevel(logging.INFO)
        if not self._formatters and not any(isinstance(one, _Handler) for one in root.handlers):
            root.addHandler(self._handler)
        sys.stderr = self._stream

    def is_of(self, application: str) -> None:
        """What the application is called, where that was not known from the start."""
        self._lines.application = application

    def close(self) -> None:
        self._stream.end()
        if sys.stderr is self._stream:
            sys.stderr = self._before
        logging.getLogger().removeHandler(self._handler)
        for handler, formatter in self._formatters:
            handler.setFormatter(formatter)
        LOG.setLevel(self._level)


_OF_WORKER: list[JsonLines] = []  # one, once this process is known to be a worker


def log_in_worker(application: str, round_id: RoundId) -> None:
    """Has a worker process log and print JSON lines, from now on of this round. Where the process of the job itself works for a
    round, it has its own log."""
    if not _OF_WORKER:
        if isinstance(sys.stderr, JsonStream):
            return
        lines = JsonLines(application)
        handler = _Handler(sys.stderr)
        handler.setFormatter(lines)
        logging.getLogger().addHandler(handler)
        LOG.setLevel(logging.INFO)
        sys.stdout, sys.stderr = JsonStream(sys.stdout, lines), JsonStream(sys.stderr, lines)
        _OF_WORKER.append(lines)
    _OF_WORKER[0].round_id = round_id
