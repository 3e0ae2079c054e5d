"""A round's access to entries of long keys in one database: the key behind a digest is compared, always. All entries under one
digest belong to one key. So a read of another key that has the same digest finds nothing, which is the truth, and a write of it
is refused: there is no place where it could be kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.core.keys.key_layout import LONG_LENGTH_BYTES, SUB_BYTES_MAX
from headrace.core.keys.long_keys import entry_of, is_long, parted, stored_key
from headrace.errors import StateError

if TYPE_CHECKING:
    from headrace.worker.state.task_state import LocalStore

_AFTER_ALL_SUBS = b"\xff" * (SUB_BYTES_MAX + 1)
_SHOWN_BYTES = 40


class LongEntries:
    """What the local store holds under long keys of the database `name`, and which keys this round writes under."""

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
