"""What it costs to find the timers that are due and the next one, beside a look at each of the 1,024 slots of the index.

    python bench/timers.py [rounds, 20 by default]

Each row is a task with so many pending timers, of keys of its own; a round fires 10 of them and looks for the next. Both sides
work on the same LMDB store, in turn, and must agree.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace.adapters.lmdb import close_idle, open_task_store
from headrace.core.keys.key_layout import SLOTS, time_of
from headrace.state_files.files import FilePlace, StateFiles
from headrace.worker.operators.expiry import due_entries, earliest_us
from headrace.worker.operators.processing.timer_store import Timers
from headrace.worker.state.task_state import TaskState

PENDING = (1, 10, 100, 1_000, 10_000, 100_000)
FIRED = 10


def by_every_slot(database: Any, until_us: int) -> tuple[list[bytes], int | None]:
    """The dumb way: two scans per slot, whether it is in use or not."""
    due, nexts = [], []
    bias = 1 << 63
    for slot in range(SLOTS):
        low, end = slot.to_bytes(2, "big"), (slot + 1).to_bytes(2, "big")
        high = low + (until_us + 1 + bias).to_bytes(8, "big")
        due += [key for key, _ in database.scan(low, high)]
        nexts += [time_of(key) for key, _ in [next(iter(database.scan(high, end)), (None, None))] if key is not None]
    return due, min(nexts, default=None)


def by_index(database: Any, until_us: int) -> tuple[list[bytes], int | None]:
    due = [key for key, _ in due_entries(database, until_us)]
    for key in due:
        database.delete(key)
    return due, earliest_us(database)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"{'pending':>9} {'ms a round':>12} {'every slot, ms':>15} {'ratio':>7}")
    for pending in PENDING:
        with tempfile.TemporaryDirectory() as root:
            folder, files = Path(root) / "stores" / "Partition_0", StateFiles(f"{root}/state")
            with open_task_store(folder, None, files, run_id="bench", boot_id="bench") as store:
                state = TaskState(store, None)
                timers = Timers(SimpleNamespace(database=state.database), {"event": None, "wall": None})
                for number in range(pending):
                    timers.set("op", b"user-%d" % number, "t", "event", number)
                head = state.write(files, FilePlace("bench/Partition_0", 1))
            ours, dumb = [], []
            for _ in range(rounds):
                with open_task_store(folder, head, files, run_id="bench", boot_id="bench") as store:
                    began = time.perf_counter()
                    expected = by_every_slot(TaskState(store, head).database("~timers.event"), FIRED - 1)
                    dumb.append(time.perf_counter() - began)
                    began = time.perf_counter()
                    found = by_index(TaskState(store, head).database("~timers.event"), FIRED - 1)
                    ours.append(time.perf_counter() - began)
                    assert found == expected and len(found[0]) == min(FIRED, pending), (found, expected)
            mine, theirs = statistics.median(ours) * 1e3, statistics.median(dumb) * 1e3
            print(f"{pending:>9,} {mine:>12.3f} {theirs:>15.3f} {theirs / mine:>7.1f}")
            close_idle()


if __name__ == "__main__":
    main()
