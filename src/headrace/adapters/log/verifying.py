"""The verification of an embedded log: catalog against data files, both ways, with all checksums. Changes nothing."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from headrace.adapters.log import commits
from headrace.adapters.log.catalog import check_version, connect_to_look, ended_unclean
from headrace.adapters.log.catalog_files import FILE_NAME
from headrace.adapters.log.chunks import Chunk, chunks_in
from headrace.adapters.log.commit_marks import marks_of
from headrace.adapters.log.commits import Fate
from headrace.adapters.log.data_files import read_chunk
from headrace.adapters.log.file_names import data_files_of
from headrace.errors import HeadraceError, StorageError

_CHUNKS = """
SELECT name, partition, records, file, position, length, checksum, base_offset, max_timestamp_us
FROM chunks JOIN streams ON number = stream ORDER BY file, position
"""


@dataclass(slots=True)
class Verified:
    """What was found in the folder `root`. `catalog` is what is wrong with the catalog as a whole (None: nothing),
    `is_usable` whether it can be read at all. `missing` and `damaged` are data files that the catalog names, with what is
    wrong; `unknown` files that it does not know and cannot judge; `waiting` and `garbage` are counts of files that it does
    not name, for a good reason. `rebuildable` counts the records that the unknown files say they hold, by stream."""

    root: Path
    catalog: str | None = None
    is_usable: bool = True
    streams: int = 0
    records: int = 0
    files: int = 0
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    waiting: int = 0
    garbage: int = 0
    rebuildable: Counter[str] = field(default_factory=Counter)

    @property
    def is_whole(self) -> bool:
        return self.catalog is None and not (self.missing or self.damaged or self.unknown)

    @property
    def is_no_log(self) -> bool:
        """Whether there is no trace of a log: as a rebuild that was killed leaves marks, even where it has no data file."""
        return not (self.root / FILE_NAME).exists() and not self.files and not marks_of(self.root)


def verify(root: Path) -> Verified:
    """Look at all of the log in `root`: every checksum of every file is computed, so it takes as long as reading it does."""
    found, path = Verified(root), root / FILE_NAME
    marks = marks_of(root)
    if not path.exists():
        found.catalog, found.is_usable = "it is missing", False
        found.unknown = list(data_files_of(root))
    else:
        try:
            with closing(connect_to_look(path, ended_unclean(path))) as db:
                check_version(path, db)
                db.execute("BEGIN")
                found.catalog = next(commits.damage_of(db), None)
                found.is_usable = found.catalog is None
                found.catalog = found.catalog or commits.mismatch_of(db, root, marks)
                if found.is_usable:
                    _compare(db, found, has_unknown_commit=commits.has_unknown(db, marks))
        except (sqlite3.DatabaseError, StorageError) as error:
            found.catalog, found.is_usable = getattr(error, "message", str(error)), False
        if not found.is_usable:
            found.unknown = list(data_files_of(root))
    found.files = sum(1 for _ in data_files_of(root))
    for name in found.unknown:
        for chunk, _ in chunks_in(root, name) or ():
            found.rebuildable[chunk.stream] += chunk.records
    return found


def _compare(db: sqlite3.Connection, found: Verified, *, has_unknown_commit: bool) -> None:
    (found.streams,) = db.execute("SELECT count(*) FROM streams").fetchone()
    named: dict[str, bool] = {}  # file to whether it is there
    for row in db.execute(_CHUNKS):
        chunk = Chunk(*row)
        found.records += chunk.records
        is_there = named.setdefault(chunk.file, (found.root / chunk.file).exists())
        if not is_there:
            continue
        try:
            read_chunk(found.root, chunk)
        except HeadraceError as error:
            found.damaged.append(error.message)
    found.missing = [name for name, is_there in named.items() if not is_there]
    is_newest = found.catalog is None
    now_s = time.time()
    for name in data_files_of(found.root):
        if name in named:
            continue
        try:
            age_s = now_s - (found.root / name).stat().st_mtime
        except FileNotFoundError:
            continue
        fate = commits.unreferenced_fate(db, name, age_s) if is_newest else Fate.UNKNOWN
        if fate is Fate.UNKNOWN:
            found.unknown.append(name)
        elif fate is Fate.WAITING or has_unknown_commit:
            found.waiting += 1
        else:
            found.garbage += 1


def names_of(items: Sequence[str], most: int = 5) -> str:
    """The first of many names."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more:,} more" if more > 0 else "")
