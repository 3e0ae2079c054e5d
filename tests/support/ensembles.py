"""A ZooKeeper ensemble of three servers on this machine, and what tests do to its servers and to the links between them."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from itertools import permutations
from pathlib import Path

from headrace.adapters.common.server_process import ServerProcess, free_ports
from headrace.adapters.zookeeper_server.server import HOST, JAVA_OPTIONS, mode_of, pyspark_jars
from headrace.config.keys import handed_on
from headrace.environment import checked_java
from headrace.errors import SetupError
from support.zookeepers import Wire

TICK_MS = 200
SYNC_LIMIT_S = 4.0  # so long leader and followers wait for each other
START_S_MAX = 120.0
LEADS_S = 2.0  # one that was chosen does not listen at once; a follower that is cut off here leaves it for `initLimit`
NUMBERS = (1, 2, 3)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class Ensemble:
    """Servers 1, 2 and 3. Each reaches the two others, for what is committed, by a wire of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-ensemble-"))
        free = free_ports(HOST)
        self.ports, self._quorum, self._election = ({number: next(free) for number in NUMBERS} for _ in range(3))
        self.links = {pair: Wire(self._quorum[pair[1]], LEADS_S) for pair in permutations(NUMBERS, 2)}
        self.processes = {number: self._process(number) for number in NUMBERS}

    @property
    def address(self) -> str:
        """HOST:PORT of all."""
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(number for number, process in self.processes.items() if process.pid is not None)

    def start(self) -> Ensemble:
        """Start those that do not run, wake those that are paused, heal all links; all serve when this returns."""
        for link in self.links.values():
            link.heal()
        for number, process in self.processes.items():
            if number not in self.running:
                process.start()
            process.signal(signal.SIGCONT)
        self.await_serving(*NUMBERS)
        return self

    def await_serving(self, *numbers: int) -> None:
        end_s = time.monotonic() + START_S_MAX
        while not all(mode_of(self.ports[number]) for number in numbers):
            if len(self.running) < len(numbers) or time.monotonic() > end_s:
                logs = "\n".join(line for number in numbers for line in self.processes[number].last_lines())
                raise SetupError(f"servers {numbers} of the ensemble do not serve; those that run: {self.running}\n{logs}")
            time.sleep(0.05)

    def leader(self) -> int:
        """The one that leads now; a quorum must be there."""
        end_s = time.monotonic() + START_S_MAX
        while time.monotonic() < end_s:
            for number in self.running:
                if mode_of(self.ports[number]) == "leader":
                    return number
            time.sleep(0.05)
        raise AssertionError("no server leads")

    def followers(self) -> tuple[int, ...]:
        leader = self.leader()
        return tuple(number for number in self.running if number != leader)

    def kill(self, number: int) -> None:
        """SIGKILL; it has ended when this returns."""
        self.processes[number].kill()

    def pause(self, number: int) -> None:
        """SIGSTOP: as a host whose power is cut, it answers nothing and closes nothing."""
        self.processes[number].pause()

    def resume(self, number: int) -> None:
        self.processes[number].signal(signal.SIGCONT)

    def restart(self, number: int) -> None:
        """One that was killed, with its data."""
        self.processes[number].start()

    def hold(self, follower: int) -> None:
        """From now on nothing comes from the leader to this follower, nor back: it is behind, and neither knows it for
        `SYNC_LIMIT_S`."""
        self.links[follower, self.leader()].hold()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for link in self.links.values():
            link.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _process(self, number: int) -> ServerProcess:
        folder = self.folder / str(number)
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "myid").write_text(f"{number}\n")
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in self._config(number).items()))
        jars = os.pathsep.join(map(str, pyspark_jars()))
        command = [str(checked_java(os.environ).path), *JAVA_OPTIONS, "-cp", jars, _MAIN, str(folder / "zoo.cfg")]
        return ServerProcess(command, folder / "server.log", handed_on(os.environ), self.folder)

    def _config(self, number: int) -> dict[str, str]:
        others = {
            f"server.{other}": f"{HOST}:{link.port}:{self._election[other]}"
            for (near, other), link in self.links.items()
            if near == number
        }
        return {
            "dataDir": f"{self.folder}/{number}/data",
            "clientPort": str(self.ports[number]),
            "clientPortAddress": HOST,
            "tickTime": str(TICK_MS),
            "initLimit": str(int(10_000 / TICK_MS)),
            "syncLimit": str(int(SYNC_LIMIT_S * 1000 / TICK_MS)),
            "minSessionTimeout": "400",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            f"server.{number}": f"{HOST}:{self._quorum[number]}:{self._election[number]}",
            **others,
        }
