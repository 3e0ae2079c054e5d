"""A server on this machine: its process, which does not outlive ours, and free loopback ports for it.

The server is in a session of its own, so that a Ctrl-C at the terminal is ours to handle. Beside it waits a shell that
holds the end of a pipe of ours: if this process dies, however it dies, the pipe closes, and the shell kills the server.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

STOP_S_MAX = 30.0
KILL_S_MAX = 30.0
_LOG_LINES_SHOWN = 12
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 2_000
# `kill -9 -- -PID` is refused by some shells
_GUARD = 'cat >/dev/null 2>&1; kill -s KILL -- "-$1" 2>/dev/null; if [ -n "$2" ]; then sleep 1; rm -rf -- "$2"; fi'


class ServerProcess:
    """One server: `start` it, then `kill`, `stop`, `pause`, `resume`; `start` again with the same data. `deleted_with_us` is
    a folder that goes too if this process dies before it could tidy up."""

    def __init__(self, command: Sequence[str], log: Path, environ: Mapping[str, str], deleted_with_us: Path | None) -> None:
        self.log = log
        self._command, self._environ, self._deleted_with_us = list(command), dict(environ), deleted_with_us
        self._java: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return self._java.pid if self._java is not None and self._java.poll() is None else None

    def start(self) -> None:
        assert self.pid is None, "it runs already"
        self._end_guard()
        with self.log.open("ab") as out:
            self._java = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environ,
                cwd=self.log.parent,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._java.pid), str(self._deleted_with_us or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; to a server that has ended, none."""
        if self.pid is not None:
            os.kill(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP; it answers nothing any more when this returns."""
        self.signal(signal.SIGSTOP)
        if self.pid is not None and hasattr(os, "waitid"):  # a busy machine may let it answer some more; not on macOS
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """SIGKILL, and wait until it has ended; a paused one too."""
        self.signal(signal.SIGKILL)
        self.wait(KILL_S_MAX)

    def terminate(self) -> None:
        """Ask it to end; `wait` for it."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused one would never see it

    def wait(self, timeout_s: float) -> None:
        """Until it has ended, at most so long; then it is killed."""
        if self._java is not None:
            try:
                self._java.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._java.kill()
                self._java.wait(KILL_S_MAX)
        self._end_guard()

    def last_lines(self) -> list[str]:
        """The end of its log, without the frames of Java's stacks: what went wrong is in the line above them."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as log:
                telling = (line.rstrip() for line in log if not line.lstrip().startswith("at "))
                return list(deque(telling, _LOG_LINES_SHOWN))
        except OSError:
            return []

    def _end_guard(self) -> None:
        """Before its pipe is closed, or it would kill another process that has the server's process id by now."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait(KILL_S_MAX)
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard = None


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(host: str) -> Iterator[int]:
    """Different free ports, at random, so that two processes hardly try the same; ends after `_TRIES`. They are below the
    range that the system gives to connections: a server that was killed must find its ports free when it comes back."""
    for port in random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _TRIES):
        if is_free(host, port):
            yield port
