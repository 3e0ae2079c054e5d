"""A disk of local stores that has no room left: each step of an opening that meets it names the store and its disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from state_place import Place

from headrace.adapters.lmdb import close_idle, prepare_task_store
from headrace.adapters.lmdb.former_stores import remove_former_stores
from headrace.errors import DiskFullError
from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName


def fill(monkeypatch: pytest.MonkeyPatch, folder: Path, room: int) -> None:
    """From now on `folder` has room for so many folders, files and writes at a place of a file. Not of LMDB."""
    left = [room]

    def limited(real: Callable[..., Any], is_counted: Callable[..., bool]) -> Callable[..., Any]:
        def call(*args: Any, **keys: Any) -> Any:
            if is_counted(*args):
                if not left[0]:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                left[0] -= 1
            return real(*args, **keys)

        return call

    def is_new(path: Any, flags: int = os.O_CREAT, *_: Any) -> bool:
        return bool(flags & os.O_CREAT) and Path(path).is_relative_to(folder) and not os.path.exists(path)

    def is_here(descriptor: int, *_: Any) -> bool:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(folder)

    monkeypatch.setattr(os, "mkdir", limited(os.mkdir, lambda path, *_: is_new(path)))
    monkeypatch.setattr(os, "open", limited(os.open, is_new))
    for name in ("pwrite", "posix_fallocate"):
        monkeypatch.setattr(os, name, limited(getattr(os, name), is_here))


def opened(place: Place, head: Head) -> None:
    place.read(head)


def prepared(place: Place, head: Head) -> None:
    prepare_task_store(place.local, head, place.files, run_id=place.run_id, boot_id=place.boot_id)


@pytest.mark.parametrize("make", [opened, prepared])
def test_the_store_is_named_whichever_step_finds_no_room(
    place: Place, make: Callable[[Place, Head], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, stores = place.round(None, {"a": {b"1": b"x"}}), place.root / "stores"
    said: list[str] = []
    for room in range(100):
        close_idle()
        shutil.rmtree(stores)
        stores.mkdir()
        with monkeypatch.context() as full:
            fill(full, stores, room)
            try:
                make(place, head)
                break
            except DiskFullError as error:
                said.append(error.message)
        contents, notes = place.read(head)
        assert contents == {"a": {b"1": b"x"}}
        assert not any("held by" in note for note in notes), "no lock is left"
    assert len(said) >= 9, "of folders, lock files, what these hold, status and a generation each may be the first without room"
    assert all(str(place.local) in text and "the disk is full" in text for text in said)
    assert place.read(head)[0] == {"a": {b"1": b"x"}}


def test_where_no_folder_could_be_made_no_former_store_is_found(tmp_path: Path) -> None:
    assert remove_former_stores(tmp_path / "app", [TaskName.parse("Partition_0")]) == 0
