"""The driver's side of the process that makes local stores (`wiring.worker.store_building`): workers are on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue

import msgspec

from headrace.driver.rounds.planned_round import WorkerPaths
from headrace.errors import StateError
from headrace.exchange.store_builder import StoresToBuild, decoded_built, encoded_stores
from headrace.model.checkpoint import Head
from headrace.model.tasks import TaskName

SILENCE_S = 600.0  # for one store, of 100 million keys perhaps
_MODULE = "headrace.wiring.worker.store_building"
_LATER = "nothing is lost: local stores are made when their tasks begin, which takes longer"


class StoreProcess:
    """See `headrace.exchange.store_builder.StoreBuilder`. The process is started with the first stores."""

    def __init__(self, application: str, paths: WorkerPaths) -> None:
        self._application, self._paths = application, paths
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._lines = SimpleQueue[bytes]()

    def build(self, heads: Mapping[TaskName, Head], built: Callable[[TaskName], None]) -> None:
        process, paths = self._running(), self._paths
        named = {str(task): head for task, head in heads.items()}
        asked = StoresToBuild(self._application, paths.run_id, paths.local_store_dir, paths.state_uri, named)
        assert process.stdin is not None
        try:
            process.stdin.write(encoded_stores(asked) + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._ended() from None
        for _ in heads:
            line = self._line()
            try:
                answer = decoded_built(line)
            except msgspec.MsgspecError:
                raise StateError(
                    f"the process that makes local stores wrote what is no answer: {line[:80]!r}",
                    _LATER,
                ) from None
            if answer.error:
                raise StateError(f"the local store of task {answer.task} could not be made: {answer.error}", _LATER)
            built(TaskName.parse(answer.task))

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise self._ended()
            if self._process is None:
                self._process = process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    start_new_session=True,  # an interrupt from the keyboard is the driver's: it closes this one
                )
                threading.Thread(target=self._read, args=(process,), name="headrace-stores-made", daemon=True).start()
            return self._process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._lines.put(line)
        self._lines.put(b"")  # the end

    def _line(self) -> bytes:
        try:
            line = self._lines.get(timeout=SILENCE_S)
        except Empty:
            line = b""
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> StateError:
        process = self._process
        status = None if process is None else process.poll()
        how = "was ended" if self._is_closed else "does not answer" if status is None else f"ended with status {status}"
        return StateError(f"the process that makes local stores {how}", _LATER)

    def close(self) -> None:
        with self._lock:
            process, self._process, self._is_closed = self._process, None, True
        if process is None:
            return
        process.kill()  # what it has not finished counts for nothing
        process.wait()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
