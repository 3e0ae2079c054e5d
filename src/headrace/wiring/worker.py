"""Owns the wiring of a worker: what a container of a job on the embedded log reads from and writes to.

A container moves between worker processes, and a cancelled worker may live on for seconds: whatever is kept between
rounds (`wiring.caches`) is checked each round, or is a cache only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.adapters.lmdb.environments import close_idle
from headrace.adapters.lmdb.opening import open_task_store
from headrace.adapters.log.data_files import ChunkWriter, read_range
from headrace.adapters.log.file_names import parts_of_round
from headrace.dsl.durations import duration_us
from headrace.errors import StoreDamagedError
from headrace.model.checkpoint import Head, RoundId
from headrace.ports import Chunk
from headrace.runtime import container
from headrace.runtime.operators.base import Reject
from headrace.runtime.plan import ContainerPlan, Program, Summary, TaskPlan, decoded_plan, encoded
from headrace.runtime.reported_errors import worker_error
from headrace.runtime.rows import Rows
from headrace.runtime.state_files import StateFiles, task_folder_of
from headrace.runtime.steps import reached
from headrace.runtime.task_state import TaskState
from headrace.wiring.caches import CACHES

_state_files: dict[str, StateFiles] = {}


class LogWorkerPorts:
    """`runtime.container.WorkerPorts` on the embedded log. `rejects_dir`: where the prefix's readers left what fails."""

    def __init__(self, plan: ContainerPlan, program: Program, rejects: Iterable[Reject] = ()) -> None:
        self._plan, self._program = plan, program
        self._rejects = rejects
        self._root = Path(plan.log_root)

    def read(self, number: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        piece = self._plan.ranges[number]
        return read_range(self._root, chunks_of(piece.chunks), piece.start, piece.end)

    def originals(self, ssp: int, offsets: Sequence[int]) -> dict[int, tuple[bytes | None, bytes | None, int, Any]]:
        piece = next(piece for piece in self._plan.ranges if piece.ssp == ssp)
        wanted = np.array(offsets, np.int64)
        found = {}
        for base, batch in read_range(self._root, chunks_of(piece.chunks), offsets[0], offsets[-1] + 1):
            here = wanted[(wanted >= base) & (wanted < base + batch.num_rows)]
            rows = batch.take(pa.array(here - base)).to_pylist()
            for offset, row in zip(here.tolist(), rows, strict=True):
                found[offset] = (row["key"], row["value"], row["timestamp_us"], row["headers"])
        return found

    def engine_rejects(self) -> list[Reject]:
        known = [
            Reject(known.ssp, known.offset, "a Spark expression", known.error_class, known.message)
            for known in self._plan.known_failures
            if any(piece.ssp == known.ssp and piece.start <= known.offset < piece.end for piece in self._plan.ranges)
        ]
        return known + list(self._rejects)

    def engine_cuts(self) -> dict[int, int]:
        return getattr(self._rejects, "cuts", dict)()

    def write_outputs(self, parts: Iterable[tuple[str, int, pa.Table]]) -> list[Any]:
        epoch, name, number = self._plan.round_id.split(":")
        round_id = RoundId(int(epoch), None if name == "source" else name, int(number))
        writer = ChunkWriter(self._root, parts_of_round(self._program.application, round_id))
        try:
            for stream, partition, table in parts:
                for batch in table.combine_chunks().to_batches():
                    writer.write(stream, partition, batch)
            return [msgspec.to_builtins(chunk) for chunk in writer.close()]
        except BaseException:
            writer.discard()
            raise

    def open_state(self, task: TaskPlan) -> AbstractContextManager[TaskState]:
        return self._open(task)

    @contextmanager
    def _open(self, task: TaskPlan) -> Iterator[TaskState]:
        head = None if task.head is None else msgspec.convert(task.head, Head)
        folder = Path(self._plan.local_store_dir) / task_folder_of(self._program.application, task.name)
        with open_task_store(
            folder,
            head,
            self._files(),
            run_id=self._plan.run_id,
            boot_id=self._plan.boot_id,
            applying=lambda: reached("log", 3),
        ) as store:
            state = TaskState(store, head)
            state.notes = store.notes
            yield state

    def write_state(self, task: TaskPlan, state: TaskState) -> tuple[Any, list[str]]:
        files = self._files()
        head = state.write(files, task_folder_of(self._program.application, task.name))
        assert head is not None
        paths = [files.local_path(file.name) for file in head.files]
        return msgspec.to_builtins(head), [str(path.absolute()) for path in paths if path is not None]

    def cache_of(self, task: str) -> dict[str, Any]:
        return CACHES.of(f"{self._program.application}/{self._program.id}/{self._plan.run_id}", task)

    def duration_us(self, value: Any) -> int:
        return value if isinstance(value, int) and not isinstance(value, bool) else duration_us(value)

    def _files(self) -> StateFiles:
        uri = self._plan.state_uri
        if uri not in _state_files:
            _state_files[uri] = StateFiles(uri)
        return _state_files[uri]


def forget(application: str, state_uri: str) -> None:
    """Let go of what this process keeps for an application with its state at `state_uri`: its folders may go now."""
    CACHES.clear(application)
    _state_files.pop(state_uri, None)
    close_idle()


def chunks_of(forms: list[Any]) -> list[Chunk]:
    return [msgspec.convert(form, Chunk) for form in forms]


def run_container(
    payload: bytes, program: Program, prepared: Iterable[tuple[int, int, Rows]] = (), rejects: Iterable[Reject] = ()
) -> bytes:
    """Work off one container and give its summary; an error of ours or of the machine is in the summary too."""
    plan = decoded_plan(payload)
    try:
        try:
            summary = container.run(plan, program, LogWorkerPorts(plan, program, rejects), prepared)
        except StoreDamagedError:
            # Met while in use: the next opening rebuilds it. Rows that came out of Spark's engine cannot be read twice.
            if not isinstance(prepared, tuple):
                raise
            summary = container.run(plan, program, LogWorkerPorts(plan, program, rejects), prepared)
    except Exception as error:
        summary = Summary(plan.lane, error=worker_error(error))
    return encoded(summary)




def run_spark_container(payload: bytes, program: Program, prepared: Iterable[tuple[int, int, Rows]] = ()) -> bytes:
    """Like `run_container`, with the rejects that the readers of a Column prefix noted."""
    from headrace.wiring.prefix import NotedRejects

    return run_container(payload, program, prepared, NotedRejects(decoded_plan(payload), program))
