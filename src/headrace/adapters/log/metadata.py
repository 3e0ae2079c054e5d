"""The embedded log's `MetadataStore`: small named values of an application, in a table of the catalog.

A namespace is stored in the table as `<application>/<namespace>`, its requests as `<application>/<namespace>/requests`.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Collection, Mapping, Sequence

from headrace.adapters.log.catalog import Catalog
from headrace.codec.job_records import STATE_ID
from headrace.ports.metadata_store import MetadataStore

_PUT = "INSERT INTO metadata VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
_DELETE = "DELETE FROM metadata WHERE namespace = ? AND key = ?"


class LogMetadataStore(MetadataStore):
    """An application's named values and requests, in the log's catalog."""

    def __init__(self, catalog: Catalog, application: str) -> None:
        self._catalog, self._application = catalog, application

    def get(self, namespace: str, key: str) -> bytes | None:
        place = _place(self._application, namespace)
        with self._catalog.read() as db:
            row = db.execute("SELECT value FROM metadata WHERE namespace = ? AND key = ?", (place, key)).fetchone()
        return None if row is None else bytes(row[0])

    def all(self, namespace: str) -> dict[str, bytes]:
        return self._all(_place(self._application, namespace))

    def stamp(self) -> object:
        """SQLite counts, for each connection, the commits of others: and the catalog reads and writes by two."""
        with self._catalog.read() as db:
            path = db.execute("PRAGMA database_list").fetchone()[2]  # none where there is no catalog yet
            return path, db.execute("PRAGMA data_version").fetchone()[0]

    def request_all(self, namespace: str, values: Sequence[bytes]) -> tuple[str, ...]:
        """All of them in one transaction."""
        if not values:
            return ()
        place, now_ns = _requests(self._application, namespace), time.time_ns()
        ids = [f"{now_ns + nth:020d}-{uuid.uuid4().hex[:12]}" for nth in range(len(values))]  # in the order of their making
        with self._catalog.write() as db:
            db.executemany(_PUT, [(place, id_, bytes(value)) for id_, value in zip(ids, values, strict=True)])
        return tuple(ids)

    def requests(self, namespace: str) -> dict[str, bytes]:
        return self._all(_requests(self._application, namespace))

    def withdraw(self, namespace: str, ids: Collection[str]) -> None:
        if ids:
            place = _requests(self._application, namespace)
            with self._catalog.write() as db:
                db.executemany(_DELETE, [(place, id_) for id_ in ids])

    def _all(self, place: str) -> dict[str, bytes]:
        with self._catalog.read() as db:
            rows = db.execute("SELECT key, value FROM metadata WHERE namespace = ? ORDER BY key", (place,)).fetchall()
        return {key: bytes(value) for key, value in rows}


def write(
    db: sqlite3.Connection, application: str, namespace: str, values: Mapping[str, bytes | None], done: Collection[str]
) -> None:
    """Put and delete values, and drop requests, inside the caller's transaction."""
    place = _place(application, namespace)
    db.executemany(_PUT, [(place, key, bytes(value)) for key, value in values.items() if value is not None])
    db.executemany(_DELETE, [(place, key) for key, value in values.items() if value is None])
    db.executemany(_DELETE, [(_requests(application, namespace), id_) for id_ in done])


def forget(db: sqlite3.Connection, application: str) -> None:
    """Delete all that there is of an application but the id of its state, inside the caller's transaction."""
    deleted = "DELETE FROM metadata WHERE substr(namespace, 1, ?) = ? AND namespace != ?"
    db.execute(deleted, (len(application) + 1, f"{application}/", _place(application, STATE_ID)))


def _place(application: str, namespace: str) -> str:
    assert "/" not in namespace, namespace
    return f"{application}/{namespace}"


def _requests(application: str, namespace: str) -> str:
    return f"{_place(application, namespace)}/requests"
