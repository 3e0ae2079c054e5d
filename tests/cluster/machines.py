"""Machines for tests: processes that see one folder of another machine, and nothing else of it.

Each machine is a mount and a host-name namespace of this one. The folder of the driver is empty there; the folder `own` and the
kernel's boot id are the machine's. What is installed, the network and `shared` are seen by all.
"""

from __future__ import annotations

import functools
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.adapters.spark.standalone import StandaloneCluster

BOOT_ID = "/proc/sys/kernel/random/boot_id"
RESTORE_STOPPED_AT = 2  # batches
_ENTER = f"""
set -e
mount --make-rprivate /
mount -t tmpfs -o size=1m none "$HIDDEN"
mount --bind "$MACHINE/own" "$OWN"
mount --bind "$MACHINE/boot_id" {BOOT_ID}
hostname "$NAME"
eval "$SPOIL"
cd "$MACHINE/home"
exec "$@"
"""


_UNSHARE = (["unshare", "--mount", "--uts"], ["unshare", "--map-root-user", "--mount", "--uts"])  # as root, or as another user


@functools.cache
def unshare() -> list[str]:
    """The command that makes the namespaces; `NoMachinesError` where the kernel allows none."""
    trial = ["sh", "-c", f"mount --make-rprivate / && mount --bind {BOOT_ID} {BOOT_ID} && hostname trial"]
    made = [subprocess.run([*command, *trial], capture_output=True, text=True, check=False) for command in _UNSHARE]
    for command, done in zip(_UNSHARE, made, strict=True):
        if done.returncode == 0:
            return command
    raise NoMachinesError(made[0].stderr.strip())


class NoMachinesError(Exception):
    """The kernel, or what confines this process, gives no mount and host-name namespace."""


class Cluster:
    """A Spark standalone master and workers with one core each, below `root`; use it in a `with`.

    `driver` is the folder that no worker sees, `own` has another content on each machine, and `shared` the same on all.
    """

    def __init__(self, root: Path, machines: Sequence[str]) -> None:
        self.root = root
        self.driver, self.own, self.shared = root / "driver", root / "own", root / "shared"
        self.machines = {name: root / name for name in machines}
        self.boot_ids: dict[str, str] = {}
        self.host_names: dict[str, str] = {}  # where they are others than the machines' names; a start goes by them
        self._steps = root / "shared" / "restore-steps"
        self._spark = StandaloneCluster(root)

    def __enter__(self) -> Cluster:
        for folder in (self.driver / "tmp", self.own, self.shared):
            folder.mkdir(parents=True)
        self._steps.write_bytes(b"." * (RESTORE_STOPPED_AT + 1))
        self._spark.__enter__()
        try:
            for number, name in enumerate(self.machines, 2):
                self._join(name, f"127.0.0.{number}")
            for name in self.machines:
                self._spark.wait_for(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *of: Any) -> None:
        self._spark.close()

    @property
    def master(self) -> str:
        return self._spark.master

    @contextmanager
    def joined(self, name: str, host: str, spoil: str) -> Iterator[None]:
        """One machine more while the context is open, at an address. `spoil`: commands of a shell as root there, which take
        something from it; `$OWN`, `$SHARED` and `$MACHINE` are folders."""
        self._join(name, host, spoil)
        try:
            yield
        finally:
            self._spark.kill_worker(name)

    def _join(self, name: str, host: str, spoil: str = "") -> None:
        folder = self.root / name
        for below in ("own", "home"):
            (folder / below).mkdir(parents=True, exist_ok=True)
        self.boot_ids.setdefault(name, str(uuid.uuid4()))
        (folder / "boot_id").write_text(f"{self.boot_ids[name]}\n")
        environment = {
            "HOME": str(folder / "home"),
            "MACHINE": str(folder),
            "OWN": str(self.own),
            "SHARED": str(self.shared),
            "HIDDEN": str(self.driver),
            "NAME": self.host_names.get(name, name),
            "SPOIL": spoil,
            "HEADRACE_TEST_STEPS": f"stop:restore:1:{RESTORE_STOPPED_AT}@{self._steps}",
        }
        self._spark.add_worker(name, host, folder, environment, [*unshare(), "sh", "-c", _ENTER, "sh"])

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        return self._spark.worker(name)

    def stop_next_restore(self) -> None:
        """Have a process stop when so many batches of state have been restored from now on: SIGCONT has it resume."""
        self._steps.write_bytes(b"")

    def restored_batches(self) -> int:
        """How many batches of state have been restored since then."""
        return self._steps.stat().st_size

    def executors(self, name: str) -> list[int]:
        """The process ids of the executors of a machine."""
        return self._spark.executors(name)


def until(look: Callable[[], Any], within_s: float, explained: Callable[[], str] = str) -> Any:
    """What `look` gives, once it is true."""
    deadline_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"not after {within_s:.0f} s: {explained()}"
        time.sleep(0.05)
    return found
