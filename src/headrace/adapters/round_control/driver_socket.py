"""Signals over TCP, the driver's side: it listens, and a worker whose round lasts connects and names the round.

    worker -> driver    the round's name and a line feed
    driver -> worker    32 bytes per signal, at once where it was given before

A signal is the word of which the plan of the container holds the SHA-256. So a plan holds no secret, who only listens learns
of signals that were given, and who may not signal cannot: the words follow from a secret that stays in this process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import selectors
import socket
import threading
import time
from contextlib import suppress

from headrace.errors import SetupError
from headrace.model.checkpoint import RoundId
from headrace.ports import DriverAddress, SystemPayload

CONNECTIONS_MAX = 4_096  # the next one is closed at once: its worker tries again
NAME_BYTES_MAX = 512
NAME_S_MAX = 5.0  # a connection that names no round by then is closed
ROUNDS_MAX = 1_000  # whose signals are remembered, for workers that connect after them
_LOOK_S = 0.5


class SocketControl:
    """`headrace.ports.RoundControl`. `SetupError` where it cannot listen."""

    def __init__(self, address: DriverAddress) -> None:
        try:
            family, _, _, _, place = socket.getaddrinfo(address.bind, 0, type=socket.SOCK_STREAM)[0]
            self._server = socket.create_server(place[:2], family=family, backlog=128)
        except OSError as error:
            raise SetupError(
                f"signals to workers: no port can be opened at {address.bind}: {error.strerror or error}",
                "set spark.driver.bindAddress to an address of this machine",
            ) from None
        self._server.setblocking(False)
        self._host, self._port = address.host, self._server.getsockname()[1]
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()  # for what follows
        self._given: dict[str, list[bytes]] = {}  # by round: the words of its signals
        self._listeners: dict[str, set[socket.socket]] = {}
        self._names: dict[socket.socket, bytes] = {}  # of each connection: its round, or the part of it that has come
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headrace-round-control", daemon=True)
        self._thread.start()

    def begin(self, epoch: int) -> None:
        """Nothing: what is remembered is bounded."""

    def terms_of(self, round_id: RoundId) -> SystemPayload:
        digests = {kind: hashlib.sha256(self._word(kind, str(round_id))).hexdigest() for kind in ("stop", "cut")}
        return {"host": self._host, "port": self._port, "round": str(round_id), **digests}

    def stop(self, round_id: RoundId) -> None:
        self._give("stop", str(round_id))

    def cut(self, round_id: RoundId) -> None:
        self._give("cut", str(round_id))

    def ended(self, round_id: RoundId) -> None:
        with self._lock:
            self._given.pop(str(round_id), None)

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join(2 * _LOOK_S)

    def _word(self, kind: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{kind} {name}".encode(), "sha256")

    def _give(self, kind: str, name: str) -> None:
        word = self._word(kind, name)
        with self._lock:
            self._given.setdefault(name, []).append(word)
            while len(self._given) > ROUNDS_MAX:
                del self._given[next(iter(self._given))]
            for listener in self._listeners.get(name, ()):
                with suppress(OSError):  # it has ended; a buffer that was never written to takes some words
                    listener.send(word)

    # --- its thread -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, self._server:
            selector.register(self._server, selectors.EVENT_READ)
            since_s: dict[socket.socket, float] = {}  # of connections without a name
            while not self._is_closed.is_set():
                for key, _ in selector.select(_LOOK_S):
                    if key.fileobj is self._server:
                        self._accept(selector, since_s)
                    elif isinstance(key.fileobj, socket.socket):
                        self._read(selector, key.fileobj, since_s)
                for connection, began_s in list(since_s.items()):
                    if time.monotonic() - began_s > NAME_S_MAX:
                        self._drop(selector, connection, since_s)
            for connection in list(self._names):
                self._drop(selector, connection, since_s)

    def _accept(self, selector: selectors.BaseSelector, since_s: dict[socket.socket, float]) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:  # it has ended already, or this process has too many files open
            time.sleep(0.01)
            return
        if len(self._names) >= CONNECTIONS_MAX:
            connection.close()
            return
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
        since_s[connection] = time.monotonic()
        with self._lock:
            self._names[connection] = b""

    def _read(self, selector: selectors.BaseSelector, connection: socket.socket, since_s: dict[socket.socket, float]) -> None:
        """What a connection says: its name, once; anything else, and its end, ends it."""
        try:
            data = connection.recv(NAME_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        said = self._names[connection] + data
        if not data or connection not in since_s or len(said) > NAME_BYTES_MAX:
            self._drop(selector, connection, since_s)
            return
        with self._lock:
            self._names[connection] = said
            if not said.endswith(b"\n"):
                return
            del since_s[connection]
            name = said[:-1].decode("utf-8", "replace")
            self._listeners.setdefault(name, set()).add(connection)
            with suppress(OSError):
                for word in self._given.get(name, ()):
                    connection.send(word)

    def _drop(self, selector: selectors.BaseSelector, connection: socket.socket, since_s: dict[socket.socket, float]) -> None:
        selector.unregister(connection)
        since_s.pop(connection, None)
        with self._lock:
            name = self._names.pop(connection)[:-1].decode("utf-8", "replace")
            left = self._listeners.get(name, set())
            left.discard(connection)
            if not left:
                self._listeners.pop(name, None)
            connection.close()
