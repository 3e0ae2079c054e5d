"""What of the JVM's standard error reaches the user: everything but known noise. Python workers' output comes this way too (a
`print` in a user's function), so it is filtered, never hidden."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO

from headrace.visible import visible

_END_S = 2.0  # the pipe ends with the process
_REASON_LINES = 3
_RAISED = re.compile(r'Exception in thread "main" [\w.$]+: (.*)')
_NOISE = ("WARNING: Using incubator modules", "WARNING: package sun.", "Using Spark's default log4j profile")
_AT_THE_END = ("BrokenPipeError", "ConnectionResetError", "EOFError", "OSError")  # of idle workers, when Spark stops


class JvmErrors:
    """The standard error of a JVM, read in a thread: held back while the JVM starts, shown from `show` on."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._lock = pipe, threading.Lock()
        self._held: list[str] | None = []
        self._thread = threading.Thread(target=self._read, name="headrace-jvm-errors", daemon=True)
        self._thread.start()

    def show(self) -> None:
        """Show what was held back, and what comes."""
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                _write(line)

    def reason(self) -> str:
        """Why a JVM that has ended did not start, in a line, without Java's stack."""
        self._thread.join(_END_S)
        with self._lock:
            lines = [line.strip() for line in self._held or () if line.strip() and not line.startswith("\tat ")]
        raised = [found[1] for line in lines if (found := _RAISED.match(line))]
        return raised[0] if raised else "; ".join(lines[:_REASON_LINES]) or "it said nothing"

    def _read(self) -> None:
        for line in filtered(raw.decode("utf-8", "replace") for raw in self._pipe):
            with self._lock:
                if self._held is None:
                    _write(line)
                else:
                    self._held.append(line)


def _write(line: str) -> None:
    sys.stderr.write(visible(line))
    sys.stderr.flush()


def filtered(lines: Iterable[str]) -> Iterator[str]:
    """The lines without known noise: some JVM warnings, and the traceback of a worker daemon whose JVM has ended."""
    trace: list[str] = []
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            yield from trace
            trace = [line]
        elif trace:
            trace.append(line)
            if not line.startswith((" ", "\t")):  # the exception: the traceback ends
                if not _is_daemon_noise(trace):
                    yield from trace
                trace = []
        elif not line.startswith(_NOISE):
            yield line
    yield from trace


def _is_daemon_noise(trace: list[str]) -> bool:
    frames = [line for line in trace if line.lstrip().startswith("File ")]
    ours = all("pyspark/daemon.py" in frame or "pyspark/worker" in frame for frame in frames)
    return ours and trace[-1].startswith(_AT_THE_END)
