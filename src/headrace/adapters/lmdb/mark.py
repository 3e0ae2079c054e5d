"""The mark: the small file beside a store that says how it was left, read before LMDB's files are touched.

    {"generation": "3f9a01c2", "boot_id": ..., "run_id": ..., "in_use": null, "verifying": null, "damaged": false, ...}

`generation` names the sub-folder with LMDB's files: a rebuild makes a new one and turns the mark over to it, so that a
process which still has the old one open cannot be misled.

A mark is written over the one before it, by one call: what a process that is killed leaves is the one or the other. (To
replace the file would cost a round of a thousand tasks seconds: some file systems write a file out that replaces one.)

The seal of a store: a hash over all of LMDB's file, taken when a job ends in order, compared when the next begins.

A sealed store needs no scan: if not a bit of the file has changed, the store is as good as it was. Hashing reads the file
once, some 1.5 to 8 GB/s from memory; a scan costs seconds per million keys. Using a store breaks its seal. A seal
detects later damage: a value that was damaged before is found by its own checksum when it is used.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import xxhash
from msgspec.structs import replace

from headrace.adapters.lmdb.environments import DATA_FILE
from headrace.adapters.lmdb.ownership import owned_now
from headrace.errors import StoreDamagedError

FILE_NAME = "mark.json"
_CHUNK_BYTES = 4 * 1024 * 1024
_BYTES = 512  # marks are filled up with spaces to a multiple of this, less than a page: none leaves the end of a longer one


class StoreMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a store was left. `in_use` and `verifying` are process ids; `bytes` and `txnid` are as of a clean close.

    `content`: the hash of LMDB's file if the run that closed it ended in order and sealed it, else empty.
    """

    generation: str
    boot_id: str
    run_id: str  # the run in which the store was last verified, or built
    in_use: int | None = None
    verifying: int | None = None
    damaged: bool = False
    bytes: int = 0
    txnid: int = 0
    content: str = ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(StoreMark)


def read_mark(folder: Path) -> StoreMark | None:
    """The mark in `folder`; None if there is none or it makes no sense."""
    try:
        with open(f"{folder}/{FILE_NAME}", "rb", buffering=0) as file:
            mark = _DECODER.decode(file.read())
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    return mark if "/" not in mark.generation and mark.generation not in ("", ".", "..") else None


def write_mark(folder: Path, mark: StoreMark) -> None:
    """Write the mark over the one that is there. Not synced: after a power cut the boot id tells."""
    data = _ENCODER.encode(mark)
    data += b" " * (-len(data) % _BYTES)
    file = os.open(f"{folder}/{FILE_NAME}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(file, data, 0)
        if os.fstat(file).st_size > len(data):  # a mark of another length, or no mark of ours
            os.ftruncate(file, len(data))
    finally:
        os.close(file)


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
