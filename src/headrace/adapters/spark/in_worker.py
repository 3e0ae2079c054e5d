"""What of a round runs in Spark's Python workers: readers of Column prefixes, and containers. What they do is `wiring`'s; here
is how it is called by Spark, and how a program comes to a process once."""

from __future__ import annotations

import base64
import gc
import importlib
import os
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from headrace.adapters.spark.reader_reports import leave_report, take_reports, without_reports

_programs: dict[str, tuple[bytes, Any]] = {}  # in a worker process: what was unpickled once, and from what
_loaded: list[str] = []  # the program, once for each time that what was loaded with it was frozen
_PROGRAMS_MAX = 32

RunContainers = Callable[[Sequence[bytes], Any], list[bytes]]
RunPrepared = Callable[[Sequence[bytes], Any, Iterable[pa.RecordBatch], Callable[[], list[bytes]]], list[bytes]]
Read = Generator[pa.RecordBatch, None, list[bytes]]  # rows, and at their end reports to the container that takes them
Given = Sequence[tuple[Sequence[bytes], Collection[int]]]  # by reader: plans of the containers that take its rows, and its SSPs
ReadPrefix = Callable[[Given, int, Any, int, Iterable[pa.RecordBatch]], Read]


@dataclass(frozen=True, slots=True)
class WorkerFunctions:
    """What runs in workers. `restore`: answers what it is asked about stores that are restored in the background."""

    run_containers: RunContainers
    run_prepared: RunPrepared
    read_prefix: ReadPrefix
    restore: Callable[[bytes], bytes] = bytes


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


@dataclass(frozen=True)
class _Work:
    """A program, and the payloads of a round's containers by Spark task."""

    pickled: bytes
    program_id: str
    groups: list[list[bytes]]

    def program(self) -> Any:
        return _program(self.pickled, self.program_id)

    def group(self) -> int:
        """The number of this Spark task's group; the partitions of several endpoints are counted on in one Spark stage."""
        context = TaskContext.get()
        assert context is not None
        return int(context.partitionId()) % len(self.groups)


@dataclass(frozen=True)
class Containers(_Work):
    """The container's side of a round, as functions for `mapInArrow`. `name`: the round's; `given`: an accumulator of Spark
    that hears what each Spark task gives (`running_rounds`), None: none does."""

    functions: WorkerFunctions
    name: str
    given: Any

    def directly(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for summaries in self.of_items((number, self.groups[number]) for number in batch.column(0).to_pylist()):
                yield pa.RecordBatch.from_pydict({"summary": [summaries]})

    def of_items(self, items: Iterable[tuple[int, Sequence[bytes]]]) -> Iterator[str]:
        """Of Spark tasks that are handed their number and the payloads of their containers."""
        program = self.program()
        for number, payloads in items:
            yield self._told(number, self.functions.run_containers(payloads, program))

    def prepared(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield self._summaries(batches, take_reports)

    def routed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reports: list[bytes] = []
        yield self._summaries(without_reports(batches, reports), lambda: reports)

    def _summaries(self, batches: Iterable[pa.RecordBatch], reports: Callable[[], list[bytes]]) -> pa.RecordBatch:
        number = self.group()
        summaries = self.functions.run_prepared(self.groups[number], self.program(), batches, reports)
        return pa.RecordBatch.from_pydict({"summary": [self._told(number, summaries)]})

    def _told(self, number: int, summaries: Sequence[bytes]) -> str:
        text = text_of(summaries)
        if self.given is not None:
            self.given.add([(self.name, number, text)])
        return text


@dataclass(frozen=True)
class Reader(_Work):
    """What is in front of a Column prefix, as a function for `mapInArrow`: it reads, or decodes what Spark has read. `groups`
    are of the containers that take the rows, and `reads` the SSPs that each reader has."""

    reads: Sequence[Collection[int]]
    endpoint: int
    read_prefix: ReadPrefix
    reports: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(zip(self.groups, self.reads, strict=True))
        reports = yield from self.read_prefix(given, self.group(), self.program(), self.endpoint, batches)
        for report in reports if self.reports else ():
            leave_report(report)


def text_of(summaries: Sequence[bytes]) -> str:
    return "\n".join(base64.b64encode(summary).decode() for summary in summaries)


def no_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"summary": [str(sum(batch.num_rows for batch in batches))]})


_NEW_OBJECTS = 100_000  # between two collections of garbage


def fork_workers() -> None:
    """Be Spark's daemon of Python workers: each worker is a fork of this process, with all that it has loaded."""
    from pyspark import daemon

    daemon.worker = _until_spark_has_ended(daemon.worker)
    for name in ("pyspark.worker", "pyspark.sql.pandas.serializers"):
        importlib.import_module(name)
    if "numpy.random" in sys.modules:  # workers must not draw the same numbers
        os.register_at_fork(after_in_child=sys.modules["numpy.random"].seed)
    gc.collect()
    gc.freeze()  # a worker's collections do not touch these pages: all workers share them
    # Records are many small objects without cycles: to look for such at every 700 takes a fifth of the time of what works
    # record by record. Spark's worker collects after each Spark task.
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
    daemon.manager()


def _until_spark_has_ended(worker: Callable[..., int]) -> Callable[..., int]:
    """A Python worker that ends in silence where Spark was stopped before it had flushed its last answer."""

    def work(*given: Any) -> int:
        try:
            return worker(*given)
        except BrokenPipeError:
            return 1

    return work
