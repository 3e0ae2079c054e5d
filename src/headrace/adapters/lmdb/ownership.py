"""Who may use a store folder: one process at a time, through flock, which the kernel gives up when it dies.

A folder that a stopped process holds would block for ever (a worker stopped inside an LMDB write transaction keeps
LMDB's lock, too): then a sibling folder is used, `<task>~1` and so on, and built from the state files (protocol.md 18)."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.adapters.common.lease_holder import stat_fields
from headrace.adapters.lmdb.environments import damage_named
from headrace.errors import StateError

LOCK_FILE = "owner"
_SIBLINGS_MAX = 16
_POLL_S = 0.02


@contextmanager
def owned(folder: Path, wait_s: float = 1.0) -> Iterator[tuple[Path, list[str]]]:
    """Own `folder`, or a sibling of it, while the context lasts; gives the folder and what there is to say about it. Waits at
    most `wait_s` for a running process to release it, not at all for a stopped one. `StateError` if the siblings are taken
    too."""
    notes: list[str] = []
    for number in range(_SIBLINGS_MAX):
        place = _sibling(folder, number)
        lock, holder = _locked(place, 0.0 if number else wait_s)
        if lock is None:
            notes.append(f"{place.name} is held by {holder}")
            continue
        if number:
            notes[:] = [f"using {place.name}: " + "; ".join(notes)]
        else:
            _remove_siblings(folder)
        try:
            yield place, notes
        finally:
            _unlock(lock)
        return
    raise StateError(
        f"local store {folder}: it and {_SIBLINGS_MAX - 1} siblings are held by other processes",
        "see the processes named in the files `owner` of these folders; stop those that are left over",
    )


@contextmanager
def owned_now(folder: Path) -> Iterator[bool]:
    """Own `folder` itself while the context lasts, if no other process does: whether that is so. Does not wait."""
    lock, _ = _locked(folder, 0.0) if folder.is_dir() else (None, "")
    try:
        yield lock is not None
    finally:
        if lock is not None:
            _unlock(lock)


def remove_owned(folder: Path) -> None:
    """Remove a folder that this process owns, as far as that can be. The lock file last: who makes another one finds no store
    beside it."""
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if path.name != LOCK_FILE]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (folder / LOCK_FILE).unlink()
        folder.rmdir()  # fails where another process has begun there


def _unlock(lock: int) -> None:
    """By name: a child that was forked meanwhile has the descriptor too, and closing it here would not be enough."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def used_place(folder: Path) -> Path:
    """What an opening of `folder` would own now: it, or where others hold it the first sibling that is free, which need not be
    there yet. Changes nothing. Without siblings no lock is tried: that an opening makes the first one is not foreseen."""
    if not os.path.exists(_sibling(folder, 1)):
        return folder
    places = (_sibling(folder, number) for number in range(_SIBLINGS_MAX))
    return next((place for place in places if not _is_held(place)), folder)


def _is_held(place: Path) -> bool:
    try:
        lock = os.open(f"{place}/{LOCK_FILE}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor, too
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _sibling(folder: Path, number: int) -> Path:
    return folder.with_name(f"{folder.name}~{number}") if number else folder


def _locked(place: Path, wait_s: float) -> tuple[int, None] | tuple[None, str]:
    """A descriptor that holds the lock of `place`, or a text that says who else does."""
    holder = "?"
    for attempt in range(1 + math.ceil(wait_s / _POLL_S)):
        if attempt:
            time.sleep(_POLL_S)
        lock = _opened(place)
        if lock is None:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).strip().decode(errors="replace") or "?"
            os.close(lock)
            fields = stat_fields(int(holder)) if holder.isdecimal() else None
            if fields is not None and fields[0] in ("T", "t"):  # stopped, or traced
                return None, f"process {holder}, which is stopped"
            continue
        if _is_current(lock, f"{place}/{LOCK_FILE}"):
            _sign(place, lock)
            return lock, None
        os.close(lock)
    return None, f"process {holder}, which is running"


def _opened(place: Path) -> int | None:
    """A descriptor of the lock file in `place`, which is made if need be; None if an owner of the first folder removes it."""
    path, flags = f"{place}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with damage_named(place):
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            place.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            return None


def _sign(place: Path, lock: int) -> None:
    """Write this process's id into the lock file of `place`, for those who find it locked; where that fails it is unlocked."""
    name = f"{os.getpid():<15}\n".encode()  # always as long: written over another one it needs no room on a full disk
    try:
        if os.pread(lock, 32, 0) != name:
            with damage_named(place):
                os.pwrite(lock, name, 0)
    except BaseException:
        os.close(lock)
        raise


def _is_current(lock: int, path: str) -> bool:
    """Whether the locked file still is the one of that name: a sibling may be removed between open and flock."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _remove_siblings(folder: Path) -> None:
    """Remove the siblings that are no longer used; the first folder is in use again. From the last one on, up to one that is in
    use: so there are none where there is not the first of them, and at most openings no more than that has to be asked."""
    if not os.path.exists(_sibling(folder, 1)):
        return
    for number in reversed(range(1, _SIBLINGS_MAX)):
        place = _sibling(folder, number)
        if not place.exists():
            continue
        lock, _ = _locked(place, 0.0)
        if lock is None:
            return
        remove_owned(place)
        _unlock(lock)
