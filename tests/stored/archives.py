"""Stored folders as archives: packed by `make_folders.py`, unpacked by the tests."""

from __future__ import annotations

import io
import json
import lzma
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

from stored.plain import Result

DATA = Path(__file__).with_name("data")
FOLDERS = ("log", "state", "lake", "kafka/broker-1/data")
STORES = "stores"  # local stores are a cache, which another machine rebuilds: those of one job are kept
STORE_FILES = ("data.mdb", "mark.json")
_ALWAYS_US = 1_767_225_600


def versions() -> list[str]:
    """The versions whose folders are kept, such as `0.1.0-2026-11`."""
    return sorted(path.name for path in DATA.iterdir() if path.is_dir())


def archive_of(version: str, job: str) -> Path:
    return DATA / version / f"{job}.tar.xz"


def expected_in(version: str, job: str) -> Result:
    found: Result = json.loads((DATA / version / f"{job}.json").read_text())
    return found


def packed(folder: Path, archive: Path, with_stores: bool = False) -> None:
    """Pack what a job has left, with names, sizes and bytes alone: no owner, no times."""
    if (folder / "log").exists():
        with closing(sqlite3.connect(folder / "log" / "catalog.sqlite")) as catalog:
            catalog.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        stores = [path for path in (folder / STORES).rglob("*") if with_stores and path.name in STORE_FILES]
        for mark in (path for path in stores if path.name == "mark.json"):
            booted(mark, "another boot")
        for path in sorted([*stores, *(path for name in FOLDERS for path in (folder / name).rglob("*"))]):
            if path.is_file() and not path.name.endswith(("-wal", "-shm")) and "staging" not in path.parts:
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size, entry.mtime, entry.mode = path.stat().st_size, _ALWAYS_US, 0o644
                tar.addfile(entry, io.BytesIO(path.read_bytes()))
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(lzma.compress(data.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def booted(mark: Path, boot_id: str) -> None:
    """Say of a local store when its machine was started: a store that may not be synced is used in that boot alone."""
    text = json.dumps(json.loads(mark.read_text()) | {"boot_id": boot_id})
    mark.write_text(f"{text:<512}")


def unpacked(archive: Path, folder: Path) -> Path:
    """The folder of a job as it was stopped."""
    with tarfile.open(archive, mode="r:xz") as tar:
        tar.extractall(folder, filter="data")
    (folder / "state").mkdir(exist_ok=True)
    return folder


def files_in(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive, mode="r:xz") as tar:
        members = [member for member in tar.getmembers() if member.isfile()]
        return {member.name: _bytes_of(tar, member) for member in members}


def _bytes_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file: Any = tar.extractfile(member)
    with file:
        data: bytes = file.read()
    return data
