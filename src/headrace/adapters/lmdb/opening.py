"""How a task's local store is made ready for a round: owned, proved whole, and at the state the round builds on.

A store is a cache. If anything is wrong with it, it is rebuilt from the state files that the head names, into a new generation
beside the old one; only a state file that is missing or damaged is an error (protocol.md 17-20)."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from headrace.adapters.lmdb import environments
from headrace.adapters.lmdb.building import Progress, StoreBuild, no_progress
from headrace.adapters.lmdb.environments import DATA_FILE, Environment, damage_named
from headrace.adapters.lmdb.ownership import owned, owned_now
from headrace.adapters.lmdb.scanning import check_entries, check_structure
from headrace.adapters.lmdb.store import TaskStore
from headrace.adapters.lmdb.store_status import StoreStatus, check_seal, read_status, write_status
from headrace.core.keys.heads import added_files
from headrace.errors import StateError, StoreDamagedError
from headrace.model.checkpoint import EMPTY, Head, StateFile, StateFileKind, identity_of
from headrace.state_files.files import StateFiles

_log = logging.getLogger("headrace.state_files")


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
            opening.close(store.is_damaged, store.identity)
            for note in store.notes:
                _log.log(logging.WARNING if note in store.troubles else logging.INFO, "local store %s: %s", place, note)


def prepare_task_store(
    folder: Path, head: Head, files: StateFiles, *, run_id: str, boot_id: str, progress: Progress = no_progress
) -> int:
    """Make the local store of a task before that opens it, under `folder`, or bring the one that is there to `head`; how many
    entries it has. The first opening by its task adds the files that came since, if the head has come from this one.
    `progress` is called after each batch of a store that is made. Errors as for `open_task_store`; `StateError` too where
    another process has the folder."""
    folder = folder.absolute()
    refuse_network_file_system(folder)
    with damage_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with owned_now(folder) as is_ours:
        if not is_ours:
            raise StateError(
                f"local store {folder}: expected one that is not in use, found that another process uses it",
                "end that process, or set another local_store_dir",
            )
        opening = _Opening(folder, head, files, run_id, boot_id, [], None, progress)
        try:
            store = opening.store()
            store.begin()
            entries = store.entries
            store.end()
        except StoreDamagedError:
            opening.close(damaged=True)
            raise
        opening.close(damaged=False, identity=head.identity, prepared=head)
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
    progress: Progress = no_progress
    notes: list[str] = field(init=False)
    is_restored: bool = False
    read_bytes: int = 0  # of state files
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
        return TaskStore(environment, self.notes, self.troubles, read_bytes=self.read_bytes, is_restored=self.is_restored)

    def close(self, damaged: bool, identity: str = "", prepared: Head | None = None) -> None:
        """Record in the status how the store was left, and leave the environment to the next round."""
        environment, status = self.environment, self.status
        assert environment is not None and status is not None
        size = (environment.folder / DATA_FILE).stat().st_size
        left = replace(status, in_use=None, damaged=damaged, bytes=size, txnid=environment.txnid, prepared=prepared)
        write_status(self.place, replace(left, identity=identity or status.identity, used_us=_now_us()))
        environments.give_back(environment)

    def _usable(self) -> Environment | None:
        """The environment that is there, proved whole; None if there is none, `StoreDamagedError` if it is not."""
        status = read_status(self.place)
        if status is None or status.building:
            return None
        folder = self.place / status.generation
        environments.close_others(self.place, folder)
        try:
            size = (folder / DATA_FILE).stat().st_size
        except OSError:
            return None
        if status.boot_id != self.boot_id and not self._is_as_sealed(status, folder):
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

    def _is_as_sealed(self, status: StoreStatus, folder: Path) -> bool:
        """Whether all of a store that was sealed under another boot has come to the disk before that ended."""
        if status.in_use is not None or not status.content:
            return False
        environments.close_others(self.place, None)
        try:
            check_seal(status, folder)
        except StoreDamagedError:
            return False
        return True

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
        owner = replace(status, boot_id=self.boot_id, run_id=self.run_id, in_use=os.getpid(), used_us=_now_us())
        self.status = replace(owner, verifying=None, damaged=False, content="", prepared=None)
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

            changes = partial(self._batches_of, (file,))
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
            self.read_bytes += 0 if self.files.remembers(file) else file.counted_bytes
            yield from self.files.batches(file)

    def _rebuilt(self) -> Environment:
        """A new generation, made of the head's files one after the other; the old ones are removed."""
        if self.environment is not None:
            environments.give_back(self.environment)
            self.environment = None  # it is about to be removed: whatever fails from here on, there is nothing to close
        environments.close_others(self.place, None)
        build = StoreBuild(self.place, self.head, self.files, self.boot_id, self.progress)
        started = time.monotonic()
        environment = build.begun(self.run_id)
        try:
            entries = build.load(environment)
            environment.apply(EMPTY, identity_of(self.head), lambda: (), self.applying)
        except BaseException:
            environments.remove(environment.folder)
            raise
        finally:
            self.read_bytes += build.read_bytes
        if self.head is not None:
            count, seconds = len(self.head.files), time.monotonic() - started
            read = f"{count} state file{'' if count == 1 else 's'}"
            self.notes.append(f"restored {entries:,} entries from {read} in {seconds:.2f} s")
            self.is_restored = True
        environments.give_back(environment)
        folder, identity = environment.folder, identity_of(self.head)
        return self._take(folder, StoreStatus(folder.name, self.boot_id, self.run_id, identity=identity))


def _now_us() -> int:
    return time.time_ns() // 1000


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
