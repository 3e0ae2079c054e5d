"""The worker's side of large folds (`fold_process`): each in a process of its own, so that rounds do not wait for it.

A task's local folder says what was begun, and what came of it, to all worker processes of this machine: a task moves between
them. A lock beside it, which the kernel gives up when its holder dies, says whether it is still being made. What was made
under another plan (run and epoch) is not taken: a driver that starts deletes the state files that no checkpoint names."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from headrace.core.keys.compaction import files_until, with_fold
from headrace.exchange.fold import FoldRecord, FoldToMake, decoded_fold_record, encoded_fold
from headrace.model.checkpoint import Head
from headrace.state_files.files import FilePlace
from headrace.wiring.worker.fold_process import write_record

_MODULE = "headrace.wiring.worker.fold_process"
_RECORD, _LOCK = "fold.json", "fold.lock"
END_S = 10.0
RETRY_S = 60.0  # after one that failed
LOG = logging.getLogger("headrace.state_files")


class FoldProcess:
    """The one process that folds for this worker process, if any. Threads may share it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, asked: FoldToMake, lock: int) -> bool:
        """Start it, unless one runs; it holds the lock of descriptor `lock` from then on."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return False
            self._close()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[lock],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # an interrupt from the keyboard is the driver's: the workers end, and so does this
            )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.write(encoded_fold(asked) + b"\n")
                self._process.stdin.flush()
            return True

    def end(self) -> None:
        """What is being made is not wanted any more."""
        with self._lock:
            self._close()
            if self._process is not None:
                try:
                    self._process.wait(END_S)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._process = None

    def _close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()


FOLDS = FoldProcess()


class BackgroundFolds:
    """See `worker.state.folding.FoldsInBackground`. `folder`: the task's, of local stores; `plan`: run and epoch; `files`:
    where a fold goes."""

    def __init__(self, folder: Path, plan: str, state_uri: str, files: FilePlace, process: FoldProcess = FOLDS) -> None:
        self._record, self._lock = folder / _RECORD, folder / _LOCK
        self._plan, self._state_uri, self._files, self._process = plan, state_uri, files, process

    def taken(self, head: Head, held: int) -> Head:
        record = self._recorded()
        if record is None:
            return head
        if record.plan != self._plan or not files_until(head, record.folded):
            self._forget()  # its files are not there any more: it was taken, or the state was
            return head
        return (None if record.made is None else with_fold(head, record.folded, record.made, held)) or head

    def under_way(self, head: Head) -> int:
        record = self._recorded()
        if record is None or record.plan != self._plan or record.error:
            return 0
        lock = self._locked() if record.made is None else None
        if lock is not None:
            if self._recorded() == record:  # who was making it has died
                self._forget()
            os.close(lock)
            return 0
        return files_until(head, record.folded)

    def begin(self, head: Head, start: int) -> None:
        lock = self._locked()
        if lock is None:
            return
        try:
            failed = self._recorded()
            if failed is not None and failed.error:
                if time.time() - self._record.stat().st_mtime < RETRY_S:
                    return
                LOG.warning("state files of %s are folded once more; before that: %s", self._files.folder, failed.error)
            self._begin(head, start, lock)
        except OSError as error:  # no space left, say: the round does not need it
            LOG.warning("state files of %s are not folded now: %s", self._files.folder, error)
        finally:
            os.close(lock)  # the process has it, if there is one

    def _begin(self, head: Head, start: int, lock: int) -> None:
        record = FoldRecord(self._plan, head.files[start:])
        place = str(self._record.absolute())
        asked = FoldToMake(self._state_uri, self._files.folder, self._files.epoch, head.identity, head.slots, start == 0, place)
        write_record(self._record, encoded_fold(record))
        try:
            if not self._process.start(asked, lock):
                self._forget()
        except OSError as error:  # no process can be started: not in each round again
            write_record(self._record, encoded_fold(replace(record, error=str(error))))

    def _recorded(self) -> FoldRecord | None:
        try:
            return decoded_fold_record(self._record.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def _forget(self) -> None:
        self._record.unlink(missing_ok=True)

    def _locked(self) -> int | None:
        """A descriptor that holds the lock; None where another one does."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor
