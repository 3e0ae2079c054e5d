"""Named values of one application, and requests for the driver that holds it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

Metadata = Mapping[str, Mapping[str, bytes | None]]
"""Values to be written to a `MetadataStore`: namespace to key to value, None deletes."""


class MetadataStore(Protocol):
    """Small named values of one application, in namespaces, and requests for the driver that holds the application.

    Any process reads them. None writes values from outside: a command leaves a request, and the driver applies it and
    writes through its `CoordinatorStore` (protocol.md 6). A class of a user's own (`startpoint_metadata_store`) is called with
    the application's name; it keeps requests alone, durably, where all processes reach them. A running job looks there from
    a thread; what it raises is logged, and tried again. `close()`, if it has that, is called at the end.
    """

    @abstractmethod
    def get(self, namespace: str, key: str) -> bytes | None:
        """A value, None if there is none."""

    @abstractmethod
    def all(self, namespace: str) -> dict[str, bytes]:
        """Every value of the namespace, by key."""

    @abstractmethod
    def stamp(self) -> object:
        """Cheap to ask for: as long as this same object gives equal ones, no value and no request has changed."""

    def request(self, namespace: str, value: bytes) -> str:
        """Leave a request under an id of its own, durable when this returns."""
        return self.request_all(namespace, [value])[0]

    @abstractmethod
    def request_all(self, namespace: str, values: Sequence[bytes]) -> tuple[str, ...]:
        """Leave several requests, in this order; their ids, which sort in the order of their making. All are durable when this
        returns; where it raises, some may be there. A driver may see the first before the last is there."""

    @abstractmethod
    def requests(self, namespace: str) -> dict[str, bytes]:
        """The requests that are not done yet, by id, oldest first."""

    @abstractmethod
    def withdraw(self, namespace: str, ids: Collection[str]) -> None:
        """Remove these requests, from outside, durably; those that are not there (any more) are skipped. For requests that
        the driver of this store does not apply: what it has applied, it removes itself. Values stay."""
