"""Faults inside a container's commit: each process that comes to a numbered step counts in a file, and one of them is hit.

The files are named in the environment of all executors, once; a trap is set by the size of its file.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from cluster.machines import until

ACTIONS, STEPS = ("kill", "stop"), range(1, 12)  # of the protocol of a container on Kafka
_NEVER = 1_000_000  # arrivals at one step


class Traps:
    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "sprung"
        folder.mkdir()
        self._log.touch()

    @property
    def environment(self) -> dict[str, str]:
        traps = [f"{action}:kafka:{step}:{_NEVER}@{self._file(action, step)}" for action in ACTIONS for step in STEPS]
        return {"HEADRACE_TEST_STEPS": ",".join(traps), "HEADRACE_TEST_STEPS_LOG": str(self._log)}

    def _file(self, action: str, step: int) -> Path:
        return self._folder / f"{action}-{step}"

    def hit(self, action: str, step: int, arrival: int = 1, within_s: float = 60.0) -> int:
        """Have the process that is the next (or the `arrival`-th) to come to a step killed or stopped; its id, once it was."""
        before = len(self._sprung())
        with self._file(action, step).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(_NEVER - arrival)
        sprung = until(lambda: self._sprung()[before:], within_s, lambda: f"none came to step {step}")
        assert len(sprung) == 1, sprung
        done, protocol, number, pid = sprung[0].split()
        assert (done, protocol, number) == (action, "kafka", str(step))
        return int(pid)

    def _sprung(self) -> list[str]:
        return self._log.read_text().splitlines()
