"""The embedded log's catalog as a database: its schema, its version, its connections and transactions.

What the tables mean belongs to `stream_tables`, `jobs` and `metadata`. Every write is one `BEGIN IMMEDIATE`
transaction with `synchronous=FULL` (protocol.md 15), so a writer sees the newest state and no other writer's halves.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from headrace.adapters.common.lease_holder import stat_fields
from headrace.adapters.log import commits
from headrace.adapters.log.catalog_files import (
    FILE_NAME,
    SCHEMA,
    SCHEMA_VERSION,
    check_can_be_made,
    make_catalog,
    refuse_orphans,
)
from headrace.adapters.log.commit_marks import CommitMark, begin_mark, finish_if_begun, finish_mark, marks_of, withdraw_mark
from headrace.environment import checked_folder
from headrace.errors import SetupError, StorageError

LOCK_WAIT_S = 30.0  # a commit takes milliseconds; a process that holds the lock for this long is stopped or stuck


class Catalog:
    """The catalog of the log in `root`. Threads may share it: one connection reads, another writes, each under a lock. Where
    there is no log yet, it reads as an empty one: folder and file are made by the first write, so looking leaves nothing."""

    def __init__(self, root: Path, lock_wait_s: float) -> None:
        self.root = root
        self.path = root / FILE_NAME
        self._lock_wait_s = lock_wait_s
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._closed = False
        self._file: tuple[int, int] | None = None  # device and inode of what is open
        self._reading = threading.Lock()
        self._writing = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the catalog and blocks no writer. Keep it short: read, then leave."""
        with self._reading, _storage_errors(self.path), ExitStack() as stack:
            if self._reader is None and (self._closed or self.path.exists()):
                self._reader = self._connected()
            connection = self._reader
            if connection is None:
                refuse_orphans(self.root)
                connection = stack.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None)))
                connection.executescript(SCHEMA)
            else:
                self._check_in_place()
            with transaction(connection, "BEGIN"):
                yield connection

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that alone may write: committed and on disk when the block ends, undone if it raises. Without
        `durable` it may be lost by a power cut (never by a killed process): for heartbeats and status."""
        with self._writing, _storage_errors(self.path):
            if self._writer is None:
                if not self._closed and not self.path.exists():
                    refuse_orphans(self.root)
                    checked_folder(self.root, "the log (log:DIR)")
                    make_catalog(self.path)
                self._writer = self._connected()
            self._check_in_place()
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            marks = marks_of(self.root)  # before the transaction: it sees every commit that is marked by now
            mark: CommitMark | None = None
            try:
                with transaction(self._writer, "BEGIN IMMEDIATE"):
                    commits.check_newest(self._writer, self.root, self.path, marks)
                    self._writer.execute(commits.TABLE)  # a catalog of an older Headrace has none
                    is_uncertain = durable and commits.keep_what_is_uncertain(self._writer, self.root, self.path, marks)
                    yield self._writer
                    if is_uncertain:
                        commits.forget_what_is_certain(self._writer)
                    # what a power cut may take back has no number: a mark never is of a commit that was lost
                    if durable and (mark := commits.add_commit(self._writer, self.root)) is not None:
                        begin_mark(self.root, mark, is_first=not marks)
            except sqlite3.Error:
                if mark is not None:
                    withdraw_mark(self.root, mark)
                raise
            if mark is not None:
                finish_mark(self.root, mark)

    def close(self) -> None:
        with self._reading, self._writing:
            self._closed = True
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()

    def _connected(self) -> sqlite3.Connection:
        """A connection to a catalog that is the newest one of its folder."""
        if self._closed:
            raise _closed(self.path)
        newest = check_catalog(self.path)
        if newest is not None:
            finish_if_begun(self.root, newest)
        found = self.path.stat()
        connection = connect(self.path, self._lock_wait_s)
        if self._file is None:
            self._file = (found.st_dev, found.st_ino)
        return connection

    def _check_in_place(self) -> None:
        """A file that was replaced is still open here: writes to it would be lost."""
        if self._closed:
            return  # the connection raises
        try:
            found = self.path.stat()
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise StorageError(
                f"the catalog {self.path} was {'deleted or moved' if found is None else 'replaced'} while it was open; "
                "nothing was changed",
                "restore the newest catalog and restart",
            )


def open_catalog(root: Path, *, create: bool = True, lock_wait_s: float = LOCK_WAIT_S) -> Catalog:
    """The catalog of the log in `root`; without one, the first write makes it, or `SetupError` if not to `create`. `SetupError`
    if the folder cannot be made or written, `StorageError` if the file is no catalog or a newer one."""
    path = root / FILE_NAME
    catalog = Catalog(root, lock_wait_s)
    if not path.exists():
        refuse_orphans(root)
        if not create:
            raise SetupError(
                f"there is no log in {root}",
                "check the folder in log:DIR, or name the system that is meant, such as --system kafka://HOST:PORT; "
                "`headrace stream create` makes a log",
            )
        check_can_be_made(root)
        return catalog
    if not os.access(root, os.W_OK) or not os.access(path, os.W_OK):
        raise SetupError(f"the log in {root} cannot be written", "give this user the right to write it, or name another folder")
    with catalog.read():
        return catalog


def connect(path: Path, lock_wait_s: float = LOCK_WAIT_S, *, mode: str = "rw") -> sqlite3.Connection:
    """Connect to the file as it is. `mode` is rw or ro, never rwc: a catalog that vanished is an error, never a new one."""
    uri = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=lock_wait_s, isolation_level=None, check_same_thread=False)


def ended_unclean(path: Path) -> bool:
    """Whether a -wal file is left, and no process has the catalog open."""
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0 and not is_open_elsewhere(path)


def connect_to_look(path: Path, is_unclean: bool) -> sqlite3.Connection:
    """A connection that leaves the files as they are. After an unclean end it cannot write: one that can would write what the
    -wal file holds into the catalog, be it of this catalog or not."""
    return connect(path, mode="ro" if is_unclean else "rw")


def check_catalog(path: Path) -> CommitMark | None:
    """`StorageError` unless the file is a catalog, whole, and the newest one of its folder; its newest commit's mark. After
    an unclean end, which leaves a -wal file, it is read whole: the file may be of another state than the catalog."""
    root, is_unclean = path.parent, ended_unclean(path)
    marks, newest = marks_of(root), None
    with closing(connect_to_look(path, is_unclean)) as db:
        try:
            check_version(path, db)
            db.execute("BEGIN")
            commits.check_newest(db, root, path, marks)
            damage = next(commits.damage_of(db, whole=is_unclean), None)
            newest = commits.newest_mark(db)
        except sqlite3.DatabaseError as error:
            if _code_of(error) != sqlite3.SQLITE_CORRUPT:
                raise
            damage = str(error)
    if damage is not None:
        beside = f", after {path.name}-wal was applied to it" if is_unclean else ""
        raise StorageError(
            f"the catalog {path} is damaged{beside}: {damage}; nothing was changed",
            f"restore the catalog and its -wal file from one copy; `headrace doctor --system log:{root}` shows more",
        )
    return newest


def check_version(path: Path, connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"the catalog {path} has schema version {version}, this version of Headrace knows {SCHEMA_VERSION}",
            "it was written by a newer Headrace: update this one",
        )
    if version < SCHEMA_VERSION:
        raise StorageError(f"{path} is not a catalog of Headrace", "name another folder in log:DIR")


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
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
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.IntegrityError):
            raise  # a mistake of ours, not of the file
        code, doctor = _code_of(error), f"see what can be done: headrace doctor --system log:{path.parent}"
        if code == sqlite3.SQLITE_BUSY:
            raise _locked(path) from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise StorageError(
                f"the catalog {path} is damaged: {error}; a copy may have been written over it while it was in use",
                f"stop all that uses the log, and {doctor}; "
                "to put a copy back, move the damaged catalog and its -wal file away first",
            ) from error
        hint = doctor if code == sqlite3.SQLITE_NOTADB else "check the disk's space and health"
        raise StorageError(f"the catalog {path} cannot be used: {error}", hint) from error


def _code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _closed(path: Path) -> StorageError:
    return StorageError(f"the log in {path.parent} was closed", "open it again with open_system")


def _locked(path: Path) -> StorageError:
    pid = write_lock_owner(path)
    if pid is None:
        return StorageError(f"the catalog {path} stayed locked by another process", "find and terminate that process")
    fields = stat_fields(pid)
    is_stopped = fields is not None and fields[0] in ("T", "t")
    return StorageError(
        f"the catalog {path} stayed locked by process {pid}{' (which is stopped)' if is_stopped else ''}",
        f"resume it (kill -CONT {pid}) or terminate it" if is_stopped else "wait until it is done, or terminate it",
    )


_SHARED_FIRST = 0x40000002  # of the file itself: every open connection in WAL mode holds it for reading
_LOOKS = 5
_WAL_WRITE_LOCK = 120  # the byte of the -shm file that SQLite locks while it writes (its file format, "WAL-index")


def write_lock_owner(catalog: Path) -> int | None:
    """The process that holds the write lock of the SQLite file `catalog`, as far as the kernel tells; only for messages."""
    for _ in range(_LOOKS):  # the kernel gives its list in pieces: where locks come and go meanwhile a line may be left out
        for words in _locks_of(catalog.with_name(f"{catalog.name}-shm")) or ():
            end = _WAL_WRITE_LOCK if words[7] == "EOF" else int(words[7])
            if words[1] == "POSIX" and words[3] == "WRITE" and int(words[6]) <= _WAL_WRITE_LOCK <= end:
                return int(words[4])
    return None


def is_open_elsewhere(catalog: Path) -> bool:
    """Whether any process has a connection to the SQLite file `catalog`, as far as the kernel tells; True where it does not."""
    locks = _locks_of(catalog)
    return locks is None or any(int(words[6]) == _SHARED_FIRST for words in locks)


def _locks_of(path: Path) -> list[list[str]] | None:
    """The locks on a file by the words of /proc/locks, such as "1: POSIX ADVISORY WRITE 4021 08:01:1311 120 120"; None where
    the kernel does not tell. (To open the file itself and close it again would drop this process's own locks on it.)"""
    try:
        inode = path.stat().st_ino
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    return [words for words in lines if len(words) == 8 and words[5].rpartition(":")[2] == str(inode)]
