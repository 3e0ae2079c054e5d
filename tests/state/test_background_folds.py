"""Background folds: made by a process of the worker's, found by all workers of the machine, and by them alone."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from state_place import FILES, Contents, Place, after, make_changes

from headrace.core.keys import compaction
from headrace.exchange.fold import decoded_fold_record
from headrace.model.checkpoint import Head, StateFileKind
from headrace.wiring.worker import background_folds
from headrace.wiring.worker.background_folds import BackgroundFolds, FoldProcess
from headrace.worker.state.task_state import TaskState

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SNAPSHOT_BYTES_MIN", 10_000)
    monkeypatch.setattr(compaction, "ROUND_BYTES_MAX", 5_000)


@pytest.fixture
def process() -> Iterator[FoldProcess]:
    made = FoldProcess()
    yield made
    made.end()


class Task:
    """A task whose rounds go on from each other; `changes` of a round: 200 keys of 30 bytes."""

    def __init__(self, root: Path, process: FoldProcess, plan: str = "run:1") -> None:
        self.place, self.process, self.plan = Place(root), process, plan
        self.head: Head | None = None
        self.contents: Contents = {}
        self.round_number = 0

    @property
    def folds(self) -> BackgroundFolds:
        return BackgroundFolds(self.place.local, self.plan, str(self.place.root / "state"), FILES, self.process)

    def round(self, count: int = 200) -> Head:
        self.round_number += 1
        keys = range(self.round_number * 100, self.round_number * 100 + count)
        values: dict[bytes, bytes | None] = {b"%06d" % key: os.urandom(30) for key in keys}
        if self.round_number > 1:
            values |= {b"%06d" % key: None for key in range(self.round_number * 100 - 10, self.round_number * 100)}
        with self.place.open(self.head) as store:
            state = TaskState(store, self.head)
            make_changes(state, {"a": values})
            self.head = state.write(self.place.files, FILES, self.folds)
        self.contents = after(self.contents, {"a": values})
        assert self.head is not None
        return self.head

    def until_begun(self) -> Head:
        """Rounds until a fold has begun."""
        while not self.record.exists():
            head = self.round()
            assert self.round_number < 20
        return head

    def until_ended(self) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while (found := decoded_fold_record(self.record.read_bytes())).made is None and not found.error:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        if self.process._process is not None:
            self.process._process.wait(WAIT_S)  # it has the lock until then

    @property
    def record(self) -> Path:
        return self.place.local / "fold.json"

    def check(self) -> None:
        """The store has all, and so has one that is made from the files."""
        assert self.place.read(self.head)[0] == self.contents
        elsewhere = Place(self.place.root)
        elsewhere.local = self.place.root / f"elsewhere-{self.round_number}" / "Partition_0"
        elsewhere.forget_written()
        assert elsewhere.read(self.head)[0] == self.contents

    def files_on_disk(self) -> set[str]:
        return set(self.place.files.list("app"))


def test_rounds_go_on_and_take_what_was_made(tmp_path: Path, process: FoldProcess) -> None:
    task = Task(tmp_path, process)
    before = task.until_begun()
    for _ in range(3):
        task.round(5)
    assert task.head is not None
    assert task.head.files[: len(before.files) - 1] == before.files[:-1], "files are folded twice"
    task.until_ended()
    head = task.round(5)
    assert head.files[0].kind is StateFileKind.SNAPSHOT
    assert head.files[0].reaches
    assert len(head.files) < len(before.files) + 4
    assert task.place.read(head)[1] == [], "a store that is at the state of a fold is not rebuilt"
    task.check()
    assert task.folds.taken(head, held=0) == head
    assert not task.record.exists(), "what was taken is forgotten"
    task.round(5)
    task.check()


def test_another_worker_takes_it(tmp_path: Path, process: FoldProcess) -> None:
    task = Task(tmp_path, process)
    task.until_begun()
    task.process = FoldProcess()  # which begins none: one is under way
    task.round(5)
    assert task.process._process is None
    task.until_ended()
    assert task.round(5).files[0].kind is StateFileKind.SNAPSHOT
    task.check()


def test_held_files_stay(tmp_path: Path, process: FoldProcess) -> None:
    task = Task(tmp_path, process)
    head = task.until_begun()
    task.until_ended()
    assert task.folds.taken(head, held=2) == head
    assert task.folds.taken(head, held=0) != head


def test_under_another_plan_nothing_of_it_is_taken(tmp_path: Path, process: FoldProcess) -> None:
    """The driver of the next plan may have deleted the file: no checkpoint names it."""
    task = Task(tmp_path, process)
    task.until_begun()
    task.until_ended()
    made = decoded_fold_record(task.record.read_bytes()).made
    assert made is not None
    task.plan = "run:2"
    task.place.files.delete(made.name)
    head = task.round(5)
    assert made not in head.files
    task.check()


def test_a_worker_that_ends_leaves_no_file(tmp_path: Path, process: FoldProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends before the fold is made: nobody would take it."""
    monkeypatch.setattr(background_folds, "_MODULE", "state_slow_folds")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    task = Task(tmp_path, process)
    task.until_begun()
    deadline_s = time.monotonic() + WAIT_S
    while len(task.files_on_disk() - {file.name for file in task.head.files}) < 1:  # type: ignore[union-attr]
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    process.end()
    assert task.head is not None
    assert task.files_on_disk() == {file.name for file in task.head.files}
    assert not task.record.exists(), "it is no failure: another worker may begin at once"
    head = task.round(5)
    task.check()
    assert head.files[0].name in task.files_on_disk()


def test_a_round_goes_through_where_no_process_can_be_started(
    tmp_path: Path, process: FoldProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("headrace.wiring.worker.background_folds.subprocess.Popen", refused)
    task = Task(tmp_path, process)
    task.until_begun()
    assert "temporarily unavailable" in decoded_fold_record(task.record.read_bytes()).error
    task.round(5)
    task.check()


def test_one_that_was_killed_is_begun_again(tmp_path: Path, process: FoldProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_folds, "_MODULE", "state_slow_folds")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    task = Task(tmp_path, process)
    task.until_begun()
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    monkeypatch.undo()
    monkeypatch.setattr(compaction, "SNAPSHOT_BYTES_MIN", 10_000)
    monkeypatch.setattr(compaction, "ROUND_BYTES_MAX", 5_000)
    task.round(5)
    task.until_ended()
    assert task.round(5).files[0].kind is StateFileKind.SNAPSHOT
    task.check()


def test_one_that_failed_is_tried_again_later(
    tmp_path: Path, process: FoldProcess, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task(tmp_path, process)
    head = task.until_begun()
    task.until_ended()
    task.record.write_bytes(task.record.read_bytes().replace(b'"error":""', b'"error":"no space left"'))
    data = task.record.read_bytes()
    assert task.folds.under_way(head) == 0
    task.folds.begin(head, 0)
    assert task.record.read_bytes() == data, "not at once"
    os.utime(task.record, (0, 0))
    with caplog.at_level(logging.WARNING, "headrace.state_files"):
        task.folds.begin(head, 0)
    assert "no space left" in caplog.text
    task.until_ended()
    assert decoded_fold_record(task.record.read_bytes()).error == ""


def test_a_process_makes_one_at_a_time(tmp_path: Path, process: FoldProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_folds, "_MODULE", "state_slow_folds")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    first, second = Task(tmp_path / "1", process), Task(tmp_path / "2", process)
    first.until_begun()
    for _ in range(first.round_number + 1):
        second.round()
    assert first.record.exists()
    assert not second.record.exists()
    second.check()


def test_a_record_that_is_damaged_counts_for_nothing(tmp_path: Path, process: FoldProcess) -> None:
    task = Task(tmp_path, process)
    head = task.until_begun()
    task.until_ended()
    task.record.write_bytes(b"{")
    assert task.folds.taken(head, 0) == head
    assert task.folds.under_way(head) == 0
