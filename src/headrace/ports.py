"""The protocols between the runtime and the adapters. A port is a contract: what is atomic, what is raised, what is
unchanged on failure. All implementations of one pass one suite of tests (`tests/contracts`).

How a round is committed is the adapter's: on the embedded log by the driver, all containers in one transaction; on Kafka
by each container's worker, in a transaction of its own. The runtime goes one way through both, see `ProcessorStore`.

Arrow tables are pyarrow's; this module only names them. The row shape of records on disk and in flight is
`codec.record_batches.RECORD_SCHEMA`: key binary, value binary, timestamp_us int64, headers list<struct<name string, value
binary>>."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from headrace.core.group.grants import Grants
from headrace.core.rounds.offset_ranges import Extent, OffsetRange
from headrace.core.rounds.stream_limits import StreamLimits
from headrace.errors import NotSupportedError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.commits import DriverLease, RoundCommit
from headrace.model.job_model import JobModel
from headrace.model.startpoint import PositionType, Startpoint
from headrace.model.streams import SSP, StreamDescription
from headrace.model.tasks import TaskName
from headrace.record import Record

SystemPayload = Any
"""What the driver's side of an adapter tells its worker's side, or the other way round: values that msgspec writes as JSON.
The runtime carries them and never looks inside."""


Metadata = Mapping[str, Mapping[str, bytes | None]]
"""Values to be written to a `MetadataStore`: namespace to key to value, None deletes."""


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
        """Where a worker finds these records by itself (the log: the chunks that hold them); requested only where no
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
        """Append encoded records to their streams, and mark dead letters of an application as dealt with (`marks`, by id; None
        removes one), all of it or nothing: in one transaction. `FencedError` where one is marked already, or another process
        deals with letters of the application at the same time; `StreamNotFoundError`. Nothing is changed then."""

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


class MetadataStore(Protocol):
    """Small named values of one application, in namespaces, and requests for the driver that holds the application.

    Any process reads them. None writes values from outside: a command leaves a request, and the driver applies it and
    writes through its `CoordinatorStore` (protocol.md 6). A class of a user's own (`startpoint_metadata_store`) is called with
    the application's name; it keeps requests alone, durably, where all processes reach them. A running job looks there from
    a thread; what it raises is logged, and tried again. `close()`, if it has that, is called at the end.
    """

    @abstractmethod
    def get(self, namespace: str, key: str) -> bytes | None:
        """A value, None if there is none."""

    @abstractmethod
    def all(self, namespace: str) -> dict[str, bytes]:
        """Every value of the namespace, by key."""

    @abstractmethod
    def stamp(self) -> object:
        """Cheap to ask for: as long as this same object gives equal ones, no value and no request has changed."""

    def request(self, namespace: str, value: bytes) -> str:
        """Leave a request under an id of its own, durable when this returns."""
        return self.request_all(namespace, [value])[0]

    @abstractmethod
    def request_all(self, namespace: str, values: Sequence[bytes]) -> tuple[str, ...]:
        """Leave several requests, in this order; their ids, which sort in the order of their making. All are durable when this
        returns; where it raises, some may be there. A driver may see the first before the last is there."""

    @abstractmethod
    def requests(self, namespace: str) -> dict[str, bytes]:
        """The requests that are not done yet, by id, oldest first."""

    @abstractmethod
    def withdraw(self, namespace: str, ids: Collection[str]) -> None:
        """Remove these requests, from outside, durably; those that are not there (any more) are skipped. For requests that
        the driver of this store does not apply: what it has applied, it removes itself. Values stay."""


class JobReader(Protocol):
    """What is stored of one application's job, for any process to read."""

    def holder(self) -> DriverLease | None: ...

    def job_model(self) -> JobModel | None: ...

    def checkpoints(self) -> dict[TaskName, Checkpoint]:
        """Those of the current plan, whether their tasks have committed a round yet or not. A task that has committed and
        whose checkpoint is nowhere to be found is a `StorageError`, never left out."""

    def status(self) -> dict[str, dict[str, Any]]: ...

    def processors(self) -> dict[str, dict[str, Any]]:
        """What the processors of a group have published of themselves, by id; of lost ones too."""
        return {}

    def grants(self) -> Grants | None:
        """Of a standalone group those in force; None where one driver runs everything."""
        return None


class CoordinatorStore(JobReader, Protocol):
    """One application's plan in its system, as its coordinator has it: the driver, or the leader of a group.

    The life of a job, in this order:

    1. `acquire` (steps 1 to 4 of "Start"): the epoch is ours. `fence` (step 5): no attempt of an older one can commit any more
       in the lanes that it names.
    2. `job_model`, `checkpoints`: read after that. They may be answered from memory: no other driver writes now.
    3. `commit_job_model` (step 9, and 10 before it returns): the plan, its resolved starts and stream ids, at once.
    4. Rounds are a `ProcessorStore`'s. `heartbeat` every 2 s from a thread of its own; `release` at the end.

    Every write names the epoch and is refused with `FencedError`, changing nothing, if a newer one exists. At each numbered
    step of protocol.md `exchange.fault_injection.reached` is called.
    """

    def forget(self, epoch: int) -> None:
        """Forget all that is stored of the application, and delete the streams that it made for itself: the next start is a
        first start. The epoch stays, so that no process of before can commit, and the id of the state (`state-id`), by which
        its files are known. Where it is interrupted `is_half_forgotten` until it is called again. `FencedError`."""

    def is_half_forgotten(self) -> bool:
        """Whether `forget` was begun and has not ended: then no plan may be made."""
        return False

    # --- who drives -------------------------------------------------------------------------------------------------

    def check_not_leased(self, holder: DriverLease, now_us: int) -> None:
        """`JobHeldError` while another holder lives, as from `acquire`; changes nothing. To be asked before what takes long."""

    def acquire(self, holder: DriverLease, now_us: int, *, for_group: bool = False) -> int:
        """Take the application and give the new epoch, which is in force, and was read back, when this returns: an attempt
        that looks at it from now on stops. The leader of a group takes it with the grants that are in force: attempts under
        these work on (`NotSupportedError` where the system has no groups). `JobHeldError` while another holder lives;
        `FencedError` if this store has it, and another driver has taken it since: who was replaced does not come back. Whatever
        it raises, the application is not held by this driver then."""

    def lanes_used(self) -> Mapping[str, int]:
        """How many lanes were ever used, by the titles of sub-topologies; empty where the epoch alone fences all of them."""

    def fence(self, epoch: int, lanes: Mapping[str, Collection[int]]) -> None:
        """End what any container of these lanes has open, and shut out who has begun there (protocol.md 7). `lanes`: by the
        titles of sub-topologies."""

    def numbers_used(self) -> int:
        """The highest number that any epoch or grant ever had."""

    def write_grants(self, epoch: int, grants: Grants, metadata: Metadata | None = None) -> None:
        """Put these in force, in place of those that were, read back: an attempt that looks from now on stops if its own is
        not among them. `metadata` is written in the same transaction."""
        raise NotSupportedError("this system has no groups: one driver commits each round", "use Kafka")

    def heartbeat(self, epoch: int, now_us: int) -> None: ...

    def check_epoch(self, epoch: int) -> None:
        """`FencedError` if a newer epoch exists. If it does not raise, nothing read before this call had been superseded."""

    def expedite(self) -> None:
        """The job ends: from now on a system that does not answer is waited for a few seconds at most, by those that wait for
        it already too; then `UnavailableError` as ever."""

    def repairs(self) -> Collection[str]:
        """Names of repairs after which checkpoints of before may be put back: the state files that were there then are kept
        until the repair is not among these any more."""
        return ()

    def release(self, epoch: int) -> None:
        """Say that this driver ended cleanly; no error if another took over."""

    def step_down(self, epoch: int) -> None:
        """Hold the application no more, and write nothing of it: another process of the same group has it, or will. This store
        may take it again later, as a new one could. One that was replaced and has not stepped down does not come back."""

    # --- the plan ---------------------------------------------------------------------------------------------------

    def commit_job_model(
        self,
        epoch: int,
        model: JobModel,
        checkpoints: Sequence[Checkpoint],
        metadata: Metadata | None = None,
        stored: Mapping[TaskName, Checkpoint] | None = None,
        grants: Grants | None = None,
    ) -> None:
        """Make `model` (its partition counts and stream ids are in it) and `checkpoints` current, and write `metadata` with
        them, in one transaction, read back. A task of the model without a checkpoint here keeps its own: of the tasks of a
        container all are here, or none. Those of tasks that the model does not have are forgotten. `stored`: what
        `checkpoints` has given; a checkpoint that is the very one of there need not be written again. `grants`: those of a
        group, put in force with it. Before this returns the lanes that the model uses are recorded, for `lanes_used`."""

    def replaced_files(self) -> frozenset[str]:
        """The state files of checkpoints that others have followed, as was read since the last call or the first: `checkpoints`
        may not have given those. Empty where one process makes all commits."""
        return frozenset()

    def write_metadata(
        self, epoch: int, namespace: str, values: Mapping[str, bytes | None], done: Collection[str] = ()
    ) -> None:
        """Write these values (None deletes) and drop the requests `done`, all or nothing. See `MetadataStore`."""

    def purge(self, epoch: int, stream: str, offsets: Mapping[int, int]) -> None:
        """Forget what lies before `offsets` (partition to offset) of a repartition stream; one that is before the
        beginning changes nothing, and one beyond the end is an `OffsetOutOfRangeError`."""


class ProcessorStore(Protocol):
    """The rounds of the containers of one processor, as they are planned, committed and given up. It has nothing of the
    coordinator's in it: whatever it does, the coordinator of the application is not fenced by it.

    1. `begin`, once a plan is in force.
    2. Rounds, of several sub-topologies at once, from a thread each. `lanes_to_renew` and `container_terms` when a round is
       planned; the engine runs the containers; `commit_round` with what all of them answered.
    3. A round that failed in any way: `recover`, and a new round is planned from what that gives.

    `round_ms_max`: a container that worked for longer might not be able to commit any more (protocol.md 3); None is no
    bound.
    """

    round_ms_max: int | None

    def begin(self, epoch: int, model: JobModel, processor_id: str | None = None) -> None:
        """From now on rounds are of the containers of `model`, under `epoch`; in a group of those of one processor, under its
        grant. Their lanes were fenced before."""

    def check_epoch(self, epoch: int) -> None:
        """`FencedError` if a newer epoch is in force, or the grant `epoch` is not; `UnavailableError` where that is unknown."""

    def heard(self, sub_topology: str | None) -> Sequence[Checkpoint]:
        """In a group what the tasks of other processors have committed since the last call; some may come again."""
        return ()

    def lanes_to_renew(self, sub_topology: str | None, now_us: int) -> Collection[int]:
        """Lanes that must take part in the next round though there is nothing for them to do: what they committed last
        would expire (protocol.md 9). Empty where nothing expires."""
        return ()

    def container_terms(self, round_id: RoundId, lane: int) -> SystemPayload:
        """What the lane's worker needs for this round from the adapter: where to write, how to commit."""

    def commit_round(self, commit: RoundCommit) -> None:
        """Make a round count in which every container answered well; its checkpoints are the tasks' when this returns. Where
        the driver commits (the log) that happens here, for all containers in one transaction: `FencedError` if the epoch,
        the job model or a base is not the current one, `StorageError` if a file that it names is missing; then nothing is
        changed. Where workers commit (Kafka) each has done so before it answered, and this records it."""

    def recover(self, epoch: int, sub_topology: str | None) -> dict[TaskName, Checkpoint]:
        """After a round that failed: shut out every attempt of earlier rounds of the sub-topology that might still commit,
        then read the checkpoints of its tasks; `FencedError` if the epoch is not ours any more. Where workers commit, some
        containers of the failed round may have committed and others not: each task's checkpoint says for itself, and the
        next round builds on each as it is."""

    def publish_status(self, sub_topology: str | None, status: Mapping[str, Any]) -> None:
        """For eyes, never for decisions: not tied to an epoch, and it may be lost."""

    def publish_processor(self, processor_id: str, status: Mapping[str, Any] | None) -> None:
        """The same of a processor of a group itself, with tasks or without; None: it has left."""
