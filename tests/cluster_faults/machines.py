"""Machines that are killed, stopped and started again, under the name of before or another one."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster.machines import BOOT_ID, Cluster, unshare

_ELSEWHERE = f"""
set -e
mount --make-rprivate /
mount --bind "$0" {BOOT_ID}
hostname "$1"
shift
exec "$@"
"""


class FaultyCluster(Cluster):
    """Of its machines the first `begin_with` have a worker from the beginning, None: all. `names`: all that it may have."""

    def __init__(self, root: Path, names: Sequence[str], begin_with: int | None = None) -> None:
        super().__init__(root, names[:begin_with])
        self.names, self.there = tuple(names), set(names[:begin_with])

    def __exit__(self, *of: Any) -> None:
        for name in self.there:
            with suppress(OSError):
                self.thaw(name)
        super().__exit__(*of)

    def start(self, *names: str) -> None:
        """Give these machines a worker, which is known to the master when this returns."""
        for name in names:
            self._join(name, f"127.0.0.{self.names.index(name) + 2}")
        for name in names:
            self._spark.wait_for(name)
        self.there |= set(names)

    def kill(self, name: str) -> None:
        """End all that runs on a machine, as when it loses power."""
        self._send(signal.SIGKILL, self.pids(name))
        self.worker(name).wait()
        self.there.discard(name)

    def freeze(self, name: str, below: int | None = None) -> list[int]:
        """Stop all processes of a machine, or one of them and all that come of it; `thaw` has them run on."""
        frozen = list[int]()
        while more := [pid for pid in self.pids(name, below) if pid not in frozen]:  # one that was begun meanwhile, too
            self._send(signal.SIGSTOP, more)
            frozen += more
        return frozen

    def thaw(self, name: str) -> None:
        self._send(signal.SIGCONT, self.pids(name))

    def _send(self, number: signal.Signals, pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self, name: str, below: int | None = None) -> list[int]:
        """The processes of a machine; or one of them, and all that come of it."""
        mine = os.readlink(f"/proc/{self.worker(name).pid}/ns/mnt")
        parents = dict[int, int]()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(folder / "ns" / "mnt") == mine:
                    parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        found = list(parents) if below is None else [below]
        while more := [pid for pid, parent in parents.items() if parent in found and pid not in found]:
            found += more
        return found

    def kill_executor(self, name: str) -> int:
        """The process id of the one executor of a machine, which is killed."""
        (only,) = self.executors(name)
        os.kill(only, signal.SIGKILL)
        return int(only)

    def machine_of(self, pid: int) -> str:
        return next(name for name in self.there if pid in self.pids(name))


def on_another_host(name: str, boot_id: Path) -> Sequence[str]:
    """The command that runs what follows it on a host of this name and boot id, which has all files of this machine."""
    return [*unshare(), "sh", "-c", _ELSEWHERE, str(boot_id), name]
