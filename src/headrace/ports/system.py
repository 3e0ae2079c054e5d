"""A system: its streams, as users have them too, and what a job's driver asks of it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from headrace.core.rounds.offset_ranges import Extent, OffsetRange
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.errors import NotSupportedError
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP, StreamDescription
from headrace.ports.coordinator_store import CoordinatorStore, JobReader
from headrace.ports.metadata_store import MetadataStore
from headrace.ports.processor_store import ProcessorStore, SystemPayload
from headrace.record import Record


class Streams(Protocol):
    """The streams of a system: what `open_system` gives, and what a job reads and writes."""

    name: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None: ...

    def applications(self) -> list[str]:
        """The applications that have run here, by name: each that has a job model, and maybe one that does not have it yet."""

    def has_run(self, application: str) -> bool:
        """Whether it is one of `applications`; however many there are, that takes no longer. `InvalidNameError` for what no
        application is named."""

    def metadata_store(self, application: str) -> MetadataStore:
        """What is stored of an application besides its streams, for `hr.StartpointManager`."""

    def create_stream(self, name: str, partitions: int, *, internal_of: str | None = None) -> StreamDescription:
        """Create it; `StreamExistsError` if there is one of that name."""

    def expand_stream(self, name: str, partitions: int) -> StreamDescription:
        """Give it this many partitions: the old ones keep all they hold, the new ones begin empty, at offset 0. The id stays.

        Every reader and producer that asks finds the new partitions when this returns; one that writes by the old count
        keeps doing so until it asks. `StreamNotFoundError`; `ConfigError` for what is no count, `IncompatibleChangeError`
        for one that is not larger. Whether its readers can follow is not asked here: see `core.job_plan.growth_rules`."""

    def streams(self, of: str | None = None) -> list[StreamDescription]:
        """All of them, internal ones too, by name. With `of`, an application, nothing is asked about others: which streams
        are theirs is not known then. So a start takes as long beside a thousand applications as it takes alone."""

    def describe_stream(self, name: str) -> StreamDescription:
        """`StreamNotFoundError`, naming streams that look like it, if there is none."""

    def delete_stream(self, name: str) -> None:
        """Delete a stream and its records; `StreamNotFoundError` if there is none."""

    def produce(self, stream: str, records: Iterable[Any], key: Any = None, value: Any = None) -> int:
        """Append `records`, in order, all or nothing per 100,000: (key, value) pairs, or `Record`s, whose timestamp, headers
        and partition count; the number of records written. A record goes to the partition that it asks for, else to Kafka's
        default for its key, one with a null key to the next in turn. `key` and `value` are serdes; without one, bytes are
        taken as they are."""

    def consume(
        self, stream: str, key: Any = None, value: Any = None, partitions: Sequence[int] | None = None, start: Any = None
    ) -> Iterator[Record]:
        """The records from `start` (an offset, a mapping partition to offset, None for the beginning) to the end as it
        is at the call, partition after partition. `OffsetOutOfRangeError` at once for a start or a partition that is not there;
        `SerdeError` at a record that does not decode; `StorageError` at a damaged file."""

    def beginning_offsets(self, stream: str) -> dict[int, int]:
        """Per partition the first offset that can be read."""

    def end_offsets(self, stream: str) -> dict[int, int]:
        """Per partition where a reader of committed records comes to an end now (Kafka: the last stable offset)."""

    def high_watermarks(self, stream: str) -> dict[int, int]:
        """Per partition the end of all that was written, what is not committed yet too: `end_offsets` or behind it."""
        return self.end_offsets(stream)

    def held_back_by(self, stream: str) -> dict[int, tuple[int, str]]:
        """For messages: the partitions whose end lies before the high watermark, with that end, and what holds it back (Kafka:
        an open transaction). Empty where there is no such thing."""
        return {}

    def offsets_for_time(self, stream: str, timestamp_us: int) -> dict[int, int]:
        """Per partition the first offset whose record is not older; the end where there is none."""

    def purge(self, stream: str, offsets: Mapping[int, int]) -> None:
        """Forget what lies before `offsets` (partition to offset); `OffsetOutOfRangeError` for one beyond the end."""


class System(Streams, Protocol):
    """A system as a job's driver sees it."""

    def job_store(self, application: str, exactly_once: bool = True) -> CoordinatorStore:
        """The application's plan, for its coordinator; any process may read there. `exactly_once` as in `processor_store`."""

    def job_reader(self, application: str) -> JobReader:
        """The application's job for who only looks: threads may share it, and it may be the one that was given before."""
        return self.job_store(application)

    def processor_store(self, application: str, exactly_once: bool = True) -> ProcessorStore:
        """The rounds of the application's containers. Without `exactly_once` outputs may be written before their round counts,
        where that is cheaper: a round that fails may then show twice in them, never too few times."""

    def consumer(self) -> SystemConsumer:
        """What says where startpoints are. It may answer from what it asked before: take a new one for each plan."""

    def partition_counts(self, streams: Collection[str]) -> dict[str, int]:
        """How many partitions these streams have now, without those that do not exist. One request: a job asks often."""

    def limits(self, streams: Collection[str]) -> Mapping[str, StreamLimits]:
        """What these streams take, as far as it can be known: a start asks once. Those left out take any record."""
        return {}

    def range_terms(self, piece: OffsetRange) -> SystemPayload:
        """Where a worker finds these records (the log: the chunks that hold them); requested only where no
        engine reads them for it. `OffsetOutOfRangeError` if the stream does not hold all of them (any more)."""

    def extents(self, pieces: Sequence[OffsetRange]) -> Mapping[SSP, Sequence[Extent]]:
        """How many bytes the records of these ranges take, piece by piece and in order, for a round's bound; without the
        SSPs of which the system cannot tell. One request for all: every planned round asks."""
        return {}

    def put_back(
        self,
        application: str,
        records: Mapping[str, Sequence[Record]],
        marks: Mapping[str, bytes | None],
    ) -> None:
        """Append encoded records to their streams, and mark dead letters of an application as dealt with (`marks`, by stream id
        and letter; None removes one), all of it or nothing: in one transaction. `FencedError` where one is marked already, or
        another process deals with letters of the application at the same time; `StreamNotFoundError`. Nothing is changed
        then."""

    def collect_garbage(self) -> Sequence[str]:
        """Delete files that are not referenced any more, nor ever will be; the names. Nothing where the system does so."""
        return ()


class SystemConsumer:
    """Where reading begins, as the driver asks a system. Seed: SEP-18 "SystemConsumer Registering Startpoint". This is the
    default form: a system that knows no better takes SPECIFIC_OFFSET only."""

    def register(self, ssp: SSP, startpoint: Startpoint | int) -> int:
        """The offset that `startpoint` means in `ssp` now: where the next record is read. `NotSupportedError` for a type
        that the system does not know, `OffsetOutOfRangeError` for what is not there. An offset in place of a startpoint is
        deprecated."""
        if isinstance(startpoint, int):
            warnings.warn("register(ssp, offset) is deprecated: give a Startpoint", DeprecationWarning, stacklevel=2)
            startpoint = Startpoint(PositionType.SPECIFIC_OFFSET, startpoint)
        if startpoint.position_type is not PositionType.SPECIFIC_OFFSET or startpoint.position is None:
            raise NotSupportedError(
                f"this system takes no startpoint of type {startpoint.position_type}, for {ssp}", "give an offset"
            )
        return startpoint.position
