"""Owns the protocols between the runtime and the adapters. A port is a contract: what is atomic, what is raised, what is
unchanged on failure. All implementations of one pass one suite of tests.

Arrow tables are pyarrow's; this module only names them. The row shape of records on disk and in flight is
`RECORD_FIELDS`: key binary, value binary, timestamp_us int64, headers list<struct<name string, value binary>>.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.planning import OffsetRange
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.record import Record

if TYPE_CHECKING:
    pass

RECORD_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream that exists. `id` changes when it is deleted and made anew; `internal_of` names the application whose
    repartition stream it is, None for a user's."""

    name: str
    partitions: int
    id: str
    internal_of: str | None = None


Range = OffsetRange
"""Offsets start <= o < end of one whole partition: what a round plans, and what a system reads."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition inside one data file of the embedded log.

    `file` is relative to the log's folder; the Arrow IPC message lies at [position, position + length); `checksum` is the
    16 hex digits of its xxh3_64. `base_offset` is the offset of its first record, None before the commit gives it.
    `max_timestamp_us` is the largest timestamp in it, None if unknown: a look-up by time skips chunks by it.
    """

    stream: str
    partition: int
    records: int
    file: str
    position: int
    length: int
    checksum: str
    base_offset: int | None = None
    max_timestamp_us: int | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who drives an application: for the second driver's message, and to see whether the first still lives."""

    run_id: str
    host: str
    pid: int
    process_started: str  # the kernel's start time of the process: a pid alone may be used again
    boot_id: str
    heartbeat_us: int


@dataclass(frozen=True, slots=True)
class RoundCommit:
    """What one round of one sub-topology commits, all or nothing."""

    round_id: RoundId
    checkpoints: tuple[Checkpoint, ...]
    chunks: tuple[Chunk, ...]
    state_files: tuple[str, ...] = ()  # absolute paths that must exist
    spent_startpoints: tuple[str, ...] = ()
    bases: Mapping[TaskName, RoundId | None] = field(default_factory=dict)  # what each task's checkpoint must be now


class Streams(Protocol):
    """The streams of a system: what `open_system` gives, and what a job reads and writes."""

    name: str

    def create_stream(self, name: str, partitions: int, *, internal_of: str | None = None) -> StreamDescription:
        """Create it; `StreamExistsError` if there is one of that name."""

    def streams(self) -> list[StreamDescription]: ...

    def describe_stream(self, name: str) -> StreamDescription:
        """`StreamNotFoundError`, naming streams that look like it, if there is none."""

    def delete_stream(self, name: str) -> None: ...

    def produce(self, stream: str, records: Iterable[Any], key: Any = None, value: Any = None) -> int:
        """Append `records`, in order, all or nothing per call of at most some 100,000; the number of records written."""

    def consume(
        self, stream: str, key: Any = None, value: Any = None, partitions: Sequence[int] | None = None, start: Any = None
    ) -> Iterator[Record]:
        """The records from `start` (an offset, a mapping partition to offset, None for the beginning) to the end as it
        is at the call, partition after partition."""

    def beginning_offsets(self, stream: str) -> dict[int, int]: ...

    def end_offsets(self, stream: str) -> dict[int, int]: ...

    def offsets_for_time(self, stream: str, timestamp_us: int) -> dict[int, int]:
        """Per partition the first offset whose record is not older; the end where there is none."""


class MetadataStore(Protocol):
    """Small named values in namespaces: job models, startpoints, requests. Writes are durable when they return."""

    def get(self, namespace: str, key: str) -> bytes | None: ...

    def put(self, namespace: str, key: str, value: bytes) -> None: ...

    def put_all(self, namespace: str, values: Mapping[str, bytes]) -> None:
        """All or nothing."""

    def delete(self, namespace: str, key: str) -> None: ...

    def all(self, namespace: str) -> dict[str, bytes]: ...


class JobStore(Protocol):
    """One application's plan and checkpoints in its system. Every write names the epoch and is refused with
    `FencedError`, changing nothing, if a newer one exists."""

    def acquire(self, holder: Holder, now_us: int) -> int:
        """Take the application and give the new epoch; `JobHeldError` while another holder lives."""

    def heartbeat(self, epoch: int, now_us: int) -> None: ...

    def holding(self, epoch: int) -> AbstractContextManager[None]:
        """A context in which nobody else can take the application, nor commit: keep it short."""

    def release(self, epoch: int) -> None:
        """Say that this driver ended cleanly; no error if another took over."""

    def holder(self) -> Holder | None: ...

    def job_model(self) -> JobModel | None: ...

    def commit_job_model(
        self, epoch: int, model: JobModel, checkpoints: Sequence[Checkpoint]
    ) -> None:
        """Make `model` current together with the checkpoints of tasks that have none yet (resolved starts)."""

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        """Those of the current plan, whether their tasks have committed a round yet or not."""

    def commit_round(self, commit: RoundCommit) -> None:
        """Outputs, positions and heads of a whole round in one transaction; `FencedError` if the epoch is not current,
        `StorageError` if a file that it names is missing; either way nothing is changed."""

    def publish_status(self, sub_topology: str | None, status: Mapping[str, Any]) -> None: ...

    def status(self) -> dict[str, dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class ContainerWork:
    """One container's share of a round, as bytes that `runtime.container.run` understands, and where it prefers to run."""

    lane: int
    payload: bytes
    location: str | None
    records: int


class EngineFailure(Exception):
    """A round's job failed as a whole. `in_expression`: a Spark expression raised on some record; `cancelled`: we did it."""

    def __init__(self, message: str, *, in_expression: bool = False, cancelled: bool = False, error_class: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.in_expression = in_expression
        self.cancelled = cancelled
        self.error_class = error_class


class Engine(Protocol):
    """Runs the containers of a round: on Spark, or in this process. `program` is a `runtime.plan.Program`."""

    slots: int

    def run(
        self, sub_topology: str, round_id: str, works: Sequence[Sequence[ContainerWork]], program: Any
    ) -> list[bytes]:
        """Run each inner sequence as one Spark task; the summaries, one per container, in any order. Raises
        `EngineFailure` if the job failed or was cancelled."""

    def probe(self, payload: bytes, program: Any, ssp: int, start: int, end: int) -> EngineFailure | None:
        """Run nothing but the Column prefix over part of a range; how it failed, or None."""

    def cancel(self, round_id: str) -> None: ...

    def close(self) -> None: ...
