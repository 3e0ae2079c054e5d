"""One ZooKeeper server on this machine: its folder, its port, its settings and its process."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.adapters.common.server_process import STOP_S_MAX, ServerProcess, free_ports, is_free
from headrace.config.keys import handed_on
from headrace.environment import checked_folder, checked_java
from headrace.errors import SetupError

HOST = "127.0.0.1"  # nothing here is ever reached from another machine
START_S_MAX = 120.0  # 2 s on an idle machine
TICK_MS = 200  # sessions end at multiples of it
SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX = 400, 60_000
_POLL_S = 0.05
_ANSWER_S_MAX = 2.0
_PORT_TRIES = 3
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
# Of PySpark's jars: what the server loads. All of them on the class path would cost a second at each start.
_JARS = (
    "audience-annotations-", "jline-2", "log4j-api-", "log4j-core-", "log4j-slf4j2-impl-", "metrics-core-", "netty-",
    "slf4j-api-", "snappy-java-", "zookeeper-",
)  # fmt: skip
JAVA_OPTIONS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dlog4j2.level=WARN",  # Log4j's own default configuration, to standard output
    "-Dzookeeper.jmx.log4j.disable=true",
)


def pyspark_jars() -> tuple[Path, ...]:
    """The jars that a server needs, of those that come with PySpark. `SetupError` if it is not installed, or has others."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    jars = sorted(folder.glob("*.jar")) if folder is not None else []
    chosen = tuple(jar for jar in jars if jar.name.startswith(_JARS))
    if not any(jar.name.startswith("zookeeper-3") for jar in chosen):
        raise SetupError("no ZooKeeper is among PySpark's jars", "install the version of PySpark that Headrace asks for")
    return chosen


class ZooKeeperServer:
    """A ZooKeeper server of its own for a test or a trial: `with ZooKeeperServer() as server: ... server.address`.

    It listens on loopback only, and ends with this process, however it ends. `port`: any free one if None. Without a `folder`
    its data are deleted when it stops. `users` (name to password): clients may log in by SASL with DIGEST-MD5.
    `settings` are lines of `zoo.cfg` that win over ours. `SetupError` when it does not come up, with the end of its log.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        folder: Path | str | None = None,
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        jars: Sequence[Path] | None = None,
    ) -> None:
        self._given_port, self._kept_folder = port, None if folder is None else Path(folder)
        self._users, self._settings, self._jars = dict(users or {}), dict(settings or {}), jars
        self._process: ServerProcess | None = None
        self._folder: Path | None = None
        self._removal: weakref.finalize[..., ZooKeeperServer] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """HOST:PORT."""
        assert self._process is not None, "the ZooKeeper server was not started: use `with`, or start()"
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return None if self._process is None else self._process.pid

    def last_lines(self) -> str:
        """The end of its log."""
        return "" if self._process is None else "\n".join(f"  {line}" for line in self._process.last_lines())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start it and wait until it answers."""
        assert self._process is None, "it was started before"
        java = checked_java(os.environ).path
        jars = os.pathsep.join(map(str, pyspark_jars() if self._jars is None else self._jars))
        if self._kept_folder is not None:
            self._folder = checked_folder(self._kept_folder, "ZooKeeper's data")
        else:
            self._folder = Path(tempfile.mkdtemp(prefix="headrace-zookeeper-"))
            self._removal = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        try:
            self._start_first_time([str(java), *JAVA_OPTIONS], jars)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it; without a folder of the user's, the data are deleted. Again, it does nothing."""
        if self._process is not None:
            if self._kept_folder is None:
                self._process.kill()
            else:
                self._process.terminate()
                self._process.wait(STOP_S_MAX)
            self._process = None
        if self._removal is not None:
            self._removal()

    def kill(self) -> None:
        """SIGKILL; it has ended when this returns."""
        self._running().kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections, and answers nothing."""
        self._running().pause()

    def resume(self) -> None:
        self._running().signal(signal.SIGCONT)

    def restart(self, *, empty: bool = False) -> None:
        """Start it again on its port, with its data; `empty`: without them. One that runs is killed before. It answers when
        this returns."""
        process = self._running()
        process.kill()
        assert self._folder is not None
        if empty:
            shutil.rmtree(self._folder / "data")
        process.start()
        self._wait_until_ready()

    def _running(self) -> ServerProcess:
        assert self._process is not None, "the ZooKeeper server was not started: use `with`, or start()"
        return self._process

    def _start_first_time(self, program: Sequence[str], jars: str) -> None:
        """Another process may take the port between our look and the server's: then with another one."""
        assert self._folder is not None
        free = free_ports(HOST)
        for left in reversed(range(_PORT_TRIES)):
            self.port = next(free) if self._given_port is None else self._given_port
            if not is_free(HOST, self.port):
                raise SetupError(
                    f"port {self.port} of {HOST} is taken: ZooKeeper was to listen there",
                    "choose another port, or end what listens there",
                )
            file = self._folder / "zoo.cfg"
            file.write_text("".join(f"{name}={value}\n" for name, value in self._config().items()), encoding="utf-8")
            command = [*program, *self._login_options(), "-cp", jars, _MAIN, str(file)]
            temporary = self._folder if self._kept_folder is None else None
            self._process = ServerProcess(command, self._folder / "server.log", handed_on(os.environ), temporary)
            self._process.start()
            try:
                self._wait_until_ready()
                break
            except SetupError as error:
                if not left or "Address already in use" not in error.message:
                    raise
                self._process.kill()

    def _config(self) -> dict[str, str]:
        ours = {
            "dataDir": f"{self._folder}/data",
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(SESSION_TIMEOUT_MS_MIN),
            "maxSessionTimeout": str(SESSION_TIMEOUT_MS_MAX),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        if self._users:
            ours["authProvider.1"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        return ours | self._settings

    def _login_options(self) -> list[str]:
        """Users are in a file that none but this user reads; command lines are seen by all."""
        if not self._users:
            return []
        assert self._folder is not None
        file = self._folder / f"login-{secrets.token_hex(4)}.conf"
        file.touch(mode=0o600)
        lines = "".join(f' user_{name}="{password}"' for name, password in self._users.items())
        login = f"org.apache.zookeeper.server.auth.DigestLoginModule required{lines};"
        file.write_text(f"Server {{ {login} }};\n", encoding="utf-8")
        return [f"-Djava.security.auth.login.config={file}"]

    def _wait_until_ready(self) -> None:
        process, end = self._running(), time.monotonic() + START_S_MAX
        while not mode_of(self.port):
            if process.pid is None or time.monotonic() > end:
                what = "it ended" if process.pid is None else f"no answer in {START_S_MAX:.0f} seconds"
                raise SetupError(
                    f"the ZooKeeper server did not start: {what}. The end of its log:\n{self.last_lines()}",
                    "the lines above are ZooKeeper's own; a taken port or too little memory are usual",
                )
            time.sleep(_POLL_S)


def mode_of(port: int) -> str:
    """Of the server at this port: `standalone`, or `leader` or `follower` of an ensemble; empty where it does not serve (a
    port that is open says less)."""
    with suppress(OSError), socket.create_connection((HOST, port), _ANSWER_S_MAX) as connection:
        connection.settimeout(_ANSWER_S_MAX)
        connection.sendall(b"srvr")
        with connection.makefile("rb") as answer:
            found = re.search(rb"^Mode: (\w+)", answer.read(4096), re.MULTILINE)
            return "" if found is None else found[1].decode()
    return ""
