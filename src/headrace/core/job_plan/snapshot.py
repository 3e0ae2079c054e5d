"""What a plan is made from: all that was read of an application and its system, of one moment.

The reader makes the snapshot (`driver.planning.observe`); the steps of the planner get nothing else. Offsets of streams
are looked up while the steps run, and each only once: the first answer stays, so that all steps see the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.elasticity.recut import Stored
from headrace.core.elasticity.scales import ScaleRequests
from headrace.core.job_plan.assignment import Assignment
from headrace.core.job_plan.startpoint_requests import StartpointRequests
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.core.rewind.startpoint_rules import offset_of
from headrace.core.rewind.state_history import Versions
from headrace.core.rounds.for_each_round import Handover
from headrace.core.topology.operator_changes import RunOperator
from headrace.model.change import ChangeKind, ChangeRequest
from headrace.model.checkpoint import Checkpoint
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel
from headrace.model.scale import ScaleRequest
from headrace.model.startpoint import Startpoint, StartpointEntry, StartpointRequest
from headrace.model.streams import SSP, StreamDescription
from headrace.model.tasks import TaskName


class Offsets(Protocol):
    """The offsets of the streams as they were at one moment. Equal questions have equal answers."""

    def beginnings(self, stream: str) -> Mapping[int, int]:
        """Per partition the first offset that is still there."""

    def ends(self, stream: str) -> Mapping[int, int]:
        """Per partition the end of what a reader of committed records can read."""

    def high_watermarks(self, stream: str) -> Mapping[int, int]:
        """Per partition the end of all that was written, not yet committed records included."""

    def for_time(self, stream: str, time_us: int) -> Mapping[int, int]:
        """Per partition the first offset whose record is not older; the end where there is none."""

    def register(self, ssp: SSP, startpoint: Startpoint) -> int:
        """The offset that a startpoint means; `OffsetOutOfRangeError` for one that the partition does not hold."""


@dataclass(frozen=True, slots=True)
class WithPartitions:
    """`offsets`, and those of partitions that a plan adds, which are empty. `counts`: how many these streams have then;
    `created`: those of them that are not there yet."""

    offsets: Offsets
    counts: Mapping[str, int]
    created: frozenset[str] = frozenset()

    def _with_empty(self, stream: str, known: Callable[[str], Mapping[int, int]]) -> Mapping[int, int]:
        found = {} if stream in self.created else known(stream)
        return {**dict.fromkeys(range(self.counts[stream]), 0), **found} if stream in self.counts else found

    def beginnings(self, stream: str) -> Mapping[int, int]:
        return self._with_empty(stream, self.offsets.beginnings)

    def ends(self, stream: str) -> Mapping[int, int]:
        return self._with_empty(stream, self.offsets.ends)

    def high_watermarks(self, stream: str) -> Mapping[int, int]:
        return self._with_empty(stream, self.offsets.high_watermarks)

    def for_time(self, stream: str, time_us: int) -> Mapping[int, int]:
        return self._with_empty(stream, lambda name: self.offsets.for_time(name, time_us))

    def register(self, ssp: SSP, startpoint: Startpoint) -> int:
        is_new = ssp.stream in self.created or (
            ssp.stream in self.counts and ssp.partition not in self.offsets.ends(ssp.stream)
        )
        return offset_of(startpoint, ssp, 0, 0, lambda time_us: 0) if is_new else self.offsets.register(ssp, startpoint)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a plan is made from. What was never stored is empty, `model` None before the first run.

    `streams`: those of the system by name; a stream of another application has its owner only where this one needs its name.
    `model`: the job model of the last plan. `assignment`: by the tasks' last plan, also of streams that are not read now.
    `handovers`: by the titles of sub-topologies with `for_each_round`. `epoch`: under which the plan is to be committed; 0 of
    a snapshot that nothing is committed from. `now_us`: the moment.
    `id_seed`: unlike that of any other snapshot. `history`: the keys of its entries. `requests`: why the plan of a job that
    runs is made; what startpoints are requested is in `startpoints`. `refused_before`: see `history.refused_changes`.
    `scales`: those in force, and what is requested of them. `locality`: where tasks have run, of those that have on a cluster
    or in a group.
    """

    offsets: Offsets
    streams: Mapping[str, StreamDescription]
    epoch: int = 0
    now_us: int = 0
    id_seed: str = ""
    model: JobModel | None = None
    checkpoints: Mapping[TaskName, Checkpoint] = field(default_factory=dict)
    operators: tuple[RunOperator, ...] | None = None
    assignment: Assignment = field(default_factory=dict)
    partition_records: Mapping[str, PartitionRecord] = field(default_factory=dict)
    startpoints: StartpointRequests = field(default_factory=StartpointRequests)
    versions: Versions = field(default_factory=dict)
    cuts: Sequence[ConsistentCut] = ()
    rewinds: Sequence[Rewind] = ()
    flows: tuple[SubTopologyEdges, ...] | None = None
    handovers: Mapping[str, Handover] = field(default_factory=dict)
    history: frozenset[str] = frozenset()
    requests: tuple[ChangeRequest, ...] = ()
    refused_before: Mapping[str, str] = field(default_factory=dict)
    scales: ScaleRequests = field(default_factory=ScaleRequests)
    locality: LocalityInfo = field(default_factory=LocalityInfo)

    def requested_by(self, kind: ChangeKind, subject: str) -> str:
        """Who has requested a change; empty where it was only seen."""
        names = (one.requested_by for one in self.requests if (one.kind, one.subject) == (kind, subject))
        return next(filter(None, names), "")

    @property
    def stored(self) -> Stored:
        """What is stored by task."""
        left = () if self.model is None else self.model.left
        return Stored(self.checkpoints, self.versions, self.cuts, self.startpoints.records, self.rewinds, left)

    def with_stored(self, stored: Stored) -> Snapshot:
        """The same, had this been stored."""
        assert self.model is not None, "nothing is stored before the first run"
        return replace(
            self,
            model=replace(self.model, left=tuple(stored.left)),
            checkpoints=stored.checkpoints,
            versions=stored.versions,
            cuts=stored.cuts,
            startpoints=replace(self.startpoints, records=stored.startpoints),
            rewinds=stored.rewinds,
        )

    def with_scale(self, request: ScaleRequest) -> Snapshot:
        """The same, had this scale been requested too."""
        more = {f"~{len(self.scales.requests)}": request}
        return replace(self, scales=replace(self.scales, requests={**self.scales.requests, **more}))

    def with_startpoints(self, entries: Sequence[StartpointEntry]) -> Snapshot:
        """The same, had these startpoints been requested too."""
        more = {f"~{len(self.startpoints.requests)}": StartpointRequest(tuple(entries))}
        return replace(self, startpoints=replace(self.startpoints, requests={**self.startpoints.requests, **more}))

    def with_partitions(self, counts: Mapping[str, int]) -> Snapshot:
        """The same, had these streams been expanded."""
        grown = {name: replace(self.streams[name], partitions=count) for name, count in counts.items()}
        return replace(self, streams={**self.streams, **grown}, offsets=WithPartitions(self.offsets, counts))
