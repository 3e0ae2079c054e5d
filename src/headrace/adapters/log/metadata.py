"""Owns the embedded log's `MetadataStore`: small named values, in a table of the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.adapters.log.catalog import Catalog

_PUT = "INSERT INTO metadata VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"


class LogMetadataStore:
    """See `headrace.ports.MetadataStore`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def get(self, namespace: str, key: str) -> bytes | None:
        with self._catalog.read() as db:
            row = db.execute("SELECT value FROM metadata WHERE namespace = ? AND key = ?", (namespace, key)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, namespace: str, key: str, value: bytes) -> None:
        self.put_all(namespace, {key: value})

    def put_all(self, namespace: str, values: Mapping[str, bytes]) -> None:
        with self._catalog.write() as db:
            db.executemany(_PUT, [(namespace, key, bytes(value)) for key, value in values.items()])

    def delete(self, namespace: str, key: str) -> None:
        with self._catalog.write() as db:
            db.execute("DELETE FROM metadata WHERE namespace = ? AND key = ?", (namespace, key))

    def all(self, namespace: str) -> dict[str, bytes]:
        with self._catalog.read() as db:
            rows = db.execute(
                "SELECT key, value FROM metadata WHERE namespace = ? ORDER BY key", (namespace,)
            ).fetchall()
        return {key: bytes(value) for key, value in rows}
