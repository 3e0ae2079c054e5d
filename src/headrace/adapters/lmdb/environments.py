"""The LMDB environments that this process has open, and everything that is done to one but reading for a round.

LMDB must not open one environment twice in a process, and opening costs more than a small round: so environments stay
open between rounds. Only the owner of a store folder (`ownership`) touches its environment."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import lmdb
import pyarrow as pa
from msgspec.structs import replace

from headrace.adapters.lmdb.entries import META_DB, Build, Meta, packed
from headrace.errors import DEFECT, DiskFullError, StateError, StoreDamagedError
from headrace.state_files.batches import db_of

DATA_FILE, _LOCK_FILE = "data.mdb", "lock.mdb"
_LOCK_BYTES = 8192  # its head, and a hundred readers
MAP_BYTES = 256 * 1024 * 1024  # address space, not disk; doubled when full
_DATABASES_MAX = 64
_READERS_MAX = 1024
_IDLE_MAX = max(128, min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))  # each holds two open files
_DOUBLINGS_MAX = 30

_FULL_BYTES = 1024 * 1024  # LMDB writes less at once, and says of a write that was cut short no more than that it failed
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOOK_S = 1.0

_NOT_DAMAGE = (lmdb.MapFullError, lmdb.MapResizedError, lmdb.DiskError, lmdb.MemoryError, lmdb.ReadersFullError)


@contextmanager
def damage_named(folder: Path) -> Iterator[None]:
    """Turn what LMDB raises into ours: a full disk or table is a `StateError`, anything else means damage."""
    try:
        yield
    except (lmdb.MapFullError, lmdb.MapResizedError, lmdb.BadValsizeError):
        raise  # the first two are dealt with above; the last is a bug of the caller's, and no damage
    except lmdb.DbsFullError as error:
        hint = f"a task has room for {_DATABASES_MAX - 1} stores and indexes"
        raise StateError(f"local store {folder}: {error}", hint) from error
    except lmdb.Error as error:
        code = getattr(error, "code", 0)
        if code in _FULL or (code == errno.EIO and shutil.disk_usage(folder).free < _FULL_BYTES):
            raise disk_full(folder) from error
        if isinstance(error, _NOT_DAMAGE) or code == errno.EACCES:
            hint = "see to its disk and limits, then start again"
            raise StateError(f"local store {folder}: {error}", hint) from error
        raise StoreDamagedError(f"local store {folder}: {error}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(folder) from error
        raise


def disk_full(folder: Path) -> DiskFullError:
    hint = "make room there, or set local_store_dir to a folder on a larger disk: stores are made again from the state files"
    return DiskFullError(f"local store {folder}: the disk is full", hint)


@dataclass(slots=True)
class Environment:
    folder: Path
    lmdb: Any
    pid: int
    handles: dict[str, Any] = field(default_factory=dict)
    busy: bool = False

    @property
    def place(self) -> Path:
        return self.folder.parent

    def refresh(self) -> None:
        """Take in what other processes did since: a larger map, new databases; and free the slots of dead readers."""
        with damage_named(self.folder):
            self.lmdb.reader_check()
            try:
                names = self.lmdb.dbs()
            except lmdb.MapResizedError:
                self.lmdb.set_mapsize(0)  # 0: as large as the file says
                names = self.lmdb.dbs()
            for name in names:
                text = name.decode(errors="replace")  # a name that is no text was damaged: no entry of it will be right
                if text not in self.handles:
                    self.handles[text] = self.lmdb.open_db(name, create=False)

    @property
    def databases(self) -> list[str]:
        return sorted(name for name in self.handles if name != META_DB)

    @property
    def txnid(self) -> int:
        return int(self.lmdb.info()["last_txnid"])

    def meta(self, txn: Any) -> Meta:
        """What the store holds, as `txn` sees it; `StoreDamagedError` if the record is damaged."""
        handle = self.handles.get(META_DB)
        stored = None if handle is None else txn.get(Meta.KEY, db=handle)
        return Meta() if stored is None else Meta.from_stored(stored)

    def apply(
        self, base: str, after: str, changes: Callable[[], Iterable[pa.RecordBatch]], applying: Callable[[], None] | None = None
    ) -> bool:
        """In one transaction: if the store holds the state `base`, apply `changes` and call it `after`; else False. `changes`
        may be called several times. `applying` is called before the transaction is committed. No transaction of this process
        may be open on the environment: the map may have to grow."""

        def attempt(txn: Any, opened: dict[str, Any]) -> bool:
            meta = self.meta(txn)
            if meta.identity != base:
                return False
            for batch in changes():
                meta = self._change(txn, opened, meta, batch)
            self._write_meta(txn, opened, replace(meta, identity=after, build=None))
            if applying is not None:
                applying()
            return True

        return self._in_transaction(attempt)

    def load(self, batch: pa.RecordBatch, build: Build) -> None:
        """Apply a batch to a store that is being made, in a transaction of its own, which says how far it is then."""

        def attempt(txn: Any, opened: dict[str, Any]) -> bool:
            meta = self._change(txn, opened, self.meta(txn), batch)
            self._write_meta(txn, opened, replace(meta, build=build))
            return True

        self._in_transaction(attempt)

    def _in_transaction(self, attempt: Callable[[Any, dict[str, Any]], bool]) -> bool:
        """Run `attempt(txn, newly opened handles)` and commit; again with a map twice as large while it is full."""
        for _ in range(_DOUBLINGS_MAX):
            opened: dict[str, Any] = {}  # a handle outlives its transaction only if that is committed
            try:
                with damage_named(self.folder), self.lmdb.begin(write=True) as txn:
                    done = attempt(txn, opened)
                self.handles.update(opened)
                return done
            except lmdb.MapFullError:
                self.lmdb.set_mapsize(2 * self.lmdb.info()["map_size"])
            except lmdb.MapResizedError:
                self.lmdb.set_mapsize(0)
        raise StateError(
            f"local store {self.folder}: its map is full at {self.lmdb.info()['map_size']} bytes",
            DEFECT,
        )

    def _change(self, txn: Any, opened: dict[str, Any], meta: Meta, batch: pa.RecordBatch) -> Meta:
        db = db_of(batch)
        keys, values = batch.column(1).to_pylist(), batch.column(2).to_pylist()
        handle = self._handle(txn, opened, db)
        with txn.cursor(db=handle) as cursor:
            # Behind all that is there: nothing is replaced, and LMDB appends, which is faster and packs pages tightly.
            append = not cursor.last() or cursor.key() < keys[0]
            replaced = [] if append else cursor.getmulti(keys)
            if batch.column(2).null_count:
                for key, value in zip(keys, values, strict=True):
                    if value is None:
                        txn.delete(key, db=handle)
                keys = [key for key, value in zip(keys, values, strict=True) if value is not None]
                values = [value for value in values if value is not None]
            stored = packed(db, keys, values)
            consumed, _ = cursor.putmulti(list(zip(keys, stored, strict=True)), append=append)
            if consumed != len(keys):
                raise StoreDamagedError(f"local store {self.folder}: {consumed} of {len(keys)} entries were taken")
        return meta.changed_by(stored, [value for _, value in replaced])

    def _write_meta(self, txn: Any, opened: dict[str, Any], meta: Meta) -> None:
        txn.put(Meta.KEY, meta.to_stored(), db=self._handle(txn, opened, META_DB))

    def _handle(self, txn: Any, opened: dict[str, Any], db: str) -> Any:
        handle = self.handles.get(db) or opened.get(db)
        if handle is None:
            handle = opened[db] = self.lmdb.open_db(db.encode(), txn=txn)
        return handle


# A round may have a thousand tasks, and all of this runs for each: nothing here looks at all that is open.
_open: dict[Path, Environment] = {}
_of_place: dict[Path, set[Path]] = {}  # store folder to the folders in it that are open
_idle: dict[Path, None] = {}  # those that no round uses, the one used last at the end
_lock = Lock()


def take(folder: Path) -> Environment:
    """The environment in `folder`, opened or made if need be, for the use of its owner until `give_back`."""
    with _lock:
        _forget_those_of_the_parent()
        _close_removed()
        environment = _open.get(folder)
        if environment is None:
            environment = _open[folder] = _opened(folder)
            _of_place.setdefault(environment.place, set()).add(folder)
        environment.busy = True
        _idle.pop(folder, None)
    environment.refresh()
    return environment


def give_back(environment: Environment) -> None:
    """It stays open for the next round; beyond some number the one unused for longest is closed."""
    with _lock:
        environment.busy = False
        if _open.get(environment.folder) is environment:
            _idle[environment.folder] = None
        while len(_idle) > _IDLE_MAX:
            _close(next(iter(_idle)))


def close_others(place: Path, kept: Path | None) -> None:
    """Close what this process has open below the store folder `place`, which it owns, except `kept`."""
    with _lock:
        for folder in sorted(_of_place.get(place, set()) - {kept}):
            _close(folder)


def close_idle() -> None:
    with _lock:
        for folder in list(_idle):
            _close(folder)


def remove(folder: Path) -> None:
    with _lock:
        if folder in _open:
            _close(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _close(folder: Path) -> None:
    environment = _open.pop(folder)
    _idle.pop(folder, None)
    _of_place[environment.place].discard(folder)
    if not _of_place[environment.place]:
        del _of_place[environment.place]
    environment.lmdb.close()


_looked_s = [0.0]  # when, by the monotonic clock


def _close_removed() -> None:
    """Close those that another process has removed since, as the stores of a former factor: open, they keep their room on the
    disk. Looks at all that are idle, once in a while."""
    if time.monotonic() - _looked_s[0] < _LOOK_S:
        return
    for folder in [one for one in _idle if not os.path.exists(one / DATA_FILE)]:
        _close(folder)
    _looked_s[0] = time.monotonic()


def _opened(folder: Path) -> Environment:
    with damage_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _reserve_lock_file(folder / _LOCK_FILE)
    map_bytes = MAP_BYTES
    with suppress(OSError):
        map_bytes = max(map_bytes, 2 * (folder / DATA_FILE).stat().st_size)
    with damage_named(folder):
        opened = lmdb.open(
            str(folder),
            map_size=map_bytes,
            max_dbs=_DATABASES_MAX,
            max_readers=_READERS_MAX,
            sync=False,  # the boot id shows what a power cut left, and it is rebuilt
            metasync=False,
            writemap=False,  # a stray write of the process must not reach the file
        )
    return Environment(folder, opened, os.getpid())


def _reserve_lock_file(path: Path) -> None:
    """Have the pages on the disk that LMDB maps and writes to: where a full disk has none the kernel ends the process (SIGBUS).
    Only before this process has it open: to close a file gives up the locks that LMDB has on it."""
    if not hasattr(os, "posix_fallocate"):
        return
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(file, 0, _LOCK_BYTES)
    finally:
        os.close(file)


def _forget_those_of_the_parent() -> None:
    """LMDB's environments do not survive a fork: the child closes its copies and opens its own."""
    first = next(iter(_open.values()), None)  # all are of one process, this one or its parent
    if first is None or first.pid == os.getpid():
        return
    for folder in list(_open):
        with suppress(lmdb.Error):
            _close(folder)
