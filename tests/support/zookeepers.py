"""Trees of the port `headrace.coordination` for tests, of the real server and of the one in memory, with the same faults."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from kazoo.client import KazooClient

from headrace.adapters.zookeeper.connection import connection_of
from headrace.adapters.zookeeper.tree import KazooTree
from headrace.adapters.zookeeper_server.server import ZooKeeperServer
from headrace.coordination import Tree, boot_time_s
from support.memory_zookeeper import MemoryZooKeeper

WAIT_S_MAX = 30.0
USER = "alice:tiger-alice"


class Place(Protocol):
    """A server, and what a test does to it and to its clients."""

    clock: Callable[[], float]

    def tree(self, timeout_s: float = 10.0) -> Any: ...

    def expire(self, tree: Tree) -> None:
        """End its session, as if it had been silent for its timeout."""

    def cut(self, tree: Tree) -> None:
        """It reaches no server any more."""

    def heal(self, tree: Tree) -> None: ...

    def pass_s(self, seconds: float) -> None: ...

    def stop(self) -> None:
        """The server dies."""

    def restart(self, *, empty: bool = False) -> None: ...

    def close(self) -> None: ...


class MemoryPlace:
    def __init__(self) -> None:
        self.server = MemoryZooKeeper()
        self.clock = self.server.clock

    def tree(self, timeout_s: float = 10.0) -> Any:
        return self.server.tree(timeout_s)

    def expire(self, tree: Any) -> None:
        self.server.expire(tree.session_id)

    def cut(self, tree: Any) -> None:
        tree.is_cut = True

    def heal(self, tree: Any) -> None:
        tree.is_cut = False

    def pass_s(self, seconds: float) -> None:
        self.clock.pass_s(seconds)

    def stop(self) -> None:
        self.server.is_down = True

    def restart(self, *, empty: bool = False) -> None:
        if empty:
            self.server.forget_all()
        self.server.restart()

    def close(self) -> None:
        pass


class RealPlace:
    """Each client goes through a wire of its own, which may be cut."""

    def __init__(self, server: ZooKeeperServer, settings: Mapping[str, str] | None = None) -> None:
        self.server, self.clock, self._settings = server, boot_time_s, dict(settings or {})
        self._wires: dict[int, Wire] = {}
        self._trees: list[KazooTree] = []

    def tree(self, timeout_s: float = 10.0) -> Any:
        wire = Wire(self.server.port)
        settings = {"session.timeout.ms": str(int(timeout_s * 1000)), "operation.timeout.ms": "2000", **self._settings}
        made = KazooTree(connection_of(f"zookeeper://127.0.0.1:{wire.port}/headrace", settings))
        self._wires[id(made)] = wire
        self._trees.append(made)
        made.open()
        return made

    def expire(self, tree: Any) -> None:
        """The server ends a session that is closed by another connection."""
        other = KazooClient(f"127.0.0.1:{self.server.port}", client_id=tree._client.client_id)
        other.start(WAIT_S_MAX)
        other.stop()
        other.close()

    def cut(self, tree: Any) -> None:
        self._wires[id(tree)].cut()

    def heal(self, tree: Any) -> None:
        self._wires[id(tree)].heal()

    def silence(self, tree: Any, connections: int) -> None:
        self._wires[id(tree)].silence(connections)

    def pass_s(self, seconds: float) -> None:
        time.sleep(seconds)

    def stop(self) -> None:
        self.server.kill()

    def restart(self, *, empty: bool = False) -> None:
        self.server.restart(empty=empty)

    def delete_all(self) -> None:
        """Nothing of the test before is left, nor of its user's."""
        delete_nodes(f"127.0.0.1:{self.server.port}")

    def close(self) -> None:
        for wire in self._wires.values():
            wire.heal()
        for tree in self._trees:
            tree.close()
        for wire in self._wires.values():
            wire.close()


def delete_nodes(servers: str) -> None:
    """All, of tests' user too."""
    client = KazooClient(servers, auth_data=[("digest", USER)])
    client.start(WAIT_S_MAX)
    for name in client.get_children("/"):
        if name != "zookeeper":
            client.delete(f"/{name}", recursive=True)
    client.stop()
    client.close()


class Wire:
    """A loopback port that leads to another one, until it is cut: then nothing comes through, and connections are refused; or
    until it is held: connections stay then. `patience_s`: for so long it tries to reach the other one."""

    def __init__(self, port: int, patience_s: float = 0.0) -> None:
        self._target, self._patience_s = port, patience_s
        self._open, self._unanswered = True, 0
        self._flows = threading.Event()
        self._flows.set()
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        self._flows.set()
        with self._lock:
            self._open = False
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        self._open = True
        self._flows.set()

    def hold(self) -> None:
        self._flows.clear()

    def silence(self, connections: int) -> None:
        """So many connections are taken from now on and not answered, as by a server that has just started."""
        self._unanswered = connections

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._open and self._unanswered:
                self._unanswered -= 1
                with self._lock:
                    self._ends.add(near)
                continue
            far = self._connection()
            if far is None:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._ends |= {near, far}
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _connection(self) -> socket.socket | None:
        end_s = time.monotonic() + self._patience_s
        while self._open:
            try:
                return socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                if time.monotonic() >= end_s:
                    break
                time.sleep(0.02)
        return None

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            with self._lock:
                self._ends.discard(end)


def wait_until(condition: Callable[[], Any], what: str, bound_s: float = WAIT_S_MAX) -> Any:
    """What `condition` gives as soon as it is true; `AssertionError` saying what was waited for."""
    end_s = time.monotonic() + bound_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"not within {bound_s:g} s: {what}"
        time.sleep(0.02)
    return found
