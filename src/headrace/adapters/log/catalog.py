"""Owns the embedded log's catalog as a database: its schema, its version, its connections and transactions.

What the tables mean belongs to `stream_tables`, `jobs` and `metadata`. Every write is one `BEGIN IMMEDIATE`
transaction with `synchronous=FULL` (protocol.md 15), so whoever writes sees the newest state and nobody else's halves.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from headrace.adapters.log.durable import sync_folder
from headrace.adapters.log.locks import write_lock_owner
from headrace.errors import SetupError, StorageError

FILE_NAME = "catalog.sqlite"
SCHEMA_VERSION = 1
LOCK_WAIT_S = 30.0  # a commit takes milliseconds; whoever holds the lock for this long is stopped or stuck

_SCHEMA = f"""
PRAGMA user_version = {SCHEMA_VERSION};
-- `id` is for users and changes when a stream is made anew; `number` is what other tables use, never given twice.
CREATE TABLE streams (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    id TEXT NOT NULL UNIQUE,
    partitions INTEGER NOT NULL,
    internal_of TEXT
);
-- Offsets first_offset <= o < end_offset can be read; what lies below was purged.
CREATE TABLE partitions (
    stream INTEGER NOT NULL REFERENCES streams (number),
    partition INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    end_offset INTEGER NOT NULL,
    PRIMARY KEY (stream, partition)
) WITHOUT ROWID;
-- Offsets base_offset <= o < base_offset + records lie in bytes [position, position + length) of the file.
CREATE TABLE chunks (
    stream INTEGER NOT NULL REFERENCES streams (number),
    partition INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    records INTEGER NOT NULL,
    file TEXT NOT NULL,
    position INTEGER NOT NULL,
    length INTEGER NOT NULL,
    checksum TEXT NOT NULL,
    max_timestamp_us INTEGER,
    PRIMARY KEY (stream, partition, base_offset)
) WITHOUT ROWID;
CREATE INDEX chunks_by_file ON chunks (file);
-- `holder` is JSON, NULL when the last driver ended cleanly.
CREATE TABLE jobs (
    application TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    holder TEXT,
    held_since_us INTEGER NOT NULL,
    heartbeat_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE job_models (
    application TEXT NOT NULL,
    version INTEGER NOT NULL,
    model TEXT NOT NULL,
    written_at_us INTEGER NOT NULL,
    PRIMARY KEY (application, version)
) WITHOUT ROWID;
-- The round id that made a checkpoint stands in columns of its own: it is what the next round's base is compared with.
CREATE TABLE checkpoints (
    application TEXT NOT NULL,
    task TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    sub_topology TEXT,
    round INTEGER NOT NULL,
    checkpoint TEXT NOT NULL,
    PRIMARY KEY (application, task)
) WITHOUT ROWID;
CREATE TABLE status (
    application TEXT NOT NULL,
    sub_topology TEXT NOT NULL,
    status TEXT NOT NULL,
    PRIMARY KEY (application, sub_topology)
) WITHOUT ROWID;
CREATE TABLE metadata (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
"""


class Catalog:
    """The catalog of one folder, open. Threads may share it: one connection reads, another writes, each under a lock.

    `root` is the log's folder. Made by `open_catalog`. Where there is no log yet, it reads as an empty one: the folder and
    the file are made by the first write, so that looking leaves nothing behind.
    """

    def __init__(self, root: Path, lock_wait_s: float) -> None:
        self.root = root
        self.path = root / FILE_NAME
        self._lock_wait_s = lock_wait_s
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._closed = False
        self._reading = threading.Lock()
        self._writing = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the catalog and blocks no writer. Keep it short: read, then leave."""
        with self._reading, _storage_errors(self.path):
            if self._reader is None and (self._closed or self.path.exists()):
                self._reader = self._connected()
            with self._reader_or_empty() as connection, _transaction(connection, "BEGIN"):
                yield connection

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that alone may write: committed and on disk when the block ends, undone if it raises.

        Without `durable` it may be lost by a power cut (never by a killed process): for heartbeats and status.
        """
        with self._writing, _storage_errors(self.path):
            if self._writer is None:
                if not self._closed and not self.path.exists():
                    _make_folder(self.root)
                    _create(self.path)
                self._writer = self._connected()
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with _transaction(self._writer, "BEGIN IMMEDIATE"):
                yield self._writer

    def close(self) -> None:
        with self._reading, self._writing:
            self._closed = True
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()

    @contextmanager
    def _reader_or_empty(self) -> Iterator[sqlite3.Connection]:
        if self._reader is not None:
            yield self._reader
            return
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
            empty.executescript(_SCHEMA)
            yield empty

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            raise _closed(self.path)
        connection = _connect(self.path, self._lock_wait_s)
        try:
            _check_version(self.path, connection)
        except BaseException:
            connection.close()
            raise
        return connection


def open_catalog(root: Path, *, create: bool = True, lock_wait_s: float = LOCK_WAIT_S) -> Catalog:
    """Open the catalog of the log in `root`; without one, the first write makes it, or `SetupError` if not to `create`.

    `SetupError` if the folder cannot be made or written, `StorageError` if the file is no catalog or a newer one.
    """
    path = root / FILE_NAME
    catalog = Catalog(root, lock_wait_s)
    if not path.exists():
        if not create:
            raise SetupError(
                f"there is no log in {root}",
                "check the folder in log:DIR, or name the system that is meant, such as --system kafka://HOST:PORT; "
                "`headrace stream create` makes a log",
            )
        _check_can_be_made(root)
        return catalog
    if not os.access(root, os.W_OK) or not os.access(path, os.W_OK):
        raise SetupError(
            f"the log in {root} cannot be written", "give this user the right to write it, or name another folder"
        )
    with catalog.read():
        return catalog


def _check_can_be_made(root: Path) -> None:
    """Refuse what the first write would fail on, as far as that can be seen without writing."""
    above = next(folder for folder in (root, *root.parents) if folder.exists())
    if not above.is_dir():
        raise _cannot_be_made(root, f"{above} is no folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise _cannot_be_made(root, f"{above} cannot be written")


def _make_folder(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".probe-{uuid.uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _cannot_be_made(root, error.strerror or str(error)) from error


def _cannot_be_made(root: Path, reason: str) -> SetupError:
    return SetupError(f"the folder {root} for the log cannot be made and written: {reason}", "name another in log:DIR")


def _create(path: Path) -> None:
    """Make the catalog aside and link it into place: it appears whole, and of two that make it at once one wins."""
    aside = path.with_name(f".{FILE_NAME}-{uuid.uuid4().hex}")
    try:
        with _storage_errors(path):
            connection = sqlite3.connect(aside, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")  # kept in the file's header from now on
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            finally:
                connection.close()
        with suppress(FileExistsError):
            os.link(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        raise SetupError(
            f"the catalog {path} cannot be made: {error.strerror or error}", "name another folder in log:DIR"
        ) from error
    finally:
        for rest in ("", "-wal", "-shm"):
            aside.with_name(aside.name + rest).unlink(missing_ok=True)


def _connect(path: Path, lock_wait_s: float) -> sqlite3.Connection:
    # mode=rw: a catalog that vanished is an error, never a new and empty one
    uri = f"file:{quote(str(path))}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=lock_wait_s, isolation_level=None, check_same_thread=False)


def _check_version(path: Path, connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"the catalog {path} has schema version {version}, this version of Headrace knows {SCHEMA_VERSION}",
            "it was written by a newer Headrace: update this one",
        )
    if version < SCHEMA_VERSION:
        raise StorageError(f"{path} is not a catalog of Headrace", "name another folder in log:DIR")


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite raises about the file into `StorageError`."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        if "closed database" not in str(error):
            raise
        raise _closed(path) from error
    except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.InterfaceError)):
            raise  # a mistake of ours, not of the file
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise _locked(path) from error
        raise StorageError(
            f"the catalog {path} cannot be used: {error}", "check the disk's space and health"
        ) from error


def _closed(path: Path) -> StorageError:
    return StorageError(f"the log in {path.parent} was closed", "open it again with open_system")


def _locked(path: Path) -> StorageError:
    owner = write_lock_owner(path)
    if owner is None:
        return StorageError(f"the catalog {path} stayed locked by another process", "find what holds it, and end it")
    state = " (which is stopped)" if owner.stopped else ""
    return StorageError(
        f"the catalog {path} stayed locked by process {owner.pid}{state}",
        f"let it go on (kill -CONT {owner.pid}) or end it" if owner.stopped else "wait until it is done, or end it",
    )
