"""The seal of a store: a hash over all of LMDB's file, taken when a job ends in order, compared when the next begins.

A sealed store needs no scan: if not a bit of the file has changed, the store is as good as it was. Hashing reads the file
once, some 1.5 to 8 GB/s from memory; a scan costs seconds per million keys. Using a store breaks its seal. A seal
detects later damage: a value that was damaged before is found by its own checksum when it is used.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import xxhash
from msgspec.structs import replace

from headrace.adapters.lmdb.environments import DATA_FILE
from headrace.adapters.lmdb.mark import StoreMark, read_mark, write_mark
from headrace.adapters.lmdb.ownership import owned_now
from headrace.errors import StoreDamagedError

_CHUNK_BYTES = 4 * 1024 * 1024


def seal(folder: Path, run_id: str, boot_id: str, deadline_s: float) -> bool:
    """Seal the store in `folder`, which the run that ends has left in order; False if it has not, or no process may.

    The folder is owned only to write the seal, so that hashing blocks no other process: the mark says whether it was used
    meanwhile. Gives up at `deadline_s` (of the monotonic clock): the next run scans the store instead.
    """
    mark = read_mark(folder)
    if mark is None or not _is_in_order(mark, run_id, boot_id):
        return False
    try:
        content = _content(folder / mark.generation / DATA_FILE, deadline_s)
    except OSError:
        return False
    if content is None:
        return False
    with owned_now(folder) as is_ours:
        if is_ours and read_mark(folder) == mark:
            write_mark(folder, replace(mark, content=content))
            return True
    return False


def check_seal(mark: StoreMark, folder: Path) -> None:
    """`StoreDamagedError` unless LMDB's file in `folder` is bit for bit what was sealed."""
    found = _content(folder / DATA_FILE, None)
    if found != mark.content:
        raise StoreDamagedError(f"expected content {mark.content}, found {found}: it changed after it was closed")


def _is_in_order(mark: StoreMark, run_id: str, boot_id: str) -> bool:
    clean = mark.in_use is None and mark.verifying is None and not mark.damaged
    return clean and mark.run_id == run_id and mark.boot_id == boot_id and not mark.content


def _content(path: Path, deadline_s: float | None) -> str | None:
    """The hash of a file, None if that takes beyond the deadline."""
    total = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while chunk := file.read(_CHUNK_BYTES):
            total.update(chunk)
            if deadline_s is not None and time.monotonic() > deadline_s:
                return None
    return str(total.hexdigest())
