"""What of a round runs in Spark's Python workers: readers of Column prefixes, and containers.

What they do is `wiring`'s; here is how it is called by Spark, and how a program comes to a process once.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from headrace.adapters.spark.reader_reports import leave, taken, without_reports

_programs: dict[str, tuple[bytes, Any]] = {}  # in a worker process: what was unpickled once, and from what
_loaded: list[str] = []  # the program, once for each time that what was loaded with it was frozen
_PROGRAMS_MAX = 32

RunContainer = Callable[[bytes, Any], bytes]
RunPrepared = Callable[[Sequence[bytes], Any, Iterable[pa.RecordBatch], Callable[[], list[bytes]]], list[bytes]]
Read = Generator[pa.RecordBatch, None, bytes]  # rows, and at their end a report to the container that takes them
ReadPrefix = Callable[[bytes, Any, int], Read]
DecodedPrefix = Callable[[Sequence[bytes], Any, int, Iterable[pa.RecordBatch]], Read]


def _program(pickled: bytes, program_id: str) -> Any:
    """The program of a plan, unpickled once per worker process. The bytes come from our own driver, through Spark."""
    held = _programs.get(program_id)
    if held is None or held[0] != pickled:  # the same operators with other functions: edited between two runs
        if len(_programs) >= _PROGRAMS_MAX:
            _programs.clear()
        held = _programs[program_id] = (pickled, cloudpickle.loads(pickled))
        _loaded.clear()
    if len(_loaded) < 2:  # once more when a round has loaded what it loads late
        _loaded.append(program_id)
        # Spark's worker collects garbage after every Spark task, and looks at all there is: not at what was loaded for good.
        gc.collect()
        gc.freeze()
    return held[1]


class Containers:
    """The container's side of a round, as functions for `mapInArrow`."""

    def __init__(
        self,
        pickled: bytes,
        program_id: str,
        groups: list[list[bytes]],
        run_container: RunContainer,
        run_prepared: RunPrepared,
    ) -> None:
        self._pickled, self._program_id, self._groups = pickled, program_id, groups
        self._run_container, self._run_prepared = run_container, run_prepared

    def directly(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program = _program(self._pickled, self._program_id)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _row([self._run_container(payload, program) for payload in self._groups[number]])

    def by_number(self, numbers: Iterable[int]) -> Iterator[str]:
        program = _program(self._pickled, self._program_id)
        for number in numbers:
            yield _text([self._run_container(payload, program) for payload in self._groups[number]])

    def prepared(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of rows whose readers, if any, are in this Spark task."""
        yield self._summaries(batches, taken)

    def routed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of rows from several Spark tasks."""
        reports: list[bytes] = []
        yield self._summaries(without_reports(batches, reports), lambda: reports)

    def _summaries(self, batches: Iterable[pa.RecordBatch], reports: Callable[[], list[bytes]]) -> pa.RecordBatch:
        context = TaskContext.get()
        assert context is not None
        payloads = self._groups[context.partitionId() % len(self._groups)]
        return _row(self._run_prepared(payloads, _program(self._pickled, self._program_id), batches, reports))


class Reader:
    """The reading side of a Column prefix, as a function for `mapInArrow`."""

    def __init__(
        self,
        pickled: bytes,
        program_id: str,
        groups: list[list[bytes]],
        endpoint: int,
        read_prefix: ReadPrefix,
        reports: bool,
    ) -> None:
        self._pickled, self._program_id, self._groups = pickled, program_id, groups
        self._endpoint, self._read_prefix, self._reports = endpoint, read_prefix, reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program = _program(self._pickled, self._program_id)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for payload in self._groups[number]:
                    report = yield from self._read_prefix(payload, program, self._endpoint)
                    if self._reports:
                        leave(report)


class Decoder:
    """What decodes the rows that Spark read, in front of a Column prefix, as a function for `mapInArrow`."""

    def __init__(
        self,
        pickled: bytes,
        program_id: str,
        groups: list[list[bytes]],
        endpoint: int,
        decoded_prefix: DecodedPrefix,
        reports: bool,
    ) -> None:
        self._pickled, self._program_id, self._groups = pickled, program_id, groups
        self._endpoint, self._decoded_prefix, self._reports = endpoint, decoded_prefix, reports

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        # the partitions of several endpoints are counted on in one Spark stage
        payloads = self._groups[context.partitionId() % len(self._groups)]
        program = _program(self._pickled, self._program_id)
        report = yield from self._decoded_prefix(payloads, program, self._endpoint, batches)
        if self._reports:
            leave(report)


def _text(summaries: Sequence[bytes]) -> str:
    return "\n".join(base64.b64encode(summary).decode() for summary in summaries)


def _row(summaries: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"summary": [_text(summaries)]})


def no_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"summary": [str(sum(batch.num_rows for batch in batches))]})
