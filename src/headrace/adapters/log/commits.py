"""What the catalog keeps of itself: the log's id, the tokens of its last commits, and the files that it cannot judge.

Those are files that were strange to it when it was first compared with the folder, and files that a commit that was cut short
may have named. All are rows of the table `log`, which catalogs of an older Headrace do not have.

Every function works inside its caller's transaction.
"""

from __future__ import annotations

import secrets
import sqlite3
import uuid
from collections.abc import Collection, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from headrace.adapters.log.commit_marks import CommitMark, marks_of, mismatch, unknown_of
from headrace.adapters.log.file_names import DATA_FOLDER, data_files_of, round_of
from headrace.errors import StorageError
from headrace.model.checkpoint import RoundId

PRODUCER_FILE_AGE_S = 3_600
TABLE = """
CREATE TABLE IF NOT EXISTS log (
    kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID
"""
_LOG, _COMMITS, _STRANGERS, _UNCERTAIN, _REPAIRS = "log", "commit", "stranger", "uncertain", "repair"
_TOKENS_KEPT = 1_000
_PUT = "INSERT OR REPLACE INTO log VALUES (?, ?, ?)"
_GAPS = """
SELECT name, partition, found, base_offset FROM (
    SELECT stream, partition, base_offset, lag(base_offset + records) OVER one AS found FROM chunks
    WINDOW one AS (PARTITION BY stream, partition ORDER BY base_offset)
) JOIN streams ON number = stream WHERE found != base_offset
UNION ALL
SELECT name, p.partition, coalesce(max(base_offset + records), first_offset), end_offset FROM partitions p
JOIN streams ON number = p.stream LEFT JOIN chunks c ON c.stream = p.stream AND c.partition = p.partition
GROUP BY p.stream, p.partition
HAVING end_offset > first_offset AND (max(base_offset + records) IS NOT end_offset OR min(base_offset) > first_offset)
"""


def begin(db: sqlite3.Connection) -> None:
    """Give a new catalog, or one whose history ends here, an id that no other has."""
    db.execute(TABLE)
    db.execute("DELETE FROM log WHERE kind IN (?, ?, ?)", (_LOG, _STRANGERS, _UNCERTAIN))
    db.execute(_PUT, (_LOG, "id", uuid.uuid4().hex))


def _log_id(db: sqlite3.Connection) -> str | None:
    return _value_of(db, _LOG, "id")


def _is_marked(db: sqlite3.Connection) -> bool:
    """Whether a commit of this catalog has been marked, or was about to be."""
    return _value_of(db, _LOG, "marked") is not None


def _value_of(db: sqlite3.Connection, kind: str, key: str) -> str | None:
    rows = _rows(db, "value", kind, "AND key = ?", key)
    return str(rows[0][0]) if rows else None


def _rows(db: sqlite3.Connection, columns: str, kind: str, more: str = "", *values: str) -> list[Any]:
    """Of the table `log`; none in a catalog of an older Headrace, which does not have it."""
    if not _has_table(db):
        return []
    return db.execute(f"SELECT {columns} FROM log WHERE kind = ? {more}", (kind, *values)).fetchall()


def _newest_of(db: sqlite3.Connection) -> int:
    rows = _rows(db, "key", _COMMITS, "ORDER BY key DESC LIMIT 1")
    return int(rows[0][0]) if rows else 0


def newest_mark(db: sqlite3.Connection) -> CommitMark | None:
    """The mark that the newest commit has, or should have."""
    if not _is_marked(db):
        return None
    log, number = _log_id(db), _newest_of(db)
    token = _token_of(db, number)
    return None if log is None or token is None else CommitMark(log, number, token)


def mismatch_of(db: sqlite3.Connection, root: Path, marks: Collection[CommitMark]) -> str | None:
    """Why this catalog is not the newest one of its folder; None if it is. `marks` were looked up before the transaction."""
    lost = not marks and _is_marked(db) and not marks_of(root)  # if there are some by now, the first commit has just been
    return mismatch(_log_id(db), _newest_of(db), marks, partial(_token_of, db), lost_marks=lost)


def has_unknown(db: sqlite3.Connection, marks: Collection[CommitMark]) -> bool:
    """Whether a commit was begun that this catalog does not have."""
    return bool(unknown_of(marks, _log_id(db), partial(_token_of, db)))


def _token_of(db: sqlite3.Connection, number: int) -> str | None:
    return _value_of(db, _COMMITS, f"{number:012d}")


def _has_table(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'log'").fetchone() is not None


def check_newest(db: sqlite3.Connection, root: Path, path: Path, marks: Collection[CommitMark]) -> None:
    """`StorageError` unless this catalog is the newest one of its folder. `marks` were looked up before the transaction."""
    found = mismatch_of(db, root, marks)
    if found is not None:
        raise StorageError(
            f"the catalog {path} does not match its data files: {found}; nothing was read or changed",
            f"restore the newest catalog, with its -wal file if it has one; if there is none, or this is it, see what can be "
            f"done: headrace doctor --system log:{root}",
        )


def keep_what_is_uncertain(db: sqlite3.Connection, root: Path, path: Path, marks: Collection[CommitMark]) -> bool:
    """Before a durable transaction: write down the files that this catalog does not name and cannot judge; they stay.
    Whether there may be such files."""
    if _log_id(db) is None:
        _adopt(db, root, path)
    elif has_unknown(db, marks):
        names = [name for name in data_files_of(root) if not is_referenced(db, name)]
        db.executemany(_PUT, [(_UNCERTAIN, name, "") for name in names])
    else:
        return False
    return True


def add_commit(db: sqlite3.Connection, root: Path) -> CommitMark | None:
    """Number the transaction that is about to be committed; its mark, None where there are no data files to guard yet."""
    number, token = _newest_of(db) + 1, secrets.token_hex(8)
    db.execute(_PUT, (_COMMITS, f"{number:012d}", token))
    db.execute("DELETE FROM log WHERE kind = ? AND key <= ?", (_COMMITS, f"{max(0, number - _TOKENS_KEPT):012d}"))
    if not _is_marked(db):
        if not (root / DATA_FOLDER).is_dir():
            return None
        db.execute(_PUT, (_LOG, "marked", "yes"))
    log = _log_id(db)
    assert log is not None
    return CommitMark(log, number, token)


def _adopt(db: sqlite3.Connection, root: Path, path: Path) -> None:
    """Take a catalog that nothing can be compared with: of an older Headrace. It may be an older copy. So what it does not
    refer to now is never deleted; and where names alone show it, it is refused."""
    begin(db)
    for name in data_files_of(root):
        if is_referenced(db, name):
            continue
        if unreferenced_fate(db, name, 0.0) is Fate.UNKNOWN and not _is_kept(db, _STRANGERS, name):
            raise StorageError(
                f"the catalog {path} does not match its data files: it is an older copy, or of another log, as it does "
                f"not know the run that wrote {name}; nothing was changed",
                f"restore the newest catalog; if there is none, see what can be done: headrace doctor --system log:{root}",
            )
        db.execute(_PUT, (_STRANGERS, name, ""))


def _is_kept(db: sqlite3.Connection, kind: str, name: str) -> bool:
    return _value_of(db, kind, name) is not None


def forget_what_is_certain(db: sqlite3.Connection) -> None:
    """A file that was committed since is neither strange nor uncertain."""
    query = "DELETE FROM log WHERE kind IN (?, ?) AND EXISTS (SELECT 1 FROM chunks WHERE file = key)"
    db.execute(query, (_STRANGERS, _UNCERTAIN))


def add_repair(db: sqlite3.Connection, quarantine: str) -> None:
    db.execute(_PUT, (_REPAIRS, quarantine, ""))


def repairs_of(db: sqlite3.Connection) -> list[str]:
    """The folders, relative to the log's, to which repairs have moved files: another catalog may come back for these."""
    return [folder for (folder,) in _rows(db, "key", _REPAIRS, "ORDER BY key")]


def forget_repairs(db: sqlite3.Connection, folders: Collection[str]) -> None:
    db.executemany("DELETE FROM log WHERE kind = ? AND key = ?", [(_REPAIRS, folder) for folder in folders])


def is_referenced(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM chunks WHERE file = ? LIMIT 1", (name,)).fetchone() is not None


def unreferenced_fate(db: sqlite3.Connection, name: str, age_s: float) -> Fate:
    """What is to become of a file that no row names."""
    made_by = round_of(name)
    epoch = newest_round = None
    if made_by is not None:
        application, round_id = made_by
        row = db.execute("SELECT epoch FROM jobs WHERE application = ?", (application,)).fetchone()
        epoch = None if row is None else row[0]
        (newest_round,) = db.execute(
            "SELECT max(round) FROM checkpoints WHERE application = ? AND epoch = ? AND sub_topology IS ?",
            (application, round_id.epoch, round_id.sub_topology),
        ).fetchone()
    is_kept = _is_kept(db, _STRANGERS, name) or not _has_table(db)  # one without the table may be an older copy
    return fate_of(made_by, epoch, newest_round, age_s, is_stranger=is_kept, is_uncertain=_is_kept(db, _UNCERTAIN, name))


class Fate(StrEnum):
    """What an unreferenced data file is to the catalog."""

    WAITING = "waiting"  # it may be committed yet
    GARBAGE = "garbage"  # it never will be, or all that is in it was purged
    UNKNOWN = "unknown"  # the catalog cannot know: never to be deleted


def fate_of(
    made_by: tuple[str, RoundId] | None,
    epoch: int | None,
    newest_round: int | None,
    age_s: float,
    *,
    is_stranger: bool,
    is_uncertain: bool = False,
) -> Fate:
    """The fate of a data file that no row of the catalog names (protocol.md 16).

    `made_by`: the application and round that wrote it, None for a producer. `epoch`: the current one of that application, None
    for one that is not known. `newest_round`: the newest committed one of the file's epoch and sub-topology. `is_stranger`: it
    was there before the catalog could be compared with the folder. `is_uncertain`: a commit that was cut short may name it.

    >>> fate_of(None, None, None, 4000.0, is_stranger=False).value, fate_of(None, None, None, 10.0, is_stranger=False).value
    ('garbage', 'waiting')
    >>> [fate_of(("a", RoundId(5, None, 3)), epoch, 2, 0.0, is_stranger=False).value for epoch in (None, 4, 5, 6)]
    ['unknown', 'unknown', 'waiting', 'garbage']
    """
    if is_stranger:
        return Fate.UNKNOWN
    if is_uncertain:
        return Fate.WAITING
    if made_by is None:
        return Fate.GARBAGE if age_s > PRODUCER_FILE_AGE_S else Fate.WAITING
    round_id = made_by[1]
    if epoch is None or round_id.epoch > epoch:  # an epoch is committed before its first file is written
        return Fate.UNKNOWN
    is_finished = newest_round is not None and round_id.number <= newest_round
    return Fate.GARBAGE if round_id.epoch < epoch or is_finished else Fate.WAITING


def damage_of(db: sqlite3.Connection, *, whole: bool = True) -> Iterator[str]:
    """What in the catalog cannot be, such as after a -wal file of another state was applied to it. Without `whole` only what
    can be seen at once."""
    for low, high, count in _rows(db, "min(key), max(key), count(*)", _COMMITS):
        if count and int(high) - int(low) + 1 != count:
            yield f"of its commits {int(low)} to {int(high)} only {count} are there"
    if not whole:
        return
    for (text,) in db.execute("PRAGMA integrity_check(5)").fetchall():
        if text != "ok":
            yield text
    for name, partition, end, base in db.execute(_GAPS).fetchall():
        yield f"stream {name!r} partition {partition}: no data file has the offsets from {end} to {base} (exclusive)"
