"""A process that makes local stores in the background, at low priority: for tasks of an elasticity factor to come. It ends with
its driver."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

from headrace.adapters.common import lease_holder as holders
from headrace.adapters.lmdb import prepare_task_store, remove_store
from headrace.core.elasticity.preparation import room_needed
from headrace.errors import DiskFullError
from headrace.exchange.store_builder import BuiltStore, StoresToBuild, decoded_stores, encoded_stores
from headrace.exchange.texts import message_of
from headrace.model.tasks import TaskName
from headrace.state_files.files import StateFiles, task_folder_of

NICENESS = 10  # the rounds come first


def build_what_is_read() -> None:
    """Make what each line of the standard input asks for, until it ends."""
    os.nice(NICENESS)
    lines = SimpleQueue[bytes]()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        _build(decoded_stores(lines.get()))


def _read(lines: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # the driver has ended, or needs no more: a store that is half made counts for nothing


def _build(asked: StoresToBuild) -> None:
    files, boot_id = StateFiles(asked.state_uri), holders.boot_id()
    for task, head in asked.heads.items():
        folder = _folder(asked, task)
        try:
            _check_room(asked)
            built = BuiltStore(task, prepare_task_store(folder, head, files, run_id=asked.run_id, boot_id=boot_id))
        except Exception as error:
            built = BuiltStore(task, error=message_of(error))
        sys.stdout.buffer.write(encoded_stores(built) + b"\n")
        sys.stdout.buffer.flush()
        if built.error:
            return


def _folder(asked: StoresToBuild, task: str) -> Path:
    return Path(asked.local_store_dir) / task_folder_of(asked.application, TaskName.parse(task))


def _check_room(asked: StoresToBuild) -> None:
    """`DiskFullError` where the disk has no room for those that are not there yet: the stores in use shall not lack it."""
    made = {task: _folder(asked, task) for task in asked.heads}
    needed = room_needed({TaskName.parse(task): asked.heads[task] for task, folder in made.items() if not folder.exists()})
    free = shutil.disk_usage(asked.local_store_dir).free
    if free < needed:
        for folder in made.values():
            remove_store(folder)
        raise DiskFullError(
            f"expected {needed / 1e6:,.0f} MB free in {asked.local_store_dir}, found {free / 1e6:,.0f} MB",
            "free some, or set local_store_dir to a folder on a larger disk",
        )


if __name__ == "__main__":
    build_what_is_read()
