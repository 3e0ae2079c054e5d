"""The plan that a driver's rounds run on, and what they run on it with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.core.rewind.rewinds import Rewind
from headrace.core.topology.program import Program
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.planning.partition_history import PartitionRecords
from headrace.driver.planning.startpoint_log import StartpointRecords
from headrace.errors import HeadraceError
from headrace.exchange.engine import Engine
from headrace.model.change import Change
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.model.topology import Topology
from headrace.ports import JobStore, System


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a job looks for what, whatever its model. Times in s; `clock_us` is the wall clock.

    `partition_check_s`: from one look at the streams' partitions to the next; `settle_s`: after an expansion, until every
    producer has learned of it.
    """

    trigger_s: float
    idle_timeout_s: float
    max_lag: int
    partition_check_s: float
    settle_s: float
    clock_us: Callable[[], int] = field(default=lambda: time.time_ns() // 1000)


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """What a job runs on: its system, what is stored of it there, and the engine of its containers."""

    system: System
    store: JobStore
    engine: Engine


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """Everything that stays the same until the job model changes.

    `refused`: streams that changed, while the job runs, in a way that their readers cannot follow: these stop, and the model
    has them as they were. `found_counts`: the numbers of partitions that were seen, of all streams that are read or written.
    `startpoint_requests`: those that were seen, and wait for something that the job does not read. `rewinds`: those of which
    something is skipped still, or that may be undone. `changes`: the entries that this plan adds to the history of the job,
    by key.
    """

    topology: Topology
    model: JobModel
    subs: tuple[SubTopology, ...]
    programs: Mapping[str | None, Program]
    epoch: int
    checkpoints: Mapping[TaskName, Checkpoint]
    notes: tuple[str, ...]
    records: PartitionRecords
    refused: Mapping[str, HeadraceError]
    found_counts: Mapping[str, int]
    startpoints: StartpointRecords
    startpoint_requests: frozenset[str]
    rewinds: tuple[Rewind, ...] = ()
    changes: Mapping[str, Change] = field(default_factory=dict)
