"""The job model: the immutable plan of which task reads what, and where it runs.

Seeds: SEP-5 (written at every initialization), SEP-11 "Cleaning up ContainerModel" (one processor id, a location id).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A task, and the whole partitions that it reads, sorted; a virtual task reads its key bucket of each.

    Siblings share `partitions`. `broadcast`: the streams that a virtual task reads whole, empty for a whole task.
    """

    name: TaskName
    partitions: tuple[SystemStreamPartition, ...]
    broadcast: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.name.bucket is not None:  # those of the task that it is a part of: looked at once, not by each sibling
            return
        if self.broadcast or any(ssp.key_bucket is not None for ssp in self.partitions):
            raise ValueError(f"task {self.name}: its SSPs have key buckets, and it has none")
        if len(self.partitions) > 1 and list(self.partitions) != sorted(set(self.partitions)):
            raise ValueError(f"task {self.name}: its SSPs are not sorted, or one is repeated")

    @property
    def ssps(self) -> tuple[SystemStreamPartition, ...]:
        """The SSPs that it reads, sorted; those of a virtual task with its key bucket."""
        bucket = self.name.bucket
        if bucket is None:
            return self.partitions
        return tuple(ssp if ssp.stream in self.broadcast else ssp.bucket(bucket.index) for ssp in self.partitions)


@dataclass(frozen=True, slots=True)
class ContainerModel:
    """The tasks that are processed together; `lane` numbers it within its sub-topology.

    `processor_id` is the member that runs it and `location_id` where that member runs; None where any may. `since`: in a
    standalone group, where a new plan leaves others alone, since which version of the job model it is as it is; None: since
    this one.
    """

    lane: int
    tasks: tuple[TaskModel, ...]
    processor_id: str | None = None
    location_id: str | None = None
    since: int | None = None


@dataclass(frozen=True, slots=True)
class SubTopologyModel:
    """One sub-topology's containers; `name` is None for the source sub-topology.

    `elasticity_factor`: the number of virtual tasks that each of its tasks is cut into; 1: they are whole.
    """

    name: str | None
    containers: tuple[ContainerModel, ...]
    elasticity_factor: int = 1

    @property
    def title(self) -> str:
        """The name, `source` for the source sub-topology."""
        return self.name or "source"

    @property
    def tasks(self) -> Iterator[TaskModel]:
        return (task for container in self.containers for task in container.tasks)


@dataclass(frozen=True, slots=True)
class LeftPosition:
    """Where a task was in an SSP when the job ceased to read its stream, whose id was `stream_id` then."""

    task: TaskName
    ssp: SystemStreamPartition
    position: int
    stream_id: str


@dataclass(frozen=True, slots=True)
class JobModel:
    """The plan of a whole job. `version` rises when anything else in it changes, and only then.

    `partition_counts`: stream to the number of its partitions that this plan was made from. `stores`: store to a
    text that says where its state lives and in which form, `<sub-topology>|<form>`; a later start compares it.
    `stream_ids`: every stream that is read to its id, which changes when it is deleted and recreated: positions and
    state are of the stream with that id. `left`: positions in streams that are not read any more, for when they are
    again; sorted by task and SSP. `partitioned_by_users`: the repartition streams that a user's partitioner distributes,
    sorted: in the others a key is in the partition of its hash. `partitioned_otherwise`: the inputs, sorted, whose producers
    are declared to go by something else than the key: a key's records have no order there that an expansion could break.
    `databases`: stores, removed ones too, to the databases of the tasks that hold them, where these have other names.
    `dropped`: databases whose stores began again in others, to the sub-topologies in which they are; they are deleted bit by
    bit, and no store may have one of them again.
    """

    application: str
    version: int
    sub_topologies: tuple[SubTopologyModel, ...]
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)
    stream_ids: Mapping[str, str] = field(default_factory=dict)
    left: tuple[LeftPosition, ...] = ()
    partitioned_by_users: tuple[str, ...] = ()
    partitioned_otherwise: tuple[str, ...] = ()
    databases: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)

    def sub_topology(self, name: str | None) -> SubTopologyModel:
        for model in self.sub_topologies:
            if model.name == name:
                return model
        raise KeyError(f"no sub-topology {name or 'source'!r} in version {self.version}")

    @property
    def elasticity_factors(self) -> dict[str | None, int]:
        """The elasticity factor of each sub-topology, by its name."""
        return {model.name: model.elasticity_factor for model in self.sub_topologies}

    @property
    def tasks(self) -> Iterator[TaskModel]:
        return (task for model in self.sub_topologies for task in model.tasks)

    @property
    def versions(self) -> dict[TaskName, int]:
        """The version of the job model that the checkpoint of each task has."""
        containers = [container for model in self.sub_topologies for container in model.containers]
        return {task.name: one.since or self.version for one in containers for task in one.tasks}
