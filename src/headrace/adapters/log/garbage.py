"""The collection of data files that are no longer referenced (protocol.md 16).

A file may be unreferenced because it is not committed YET. So one of a round goes only when that round is finished
(a round of its sub-topology with that number or a later one has committed) or its epoch is dead, and one of a producer
only when it is an hour old. It goes inside a transaction of the catalog: no commit can name it at that moment, and one
that names it later finds it missing and is refused. Every such transaction has checked that the catalog is the newest one of
its folder; what it cannot know all the same is never deleted (`commits`).
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress

from headrace.adapters.log import commits
from headrace.adapters.log.catalog import Catalog
from headrace.adapters.log.commits import Fate, is_referenced
from headrace.adapters.log.file_names import DATA_FOLDER, data_files_of

_FILES_PER_TRANSACTION = 500  # others wait for the write lock meanwhile


def collect_garbage(catalog: Catalog, now_us: int | None = None) -> tuple[str, ...]:
    """Delete what can be deleted; the names of the files, relative to the log's folder."""
    now_s = time.time() if now_us is None else now_us / 1_000_000
    names = list(data_files_of(catalog.root))
    removed: list[str] = []
    for start in range(0, len(names), _FILES_PER_TRANSACTION):
        with catalog.read() as db:  # most files are in use: sort those out without stopping anybody
            candidates = [name for name in names[start : start + _FILES_PER_TRANSACTION] if not is_referenced(db, name)]
        if candidates:
            with catalog.write() as db:
                commits.forget_what_is_certain(db)
                for name in [name for name in candidates if _is_garbage(catalog, db, name, now_s)]:
                    with suppress(FileNotFoundError):
                        (catalog.root / name).unlink()
                        removed.append(name)
    _remove_empty_folders(catalog)
    _forget_ended_repairs(catalog)
    return tuple(removed)


def _is_garbage(catalog: Catalog, db: sqlite3.Connection, name: str, now_s: float) -> bool:
    if is_referenced(db, name):
        return False
    try:
        age_s = now_s - (catalog.root / name).stat().st_mtime
    except FileNotFoundError:
        return False
    return commits.unreferenced_fate(db, name, age_s) is Fate.GARBAGE


def _forget_ended_repairs(catalog: Catalog) -> None:
    """Those whose folder in the quarantine the user has deleted: no catalog comes back for it."""
    with catalog.read() as db:
        ended = [folder for folder in commits.repairs_of(db) if not (catalog.root / folder).is_dir()]
    if ended:
        with catalog.write() as db:
            commits.forget_repairs(db, ended)


def _remove_empty_folders(catalog: Catalog) -> None:
    """Folders of dead epochs. Those of a current one stay: a worker may be about to make a file there."""
    with catalog.read() as db:
        epochs = dict(db.execute("SELECT application, epoch FROM jobs").fetchall())
    for application, epoch in epochs.items():
        folder = catalog.root / DATA_FOLDER / "jobs" / application
        dead = [path for path in folder.glob("*") if path.name.isdigit() and int(path.name) < epoch]
        for path in [*(sub for parent in dead for sub in parent.glob("*")), *dead]:
            with suppress(OSError):  # not empty, or deleted already
                path.rmdir()
