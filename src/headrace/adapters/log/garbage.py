"""Owns the collection of data files that nobody refers to any more (protocol.md 16).

A file may be unreferenced because it is not committed YET. So one of a round goes only when that round is finished
(a round of its sub-topology with that number or a later one has committed) or its epoch is dead, and one of a producer
only when it is an hour old. It goes inside a transaction of the catalog: no commit can name it at that moment, and one
that names it later finds it missing and is refused.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress

from headrace.adapters.log.catalog import Catalog
from headrace.adapters.log.file_names import DATA_FOLDER, round_of
from headrace.model.checkpoint import RoundId

PRODUCER_FILE_AGE_S = 3_600
_FILES_PER_TRANSACTION = 500  # others wait for the write lock meanwhile


def collect_garbage(catalog: Catalog, now_us: int | None = None) -> tuple[str, ...]:
    """Delete what can be deleted; the names of the files, relative to the log's folder."""
    now_s = time.time() if now_us is None else now_us / 1_000_000
    names = list(_file_names(catalog))
    removed: list[str] = []
    for start in range(0, len(names), _FILES_PER_TRANSACTION):
        with catalog.read() as db:  # most files are in use: sort those out without stopping anybody
            candidates = [
                name for name in names[start : start + _FILES_PER_TRANSACTION] if not _is_referenced(db, name)
            ]
        if candidates:
            with catalog.write() as db:
                removed += [
                    name for name in candidates if _is_garbage(catalog, db, name, now_s) and _removed(catalog, name)
                ]
    _remove_empty_folders(catalog)
    return tuple(removed)


def _file_names(catalog: Catalog) -> Iterator[str]:
    for folder, _, files in os.walk(catalog.root / DATA_FOLDER):
        relative = os.path.relpath(folder, catalog.root)
        yield from (f"{relative}/{file}" for file in sorted(files))


def _is_referenced(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM chunks WHERE file = ? LIMIT 1", (name,)).fetchone() is not None


def _is_garbage(catalog: Catalog, db: sqlite3.Connection, name: str, now_s: float) -> bool:
    if _is_referenced(db, name):
        return False
    made_by = round_of(name)
    epoch = None if made_by is None else _epoch_of(db, made_by[0])
    if made_by is None or epoch is None:
        try:
            return now_s - (catalog.root / name).stat().st_mtime > PRODUCER_FILE_AGE_S
        except FileNotFoundError:
            return False
    application, round_id = made_by
    return round_id.epoch < epoch or _is_finished(db, application, round_id)


def _epoch_of(db: sqlite3.Connection, application: str) -> int | None:
    row = db.execute("SELECT epoch FROM jobs WHERE application = ?", (application,)).fetchone()
    return None if row is None else row[0]


def _is_finished(db: sqlite3.Connection, application: str, round_id: RoundId) -> bool:
    (newest,) = db.execute(
        "SELECT max(round) FROM checkpoints WHERE application = ? AND epoch = ? AND sub_topology IS ?",
        (application, round_id.epoch, round_id.sub_topology),
    ).fetchone()
    return newest is not None and round_id.number <= newest


def _removed(catalog: Catalog, name: str) -> bool:
    try:
        (catalog.root / name).unlink()
    except FileNotFoundError:
        return False
    return True


def _remove_empty_folders(catalog: Catalog) -> None:
    """Folders of dead epochs. Those of a current one stay: a worker may be about to make a file there."""
    with catalog.read() as db:
        epochs = dict(db.execute("SELECT application, epoch FROM jobs").fetchall())
    for application, epoch in epochs.items():
        folder = catalog.root / DATA_FOLDER / "jobs" / application
        dead = [path for path in folder.glob("*") if path.name.isdigit() and int(path.name) < epoch]
        for path in [*(sub for parent in dead for sub in parent.glob("*")), *dead]:
            with suppress(OSError):  # not empty, or gone already
                path.rmdir()
