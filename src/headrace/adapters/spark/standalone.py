"""A Spark standalone cluster on this machine: the processes of a master and of workers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.errors import SetupError

LOG = logging.getLogger("headrace.job")
START_S_MAX, END_S_MAX, GUARD_S_MAX = 60.0, 10.0, 5.0
_LOOK_S = 0.05
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k -Dspark.master.rest.enabled=false"
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_SHOWN_CHARS = 2_000
# Beside each process: if this one dies, however it dies, the pipe that it holds closes.
_GUARD = 'cat >/dev/null 2>&1; kill -s KILL -- "-$1" 2>/dev/null'
_HELD = "a process that was forked from this one while the cluster ran holds it open"


class StandaloneCluster:
    """A master, from when the context is entered, and the workers that are added. All end when it is left. `folder` gets a log
    of each. `host`: the master's address. `enter`: a command that runs its arguments as the master's machine."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", enter: Sequence[str] = ()) -> None:
        self._folder, self._host, self._enter = folder, host, enter
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guards: list[tuple[str, int, subprocess.Popen[bytes]]] = []  # the name and the id of its process
        self.master = ""

    def __enter__(self) -> Self:
        try:
            command = ["org.apache.spark.deploy.master.Master", "--host", self._host, "--port", "0", "--webui-port", "0"]
            self._start("master", command, {"SPARK_LOCAL_IP": self._host}, self._enter)
            self.master = self._said("master", "Starting Spark master at ")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes. Each is waited for within a bound; the log names those that have not ended by then."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)  # a worker ends its executors
        for name, process in self._processes.items():
            if not _has_ended(process, END_S_MAX):
                process.kill()
                if not _has_ended(process, END_S_MAX):
                    LOG.warning("the Spark %s (process %d) has not ended %.0f s after SIGKILL", name, process.pid, END_S_MAX)
        for _, _, guard in self._guards:
            assert guard.stdin is not None
            guard.stdin.close()
        until_s = time.monotonic() + GUARD_S_MAX
        for name, pid, guard in self._guards:
            if not _has_ended(guard, max(0.0, until_s - time.monotonic())):
                LOG.warning("the guard of the Spark %s has waited %.0f s for the end of its pipe: %s", name, GUARD_S_MAX, _HELD)
                _kill_session(pid)
                _kill_session(guard.pid)
                _has_ended(guard, GUARD_S_MAX)

    def add_worker(
        self, name: str, host: str, folder: Path, environment: Mapping[str, str] | None = None, enter: Sequence[str] = ()
    ) -> None:
        """Start a worker with one core at an address, with its files in `folder`; it is not waited for. `enter`: a command that
        runs its arguments as the worker's machine."""
        for below in ("tmp", "local", "work"):
            (folder / below).mkdir(parents=True, exist_ok=True)
        command = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g"]
        command += ["--webui-port", "0", "--work-dir", str(folder / "work"), self.master]
        own = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(folder / "local"), "TMPDIR": str(folder / "tmp")}
        self._start(name, command, {**own, **(environment or {})}, enter)

    def wait_for(self, name: str) -> None:
        """Wait until the master knows a worker. `SetupError` where that takes too long."""
        self._said(name, "Successfully registered with master ")

    def kill_worker(self, name: str) -> None:
        """As when its host is lost: the worker and its executors get no chance to report it."""
        os.killpg(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].wait()

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        return self._processes[name]

    def executors(self, name: str) -> list[int]:
        """The process ids of the executors of a worker."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self._processes[name].pid and _EXECUTOR in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str], enter: Sequence[str] = ()) -> None:
        from pyspark.find_spark_home import _find_spark_home

        spark_class = str(Path(_find_spark_home()) / "bin" / "spark-class")
        daemon = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": _JAVA, "SPARK_NO_DAEMONIZE": "1"}
        with self._log(name).open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [*enter, spark_class, *command],
                cwd=self._folder,
                env={**os.environ, **daemon, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us, and we end them in order
            )
        guard = ["/bin/sh", "-c", _GUARD, "guard", str(self._processes[name].pid)]
        started = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        self._guards.append((name, self._processes[name].pid, started))

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _said(self, name: str, words: str) -> str:
        """What follows `words` in a log, once it is there."""
        until_s = time.monotonic() + START_S_MAX
        while not (found := (text := self._log(name).read_text()).partition(words)[2].partition("\n")[0]):
            if self._processes[name].poll() is not None or time.monotonic() > until_s:
                raise SetupError(
                    f"the Spark {name} has not started within {START_S_MAX:.0f} s: {text[-_SHOWN_CHARS:]}",
                    "the lines above are its own; a taken port or too little memory are usual",
                )
            time.sleep(_LOOK_S)
        return found


def _has_ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_session(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
