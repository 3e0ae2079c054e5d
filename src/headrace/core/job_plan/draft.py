"""What a plan is made by: the terms that application and configuration set, and the draft that goes from step to step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headrace.core.affinity.cluster import members_of
from headrace.core.affinity.groupers import TaskNameGrouper
from headrace.core.affinity.members import Member
from headrace.core.elasticity.scales import ScaleDecision, ScaleTerms, scaled_sub
from headrace.core.job_plan.apply_rewinds import RewindChanges
from headrace.core.job_plan.assignment import Assignment
from headrace.core.job_plan.checkpoint_inheritance import InheritedPositions
from headrace.core.job_plan.groupers import SystemStreamPartitionGrouper
from headrace.core.job_plan.growth_rules import Growth
from headrace.core.job_plan.snapshot import Offsets, Snapshot
from headrace.core.rewind.consistent_cuts import SubTopologyEdges, edges_of
from headrace.core.rewind.rewinds import Rewind, RewindTarget
from headrace.core.rounds.for_each_round import Handover
from headrace.core.rounds.lost_offsets import OnLostOffsets
from headrace.core.topology.operator_changes import RunOperator
from headrace.core.topology.program import Program
from headrace.core.topology.resolution import Sides
from headrace.core.topology.store_changes import StoreRequests
from headrace.core.topology.sub_topologies import SubTopology
from headrace.errors import HeadraceError
from headrace.model.change import Change
from headrace.model.checkpoint import Checkpoint
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel, SubTopologyModel
from headrace.model.scale import AUTOMATIC, Scale
from headrace.model.startpoint import StartpointRecord
from headrace.model.streams import SSP, StreamDescription
from headrace.model.tasks import TaskName
from headrace.model.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class PlanTerms:
    """What application and configuration say of a plan.

    `system`: the system's name in SSPs, `url` what commands call it. `slots`: how many containers the engine runs at once;
    `locations`: how many of them at each location of a cluster, empty where all are on one machine. `processors`: of a
    standalone group, as containers are assigned to them; empty where there is none. `next_version`: what the version of the job
    model becomes in a group, where it is that of a proposal; None: one more than the last, if anything else in it changes.
    `forgets_locality`: tasks go to any processor, wherever they were.
    `containers`: how many a sub-topology is configured to have, None for as many as there are slots; `elasticity_factor`:
    that of a sub-topology; what is in force says the draft. `grouper`: makes the grouper of a sub-topology with this many
    containers; `task_name_grouper`: a user's, which says what processor has which tasks. `stores`: what of state is to be
    renamed or given up. `is_replan`: the job runs; what a stream's readers cannot follow stops them alone then, and a request
    that cannot be done is refused alone. `refused_streams`: changed
    streams that are to be refused, and why, besides those that the steps find. `sides`: the serdes of what operators give, by
    name; None where some are not known. `far_us`: see `Program`. `store_retention_us`: for so long a local store is kept that
    is not used.
    """

    topology: Topology
    subs: tuple[SubTopology, ...]
    system: str
    url: str
    grouper: Callable[[int], SystemStreamPartitionGrouper]
    slots: int = 1
    locations: Mapping[str, int] = field(default_factory=dict)
    containers: Callable[[str | None], int | None] = lambda name: None
    elasticity_factor: Callable[[str | None], int] = lambda name: 1
    on_lost_offsets: OnLostOffsets = "fail"
    dead_letter_stream: str | None = None
    stores: StoreRequests = field(default_factory=StoreRequests)
    is_replan: bool = False
    refused_streams: Mapping[str, HeadraceError] = field(default_factory=dict)
    sides: Mapping[str, Sides] | None = None
    far_us: int = 0
    store_retention_us: int = 0
    processors: tuple[Member, ...] = ()
    next_version: int | None = None
    forgets_locality: bool = False
    task_name_grouper: TaskNameGrouper | None = None

    @property
    def application(self) -> str:
        return self.topology.application

    @property
    def has_members(self) -> bool:
        """Whether containers are assigned to members; else any container may run anywhere."""
        return bool(self.processors or self.locations)

    def members(self, wanted: int | None) -> tuple[Member, ...]:
        """What containers are assigned to, `wanted` of them on a cluster if that is said."""
        return self.processors or members_of(self.locations, wanted)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(stream for sub in self.subs for stream in sub.reads)

    @property
    def scale_terms(self) -> ScaleTerms:
        """What scales are decided by."""

        def configured(name: str | None) -> Scale:
            return Scale(self.elasticity_factor(name), self.containers(name) or AUTOMATIC)

        return ScaleTerms(tuple(map(scaled_sub, self.subs)), configured, self.grouper, bool(self.processors))

    @property
    def flows(self) -> tuple[SubTopologyEdges, ...]:
        return edges_of(self.subs)

    def draft(self, offsets: Offsets) -> Draft:
        """Where the steps begin."""
        reset = frozenset(source.stream for sub in self.subs for source in sub.sources if source.reset_offset)
        return Draft(self, offsets, self.flows, reset)


@dataclass(frozen=True, slots=True)
class Edit:
    """What was edited since the last run.

    `carried`: the stored job model, with its stores named and given up as requested. `forms` and `databases`: of the stores
    that the application has now. `operators_before` None: not on record.
    """

    carried: JobModel | None = None
    forms: Mapping[str, str] = field(default_factory=dict)
    databases: Mapping[str, str] = field(default_factory=dict)
    operators: tuple[RunOperator, ...] = ()
    operators_before: tuple[RunOperator, ...] | None = None


@dataclass(frozen=True, slots=True)
class SeenStreams:
    """The streams of a job as a plan sees them.

    `existing`: by name, those of `refused`, whose change their readers cannot follow, as they were. `counts`: the partitions
    of every stream that is read, also of those that are to be created; `before`: how many those had when they were last read.
    `recreated`: streams on record that are others now, under the same names. `grown`: expansions that the job follows.
    `assignment`: the stored one, without what expansions and recreated streams have made void.
    """

    existing: Mapping[str, StreamDescription] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    recreated: frozenset[str] = frozenset()
    grown: tuple[Growth, ...] = ()
    refused: Mapping[str, HeadraceError] = field(default_factory=dict)
    assignment: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """What the steps have decided so far; a step fills in what is its own and reads what others have.

    `scaling`: the scales of the sub-topologies. `past`: where an elasticity factor changes, the snapshot as the steps that
    follow see it: by the tasks of the new factor.
    `creates`: streams to be created, with their partitions; their ids are left open ("") in `model` and `records`.
    `flows`: what the sub-topologies read and write. `read_from_start`: streams whose position is set at every start.
    `offsets`: those of the snapshot, and of the streams to be created. `bootstraps`: partitions that are
    read up to their present end before any other stream.
    `startpoints`: all records; `changed_startpoints`: those to be written (None: deleted); `refused_startpoints`: why, by id;
    `done` and `waiting`: requests. `rewinds`: those in force; `rewound`: what goes back with this plan. `changes`: what is
    recorded in the job's history, by key. `log` is said as the plan is made, `notes` at a start, `applied` once it is
    committed.
    """

    terms: PlanTerms
    offsets: Offsets
    flows: tuple[SubTopologyEdges, ...] = ()
    read_from_start: frozenset[str] = frozenset()
    edit: Edit = field(default_factory=Edit)
    scaling: ScaleDecision = field(default_factory=ScaleDecision)
    past: Snapshot | None = None
    streams: SeenStreams = field(default_factory=SeenStreams)
    inherited: InheritedPositions = field(default_factory=lambda: InheritedPositions({}, {}, {}, {}))
    tasks: tuple[SubTopologyModel, ...] = ()
    creates: Mapping[str, int] = field(default_factory=dict)
    model: JobModel | None = None
    records: Mapping[str, PartitionRecord] = field(default_factory=dict)
    checkpoints: Mapping[TaskName, Checkpoint] = field(default_factory=dict)
    bootstraps: frozenset[SSP] = frozenset()
    startpoints: Mapping[str, StartpointRecord] = field(default_factory=dict)
    changed_startpoints: Mapping[str, StartpointRecord | None] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    waiting: frozenset[str] = frozenset()
    rewinds: tuple[Rewind, ...] = ()
    rewound: RewindTarget = field(default_factory=RewindTarget)
    rewind_changes: RewindChanges = field(default_factory=RewindChanges)
    handovers: Mapping[str, Handover] = field(default_factory=dict)
    programs: Mapping[str | None, Program] = field(default_factory=dict)
    refused_startpoints: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()

    @property
    def job_model(self) -> JobModel:
        """`model`, in the steps that come after it."""
        assert self.model is not None, "the step that makes the job model comes first"
        return self.model

    def saying(self, *lines: str) -> Draft:
        return replace(self, log=(*self.log, *lines))
