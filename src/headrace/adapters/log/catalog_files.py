"""How the catalog's file comes to be: its schema, its folder, and that none is made over the data files of another."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from headrace.adapters.log import commits
from headrace.adapters.log.commit_marks import marks_of
from headrace.adapters.log.file_names import DATA_FOLDER, data_files_of
from headrace.errors import SetupError, StorageError
from headrace.state_files.durable import sync_file, sync_folder

FILE_NAME = "catalog.sqlite"
SCHEMA_VERSION = 1

SCHEMA = f"""
PRAGMA user_version = {SCHEMA_VERSION};
-- `id` is for users and changes when a stream is recreated; `number` is what other tables use, never given twice.
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
-- The round id that made a checkpoint is in columns of its own: it is what the next round's base is compared with.
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


def refuse_orphans(root: Path) -> None:
    """`StorageError` where a folder without a catalog holds what a catalog belongs to."""
    path = root / FILE_NAME
    wal = path.with_name(f"{FILE_NAME}-wal")
    has_wal = wal.exists() and wal.stat().st_size > 0
    if not has_wal and not marks_of(root) and next(data_files_of(root), None) is None:
        return
    count = sum(1 for _ in data_files_of(root))
    files = f"{count:,} data file{'' if count == 1 else 's'}"
    beside = f", and {wal.name} is there" if has_wal else ""
    raise StorageError(
        f"the catalog {path} is missing, but {root / DATA_FOLDER} has {files} of a log{beside}; no empty log is created",
        f"restore the catalog; if it is lost, see what can be rebuilt: headrace doctor --system log:{root}",
    )


def check_can_be_made(root: Path) -> None:
    """Refuse what the first write would fail on, as far as that can be seen without writing."""
    above = next(folder for folder in (root, *root.parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        reason = "cannot be written" if above.is_dir() else "is no folder"
        text = f"the folder {root} for the log cannot be made and written: {above} {reason}"
        raise SetupError(text, "name another in log:DIR")


def make_catalog(path: Path) -> None:
    """Make the catalog aside and link it into place: it appears whole, and of two that make it at once one wins."""
    try:
        with catalog_aside(path) as aside:
            link_into_place(aside, path)
    except OSError as error:
        raise SetupError(
            f"the catalog {path} cannot be made: {error.strerror or error}", "name another folder in log:DIR"
        ) from error


@contextmanager
def catalog_aside(path: Path) -> Iterator[Path]:
    """A new, empty catalog beside `path`, under a name that nothing else uses; that name is removed at the end."""
    aside = path.with_name(f".{FILE_NAME}-{uuid.uuid4().hex}")
    try:
        with closing(sqlite3.connect(aside, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # kept in the file's header from now on
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(f"BEGIN; {SCHEMA} COMMIT;")
            commits.begin(connection)
        yield aside
    finally:
        for rest in ("", "-wal", "-shm"):
            aside.with_name(aside.name + rest).unlink(missing_ok=True)


def link_into_place(aside: Path, path: Path) -> bool:
    """Give a catalog that no connection has open its own name, durably; False if there is one of that name."""
    sync_file(aside)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    sync_folder(path.parent)
    return True
