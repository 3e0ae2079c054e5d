"""A task's view of its state within one round: what was committed, overlaid with what the round has changed. Reads come from
one read transaction of the local store, at the round's base; nothing is written there. `write` turns the changes into state
files and gives the head that the commit names (protocol.md 17). Keys: core.keys.key_layout."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from heapq import merge
from itertools import islice
from time import perf_counter_ns
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.keys.key_layout import LAYOUT_BYTES_MAX, LONG_LENGTH_BYTES, SUB_BYTES_MAX, after_prefix
from headrace.core.keys.long_keys import entry_of, is_long, parted, stored_entry, stored_key
from headrace.errors import DEFECT, StateError
from headrace.exchange import fault_injection as steps
from headrace.model.checkpoint import Head, Slots, StateFileKind, identity_of
from headrace.state_files.batches import batches_of, batches_of_entries, binary_array, check_sizes
from headrace.state_files.files import FilePlace, StateFiles
from headrace.state_files.folds import fold_of
from headrace.worker.state.folding import FoldsInBackground, folded
from headrace.worker.state.store_calls import UNTIMED, StoreCalls

DROPPED_MAX = 50_000  # entries of removed stores, per task and round
_AFTER_ALL_SUBS = b"\xff" * (SUB_BYTES_MAX + 1)
_SHOWN_BYTES = 40  # of a long key
_INSORT_MAX = 64  # up to so many new keys are put in place one by one, more are sorted in


class LocalStore(Protocol):
    """What a round reads: all from one transaction, the state of `identity`. Errors: `StoreDamagedError`."""

    @property
    def identity(self) -> str: ...

    def databases(self) -> Sequence[str]:
        """The databases that have ever been written to, sorted."""

    def get(self, db: str, key: bytes) -> bytes | None: ...

    def get_many(self, db: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those of `keys` that are there."""

    def scan(self, db: str, low: bytes | None = None, high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The entries low <= key < high, by key; None is no bound."""

    def first_keys(self, db: str, prefix_bytes: int) -> Iterator[bytes]:
        """The first key of each prefix of so many bytes that keys have, by key; one seek for each."""


class Unchanged(Enum):
    """What a round has made of a key that it left alone."""

    UNCHANGED = 0


UNCHANGED = Unchanged.UNCHANGED
Change = bytes | Unchanged | None  # None: deleted


class Journal:
    """The former values of changed keys, since the last savepoint: so that a record that fails changes nothing."""

    def __init__(self) -> None:
        self.active = False
        self.entries: list[tuple[Database, bytes, Change]] = []

    def begin(self) -> None:
        self.active = True
        self.entries.clear()

    def roll_back(self) -> None:
        while self.entries:
            database, key, change = self.entries.pop()
            database.restore(key, change)


class LongEntries:
    """What the local store holds under long keys of the database `name`, and which keys this round writes under. The key behind
    a digest is compared, always, and all entries under one digest belong to one key. So a read of another key that has the same
    digest finds nothing, which is the truth, and a write of it is refused: there is no place where it could be kept apart."""

    def __init__(self, name: str, store: LocalStore) -> None:
        self._name = name
        self._store = store
        self._owners: dict[bytes, bytes | None] = {}  # head to length and key, of the digests that were looked up

    @property
    def written(self) -> bool:
        """Whether this round may have changed such an entry."""
        return bool(self._owners)

    def get(self, layout: bytes) -> bytes | None:
        """The value in the store."""
        stored = stored_key(layout)
        data = self._store.get(self._name, stored)
        if data is None:
            return None
        found, value = entry_of(stored, data)
        return value if found == layout else None

    def owns(self, layout: bytes) -> bool:
        """Whether entries of this key, and of no other, are stored or written under its digest."""
        head, key, _ = parted(layout)
        return self._owner(head) == key

    def claim(self, layout: bytes) -> None:
        """Before a write: `StateError` if the digest of this key is another key's."""
        head, key, _ = parted(layout)
        owner = self._owner(head)
        if owner is not None and owner != key:
            raise StateError(
                f"store {self._name}: the keys {_shown(owner)} and {_shown(key)} have one digest, and the first is stored",
                "keys above 437 bytes are stored under a digest; no two keys with one digest were ever seen: keep these two, "
                "report them, and make one of them shorter",
            )
        self._owners[head] = key

    def _owner(self, head: bytes) -> bytes | None:
        if head not in self._owners:
            first = next(iter(self._store.scan(self._name, head, head + _AFTER_ALL_SUBS)), None)
            self._owners[head] = None if first is None else parted(entry_of(*first)[0])[1]
        return self._owners[head]

    def scan(self, low: bytes | None, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The store's entries low <= layout < high, by layout: those of other keys too."""
        long = [bound for bound in (low, high) if bound is not None and is_long(bound)]
        first: bytes | None
        last: bytes | None
        if len(long) == 2 and parted(long[0])[:2] == parted(long[1])[:2]:  # a range of one key's sub-keys
            first, last = stored_key(long[0]), stored_key(long[1])
        else:  # nothing between the bounds is left out, and more may come
            first = parted(low)[0] if low and low in long else low
            last = parted(high)[0] + _AFTER_ALL_SUBS if high and high in long else high
        entries = (entry_of(*entry) for entry in self._store.scan(self._name, first, last))
        if not long:
            return entries
        return (entry for entry in entries if (low or b"") <= entry[0] and (high is None or entry[0] < high))


def _shown(length_and_key: bytes) -> str:
    key = length_and_key[LONG_LENGTH_BYTES:]
    return f"{key[:_SHOWN_BYTES]!r}… ({len(key)} bytes)"


class Database:
    """One store of a task, or one index of it, within a round. `calls`: what takes its calls' times."""

    def __init__(self, name: str, store: LocalStore, journal: Journal, calls: StoreCalls | None = None) -> None:
        self.name = name
        self._store = store
        self._journal = journal
        self._calls = calls or StoreCalls()
        self._long = LongEntries(name, store)
        self._changes: dict[bytes, bytes | None] = {}  # None: deleted
        self._order: list[bytes] = []  # the keys of `_changes`, sorted, but for `_unsorted`
        self._unsorted: list[bytes] = []
        self._order_is_stale = False  # keys were taken out of `_changes`: both lists are rebuilt when needed

    @property
    def changed(self) -> bool:
        """Whether anything was put or deleted."""
        return bool(self._changes)

    def get(self, key: bytes) -> bytes | None:
        """The value as this round sees it, None if there is none."""
        calls = self._calls
        calls.reads += 1
        if not calls.reads & UNTIMED:
            return calls.timed_get(self, key)
        if key in self._changes:
            return self._changes[key]
        return self._long.get(key) if is_long(key) else self._store.get(self.name, key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, in their order; far cheaper per key than `get`. Keys may repeat."""
        began_ns, changes = perf_counter_ns(), self._changes
        stored = self._stored([key for key in keys if key not in changes] if changes else keys)
        values = [changes[key] if key in changes else stored.get(key) for key in keys] if changes else [*map(stored.get, keys)]
        self._calls.read_many(len(keys), began_ns)
        return values

    def _stored(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if max(map(len, keys), default=0) <= LAYOUT_BYTES_MAX:
            return self._store.get_many(self.name, keys)
        found = self._store.get_many(self.name, [key for key in keys if not is_long(key)])
        long = {key: self._long.get(key) for key in keys if is_long(key)}
        return found | {key: value for key, value in long.items() if value is not None}

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`, a layout key (1 to 511 bytes, but for long user keys: see `long_keys`). None deletes."""
        calls = self._calls
        calls.writes += 1
        if not calls.writes & UNTIMED:
            calls.timed_put(self, key, value)
            return
        if value is None:
            calls.deletes += 1
        if is_long(key):
            if value is not None:
                self._long.claim(key)
            elif not self._long.owns(key):
                return
        if self._journal.active:
            self._record(key)
        if key not in self._changes:
            self._unsorted.append(key)
        self._changes[key] = value

    def delete(self, key: bytes) -> None:
        """Take `key` out; no error if it is not there."""
        self.put(key, None)

    def _record(self, key: bytes) -> None:
        self._journal.entries.append((self, key, self._changes.get(key, UNCHANGED)))

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """`put` for each pair; of a key that repeats the last value stays."""
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values")
        began_ns, changes = perf_counter_ns(), self._changes
        if max(map(len, keys), default=0) > LAYOUT_BYTES_MAX:
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)
            return
        if self._journal.active:
            for key in keys:
                self._record(key)
        self._unsorted.extend(dict.fromkeys(keys) if not changes else {key: 0 for key in keys if key not in changes})
        changes.update(zip(keys, values, strict=True))
        self._calls.deletes += values.count(None)
        self._calls.put_many(len(keys), began_ns)

    def scan(self, low: bytes | None = None, high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The entries low <= key < high as this round sees them when the scan begins, by key."""
        order = self._sorted_keys()
        first = 0 if low is None else bisect_left(order, low)
        last = len(order) if high is None else bisect_left(order, high)
        overlay = {key: self._changes[key] for key in order[first:last]}
        stored = self._long.scan(low, high)
        if not overlay:
            return stored
        kept = (entry for entry in stored if entry[0] not in overlay)
        return merge(kept, ((key, value) for key, value in overlay.items() if value is not None))

    def first_keys(self, prefix_bytes: int) -> Collection[bytes]:
        """Per prefix of so many bytes that a key has, the first key as this round sees it. Of short keys only."""
        first = {key[:prefix_bytes]: key for key in self._store.first_keys(self.name, prefix_bytes)}
        for prefix, key in list(first.items()):
            if self._changes.get(key, UNCHANGED) is None:  # deleted by this round: the next one of the prefix, if any
                del first[prefix]
                for left, _ in islice(self.scan(prefix, after_prefix(prefix, prefix_bytes)), 1):
                    first[prefix] = left
        order, at = self._sorted_keys(), 0
        while at < len(order):
            key = order[at]
            at += 1
            if self._changes[key] is not None:
                prefix, following = key[:prefix_bytes], after_prefix(key, prefix_bytes)
                first[prefix] = min(key, first.get(prefix, key))
                at = len(order) if following is None else bisect_left(order, following, at)
        return first.values()

    def changed_bounds(self) -> tuple[bytes, bytes]:
        """The lowest and the highest of the keys that changed, of which there is one at least."""
        bounds = pc.min_max(binary_array(self._changes))
        return bounds["min"].as_py(), bounds["max"].as_py()

    def stored_changes(self) -> tuple[pa.Array, pa.Array]:
        """The keys that changed, as they are stored, sorted, and their values; null where a key was deleted."""
        changes: Mapping[bytes, bytes | None] = self._changes
        if self._long.written:
            changes = dict(
                (stored_key(key), None) if value is None else stored_entry(key, value) for key, value in changes.items()
            )
        keys, values = binary_array(changes), binary_array(changes.values())
        order = pc.array_sort_indices(keys)
        return keys.take(order), values.take(order)

    def restore(self, key: bytes, change: Change) -> None:
        """Take a change back: `change` is what the round had made of `key` before it."""
        if change is UNCHANGED:
            self._changes.pop(key, None)
            self._order_is_stale = True
        else:
            self._changes[key] = change

    def _sorted_keys(self) -> list[bytes]:
        if self._order_is_stale:
            self._order, self._order_is_stale = sorted(self._changes), False
        elif len(self._unsorted) <= _INSORT_MAX:
            for key in self._unsorted:
                insort(self._order, key)
        else:
            self._order.extend(self._unsorted)
            self._order.sort()  # a sorted run and a short tail: timsort merges them
        self._unsorted = []
        return self._order


class TaskState:
    """All databases of a task within one round, on the state of `base` (None: the task has none yet). `slots`: the task's, None
    for all. `is_snapshot_due`: whether `write` is to make a snapshot in place of other tasks' files; `held_files`: so many of
    the base's files, the first ones, it leaves as they are."""

    def __init__(self, store: LocalStore, base: Head | None, slots: Slots | None = None) -> None:
        if store.identity != identity_of(base):
            raise StateError(f"a store at state {store.identity} was opened for a round on {identity_of(base)}", DEFECT)
        self._store = store
        self._base = base
        self._slots = slots
        self.is_snapshot_due = False
        self.held_files = 0
        self._databases: dict[str, Database] = {}
        self._journal = Journal()
        self.notes: list[str] = []  # troubles with the local store
        self.is_restored = False  # it was read from the state files
        self.restored_bytes = 0  # so much of these was read when it was opened
        self.calls, self.local_bytes = StoreCalls(), 0  # and the size of the local store when it was opened

    def database(self, name: str) -> Database:
        """The database of that name; it need not exist before."""
        if name not in self._databases:
            self._databases[name] = Database(name, self._store, self._journal, self.calls)
        return self._databases[name]

    def savepoint(self) -> None:
        """From here on changes can be taken back by `roll_back`, up to the next savepoint."""
        self._journal.begin()

    def roll_back(self) -> None:
        """Take back all changes since the last savepoint."""
        self._journal.roll_back()

    @property
    def changed(self) -> bool:
        """Whether anything was put or deleted in this round."""
        return any(database.changed for database in self._databases.values())

    def changed_bounds(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Of each database with changes its name, and the lowest and the highest of their layout keys."""
        for name, database in self._databases.items():
            if database.changed:
                yield name, *database.changed_bounds()

    def drop(self, databases: Sequence[str]) -> None:
        """Delete what is left of databases that are no longer used, if the round changed anything. At most `DROPPED_MAX`
        entries, so that no round grows long over it; later rounds delete the rest. Snapshots are then without them, and files
        that have them are kept as long as the versions that they make."""
        room = DROPPED_MAX if self.changed else 0
        for name in databases:
            keys = [key for key, _ in islice(self._store.scan(name), room)]
            for key in keys:
                self.database(name).delete(key)
            room -= len(keys)

    def write(self, files: StateFiles, place: FilePlace, background: FoldsInBackground | None = None) -> Head | None:
        """Write the round's changes, durably, and give the new head; the base itself if nothing changed. Before that, files of
        the base may be folded into one, so that a restore stays short; `background` takes over what is too large for a round.
        Nothing that is written here, in `place`, counts before a commit names the head."""
        if not self.changed:
            return self._base
        steps.reached("log", 5)
        base = self._base
        if base is not None:
            fold = partial(self._with_fold, files, place)
            base = folded(base, self.held_files, all_=self.is_snapshot_due, background=background, fold=fold)
        version, older = (1, ()) if base is None else (base.version + 1, base.files)
        delta = files.write_batches(place, StateFileKind.DELTA, version, self._delta(), covers=self._slots)
        return Head(version, (*older, delta), self._slots)

    def _delta(self) -> Iterator[pa.RecordBatch]:
        for name in sorted(name for name, database in self._databases.items() if database.changed):
            keys, values = self._databases[name].stored_changes()
            check_sizes(name, keys, values)
            yield from batches_of(name, keys, values)

    def _with_fold(self, files: StateFiles, place: FilePlace, base: Head, start: int) -> Head:
        """`base` with its files from `start` on folded into one."""
        if start:
            fold = fold_of(files, place, base.files[start:], base.identity, self._slots, is_snapshot=False)
        else:  # the store has all entries of the base, without its deletions
            batches = (batch for db in self._store.databases() for batch in batches_of_entries(db, self._store.scan(db)))
            kind = StateFileKind.SNAPSHOT
            fold = files.write_batches(place, kind, base.version, batches, base.identity, self._slots)
        return Head(base.version, (*base.files[:start], fold), base.slots)
