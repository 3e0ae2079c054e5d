"""Kafka clients that a process keeps from one round to the next, by a key; the one that was used longest ago goes first.

A client is two threads and one of the 1,024 thread-local keys that a process has: one that serves many applications, or many
job models of one, must not keep a client of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
KEPT_MAX = 128


class ClientPool(Generic[T]):
    """At most `KEPT_MAX` clients. Thread-safe. A client that is dropped closes as soon as no thread uses it any more."""

    def __init__(self) -> None:
        self._clients: dict[str, T] = {}  # the one that was used last is at the end
        self._lock = threading.Lock()

    def take(self, key: str) -> T | None:
        """The client kept under `key`, which belongs to the caller from now on; None if there is none."""
        with self._lock:
            return self._clients.pop(key, None)

    def keep(self, key: str, client: T) -> None:
        """Keep `client` under `key`, in place of the one that was there."""
        dropped: list[T | None] = []  # they close outside of the lock: that may take a moment
        with self._lock:
            dropped.append(self._clients.pop(key, None))
            dropped += self._put(key, client)

    def shared(self, key: str, make: Callable[[], T]) -> T:
        """The client kept under `key`, made if there is none; it stays in the pool."""
        dropped: list[T] = []
        with self._lock:
            client = self._clients.pop(key, None)
            if client is None:
                client = make()
            dropped += self._put(key, client)
        return client

    def _put(self, key: str, client: T) -> list[T]:
        """Put it at the end; the clients that have to go, for a caller who holds the lock to drop behind it."""
        self._clients[key] = client
        oldest = list(self._clients)[: max(0, len(self._clients) - KEPT_MAX)]
        return [self._clients.pop(old) for old in oldest]
