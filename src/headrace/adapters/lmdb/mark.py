"""The mark: the small file beside a store that says how it was left, read before LMDB's files are touched.

    {"generation": "3f9a01c2", "boot_id": ..., "run_id": ..., "in_use": null, "verifying": null, "damaged": false, ...}

`generation` names the sub-folder with LMDB's files: a rebuild makes a new one and turns the mark over to it, so that a
process which still has the old one open cannot be misled.

A mark is written over the one before it, by one call: what a process that is killed leaves is the one or the other. (To
replace the file would cost a round of a thousand tasks seconds: some file systems write a file out that replaces one.)
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

FILE_NAME = "mark.json"
_BYTES = 512  # marks are filled up with spaces to a multiple of this, less than a page: none leaves the end of a longer one


class StoreMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a store was left. `in_use` and `verifying` are process ids; `bytes` and `txnid` are as of a clean close.

    `content`: the hash of LMDB's file if the run that closed it ended in order and sealed it (`seals`), else empty.
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
