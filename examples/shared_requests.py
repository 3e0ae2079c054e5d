"""A metadata store of one's own: requests for startpoints in an SQLite file that several machines' tools may share.

    app = hr.App("flight-delays", startpoint_metadata_store="shared_requests:SharedRequests")

Each call opens the file again, because a job calls it from a thread. `write` is for values, which only a driver writes; a store
for `startpoint_metadata_store` can do without. `tests/contracts` compares it with the stores of the embedded log and of Kafka.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import headrace as hr

TABLES = """
CREATE TABLE IF NOT EXISTS entries (place TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (place, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (place TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""


class SharedRequests(hr.MetadataStore):
    """The requests and values of one application, in the file that SHARED_REQUESTS names."""

    def __init__(self, application: str, path: str | None = None) -> None:
        self.application = application
        self.path = path or os.environ.get("SHARED_REQUESTS", "requests.sqlite")

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(self, namespace: str, key: str) -> bytes | None:
        return self._all(namespace).get(key)

    def all(self, namespace: str) -> dict[str, bytes]:
        return self._all(namespace)

    def requests(self, namespace: str) -> dict[str, bytes]:
        return self._all(f"{namespace}/requests")

    def stamp(self) -> object:
        with self._db() as db:
            return db.execute("SELECT count FROM changes WHERE place = ?", (self.application,)).fetchone()

    # --- writing ----------------------------------------------------------------------------------------------------

    def request_all(self, namespace: str, values: Sequence[bytes]) -> tuple[str, ...]:
        with self._db(is_change=bool(values)) as db:
            (first,) = db.execute("SELECT coalesce(sum(count), 0) FROM changes").fetchone()
            ids = [f"{first:012d}-{nth:06d}-{uuid.uuid4().hex[:8]}" for nth in range(len(values))]
            for id_, value in zip(ids, values, strict=True):
                db.execute("INSERT INTO entries VALUES (?, ?, ?)", (self._place(f"{namespace}/requests"), id_, value))
        return tuple(ids)

    def withdraw(self, namespace: str, ids: Collection[str]) -> None:
        with self._db(is_change=bool(ids)) as db:
            self._delete(db, f"{namespace}/requests", ids)

    def write(self, namespace: str, values: Mapping[str, bytes | None], done: Collection[str] = ()) -> None:
        """Put values (None deletes) and drop requests, all or nothing."""
        with self._db(is_change=True) as db:
            for key, value in values.items():
                self._delete(db, namespace, [key])
                if value is not None:
                    db.execute("INSERT INTO entries VALUES (?, ?, ?)", (self._place(namespace), key, bytes(value)))
            self._delete(db, f"{namespace}/requests", done)

    # --- in here ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _db(self, is_change: bool = False) -> Iterator[sqlite3.Connection]:
        """The file, open for one transaction; a change of this application is counted, so that its stamp is another."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
            db.executescript(TABLES)
            db.execute("BEGIN IMMEDIATE" if is_change else "BEGIN")
            if is_change:
                count = "INSERT INTO changes VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1"
                db.execute(count, (self.application,))
            yield db
            db.execute("COMMIT")  # what raises before leaves nothing behind: closing rolls it back

    def _all(self, part: str) -> dict[str, bytes]:
        with self._db() as db:
            return dict(db.execute("SELECT key, value FROM entries WHERE place = ? ORDER BY key", (self._place(part),)))

    def _delete(self, db: sqlite3.Connection, part: str, keys: Collection[str]) -> None:
        db.executemany("DELETE FROM entries WHERE place = ? AND key = ?", [(self._place(part), key) for key in keys])

    def _place(self, part: str) -> str:
        return f"{self.application}/{part}"
