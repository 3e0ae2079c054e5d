"""The worker's side of the embedded log: reading chunks, and writing data files that the driver commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.adapters.log.chunks import Chunk, chunks_from, terms_of
from headrace.adapters.log.data_files import ChunkWriter, read_range
from headrace.adapters.log.file_names import parts_of_round
from headrace.core.topology.program import Program
from headrace.exchange.messages import ContainerPlan, InputRange
from headrace.model.checkpoint import Checkpoint
from headrace.model.topology import Repartition
from headrace.wiring.worker.worker_state import WorkerState
from headrace.worker.checkpoints import round_id_of
from headrace.worker.outputs import Outputs
from headrace.worker.ports import ReaderReport


class LogWorkerPorts(WorkerState):
    """`worker.ports.WorkerPorts` on the embedded log, where the driver commits: an attempt may always work."""

    def __init__(self, plan: ContainerPlan, program: Program, report: Callable[[], ReaderReport]) -> None:
        super().__init__(plan, program, report)
        self._writers: list[ChunkWriter] = []
        self._chunks: tuple[Chunk, ...] = ()

    def begin(self) -> list[Checkpoint] | None:
        return None

    def read(self, number: int) -> Iterator[tuple[Any, pa.RecordBatch]]:
        piece = self._plan.ranges[number]
        for offset, batch in records_of(self._plan, piece, piece.start, piece.end):
            yield np.arange(offset, offset + batch.num_rows), batch

    def originals(self, ssp: int, offsets: Sequence[int]) -> dict[int, tuple[bytes | None, bytes | None, int, Any]]:
        piece = next(piece for piece in self._plan.ranges if piece.ssp == ssp)
        wanted = np.array(offsets, np.int64)
        found = {}
        for base, batch in records_of(self._plan, piece, offsets[0], offsets[-1] + 1):
            here = wanted[(wanted >= base) & (wanted < base + batch.num_rows)]
            rows = batch.take(pa.array(here - base)).to_pylist()
            for offset, row in zip(here.tolist(), rows, strict=True):
                found[offset] = (row["key"], row["value"], row["timestamp_us"], row["headers"])
        return found

    def write_outputs(self, outputs: Outputs) -> None:
        """A data file for repartition streams and one for all others, durable when this returns. They are apart because a
        file goes only when all that is in it is forgotten, and repartition streams are purged as they are read."""
        internal = {node.stream for node in self._program.nodes if isinstance(node, Repartition)}
        name_parts = parts_of_round(self._program.application, round_id_of(self._plan.round_id))
        self._writers = [ChunkWriter(Path(self._plan.terms), name_parts) for _ in range(2)]
        for stream, partition, batch in outputs.by_partition():
            self._writers[stream in internal].write(stream, partition, batch)
        self._chunks = tuple(chunk for writer in self._writers for chunk in writer.close())

    def commit(self, checkpoints: list[Checkpoint]) -> Any:
        """The chunks, for the driver to commit."""
        return terms_of(self._chunks)

    def abandon(self) -> None:
        for writer in self._writers:
            writer.discard()

    def committed(self, checkpoints: list[Checkpoint]) -> None:
        """Nothing: the driver commits later, and the delta is applied at the start of the next round."""


def records_of(plan: ContainerPlan, piece: InputRange, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records start <= offset < end of a range of the plan: (offset of the first row, rows), in order."""
    return read_range(Path(plan.terms), chunks_from(piece.terms), start, end)
