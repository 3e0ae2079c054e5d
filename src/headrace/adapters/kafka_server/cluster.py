"""A Kafka cluster on this machine: its folder, its ports, and its brokers as one."""

from __future__ import annotations

import base64
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headrace.adapters.common.server_process import STOP_S_MAX, ServerProcess, free_ports, is_free
from headrace.adapters.kafka_server.answers import brokers_known_to
from headrace.adapters.kafka_server.settings import (
    HOST,
    BrokerPorts,
    ClusterPlan,
    Security,
    TlsFiles,
    as_text,
    scram_arguments,
    server_properties,
)
from headrace.config.keys import handed_on
from headrace.environment import checked_folder, checked_java
from headrace.errors import ConfigError, SetupError

START_S_MAX = 120.0  # 5 s on an idle machine
TOOL_S_MAX = 60
REMOVE_S_MAX = 10.0  # then `rm` finishes in the background
_POLL_S = 0.1
_ANSWER_S_MAX = 2.0
_PORT_TRIES = 3
BROKERS_MAX = 9
# The heap is small as the data of a test is; the log's lines go to standard error, warnings and worse.
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:MaxMetaspaceSize=192m",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
_QUICKLY = "-XX:TieredStopAtLevel=1"  # for tools, which run for a moment each


class Cluster(ABC):
    """`brokers` Kafka brokers with the node ids 1 to `brokers`, reached through loopback only: see `KafkaServer`. `port` is
    the first broker's (then counted up), any free one if None; without a `folder` the data go when it stops."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        port: int | None = None,
        folder: Path | str | None = None,
        properties: Mapping[str, Any] | None = None,
        security: Security = "plaintext",
        users: Mapping[str, str] | None = None,
        heap_mb: int = 320,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ConfigError(f"a Kafka server of {brokers} brokers: expected 1 to {BROKERS_MAX}")
        if security not in ("plaintext", "sasl_ssl", "ssl"):
            raise ConfigError(f"security {security!r} of the Kafka server: expected 'plaintext', 'sasl_ssl' or 'ssl'")
        self._count, self._port, self._kept_folder = brokers, port, None if folder is None else Path(folder)
        self._properties = {name: str(value) for name, value in (properties or {}).items()}
        self._security, self._heap_mb = security, heap_mb
        self.tell = tell or _say
        self._users = dict(users or {"alice": f"pw-{secrets.token_hex(8)}"})
        self._processes: dict[int, ServerProcess] = {}
        self._plan: ClusterPlan | None = None
        self._folder: Path | None = None
        self._removal: weakref.finalize[..., Cluster] | None = None

    @abstractmethod
    def jars(self) -> Sequence[Path]:
        """The server's jars."""

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as `bootstrap.servers` takes them."""
        return ",".join(f"{HOST}:{ports.client}" for _, ports in sorted(self._started_plan().ports.items()))

    @property
    def tls(self) -> TlsFiles:
        tls = self._started_plan().tls
        assert tls is not None, "this cluster was made without TLS"
        return tls

    def client_settings(self, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """All that a client of librdkafka needs to reach the cluster, as the first user; `mechanism` of SASL."""
        found = {"bootstrap.servers": self.bootstrap}
        if self._security != "plaintext":
            found |= {"security.protocol": self._security.upper(), "ssl.ca.location": str(self.tls.ca_pem)}
        if self._security == "ssl":
            found |= {"ssl.keystore.location": str(self.tls.client_key_store), "ssl.keystore.password": self.tls.password}
        if self._security == "sasl_ssl":
            user, password = next(iter(self._users.items()))
            found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return found

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each broker that runs, by node id."""
        return {node: process.pid for node, process in self._processes.items() if process.pid is not None}

    def start(self) -> Self:
        """Start all brokers and wait until they answer. `SetupError` with the end of the log if they do not."""
        assert not self._processes, "it was started before"
        java, class_path = checked_java(os.environ).path, os.pathsep.join(map(str, self.jars()))
        given = shlex.split(os.environ.get("KAFKA_OPTS", ""))  # as Kafka's own scripts take it
        heap = (f"-Xmx{self._heap_mb}m", f"-Xms{self._heap_mb // 2}m")
        program = [str(java), *heap, *_JAVA_OPTIONS, *given, "-cp", class_path]
        self._make_folder()
        try:
            self._start_first_time(java, program)
        except BaseException:
            self.stop()
            raise
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End all brokers; without a folder of the user's, the data go with them. Again, it does nothing."""
        for process in self._processes.values():
            if self._kept_folder is None:
                process.signal(signal.SIGKILL)  # what it would still write is deleted at once
            else:
                process.terminate()
        end = time.monotonic() + STOP_S_MAX
        for process in self._processes.values():
            process.wait(max(0.1, end - time.monotonic()))
        self._processes = {}
        if self._removal is not None:
            self._removal()

    def kill(self, broker: int | None = None) -> None:
        """SIGKILL one broker, all if None; it has ended when this returns."""
        for process in self._chosen(broker).values():
            process.kill()

    def pause(self, broker: int | None = None) -> None:
        """SIGSTOP: it keeps its connections, and answers nothing."""
        for process in self._chosen(broker).values():
            process.pause()

    def resume(self, broker: int | None = None) -> None:
        for process in self._chosen(broker).values():
            process.signal(signal.SIGCONT)

    def restart(self, broker: int | None = None) -> None:
        """Start one broker again, all if None, with its data and ports; one that runs is stopped before. It answers when this
        returns."""
        chosen = self._chosen(broker)
        for process in chosen.values():
            process.terminate()
        for process in chosen.values():
            process.wait(STOP_S_MAX)
            process.start()
        self._wait_until_ready(chosen)

    def last_lines(self) -> str:
        """The end of the log of each broker, for people."""
        return "\n".join(
            f"  broker {node}: {line}" for node, process in sorted(self._processes.items()) for line in process.last_lines()
        )

    def _started_plan(self) -> ClusterPlan:
        assert self._plan is not None, "the Kafka server was not started: use `with`, or start()"
        return self._plan

    def _chosen(self, broker: int | None) -> dict[int, ServerProcess]:
        if broker is None:
            return dict(self._processes)
        if broker not in self._processes:
            raise ConfigError(f"broker {broker} of the Kafka server: expected one of {sorted(self._processes)}")
        return {broker: self._processes[broker]}

    def _make_folder(self) -> None:
        if self._kept_folder is not None:
            self._folder = checked_folder(self._kept_folder, "Kafka's data")
        else:
            self._folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
            self._removal = weakref.finalize(self, _remove, self._folder)

    def _start_first_time(self, java: Path, program: Sequence[str]) -> None:
        """Another process may take a port between our look and the broker's: then with other ports."""
        assert self._folder is not None
        tls = None
        if self._security != "plaintext":
            tls = _make_certificates(self._folder / f"tls-{uuid.uuid4().hex[:8]}", java, secrets.token_hex(12))
        for left in reversed(range(_PORT_TRIES)):
            self._plan = ClusterPlan(self._free_ports(), self._security, self._users, tls, self._properties)
            self._make_processes(program)
            for process in self._processes.values():
                process.start()
            try:
                self._wait_until_ready(self._processes)
                break
            except SetupError:
                if not left or "Address already in use" not in self.last_lines():
                    raise
                for process in self._processes.values():
                    process.kill()

    def _free_ports(self) -> dict[int, BrokerPorts]:
        free, found = free_ports(HOST), {}
        for index in range(self._count):
            client = next(free) if self._port is None else self._port + index
            if not is_free(HOST, client):
                raise SetupError(
                    f"port {client} of {HOST} is taken: a Kafka broker was to listen there",
                    "choose another port, or end what listens there",
                )
            found[index + 1] = BrokerPorts(client, next(free), next(free))
        return found

    def _make_processes(self, program: Sequence[str]) -> None:
        assert self._folder is not None
        plan = self._started_plan()
        environ = {name: value for name, value in handed_on(os.environ).items() if not name.startswith("KAFKA_")}
        temporary = self._folder if self._kept_folder is None else None
        new = {}  # brokers that have no storage yet
        for node in plan.ports:
            home = self._folder / f"broker-{node}"
            home.mkdir(exist_ok=True)
            file = home / "server.properties"
            file.touch(mode=0o600)
            file.write_text(as_text(server_properties(plan, node, home / "data")), encoding="utf-8")
            self._processes[node] = ServerProcess([*program, "kafka.Kafka", str(file)], home / "broker.log", environ, temporary)
            if not (home / "data" / "meta.properties").exists():
                new[self._processes[node].log] = file
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        scram = scram_arguments(self._users) if self._security == "sasl_ssl" else ()
        tool = [program[0], _QUICKLY, *program[1:], "kafka.tools.StorageTool"]
        formatting = [*tool, "format", f"--cluster-id={cluster_id}", *scram, "-c"]
        with ThreadPoolExecutor(BROKERS_MAX) as pool:  # at the same time: each takes a JVM
            if not all(pool.map(lambda log: _is_run([*formatting, str(new[log])], log, environ), new)):
                raise SetupError(f"Kafka's storage cannot be made\n{self.last_lines()}", "the lines above are Kafka's own")

    def _wait_until_ready(self, waited_for: Mapping[int, ServerProcess]) -> None:
        """Until each of them, and every other one that runs, is known to each of them."""
        plan, end = self._started_plan(), time.monotonic() + START_S_MAX
        left = sorted(waited_for)
        while left:
            ended = [node for node in waited_for if waited_for[node].pid is None]
            if ended or time.monotonic() > end:
                what = f"broker {ended[0]} ended" if ended else f"no answer in {START_S_MAX:.0f} seconds"
                raise SetupError(
                    f"the Kafka server did not start: {what}. The end of its log:\n{self.last_lines()}",
                    "the lines above are Kafka's own; a property given to it, a taken port or too little memory are usual",
                )
            needed = set(waited_for)
            left = [n for n in left if not needed <= brokers_known_to(HOST, plan.ports[n].internal, _ANSWER_S_MAX)]
            if left:
                time.sleep(_POLL_S)


def _make_certificates(folder: Path, java: Path, password: str) -> TlsFiles:
    """The keys of a listener with TLS, by Java's own `keytool`: broker and client each sign their own. `SetupError` if it is
    missing or fails."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = java.resolve().with_name("keytool")
    keytool = str(beside) if beside.is_file() else "keytool"
    files = TlsFiles(folder / "broker.pem", folder / "broker.p12", folder / "trust.p12", folder / "client.p12", password)
    log, environ = folder / "keytool.log", {"HEADRACE_STORE": password, "PATH": "/usr/bin:/bin"}

    def run(store: Path, *arguments: str) -> None:
        kept = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass:env", "HEADRACE_STORE")
        try:
            is_done = _is_run([keytool, *arguments, *kept, f"-J{_QUICKLY}", "-J-XX:+UseSerialGC"], log, environ)
        except OSError as error:
            raise SetupError(f"{keytool} cannot be run: {error}", "it comes with Java: install a whole one") from None
        if not is_done:
            raise SetupError(
                f"{keytool} {arguments[0]} failed: {log.read_text(errors='replace').strip()[-300:]}",
                "its own words are above; a full disk is usual",
            )

    names = {files.key_store: ("broker", f"san=ip:{HOST},dns:localhost"), files.client_key_store: ("client", "eku=clientAuth")}
    for store, (name, extension) in names.items():
        run(store, "-genkeypair", "-alias", name, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "365",
            "-dname", f"CN={name}", "-ext", extension)  # fmt: skip
        run(store, "-exportcert", "-rfc", "-alias", name, "-file", str(folder / f"{name}.pem"))
    run(files.trust_store, "-importcert", "-noprompt", "-alias", "client", "-file", str(folder / "client.pem"))
    return files


def _is_run(command: Sequence[str], log: Path, environ: Mapping[str, str]) -> bool:
    """Whether a command ends well, within `TOOL_S_MAX`."""
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environ,
                timeout=TOOL_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            out.write(b"no end in %d seconds\n" % TOOL_S_MAX)
            return False
    return done.returncode == 0


def _remove(folder: Path) -> None:
    """Delete a folder, in a process of its own: the files of thousands of partitions take minutes on a slow disk."""
    command = ["rm", "-rf", "--", str(folder)]
    remover = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    with suppress(subprocess.TimeoutExpired):
        remover.wait(REMOVE_S_MAX)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
