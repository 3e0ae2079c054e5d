"""Signals over TCP, the worker's side; `driver_socket` says what is sent.

Nothing here waits: to look takes microseconds, whatever the network does. A round that ends within `FIRST_S` never connects.
Without a connection, or after one was lost, there are no signals until another is made: the work goes its way, Spark ends it
where its round was cancelled, and its commit is refused where it must not count."""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

FIRST_S = 0.25  # of a round that had no connection yet
RETRY_S = 1.0
CONNECT_S_MAX = 5.0
_WORD_BYTES = 32
_NOT_YET = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOTCONN, errno.EINPROGRESS}


class SocketSignals:
    """`headrace.worker.ports.RoundSignals`, of one attempt."""

    def __init__(self, terms: dict[str, Any]) -> None:
        self._host, self._port = terms["host"], terms["port"]
        self._name = f"{terms['round']}\n".encode()
        self._kinds = {bytes.fromhex(terms[kind]): kind for kind in ("stop", "cut")}
        self._signals: set[str] = set()
        self._socket: socket.socket | None = None
        self._is_named = False
        self._received = b""
        self._next_s = time.monotonic() + FIRST_S  # when to connect
        self._since_s = 0.0
        self._trouble = ""

    def is_stopped(self) -> bool:
        self._look()
        return "stop" in self._signals

    def is_cut(self) -> bool:
        self._look()
        return "cut" in self._signals

    def troubles(self) -> Sequence[str]:
        if not self._trouble or self._signals:
            return ()
        driver = f"the driver at {self._host}:{self._port} ({self._trouble})"
        effect = "rounds there are not cut short when the job's plan changes, only after max_round_ms"
        return (f"{socket.gethostname()} cannot reach {driver}: {effect}",)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._next_s = None, float("inf")

    def _look(self) -> None:
        now_s = time.monotonic()
        try:
            if self._socket is None:
                if now_s < self._next_s:
                    return
                self._connect(now_s)
            assert self._socket is not None
            if not self._is_named:
                self._socket.send(self._name)  # a line fits into the buffer of a connection that is new
                self._is_named, self._trouble = True, ""
            data = self._socket.recv(1_024)
        except OSError as error:
            if error.errno not in _NOT_YET:
                self._lose(error.strerror or str(error), now_s)
            elif not self._is_named and now_s - self._since_s > CONNECT_S_MAX:
                self._lose(f"no answer within {CONNECT_S_MAX:.0f} s", now_s)
            return
        if data:
            self._receive(data)
        else:
            self._lose("it closed the connection", now_s)

    def _connect(self, now_s: float) -> None:
        family, place = _resolved(self._host, self._port)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._is_named, self._received, self._since_s = False, b"", now_s
        self._socket.connect_ex(place)  # what is wrong is seen when it is used

    def _receive(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _WORD_BYTES:
            word, self._received = self._received[:_WORD_BYTES], self._received[_WORD_BYTES:]
            kind = self._kinds.get(hashlib.sha256(word).digest())
            if kind is not None:
                self._signals.add(kind)

    def _lose(self, trouble: str, now_s: float) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._trouble, self._next_s = None, trouble, now_s + RETRY_S


@lru_cache(maxsize=16)
def _resolved(host: str, port: int) -> tuple[int, Any]:
    """The address of the driver; Spark's executor has found it by the same name."""
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, place
