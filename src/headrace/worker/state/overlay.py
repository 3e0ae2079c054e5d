"""What one record has changed of a database of its task, before it counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge

from headrace.worker.state.task_state import Database


class Overlay:
    """The calls of `Database` that views of stores use, over one. Nothing is written there before `apply`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: dict[bytes, bytes | None] = {}  # None: deleted

    def get(self, key: bytes) -> bytes | None:
        return self._changes[key] if key in self._changes else self._database.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        self._changes[key] = value

    def delete(self, key: bytes) -> None:
        self._changes[key] = None

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self._changes.update(zip(keys, values, strict=True))

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries low <= key < high when the scan begins, by key."""
        changes = {key: value for key, value in self._changes.items() if low <= key < high}
        stored = (entry for entry in self._database.scan(low, high) if entry[0] not in changes)
        return merge(stored, sorted((key, value) for key, value in changes.items() if value is not None))

    def apply(self) -> None:
        for key, value in self._changes.items():
            self._database.put(key, value)
