"""The tests' side of `child.py`: start runs, wait for them, see which step they died at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("child.py")
WAIT_S_MAX = 30.0


class Children:
    """A process that forks the runs of a test; a context manager that leaves nothing running behind.

    `script` is that process; it speaks as `child.py` does. `enter`: a command that runs its arguments elsewhere, such as in
    namespaces, with the variables `environment`.
    """

    def __init__(
        self, folder: Path, script: Path = CHILD, enter: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self._script = folder, script
        self._enter, self._environment = enter, environment or {}
        self.errors = folder / "child-errors.txt"
        self._runs = 0
        self._alive: set[int] = set()

    def __enter__(self) -> Children:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_TEST_")}
        with self.errors.open("wb") as errors:
            self._server = subprocess.Popen(
                [*self._enter, sys.executable, str(self._script), "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**environ, **self._environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        try:
            self._server.wait(WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server.stdout.close()

    def end_all(self) -> None:
        """End what still runs, or is stopped."""
        for pid in list(self._alive):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.wait(pid)

    def files(self) -> dict[str, str]:
        """A report and a steps log of its own for a run."""
        self._runs += 1
        return {part: str(self.folder / f"{part}-{self._runs}") for part in ("report", "steps_log")}

    def start(self, run: Any) -> int:
        pid: int = self._asked({"start": asdict(run)})["pid"]
        self._alive.add(pid)
        return pid

    def wait(self, pid: int) -> int:
        """Its exit code, negative for a signal; a run ends itself after a minute or so."""
        code: int = self._asked({"wait": pid})["code"]
        self._alive.discard(pid)
        return code

    def finish(self, run: Any) -> int:
        return self.wait(self.start(run))

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        assert line, f"the server of runs ended: {self.errors.read_text()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


def sprung(run: Any) -> list[str]:
    """The traps that acted, such as `kill log 5`."""
    path = Path(run.steps_log)
    return [line.rpartition(" ")[0] for line in path.read_text().splitlines()] if path.exists() else []


def told(run: Any) -> str:
    """What a run said at its end, and its last log lines."""
    said = ""
    with suppress(OSError):
        said = str(report_of(run))
    with suppress(OSError):
        said += "\n" + log_of(run)[-3000:]
    return said


def log_of(run: Any) -> str:
    return Path(f"{run.report}.log").read_text()


def report_of(run: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(run.report).read_text())
    return found


def wait_until_stopped(pid: int) -> None:
    """Wait until the process is stopped by a signal; `AssertionError` if it ends or is not within half a minute."""
    deadline = time.monotonic() + 30
    while (state := state_of(pid)) not in ("T", "t"):
        assert state not in ("Z", ""), f"process {pid} ended; it was to stop"
        assert time.monotonic() < deadline, f"process {pid} is in state {state}; it was to stop"
        time.sleep(0.01)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
