"""The status of a store: the small file beside it that says how it was left, read before LMDB's files are touched.

    {"generation": "3f9a01c2", "boot_id": ..., "run_id": ..., "in_use": null, "verifying": null, "damaged": false, ...}

`generation` names the sub-folder with LMDB's files: a rebuild makes a new one and turns the status over to it, so that a
process which still has the old one open cannot be misled. It is written over the one before it, by one call: what a process
that is killed leaves is the one or the other. (To replace the file would cost a round of a thousand tasks seconds: some file
systems write a file out that replaces one.)

The seal of a store is a hash over all of LMDB's file, taken when a job ends in order, compared when the next begins. A sealed
store needs no scan: hashing reads the file once, some 1.5 to 8 GB/s from memory; a scan costs seconds per million keys. Using a
store breaks its seal. A seal detects later damage: a value that was damaged before is found by its own checksum when it is
used."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import xxhash
from msgspec.structs import replace

from headrace.adapters.lmdb.environments import DATA_FILE, damage_named
from headrace.adapters.lmdb.ownership import owned_now
from headrace.errors import StoreDamagedError
from headrace.model.checkpoint import Head

FILE_NAME = "mark.json"
_CHUNK_BYTES = 4 * 1024 * 1024
_BYTES = 512  # filled up with spaces to a multiple of this, less than a page: none leaves the end of a longer one


class StoreStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a store was left. `in_use` and `verifying` are process ids; `bytes` and `txnid` are as of a clean close. `content`:
    the hash of LMDB's file if the run that closed it ended in order and sealed it, else empty. `prepared`: the head at whose
    state it is, if it was made before its task was there, and has not been in use since. `identity`: of the state that it held
    when it was closed last, empty where that is not known; one that was in use since may have come further. `building`: it is
    being made, or who made it was killed. `used_us`: the wall clock when it was opened or closed last."""

    generation: str
    boot_id: str
    run_id: str  # the run in which the store was last verified, or built
    in_use: int | None = None
    verifying: int | None = None
    damaged: bool = False
    bytes: int = 0
    txnid: int = 0
    content: str = ""
    prepared: Head | None = None
    identity: str = ""
    building: bool = False
    used_us: int = 0


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(StoreStatus)


def read_status(folder: Path) -> StoreStatus | None:
    """The status in `folder`; None if there is none or it makes no sense."""
    try:
        with open(f"{folder}/{FILE_NAME}", "rb", buffering=0) as file:
            status = _DECODER.decode(file.read())
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    return status if "/" not in status.generation and status.generation not in ("", ".", "..") else None


def write_status(folder: Path, status: StoreStatus) -> None:
    """Write it over the one that is there. Not synced: after a power cut the boot id tells."""
    data = _ENCODER.encode(status)
    data += b" " * (-len(data) % _BYTES)
    with damage_named(folder):
        file = os.open(f"{folder}/{FILE_NAME}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(file, data, 0)
            if os.fstat(file).st_size > len(data):  # one of another length, or none of ours
                os.ftruncate(file, len(data))
        finally:
            os.close(file)


def held_state(folder: Path, boot_id: str) -> StoreStatus | None:
    """The status of the store in `folder`, if it can be used without being made again as far as its files show without a look
    into them; it is at the state `identity` or a later one. None: it cannot. Changes nothing, and takes some 20 µs."""
    status = read_status(folder)
    if status is None or status.damaged or status.verifying is not None or status.building:
        return None
    if status.boot_id != boot_id and not status.content:
        return None
    try:
        size = (folder / status.generation / DATA_FILE).stat().st_size
    except OSError:
        return None
    return status if size >= status.bytes else None


def seal(folder: Path, run_id: str, boot_id: str, deadline_s: float) -> bool:
    """Seal the store in `folder`, which the run that ends has left in order; False if it has not, or no process may. The folder
    is owned only to write the seal, so that hashing blocks no other process: the status says whether it was used meanwhile.
    Gives up at `deadline_s` (of the monotonic clock): the next run scans the store instead."""
    status = read_status(folder)
    if status is None or status.in_use is not None or status.verifying is not None or status.damaged:
        return False
    if status.content or status.building:
        return False
    if (status.run_id, status.boot_id) != (run_id, boot_id):
        return False
    try:
        content = _content(folder / status.generation / DATA_FILE, deadline_s)
    except OSError:
        return False
    with owned_now(folder) as is_ours:
        if content is not None and is_ours and read_status(folder) == status:
            write_status(folder, replace(status, content=content))
            return True
    return False


def check_seal(status: StoreStatus, folder: Path) -> None:
    """`StoreDamagedError` unless LMDB's file in `folder` is bit for bit what was sealed."""
    found = _content(folder / DATA_FILE, None)
    if found != status.content:
        raise StoreDamagedError(f"expected content {status.content}, found {found}: it changed after it was closed")


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
