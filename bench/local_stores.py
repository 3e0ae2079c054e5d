"""What it costs to prove a local store whole when a run first opens it: by its seal, and by a scan.

    python bench/local_stores.py [millions of keys, 1 by default]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from headrace.adapters.lmdb import close_idle, open_task_store, seal
from headrace.model.checkpoint import Head
from headrace.state_files.files import FilePlace, StateFiles
from headrace.worker.batch_keys import state_keys
from headrace.worker.state.task_state import TaskState

KEYS_PER_ROUND = 250_000


def opened_s(folder: Path, head: Head, files: StateFiles, run_id: str) -> float:
    """Seconds to open the store; the process closes it in order."""
    close_idle()
    began = time.perf_counter()
    with open_task_store(folder, head, files, run_id=run_id, boot_id="bench") as store:
        assert not store.notes, store.notes
    return time.perf_counter() - began


def filled(folder: Path, files: StateFiles, count: int) -> Head:
    """The head of a state of `count` keys, which the store in `folder` holds."""
    head: Head | None = None
    for start in range(0, count, KEYS_PER_ROUND):
        with open_task_store(folder, head, files, run_id="first", boot_id="bench") as store:
            state = TaskState(store, head)
            numbers = range(start, min(count, start + KEYS_PER_ROUND))
            state.database("a").put_many(state_keys([b"user-%07d" % n for n in numbers]), [b"%016d" % n for n in numbers])
            head = state.write(files, FilePlace("bench/Partition_0", 1))
    assert head is not None
    with open_task_store(folder, head, files, run_id="first", boot_id="bench"):
        return head


def main() -> None:
    count = int(1_000_000 * float(sys.argv[1] if len(sys.argv) > 1 else 1))
    with tempfile.TemporaryDirectory() as root:
        folder, files = Path(root) / "stores" / "Partition_0", StateFiles(f"{root}/state")
        head = filled(folder, files, count)
        size = sum(file.stat().st_size for file in folder.glob("*/data.mdb"))
        began = time.perf_counter()
        assert seal(folder, "first", "bench", time.monotonic() + 600)
        sealing_s = time.perf_counter() - began
        print(f"{count:,} keys, {size / 1e6:.0f} MB: sealed in {sealing_s:.3f} s")
        print(f"opened by its seal in {opened_s(folder, head, files, 'second'):.3f} s")
        print(f"opened by a scan in   {opened_s(folder, head, files, 'third'):.3f} s")
        close_idle()


if __name__ == "__main__":
    main()
