"""The durability of names: a file's own fsync keeps its bytes, only its folder's keeps that it is there."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path | str) -> None:
    sync_file(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path | str, flags: int = os.O_RDONLY) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(folder: Path, root: Path | None = None) -> None:
    """Make `folder`, and all names on the way to it durable; those above `root` are not made."""
    missing = []
    while folder != root and not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)
