"""What can be done where the newest catalog of a log is lost: take the one that is there, or rebuild it.

Nothing is deleted: what does not fit goes to `quarantine/<when>` in the log's folder, and comes back from there when a catalog
that names it is put back and taken. The state files of before are kept as long as that folder is there. Either way ends with a
catalog that has a new id: any other that is put in its place later is refused.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path

from headrace.adapters.log import commits, stream_tables
from headrace.adapters.log.catalog import connect, transaction
from headrace.adapters.log.catalog_files import FILE_NAME, catalog_aside, link_into_place
from headrace.adapters.log.chunks import Chunk, chunks_in
from headrace.adapters.log.commit_marks import CommitMark, make_marks_folder, replace_marks
from headrace.adapters.log.file_names import QUARANTINE, data_files_of, round_of
from headrace.adapters.log.verifying import Verified
from headrace.errors import StorageError
from headrace.model.checkpoint import RoundId
from headrace.state_files.durable import make_durable_folder, sync_folder

_REPARTITION = "-repartition"


@dataclass(slots=True)
class Repaired:
    """What was done: names of files, relative to the log's folder; records added, by stream."""

    quarantine: str
    moved: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)


def take(found: Verified, now: datetime, *, with_unknown: bool = False) -> Repaired:
    """Take the catalog that is there, and move what it does not know to the quarantine. `with_unknown`: what producers
    wrote, and it does not know, is appended to the streams first. What applications wrote is not: they continue from the
    positions that this catalog has, and write it again."""
    root, path = found.root, found.root / FILE_NAME
    if not found.is_usable:
        raise StorageError(f"the catalog {path} cannot be taken: {found.catalog}", "rebuild it from the data files: --rebuild")
    done = Repaired(_quarantine_of(now))
    with closing(connect(path)) as db:
        db.execute("PRAGMA synchronous = FULL")
        with transaction(db, "BEGIN IMMEDIATE"):
            db.execute(commits.TABLE)
            done.restored = _bring_back(root, db)
            if with_unknown:
                _append(root, db, [name for name in _unreferenced(root, db) if round_of(name) is None], done)
            for name in _unreferenced(root, db):
                _move_out(root, name, done)
            mark = _new_history(root, db, done)
        replace_marks(root, mark)  # from now on no other catalog fits this folder
    return done


def rebuild(found: Verified, now: datetime) -> Repaired:
    """Make a catalog of the data files: with the old one where that can be read, else with nothing but what the files say.
    It is built under another name, and appears as the last step. Killed before, the log still has no usable catalog, and
    what was moved is nothing that another rebuild needs."""
    root, path = found.root, found.root / FILE_NAME
    if found.is_usable:
        return take(found, now, with_unknown=True)
    done = Repaired(_quarantine_of(now))
    for unfinished in root.glob(f".{FILE_NAME}-*"):
        unfinished.unlink(missing_ok=True)
    with catalog_aside(path) as aside:
        with closing(connect(aside)) as db:
            mark, unnamed = _fill(root, db, done)
        replace_marks(root, mark)  # a catalog that is put back from now on is refused: the files that it names may be moved
        for rest in ("", "-wal", "-shm"):  # the catalog first: without its -wal file it might be readable, but older
            if path.with_name(path.name + rest).exists():
                _move_out(root, path.name + rest, done)
        for name in unnamed:
            _move_out(root, name, done)
        sync_folder(root)
        if not link_into_place(aside, path):
            raise StorageError(
                f"the catalog {path} appeared while another one was built; that one was not put in its place",
                f"stop all that uses the log, then look again: headrace doctor --system log:{root}",
            )
    return done


def _fill(root: Path, db: sqlite3.Connection, done: Repaired) -> tuple[CommitMark, list[str]]:
    """Write all that the data files hold into a new catalog; its mark, and the files that it does not name."""
    db.execute("PRAGMA synchronous = FULL")
    with transaction(db, "BEGIN IMMEDIATE"):
        _append(root, db, list(data_files_of(root)), done)
        _keep_epochs(root, db)
        return _new_history(root, db, done), _unreferenced(root, db)


def _unreferenced(root: Path, db: sqlite3.Connection) -> list[str]:
    return [name for name in data_files_of(root) if not commits.is_referenced(db, name)]


def _quarantine_of(now: datetime) -> str:
    return f"{QUARANTINE}/{now:%Y%m%dT%H%M%SZ}"


def _append(root: Path, db: sqlite3.Connection, names: list[str], done: Repaired) -> None:
    """Append what the files hold, in the order in which they were written; streams that are not there are created."""
    written: list[tuple[int, str, list[Chunk]]] = []
    for name in names:
        found = chunks_in(root, name)
        if found:
            written.append((found[0][1], name, [chunk for chunk, _ in found]))
    seen: dict[tuple[str, RoundId], set[tuple[str, int, str]]] = defaultdict(set)
    chosen: list[Chunk] = []
    for _, name, chunks in sorted(written, key=lambda one: one[:2]):
        made_by = round_of(name)
        for chunk in chunks:
            if made_by is not None:
                if chunk.stream.startswith(f"{made_by[0]}-") and chunk.stream.endswith(_REPARTITION):
                    continue  # the application writes it again
                same = (chunk.stream, chunk.partition, chunk.checksum)
                if same in seen[made_by]:
                    continue  # of an attempt that was run twice
                seen[made_by].add(same)
            chosen.append(chunk)
    _make_streams(db, chosen)
    stream_tables.append_chunks(db, chosen)
    for chunk in chosen:
        done.added[chunk.stream] = done.added.get(chunk.stream, 0) + chunk.records


def _make_streams(db: sqlite3.Connection, chunks: list[Chunk]) -> None:
    needed: dict[str, int] = {}
    for chunk in chunks:
        needed[chunk.stream] = max(needed.get(chunk.stream, 0), chunk.partition + 1)
    there = {stream.name: stream.partitions for stream in stream_tables.all_streams(db)}
    for name, partitions in sorted(needed.items()):
        if name not in there:
            stream_tables.create_stream(db, name, partitions, None)
        elif there[name] < partitions:
            stream_tables.expand_stream(db, name, partitions)


def _keep_epochs(root: Path, db: sqlite3.Connection) -> None:
    """Let the next run of each application have an epoch that none of its files has."""
    newest: dict[str, int] = {}
    kept = (name for folder in sorted((root / QUARANTINE).glob("*")) for name in data_files_of(folder))
    for name in chain(data_files_of(root), kept):  # a rebuild that was killed may have moved the newest
        if (made_by := round_of(name)) is not None:
            newest[made_by[0]] = max(newest.get(made_by[0], 0), made_by[1].epoch)
    db.executemany("INSERT INTO jobs VALUES (?, ?, NULL, 0, 0)", sorted(newest.items()))


def _bring_back(root: Path, db: sqlite3.Connection) -> list[str]:
    """Move the files that the catalog names and that are missing back out of the quarantine."""
    back = []
    for (name,) in db.execute("SELECT DISTINCT file FROM chunks").fetchall():
        if not (root / name).exists():
            kept = sorted((root / QUARANTINE).glob(f"*/{name}"))
            if kept:
                _move(root, str(kept[-1].relative_to(root)), name)
                back.append(name)
    return back


def _move_out(root: Path, name: str, done: Repaired) -> None:
    _move(root, name, f"{done.quarantine}/{name}")
    done.moved.append(name)


def _move(root: Path, source: str, target: str) -> None:
    make_durable_folder((root / target).parent, root)
    (root / source).rename(root / target)
    sync_folder((root / target).parent)


def _new_history(root: Path, db: sqlite3.Connection, done: Repaired) -> CommitMark:
    """The last commit before the caller's COMMIT: under a new id, and with the repair written down."""
    commits.begin(db)
    commits.add_repair(db, done.quarantine)
    make_durable_folder(root / done.quarantine, root)  # even if nothing was moved: state files are kept while it is there
    make_marks_folder(root)
    mark = commits.add_commit(db, root)
    assert mark is not None
    return mark
