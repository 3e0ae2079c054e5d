"""Helpers: a task's state on this machine and under a state URI, and processes that work on it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.adapters.lmdb import TaskStore, open_task_store, seal
from headrace.exchange.fold import FoldToMake
from headrace.model.checkpoint import Head, StateFile, StateFileKind
from headrace.state_files.files import FilePlace, StateFiles
from headrace.wiring.worker.fold_process import make_fold
from headrace.worker.state.task_state import TaskState

FILES = FilePlace("app/Partition_0", 1)
Contents = dict[str, dict[bytes, bytes]]  # database to key to value
Changes = Mapping[str, Mapping[bytes, bytes | None]]


def contents_of(store: TaskStore) -> Contents:
    """All entries, read twice: by a scan and by look-ups, which must agree."""
    found = {db: dict(store.scan(db)) for db in store.databases()}
    for db, entries in found.items():
        assert list(entries) == sorted(entries)
        assert store.get_many(db, list(entries)) == entries
        assert all(store.get(db, key) == value for key, value in list(entries.items())[:20])
    assert store.entries == sum(map(len, found.values()))
    return {db: entries for db, entries in found.items() if entries}


def after(contents: Contents, changes: Changes) -> Contents:
    """The dumb second implementation: what `changes` make of `contents`."""
    result = {db: dict(entries) for db, entries in contents.items()}
    for db, values in changes.items():
        for key, value in values.items():
            if value is None:
                result.get(db, {}).pop(key, None)
            else:
                result.setdefault(db, {})[key] = value
    return {db: entries for db, entries in result.items() if entries}


def make_changes(state: TaskState, changes: Changes) -> None:
    for db, values in changes.items():
        for key, value in values.items():
            if value is None:
                state.database(db).delete(key)
            else:
                state.database(db).put(key, value)


@dataclass
class Place:
    """One machine's local folder of a task, and the state files."""

    root: Path
    local: Path = field(init=False)
    run_id: str = "run-1"
    boot_id: str = "boot-1"

    def __post_init__(self) -> None:
        self.local = self.root / "stores" / "app" / "Partition_0"
        self.files = StateFiles(str(self.root / "state"))

    @contextmanager
    def open(self, head: Head | None, **options: Any) -> Iterator[TaskStore]:
        ids = {"run_id": self.run_id, "boot_id": self.boot_id}
        with open_task_store(self.local, head, self.files, **(ids | options)) as store:
            yield store

    def read(self, head: Head | None, **options: Any) -> tuple[Contents, list[str]]:
        with self.open(head, **options) as store:
            return contents_of(store), list(store.notes)

    def round(self, head: Head | None, changes: Changes, **options: Any) -> Head:
        """Work off one round; the new head, which the next opening applies."""
        with self.open(head, **options) as store:
            state = TaskState(store, head)
            make_changes(state, changes)
            new = state.write(self.files, FILES)
        assert new is not None
        return new

    def seal(self, **options: Any) -> bool:
        """As the end of a run that stops in order does."""
        ids: dict[str, Any] = {"run_id": self.run_id, "boot_id": self.boot_id, "deadline_s": math.inf}
        return seal(self.local, **(ids | options))

    def forget_written(self) -> None:
        """Files are read back from now on, as another process would."""
        self.files = StateFiles(str(self.root / "state"))

    def data_file(self) -> Path:
        (found,) = self.local.glob("*/data.mdb")
        return found


class HeldProcess:
    """The process of background folds: a fold is made, or its process dies, when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[tuple[FoldToMake, int]] = []

    def start(self, asked: FoldToMake, lock: int) -> bool:
        if self.under_way:
            return False
        self.under_way.append((asked, os.dup(lock)))
        return True

    def end(self, *, is_made: bool) -> None:
        for asked, lock in self.under_way:
            if is_made and Path(asked.place).exists():  # else the folder was lost
                make_fold(asked)
            os.close(lock)
        self.under_way.clear()


def head_to_json(head: Head | None) -> Any:
    return None if head is None else asdict(head)


def head_from_json(value: Any) -> Head | None:
    if value is None:
        return None
    files = tuple(StateFile(**{**file, "kind": StateFileKind(file["kind"])}) for file in value["files"])
    return Head(value["version"], files)


class Worker:
    """Another process that works on the same folders: see state_worker.py for what it understands."""

    def __init__(self, root: Path, steps: str = "") -> None:
        environ = {**os.environ, "HEADRACE_TEST_STEPS": steps}
        command = [sys.executable, str(Path(__file__).with_name("state_worker.py")), str(root)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)

    def send(self, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None  # None: it died

    def ask(self, **request: Any) -> Any:
        self.send(**request)
        return self.answer()

    def wait_until_stopped(self) -> None:
        deadline = time.monotonic() + 20
        while Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, "the worker was expected to stop"
            time.sleep(0.01)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
