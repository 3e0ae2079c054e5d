"""Owns what the kernel says about processes: who this one is, whether another still lives, who holds a lock.

A pid alone names nothing: it is used again. A process is its pid, its start time, and the pid namespace it counts in.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from headrace.ports import Holder

_WAL_WRITE_LOCK = 120  # the byte of the -shm file that SQLite locks while it writes (its file format, "WAL-index")


@dataclass(frozen=True, slots=True)
class LockOwner:
    pid: int
    stopped: bool


def this_process(run_id: str, now_us: int) -> Holder:
    """This process as the holder of an application, from `now_us` (µs since the epoch)."""
    pid = os.getpid()
    return Holder(run_id, socket.gethostname(), pid, started_text(pid) or "", boot_id(), now_us)


def boot_id() -> str:
    """A text that is new each time the machine starts; empty where the kernel gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def started_text(pid: int) -> str | None:
    """When process `pid` started, in the kernel's ticks, with our pid namespace: `8023@4026531836`. None if it is gone.

    The namespace is ours because a pid means nothing in another one: seen from there, a live process looks gone.
    """
    fields = _stat_fields(pid)
    # A zombie process has ended: it only waits for its parent to ask how.
    return None if fields is None or fields[0] in ("Z", "X") else f"{fields[19]}@{_pid_namespace()}"


def is_known_dead(holder: Holder) -> bool:
    """Whether `holder` ran on this host, in this boot and pid namespace, and is gone. False where it cannot be told."""
    if holder.host != socket.gethostname() or not holder.boot_id or holder.boot_id != boot_id():
        return False
    _, at, namespace = holder.process_started.rpartition("@")
    if not at or namespace != _pid_namespace():
        return False
    return started_text(holder.pid) != holder.process_started


def write_lock_owner(catalog: Path) -> LockOwner | None:
    """Who holds the write lock of the SQLite file `catalog`, as far as the kernel tells; only for messages.

    Read from /proc/locks: opening the file itself and closing it again would drop this process's own locks on it.
    """
    try:
        inode = catalog.with_name(catalog.name + "-shm").stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:  # such as "1: POSIX  ADVISORY  WRITE 4021 08:01:1311 120 120"
        words = line.split()
        if len(words) != 8 or words[1] != "POSIX" or words[3] != "WRITE" or words[5].rpartition(":")[2] != str(inode):
            continue
        end = _WAL_WRITE_LOCK if words[7] == "EOF" else int(words[7])
        if int(words[6]) <= _WAL_WRITE_LOCK <= end:
            pid = int(words[4])
            fields = _stat_fields(pid)
            return LockOwner(pid, stopped=fields is not None and fields[0] in ("T", "t"))
    return None


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (the state) on; the second, a name, may hold blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").removeprefix("pid:[").removesuffix("]")
    except OSError:
        return ""
