"""What the kernel says of SQLite's locks: which process writes, and whether any has the catalog open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.adapters.common.job_lease import stat_fields

_SHARED_FIRST = 0x40000002  # of the file itself: every open connection in WAL mode holds it for reading
_WAL_WRITE_LOCK = 120  # the byte of the -shm file that SQLite locks while it writes (its file format, "WAL-index")


@dataclass(frozen=True, slots=True)
class LockOwner:
    pid: int
    stopped: bool


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
            fields = stat_fields(pid)
            return LockOwner(pid, stopped=fields is not None and fields[0] in ("T", "t"))
    return None


def is_open_elsewhere(catalog: Path) -> bool:
    """Whether any process has a connection to the SQLite file `catalog`, as far as the kernel tells; True where it does not."""
    try:
        inode = catalog.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return True
    words = [line.split() for line in lines]
    return any(len(one) == 8 and one[5].rpartition(":")[2] == str(inode) and int(one[6]) == _SHARED_FIRST for one in words)
