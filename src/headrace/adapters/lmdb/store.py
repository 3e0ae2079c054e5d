"""`TaskStore`: what a round reads of a task's committed state, and the apply that follows a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.adapters.lmdb.entries import META_DB, Meta, unpacked, unpacked_many
from headrace.adapters.lmdb.environments import DATA_FILE, Environment, damage_named
from headrace.core.keys.key_layout import after_prefix
from headrace.errors import StoreDamagedError


class TaskStore:
    """The local store of one task, owned by this process while it is open. All reads come from one read transaction, begun when
    the store was opened: they see the state of `identity`. `notes` says how it was opened; of these `troubles` are out of the
    ordinary, for the round's summary. `is_restored`: its state was read from the state files, as after a rewind or on another
    machine. `read_bytes`: so much of state files was read to open it."""

    def __init__(
        self,
        environment: Environment,
        notes: list[str],
        troubles: list[str],
        *,
        read_bytes: int = 0,
        is_restored: bool = False,
    ) -> None:
        self.folder = environment.folder
        self.notes, self.troubles = notes, troubles
        self.is_restored, self.read_bytes = is_restored, read_bytes
        self.is_damaged = False
        self._environment = environment
        self._txn: Any = None
        self._meta = Meta()

    def begin(self) -> None:
        """Begin the read transaction, again if there is one: from then on the newest state is read."""
        self.end()
        with damage_named(self.folder):
            self._txn = self._environment.lmdb.begin()
            self._meta = self._environment.meta(self._txn)
            self._handles = dict(self._environment.handles)

    def end(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    @property
    def identity(self) -> str:
        return self._meta.identity

    @property
    def entries(self) -> int:
        return self._meta.entries

    @property
    def size_bytes(self) -> int:
        """The size of its file."""
        return (self.folder / DATA_FILE).stat().st_size

    def databases(self) -> list[str]:
        return sorted(name for name in self._handles if name != META_DB)

    def get(self, db: str, key: bytes) -> bytes | None:
        """The value under `key`, None if there is none. Errors: `StoreDamagedError`."""
        handle = self._handles.get(db)
        if handle is None:
            return None
        with damage_named(self.folder):
            stored = self._txn.get(key, db=handle)
        return None if stored is None else unpacked(db, key, stored)

    def get_many(self, db: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those of `keys` that are there; some 2 µs per key. Errors: `StoreDamagedError`."""
        handle = self._handles.get(db)
        if handle is None or not keys:
            return {}
        with damage_named(self.folder), self._txn.cursor(db=handle) as cursor:
            found = cursor.getmulti(sorted(keys))  # neighbours share pages: many times faster than in any order
        return unpacked_many(db, found)

    def scan(self, db: str, low: bytes | None = None, high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The entries low <= key < high, by key; None is no bound. Errors: `StoreDamagedError`."""
        handle = self._handles.get(db)
        if handle is None:
            return
        with damage_named(self.folder), self._txn.cursor(db=handle) as cursor:
            there = cursor.set_range(low) if low else cursor.first()
            if not there:
                return
            for key, stored in cursor.iternext():
                if high is not None and key >= high:
                    return
                yield key, unpacked(db, key, stored)

    def first_keys(self, db: str, prefix_bytes: int) -> Iterator[bytes]:
        """The first key of each prefix of so many bytes, by key; one seek for each. Errors: `StoreDamagedError`."""
        handle = self._handles.get(db)
        if handle is None:
            return
        with damage_named(self.folder), self._txn.cursor(db=handle) as cursor:
            there = cursor.first()
            while there:
                key, stored = cursor.item()
                unpacked(db, key, stored)  # its checksum is the key's too
                yield key
                following = after_prefix(key, prefix_bytes)
                there = following is not None and cursor.set_range(following)

    def apply(
        self, base: str, after: str, changes: Callable[[], Iterable[pa.RecordBatch]], applying: Callable[[], None] | None = None
    ) -> bool:
        """Apply the changes that lead from the state `base` to `after`, if `base` is what the store holds; else False. One LMDB
        transaction, all or nothing (protocol.md 17). `changes` gives batches as `state.batches` describes them and may be
        called again; `applying` is called just before the commit. Ends the read transaction and begins one on the outcome."""
        self.end()
        try:
            return self._environment.apply(base, after, changes, applying)
        finally:
            self.begin()

    def found_damaged(self, error: StoreDamagedError) -> None:
        """Have the next opening rebuild the store, where the error itself is not to leave this one."""
        self.is_damaged = True
        note = f"to be rebuilt: {error.message}"
        self.notes.append(note)
        self.troubles.append(note)
