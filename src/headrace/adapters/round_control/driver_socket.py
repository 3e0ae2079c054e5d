"""Signals over TCP, the driver's side: it listens, and a worker whose round lasts connects and names the round.

    worker -> driver    the round's name and a line feed
    driver -> worker    32 bytes per signal, at once where it was given before

A signal is the word of which the plan of the container holds the SHA-256. So a plan holds no secret, who only listens learns
of signals that were given, and who may not signal cannot: the words follow from a secret that stays in this process."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from headrace.errors import SetupError
from headrace.exchange.engine import DriverAddress
from headrace.model.checkpoint import RoundId
from headrace.ports.processor_store import SystemPayload

CONNECTIONS_MAX = 4_096  # the next one is closed at once: its worker tries again
NAME_BYTES_MAX = 512
NAME_S_MAX = 5.0  # a connection that names no round by then is closed
ROUNDS_MAX = 1_000  # whose signals are remembered, for workers that connect after them
CLOSE_S_MAX = 1.0


class SocketControl:
    """`headrace.exchange.engine.RoundControl`. `SetupError` where it cannot listen."""

    def __init__(self, address: DriverAddress) -> None:
        try:
            family, _, _, _, place = socket.getaddrinfo(address.bind, 0, type=socket.SOCK_STREAM)[0]
            self._server = socket.create_server(place[:2], family=family, backlog=128)
        except OSError as error:
            raise SetupError(
                f"signals to workers: no port can be opened at {address.bind}: {error.strerror or error}",
                "set spark.driver.bindAddress to an address of this machine",
            ) from None
        self._host, self._port = address.host, self._server.getsockname()[1]
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._given: dict[str, list[bytes]] = {}  # under the lock, by round: the words of its signals
        self._names: set[asyncio.StreamWriter] = set()  # the connections; these two are of the thread alone
        self._listeners: dict[str, set[asyncio.StreamWriter]] = {}  # those that have named a round
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop, self._is_closed = self._runner.get_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-round-control", daemon=True)
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
        self._in_thread(self._is_closed.set)
        self._thread.join(CLOSE_S_MAX)

    def _word(self, kind: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{kind} {name}".encode(), "sha256")

    def _give(self, kind: str, name: str) -> None:
        word = self._word(kind, name)
        with self._lock:
            self._given.setdefault(name, []).append(word)
            while len(self._given) > ROUNDS_MAX:
                del self._given[next(iter(self._given))]
        self._in_thread(self._send, name, word)

    def _in_thread(self, work: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(work, *arguments)

    # --- its thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._talk, sock=self._server, limit=NAME_BYTES_MAX) as server:
            await self._is_closed.wait()
            server.close()
            for connection in self._names:
                connection.close()

    def _send(self, name: str, word: bytes) -> None:
        for listener in self._listeners.get(name, ()):
            listener.write(word)

    async def _talk(self, reader: asyncio.StreamReader, connection: asyncio.StreamWriter) -> None:
        """What a connection says: its name, once; anything else, and its end, ends it."""
        if len(self._names) >= CONNECTIONS_MAX:
            connection.close()
            return
        self._names.add(connection)
        mine: set[asyncio.StreamWriter] = set()
        try:
            async with asyncio.timeout(NAME_S_MAX):
                name = (await reader.readuntil(b"\n"))[:-1].decode("utf-8", "replace")
            mine = self._listeners.setdefault(name, mine)
            mine.add(connection)
            with self._lock:
                given = list(self._given.get(name, ()))
            connection.writelines(given)
            await reader.read(1)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):  # a TimeoutError is an OSError
            pass
        finally:
            self._names.discard(connection)
            mine.discard(connection)
            self._listeners = {name: left for name, left in self._listeners.items() if left}
            connection.close()
