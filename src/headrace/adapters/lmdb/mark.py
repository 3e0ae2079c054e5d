"""Owns the mark: the small file beside a store that says how it was left, read before LMDB's files are touched.

    {"generation": "3f9a01c2", "boot_id": ..., "run_id": ..., "in_use": null, "verifying": null, "damaged": false, ...}

`generation` names the sub-folder with LMDB's files: a rebuild makes a new one and turns the mark over to it, so that a
process which still has the old one open cannot be misled. The mark is replaced as a whole, never written into.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

FILE_NAME = "mark.json"


@dataclass(frozen=True, slots=True)
class Mark:
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


def read_mark(folder: Path) -> Mark | None:
    """The mark in `folder`; None if there is none or it makes no sense."""
    try:
        values = json.loads((folder / FILE_NAME).read_bytes())
        mark = Mark(**values)
    except (OSError, ValueError, TypeError):
        return None
    expected = {field.name: field.type for field in fields(Mark)}
    sound = all(_matches(getattr(mark, name), str(kind)) for name, kind in expected.items())
    return mark if sound and "/" not in mark.generation and mark.generation not in ("", ".", "..") else None


def _matches(value: object, kind: str) -> bool:
    return type(value).__name__ in kind.replace("None", "NoneType").split(" | ")


def write_mark(folder: Path, mark: Mark) -> None:
    """Replace the mark. Not synced: after a power cut the boot id tells."""
    new = folder / f"{FILE_NAME}.new"
    new.write_text(json.dumps(asdict(mark)))
    os.replace(new, folder / FILE_NAME)
