"""Knowing when a sub-topology is between two of its rounds, for those who look at it from other threads."""

from __future__ import annotations

import threading


class Pauses:
    """Threads may share it. A round that failed counts as running until the next commit of its sub-topology: some of its
    containers may have committed, others may still."""

    def __init__(self) -> None:
        self._begun: dict[str | None, int] = {}  # rounds
        self._running: set[str | None] = set()
        self._lock = threading.Lock()

    def end(self, sub_topology: str | None) -> None:
        """A round of it begins."""
        with self._lock:
            self._begun[sub_topology] = self._begun.get(sub_topology, 0) + 1
            self._running.add(sub_topology)

    def begin(self, sub_topology: str | None) -> None:
        """A round of it was committed."""
        with self._lock:
            self._running.discard(sub_topology)

    def number_of(self, sub_topology: str | None) -> int | None:
        """Which of its pauses it is in, None for none. As long as that stays the same, it writes nothing."""
        with self._lock:
            return None if sub_topology in self._running else self._begun.get(sub_topology, 0)
