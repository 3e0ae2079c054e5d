"""How a task's local store is made ready for a round: owned, proved whole, and at the state the round builds on.

A store is a cache. If anything is wrong with it, it is rebuilt from the state files that the head names, into a new generation
beside the old one; only a state file that is missing or damaged is an error (protocol.md 17-20)."""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from operator import lt
from pathlib import Path
from typing import Any

import pyarrow as pa
from lmdb import verify as structure
from msgspec.structs import replace

from headrace.adapters.lmdb import environments
from headrace.adapters.lmdb.entries import Meta, unpacked_many
from headrace.adapters.lmdb.environments import DATA_FILE, Environment, damage_named
from headrace.adapters.lmdb.ownership import owned, owned_now
from headrace.adapters.lmdb.store import TaskStore
from headrace.adapters.lmdb.store_status import StoreStatus, check_seal, read_status, write_status
from headrace.core.keys.heads import added_files, apart_at_first
from headrace.errors import StateError, StoreDamagedError
from headrace.model.checkpoint import EMPTY, Head, StateFile, StateFileKind, identity_of
from headrace.state.files import StateFiles

_log = logging.getLogger("headrace.state")
_VERIFIED_AT_ONCE = 16_384
_structure_problems: Callable[..., list[str]] = structure.verify


@contextmanager
def open_task_store(
    folder: Path,
    head: Head | None,
    files: StateFiles,
    *,
    run_id: str,
    boot_id: str,
    applying: Callable[[], None] | None = None,
) -> Iterator[TaskStore]:
    """The local store under `folder` at the state of `head` (None: empty), for this process alone while open. `run_id` names
    the driver's run, `boot_id` the machine's boot. `applying` is called inside each write transaction that applies a file,
    before its commit. A `StoreDamagedError` that leaves the context makes the next opening rebuild the store: so a round that
    meets one opens it once more. `StateError`: a state file is missing or damaged, the file system is a network's, or others
    hold the folder."""
    folder = folder.absolute()
    refuse_network_file_system(folder)
    with owned(folder) as (place, troubles):
        opening = _Opening(place, head, files, run_id, boot_id, troubles, applying)
        store = opening.store()
        try:
            store.begin()
            yield store
        except StoreDamagedError:
            store.is_damaged = True
            raise
        finally:
            store.end()
            opening.close(store.is_damaged)
            for note in store.notes:
                _log.log(logging.WARNING if note in store.troubles else logging.INFO, "local store %s: %s", place, note)


def prepare_task_store(folder: Path, head: Head, files: StateFiles, *, run_id: str, boot_id: str) -> int:
    """Make the local store of a task that is not there yet, under `folder`, or bring the one that was made to `head`; how many
    entries it has. The first opening by its task adds the files that came since, if the head has come from this one. Errors as
    for `open_task_store`; `StateError` too where another process has the folder."""
    folder = folder.absolute()
    refuse_network_file_system(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with owned_now(folder) as is_ours:
        if not is_ours:
            raise StateError(f"local store {folder}: expected one that is not in use, found that another process uses it")
        opening = _Opening(folder, head, files, run_id, boot_id, [], None)
        try:
            store = opening.store()
            store.begin()
            entries = store.entries
            store.end()
        except StoreDamagedError:
            opening.close(damaged=True)
            raise
        opening.close(damaged=False, prepared=head)
        return entries


@dataclass(slots=True, eq=False)
class _Opening:
    """One opening of an owned store folder; `troubles` collects what is out of the ordinary."""

    place: Path
    head: Head | None
    files: StateFiles
    run_id: str
    boot_id: str
    troubles: list[str]
    applying: Callable[[], None] | None
    notes: list[str] = field(init=False)
    is_restored: bool = False
    environment: Environment | None = None
    status: StoreStatus | None = None
    prepared: Head | None = None  # its state, if it was made before its task was there

    def __post_init__(self) -> None:
        self.notes = list(self.troubles)

    def store(self) -> TaskStore:
        """The store at the head; rebuilt if what is there cannot be used."""
        try:
            environment = self._usable()
            if environment is None or not self._caught_up(environment):
                environment = self._rebuilt()
        except StoreDamagedError as error:
            self.notes.append(f"rebuilt: {error.message}")
            self.troubles.append(self.notes[-1])
            environment = self._rebuilt()
        except BaseException:  # a state file is missing, say: the store itself is as good as before
            if self.environment is not None:
                self.close(damaged=False)
            raise
        return TaskStore(environment, self.notes, self.troubles, is_restored=self.is_restored)

    def close(self, damaged: bool, prepared: Head | None = None) -> None:
        """Record in the status that the store was left in order, and leave the environment to the next round."""
        environment, status = self.environment, self.status
        assert environment is not None and status is not None
        size = (environment.folder / DATA_FILE).stat().st_size
        left = replace(status, in_use=None, damaged=damaged, bytes=size, txnid=environment.txnid, prepared=prepared)
        write_status(self.place, left)
        environments.give_back(environment)

    def _usable(self) -> Environment | None:
        """The environment that is there, proved whole; None if there is none, `StoreDamagedError` if it is not."""
        status = read_status(self.place)
        if status is None:
            return None
        folder = self.place / status.generation
        environments.close_others(self.place, folder)
        try:
            size = (folder / DATA_FILE).stat().st_size
        except OSError:
            return None
        if status.boot_id != self.boot_id:
            self.notes.append("rebuilt from its state files: the machine was restarted and the store was not synced")
            return None
        if status.damaged:
            raise StoreDamagedError("the last round found it damaged")
        if status.verifying is not None:
            raise StoreDamagedError(f"process {status.verifying} ended while it verified the store")
        if status.in_use is not None or status.run_id != self.run_id:
            status = self._verified(status, folder)
        elif size < status.bytes:
            raise StoreDamagedError(f"expected at least {status.bytes} bytes, found {size}")
        self.prepared = status.prepared
        environment = self._take(folder, status)
        if status.in_use is None and status.txnid and environment.txnid != status.txnid:
            raise StoreDamagedError(f"expected transaction {status.txnid}, found {environment.txnid}")
        return environment

    def _verified(self, status: StoreStatus, folder: Path) -> StoreStatus:
        """The status of a store that another process left, after all of it was looked at: by its seal, or by a scan."""
        started = time.monotonic()
        if status.in_use is None and (folder / DATA_FILE).stat().st_size < status.bytes:
            raise StoreDamagedError(f"expected at least {status.bytes} bytes")
        environments.close_others(self.place, None)
        if status.in_use is None and status.content:
            check_seal(status, folder)
            _log.debug("local store %s is as it was sealed, read in %.2f s", folder, time.monotonic() - started)
            return replace(status, run_id=self.run_id)
        check_structure(folder)
        # Should LMDB fault on what it maps, this process ends; the next one reads here that it did so, and rebuilds.
        write_status(self.place, replace(status, verifying=os.getpid()))
        environment = environments.take(folder)
        try:
            check_entries(environment)
        finally:
            environments.give_back(environment)
        _log.debug("verified local store %s in %.2f s", folder, time.monotonic() - started)
        return replace(status, run_id=self.run_id, verifying=None, txnid=0 if status.in_use is not None else status.txnid)

    def _take(self, folder: Path, status: StoreStatus) -> Environment:
        self.status = replace(
            status, run_id=self.run_id, in_use=os.getpid(), verifying=None, damaged=False, content="", prepared=None
        )
        write_status(self.place, self.status)
        self.environment = environments.take(folder)
        return self.environment

    def _caught_up(self, environment: Environment) -> bool:
        """Apply the files of the head that the store lacks; False if its state is none that the head goes through."""
        with environment.lmdb.begin() as txn:
            held = environment.meta(txn).identity
        # The identities that a store on its way to the head goes through: empty, then after each file.
        states = [EMPTY]
        if self.head is not None:
            states += self.head.identities
        if held not in states and self._catch_up_prepared(environment, held):
            return True
        if held not in states:
            self.notes.append(
                "rebuilt from its state files, as after a rewind, or where its task was elsewhere; nothing is damaged: "
                f"it holds state {held}, and the round begins from {identity_of(self.head)}"
            )
            return False
        for index in range(states.index(held), len(states) - 1):
            assert self.head is not None
            file = self.head.files[index]
            if file.kind is StateFileKind.SNAPSHOT:
                return False  # it holds no deletions, so it needs an empty store, and is best loaded piece by piece

            changes = partial(self.files.batches, file)
            if not environment.apply(states[index], states[index + 1], changes, self.applying):
                return False
        return True

    def _catch_up_prepared(self, environment: Environment, held: str) -> bool:
        """Add the files since to a store that was prepared; False if it was not, or the head has not come from its state."""
        if self.prepared is None or self.head is None or identity_of(self.prepared) != held:
            return False
        added = added_files(self.prepared, self.head)
        if added is None:
            return False
        changes = partial(self._batches_of, added)
        return environment.apply(held, identity_of(self.head), changes, self.applying)

    def _batches_of(self, files: Iterable[StateFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from self.files.batches(file)

    def _rebuilt(self) -> Environment:
        """A new generation, made of the head's files one after the other; the old ones are removed."""
        if self.environment is not None:
            environments.give_back(self.environment)
            self.environment = None  # it is about to be removed: whatever fails from here on, there is nothing to close
        environments.close_others(self.place, None)
        for folder in self.place.iterdir():
            if folder.is_dir():
                environments.remove(folder)
        started, entries = time.monotonic(), 0
        generation = uuid.uuid4().hex[:8]
        folder = self.place / generation
        environment = environments.take(folder)
        try:
            head_files = () if self.head is None else self.head.files
            first = apart_at_first(head_files)  # by slot each comes behind the one before it: LMDB appends
            for index, file in enumerate((*first, *head_files[len(first) :])):
                entries += environment.load(self.files.batches(file))
                _log.info("local store %s: %d entries read, file %d", folder, entries, index + 1)
            environment.apply(EMPTY, identity_of(self.head), lambda: (), self.applying)
        except BaseException:
            environments.remove(folder)
            raise
        if self.head is not None:
            count, seconds = len(self.head.files), time.monotonic() - started
            read = f"{count} state file{'' if count == 1 else 's'}"
            self.notes.append(f"restored {entries:,} entries from {read} in {seconds:.2f} s")
            self.is_restored = True
        environments.give_back(environment)
        return self._take(folder, StoreStatus(generation, self.boot_id, self.run_id))


# The scan: the proof that a store which another process left without a seal is whole: structure first, then every entry.
# Costs 2 to 3.5 s per million keys on one core, in three passes. The pages, without LMDB, which may crash on a damaged
# tree and says nothing about a damaged free list, after which it would overwrite live pages. The checksum of each entry,
# and their sum. A look-up of every key, both ways round: a damaged separator hides keys that a scan still finds.


def check_structure(folder: Path) -> None:
    """`StoreDamagedError` unless LMDB's file in `folder` is sound page by page; LMDB is not asked."""
    try:
        problems: list[str] = _structure_problems(str(folder / DATA_FILE), subdir=False)
    except Exception as error:  # it walks arbitrary bytes: whatever it trips over is damage
        raise StoreDamagedError(f"local store {folder}: {type(error).__name__}: {error}") from error
    if problems:
        raise StoreDamagedError(f"local store {folder}: {problems[0]}" + ", …" * (len(problems) > 1))


def check_entries(environment: Environment) -> None:
    """`StoreDamagedError` unless every entry has its checksum, is found under its key, and all sum up as recorded."""
    with damage_named(environment.folder), environment.lmdb.begin() as txn:
        found = Meta()
        for db in environment.databases:
            with txn.cursor(db=environment.handles[db]) as cursor:
                found = _checked_database(db, cursor, found)
        recorded = environment.meta(txn)
    if (found.entries, found.checksums) != (recorded.entries, recorded.checksums):
        raise StoreDamagedError(
            f"local store {environment.folder}: expected {recorded.entries} entries with sum {recorded.checksums:x}, "
            f"found {found.entries} with {found.checksums:x}"
        )


def _checked_database(db: str, cursor: Any, found: Meta) -> Meta:
    last = b""
    is_at_entry = cursor.first()
    while is_at_entry:
        entries = list(islice(cursor.iternext(), _VERIFIED_AT_ONCE))
        keys = [key for key, _ in entries]
        unpacked_many(db, entries)
        if not all(map(lt, [last, *keys], keys)):
            raise StoreDamagedError(f"store {db}: keys are out of order")
        if cursor.getmulti(keys) != entries or cursor.getmulti(keys[::-1]) != entries[::-1]:
            raise StoreDamagedError(f"store {db}: keys are not found where they are")
        found = found.changed_by([stored for _, stored in entries], [])
        last = keys[-1]
        is_at_entry = cursor.set_key(last) and cursor.next()
    return found


# 9p and virtiofs are left out: they are how a virtual machine sees its own host's disk
_NATIVE_TYPES = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "beegfs", "gpfs", "glusterfs")
_FUSE_TYPES = ("sshfs", "glusterfs", "ceph", "s3fs", "gcsfuse", "rclone")
NETWORK_TYPES = frozenset([*_NATIVE_TYPES, *(f"fuse.{kind}" for kind in _FUSE_TYPES)])
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_system_of(folder: Path, mounts: str) -> str:
    """The type of the file system that holds `folder` (absolute), by the text of /proc/self/mounts; "" if unknown."""
    longest, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[1]))
        if len(point.parts) >= longest and folder.is_relative_to(point):  # of two at one place the later is on top
            longest, kind = len(point.parts), fields[2]
    return kind


@lru_cache(maxsize=1024)
def refuse_network_file_system(folder: Path) -> None:
    """`StateError` if `folder` (it need not exist yet) lies on a network file system."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return  # not Linux: nothing is known
    kind = file_system_of(folder.resolve(), mounts)
    if kind in NETWORK_TYPES:
        raise StateError(
            f"local store folder {folder} is on a network file system ({kind}); expected a local disk",
            "set local_store_dir to a folder on a local disk; state is kept safe under state_uri",
        )
