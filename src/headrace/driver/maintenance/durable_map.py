"""Bringing one namespace of the metadata store to what it is to hold, by a writer that may not hear of what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Generic, TypeVar

from headrace.ports import JobStore

WRITTEN_AT_ONCE = 200  # values in one transaction: each version of a state holds the name of every file of its head
T = TypeVar("T")


class OnRecord(Generic[T]):
    """The values of a namespace, by key, that are or may be stored. Not thread-safe.

    What was begun to be stored counts as stored, and is written again until that is heard to be done; what was begun to be
    deleted counts as stored as well.
    """

    def __init__(
        self, store: JobStore, epoch: int, namespace: str, encode: Callable[[T], bytes], stored: Mapping[str, T]
    ) -> None:
        self._store, self._epoch, self._namespace, self._encode = store, epoch, namespace, encode
        self._stored = dict(stored)
        self._unsure: set[str] = set()  # keys whose storing was begun, and not heard to be done

    @property
    def values(self) -> Iterable[T]:
        return self._stored.values()

    def put(self, wanted: Mapping[str, T]) -> bool:
        """Store those of `wanted` that are not known to be there; whether there were any."""
        new = {key: value for key, value in wanted.items() if key not in self._stored or key in self._unsure}
        self._stored |= new
        self._unsure |= new.keys()
        self._write({key: self._encode(value) for key, value in new.items()})
        self._unsure -= new.keys()
        return bool(new)

    def drop_others(self, wanted: Mapping[str, T]) -> bool:
        """Delete all that are not among `wanted`; whether there were any."""
        gone = self._stored.keys() - wanted.keys()
        self._write(dict.fromkeys(sorted(gone)))
        self._stored = {key: value for key, value in self._stored.items() if key not in gone}
        self._unsure -= gone
        return bool(gone)

    def _write(self, changes: Mapping[str, bytes | None]) -> None:
        left = iter(changes.items())
        while piece := dict(islice(left, WRITTEN_AT_ONCE)):
            self._store.write_metadata(self._epoch, self._namespace, piece)
