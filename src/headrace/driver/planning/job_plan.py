"""The plan that a driver's rounds run on, what they run on it with, and the startpoints on record meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.codec.documents import encode
from headrace.codec.job_records import STARTPOINTS
from headrace.core.elasticity.scales import ScaleTerms, Waiting
from headrace.core.metrics.sink import MetricsSink
from headrace.core.metrics.table import MetricValues
from headrace.core.rewind.replays import Replay, counting_again, replays_of
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.startpoint_rules import TaskPartition, bootstraps_of, in_force
from headrace.core.topology.program import Program
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.cluster_view import ClusterView
from headrace.driver.maintenance.store_retention import StoreRetention
from headrace.driver.metrics.recent_metrics import RecentMetrics
from headrace.driver.planning.stored_assignment import PartitionRecords
from headrace.driver.request_copies import RequestsElsewhere
from headrace.driver.store_restoration import StoreRestoration
from headrace.errors import HeadraceError
from headrace.exchange.engine import Engine
from headrace.exchange.store_builder import StoreBuilder
from headrace.model.change import Change
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.scale import StoredScales
from headrace.model.startpoint import StartpointRecord, StartpointStatus
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Topology
from headrace.ports.coordinator_store import CoordinatorStore
from headrace.ports.processor_store import ProcessorStore
from headrace.ports.system import System


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a job looks for what, whatever its model. Times in s; `clock_us` is the wall clock. `partition_check_s`: from
    one look at the streams' partitions to the next; `settle_s`: after an expansion, until every producer has learned of it."""

    trigger_s: float
    idle_timeout_s: float
    max_lag: int
    partition_check_s: float
    settle_s: float
    clock_us: Callable[[], int] = field(default=lambda: time.time_ns() // 1000)


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """What a job runs on: its system, what is stored of it there (`store` as its coordinator has it, `processor_store` for its
    rounds), and the engine of its containers. `elsewhere`: where startpoints are requested outside of its system.
    `store_builder`: begins to make local stores in the background; None where workers are on other machines. `cluster`: where
    these are, and `restoration`: has local stores restored there; None where all are on the driver's. `retention`: removes
    those that are not used any more. `metrics`: what is measured, for the status; `exports`: where else that is taken.
    `is_of_member`: of a processor of a group, whose rounds are under its grant and not under the coordinator's epoch."""

    system: System
    store: CoordinatorStore
    processor_store: ProcessorStore
    engine: Engine
    elsewhere: RequestsElsewhere | None = None
    store_builder: Callable[[], StoreBuilder] | None = None
    cluster: ClusterView | None = None
    restoration: StoreRestoration | None = None
    retention: StoreRetention | None = None
    metrics: RecentMetrics = field(default_factory=RecentMetrics)
    exports: tuple[MetricsSink, ...] = ()
    is_of_member: bool = False

    @property
    def check_epoch(self) -> Callable[[int], None]:
        """What raises `FencedError` where an epoch, or a grant, is not in force; the coordinator's also restores the epoch's
        position where that has expired."""
        return self.processor_store.check_epoch if self.is_of_member else self.store.check_epoch

    @property
    def sinks(self) -> tuple[MetricsSink, ...]:
        return self.metrics, *self.exports

    def measured(self, values: MetricValues) -> None:
        """Record metrics of the job itself."""
        now_s = time.monotonic()
        for sink in self.sinks:
            sink.record("", values, now_s, now_s)

    def changed(self, changes: Collection[Change]) -> None:
        """Changes of the plan are in force."""
        for sink in self.sinks:
            sink.changed(changes)


class StartpointRecords:
    """The records of one plan, by id. Rounds note what they have spent, one other thread stores it; any may look."""

    def __init__(self, records: Mapping[str, StartpointRecord] | None = None) -> None:
        self._records = dict(records or {})
        self._lock = threading.Lock()
        self._spent: set[str] = set()
        self.bootstraps: Mapping[TaskPartition, int] = bootstraps_of(self._records.values())
        """Up to where tasks read a stream before any other."""
        self.counting_again: Mapping[TaskPartition, Replay] = counting_again(self._records.values())
        self.replays: Mapping[TaskPartition, Replay] = replays_of(self._records.values())
        self._pending: dict[TaskName, dict[SSP, tuple[str, int]]] = {}
        self._find_pending()

    def pending_of(self, task: TaskName) -> Mapping[SSP, tuple[str, int]]:
        """Per SSP the id and the offset of a startpoint that is not known to be spent yet."""
        return self._pending.get(task, {})

    def committed(self, checkpoints: Iterable[Checkpoint]) -> None:
        """These were committed: note the startpoints that they have spent."""
        found = {id_ for checkpoint in checkpoints for id_ in checkpoint.spent_startpoints.values()}
        if found:
            with self._lock:
                self._spent |= found & self._records.keys()

    def settle(self, store: CoordinatorStore, epoch: int, now_us: int) -> tuple[str, ...]:
        """Store that those which were spent are applied; their ids, sorted. From then on no commit names them."""
        with self._lock:
            due = sorted(id_ for id_ in self._spent if self._records[id_].status is StartpointStatus.PENDING)
        if not due:
            return ()
        changed = {id_: replace(self._records[id_], status=StartpointStatus.APPLIED, changed_at_us=now_us) for id_ in due}
        store.write_metadata(epoch, STARTPOINTS, {id_: encode(one) for id_, one in changed.items()})
        with self._lock:
            self._records |= changed
            self._spent -= set(due)
        self._find_pending()
        return tuple(due)

    def _find_pending(self) -> None:
        found: dict[TaskName, dict[SSP, tuple[str, int]]] = {}
        for record, one in in_force(self._records.values()).values():
            if record.status is StartpointStatus.PENDING:
                found.setdefault(one.task, {})[one.ssp] = record.entry.id, one.offset
        self._pending = found


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """Everything that stays the same until the job model changes: as it is stored (`load_plan.load`), and made of the topology.

    `rewinds`: those of which something is skipped still, or that may be undone. `scale_terms`: by which scales are decided,
    `scales` those that are on record.

    The rest only the process knows that has made the plan, and only a coordinator goes by it. `notes`: what is said at a start.
    `refused`: streams that changed, while the job runs, in a way that their readers cannot follow: these stop, and the model
    has them as they were. `found_counts`: the numbers of partitions that were seen, of all streams that are read or written.
    `startpoint_requests`: those that were seen, and wait for something that the job does not read. `changes`: the entries that
    this plan adds to the history of the job, by key. `waiting_scales`: what waits for tasks to come together, by the titles of
    sub-topologies. `rewound`: the tasks that go back with this plan. `locations`: of the cluster, with how many Spark tasks
    each runs at once.

    `processor_id`: of a standalone group, whose containers are run by these rounds; None: all.
    """

    topology: Topology
    model: JobModel
    subs: tuple[SubTopology, ...]
    programs: Mapping[str | None, Program]
    epoch: int
    checkpoints: Mapping[TaskName, Checkpoint]
    records: PartitionRecords
    startpoints: StartpointRecords
    rewinds: tuple[Rewind, ...] = ()
    scale_terms: ScaleTerms = field(default_factory=ScaleTerms)
    scales: StoredScales = field(default_factory=StoredScales)
    notes: tuple[str, ...] = ()
    refused: Mapping[str, HeadraceError] = field(default_factory=dict)
    found_counts: Mapping[str, int] = field(default_factory=dict)
    startpoint_requests: frozenset[str] = frozenset()
    changes: Mapping[str, Change] = field(default_factory=dict)
    waiting_scales: Mapping[str, Waiting] = field(default_factory=dict)
    locations: Mapping[str, int] = field(default_factory=dict)
    rewound: frozenset[TaskName] = frozenset()
    processor_id: str | None = None
