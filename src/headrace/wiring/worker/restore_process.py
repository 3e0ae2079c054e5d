"""A process that restores the local stores of one container, at low priority, so that rounds do not wait for it.

It holds the lock that it was handed as long as it lives. It ends at once, in the midst of a store, when that is not wanted any
more, when it was not asked about for a while, and with the executor whose worker has started it. What it has made stays, and is
made on from there (`adapters.lmdb.building`)."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

from headrace.adapters.common import lease_holder as holders
from headrace.adapters.lmdb import prepare_task_store
from headrace.adapters.lmdb.building import BuildProgress
from headrace.exchange.fault_injection import reached
from headrace.exchange.store_restoring import LEASE_S, RestoreAnswer, RestoredStore, StoresToRestore, decoded_stores_to_restore
from headrace.exchange.texts import first_line_of
from headrace.model.tasks import TaskName
from headrace.state_files.files import StateFiles, task_folder_of
from headrace.wiring.folders import check_sign
from headrace.wiring.worker.restore_folder import RestoreFolder

NICENESS = 10  # the rounds come first
WATCH_S, SAY_S = 0.1, 0.2


def restore_what_is_read(source: BinaryIO, parent: int) -> None:
    """Restore what `source` asks for. `parent`: the process that is there as long as the executor is."""
    os.nice(NICENESS)
    asked = decoded_stores_to_restore(source.read())
    folder = RestoreFolder(asked.local_store_dir, asked.application, asked.sub_topology, asked.lane)
    threading.Thread(target=_watch, args=(folder, asked.token, parent), daemon=True).start()
    _Restore(asked, folder).run()
    os._exit(0)  # the thread that watches is no reason to wait


def _watch(folder: RestoreFolder, token: str, parent: int) -> None:
    """End this process when it has no purpose any more."""
    started = holders.started_text(parent)
    while folder.wanted == token and folder.asked_ago_s() < LEASE_S and holders.started_text(parent) == started is not None:
        time.sleep(WATCH_S)
    os._exit(0)


class _Restore:
    def __init__(self, asked: StoresToRestore, folder: RestoreFolder) -> None:
        self._asked, self._folder = asked, folder
        self._process = f"{os.getpid()}@{time.time_ns()}"
        self._done: dict[str, RestoredStore] = {}
        self._read_bytes = 0  # for the stores that are done
        self._said_s = 0.0

    def run(self) -> None:
        try:
            files = StateFiles(self._asked.state_uri)
            if self._asked.has_other_machines:
                check_sign(files, self._asked.application, self._asked.run_id, os.uname().nodename)
            for task, head in self._asked.heads.items():
                self._restore(task, files)
                entries = self._done[task].entries if task in self._done else 0  # it may have been there
                self._done[task] = RestoredStore(task, sum(file.counted_bytes for file in head.files), entries)
            self._say(is_done=True)
        except Exception as error:
            self._say(error=first_line_of(error))

    def _restore(self, task: str, files: StateFiles) -> None:
        before = self._read_bytes

        def progress(now: BuildProgress) -> None:
            self._done[task] = RestoredStore(task, now.done_bytes, now.entries)
            self._read_bytes = before + now.read_bytes
            reached("restore", 1)
            if time.monotonic() - self._said_s >= SAY_S:
                self._say()

        folder = Path(self._asked.local_store_dir) / task_folder_of(self._asked.application, TaskName.parse(task))
        head, run_id = self._asked.heads[task], self._asked.run_id
        prepare_task_store(folder, head, files, run_id=run_id, boot_id=holders.boot_id(), progress=progress)

    def _say(self, *, is_done: bool = False, error: str = "") -> None:
        self._said_s = time.monotonic()
        stores = list(self._done.values())
        self._folder.write_answer(
            RestoreAnswer(None, self._asked.token, self._process, stores, self._read_bytes, is_done, error)
        )


if __name__ == "__main__":
    restore_what_is_read(sys.stdin.buffer, int(sys.argv[1]))
