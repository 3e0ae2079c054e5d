"""The plan that a driver's rounds run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.rewind.rewinds import Rewind
from headrace.core.topology.sub_topologies import SubTopology
from headrace.driver.planning.partition_history import PartitionRecords
from headrace.driver.planning.startpoint_log import StartpointRecords
from headrace.errors import HeadraceError
from headrace.exchange.messages import Program
from headrace.model.change import Change
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.model.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """Everything that stays the same until the job model changes.

    `refused`: streams that changed, while the job runs, in a way that their readers cannot follow: these stop, and the model
    has them as they were. `found_counts`: the numbers of partitions that were seen, of all streams that are read or written.
    `startpoint_requests`: those that were seen, and wait for something that the job does not read. `rewinds`: those of which
    something is skipped still, or that may be undone. `changes`: the entries of the job's history
    that came with this plan, by key.
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
