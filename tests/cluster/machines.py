"""Machines for tests: processes that see one folder of another machine, and nothing else of it.

Each machine is a mount and a host-name namespace of this one. The folder of the driver is empty there; the folder `own` and the
kernel's boot id are the machine's. What is installed, the network and `shared` are seen by all.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

BOOT_ID = "/proc/sys/kernel/random/boot_id"
START_S_MAX = 60.0
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k"
_ENTER = f"""
set -e
mount --make-rprivate /
mount -t tmpfs -o size=1m none "$HIDDEN"
mount --bind "$MACHINE/own" "$OWN"
mount --bind "$MACHINE/boot_id" {BOOT_ID}
hostname "$NAME"
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
        self.boot_ids = {name: str(uuid.uuid4()) for name in machines}
        self.master = ""
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        for folder in (self.driver / "tmp", self.own, self.shared):
            folder.mkdir(parents=True)
        for name, folder in self.machines.items():
            for below in ("own", "home", "tmp", "local", "work"):
                (folder / below).mkdir(parents=True)
            (folder / "boot_id").write_text(f"{self.boot_ids[name]}\n")
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *of: Any) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)  # a worker ends its executors
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = self._run([], master, "master", {"SPARK_LOCAL_IP": "127.0.0.1", "HOME": str(self.root)})
        self.master = _said(log, "Starting Spark master at ")
        logs = []
        for number, (name, folder) in enumerate(self.machines.items(), 2):
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g"]
            worker += ["--webui-port", "0", "--work-dir", str(folder / "work"), self.master]
            environment = {
                "SPARK_LOCAL_IP": f"127.0.0.{number}",
                "SPARK_LOCAL_DIRS": str(folder / "local"),
                "TMPDIR": str(folder / "tmp"),
                "HOME": str(folder / "home"),
                "MACHINE": str(folder),
                "OWN": str(self.own),
                "HIDDEN": str(self.driver),
                "NAME": name,
            }
            enter = [*unshare(), "sh", "-c", _ENTER, "sh"]
            logs.append(self._run(enter, worker, name, environment))
            self.workers[name] = self._processes[-1]
        for log in logs:
            _said(log, "Successfully registered with master ")

    def _run(self, enter: list[str], command: list[str], name: str, environment: dict[str, str]) -> Path:
        log = self.root / f"{name}.log"
        spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        daemon = {
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_JAVA} -Dspark.master.rest.enabled=false",
            "SPARK_NO_DAEMONIZE": "1",
        }
        with log.open("wb") as output:
            started = subprocess.Popen(
                [*enter, spark_class, *command],
                cwd=self.root,
                env=os.environ | daemon | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(started)
        return log

    def executors(self, name: str) -> list[int]:
        """The process ids of the executors of a machine."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                is_executor = b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes()
                if is_executor and parent == self.workers[name].pid:
                    found.append(int(folder.name))
        return found


def _said(log: Path, words: str) -> str:
    """What follows `words` in a log, once it is there."""
    return str(until(lambda: log.read_text().partition(words)[2].partition("\n")[0], START_S_MAX, log.read_text))


def until(look: Callable[[], Any], within_s: float, explained: Callable[[], str] = str) -> Any:
    """What `look` gives, once it is true."""
    deadline_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"not after {within_s:.0f} s: {explained()}"
        time.sleep(0.05)
    return found
