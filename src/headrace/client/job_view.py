"""What is stored about an application that has run, looked up at one moment: its plan, positions and startpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headrace.adapters.common.consistent_reads import plan_and_checkpoints
from headrace.client.job_look import is_run
from headrace.client.startpoint_manager import KnownStartpoint, StartpointManager
from headrace.codec.job_records import STARTPOINTS
from headrace.core.job_plan.assignment import assignment_of
from headrace.core.job_plan.draft import PlanTerms
from headrace.core.job_plan.groupers import GroupByPartition
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.rewind.startpoint_rules import TaskPartition, spent_of
from headrace.core.topology.sub_topologies import sub_topologies_of, whole_name_of
from headrace.driver.planning.observe import observe
from headrace.errors import ConfigError, StreamNotFoundError, hint_of_missing
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.names import few
from headrace.model.startpoint import StartpointStatus
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Topology
from headrace.ports.metadata_store import MetadataStore


@dataclass(frozen=True)
class StoredJob:
    """What is stored of an application. `url` is that of its system, `topology` is there if its file is at hand.

    `known`: its startpoints by id, oldest first, as what is committed makes them. `unreadable`: requests for startpoints that
    no driver can apply, by their ids, and why. `elsewhere`: where more requests are, if not in `system` alone.
    """

    application: str
    url: str
    system: Any
    model: JobModel
    checkpoints: Mapping[TaskName, Checkpoint]
    known: Mapping[str, KnownStartpoint]
    topology: Topology | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    elsewhere: MetadataStore | None = None

    @cached_property
    def owners(self) -> dict[SSP, tuple[TaskName, ...]]:
        """Per SSP the tasks that read it, in their order."""
        return assignment_of(self.model)

    @cached_property
    def positions(self) -> dict[TaskPartition, int]:
        """Where each task is in each SSP, as committed."""
        return {(one.task, ssp): position for one in self.checkpoints.values() for ssp, position in one.positions.items()}

    @cached_property
    def terms(self) -> PlanTerms:
        """What a plan goes by that changes nothing but positions: the application as it last ran."""
        topology = self.topology or Topology(self.application, ())
        subs = sub_topologies_of(topology)
        return PlanTerms(topology, subs, self.system.name, self.url, lambda containers: GroupByPartition())

    @cached_property
    def snapshot(self) -> Snapshot:
        """What a plan would be made from now, of the job as it was looked up."""
        requests = None if self.elsewhere is None else self.elsewhere.requests(STARTPOINTS)
        store, now_us = self.system.job_reader(self.application), time.time_ns() // 1000
        found = observe(self.terms, self.system, store, now_us=now_us, elsewhere=requests)
        known = {task.name: self.checkpoints[task.name] for task in self.model.tasks if task.name in self.checkpoints}
        return replace(found, model=self.model, checkpoints=known)

    @property
    def unspent(self) -> list[KnownStartpoint]:
        """Startpoints that would count if nothing else were requested, in the driver's order: those that it applied first."""
        pending = [one for one in self.known.values() if one.status in (None, StartpointStatus.PENDING)]
        left = [one for one in pending if not one.deletion_requested]
        return sorted(left, key=lambda one: one.status is None)

    @property
    def is_running(self) -> bool:
        """Whether a driver holds the application that is not known to have ended, and was heard of lately."""
        return is_run(self.system.job_reader(self.application))

    @cached_property
    def internal(self) -> frozenset[str]:
        """Of the streams that the job reads its own repartition streams."""
        own = [one.name for one in self.system.streams(of=self.application) if one.internal_of == self.application]
        return frozenset(own) & self.model.partition_counts.keys()

    def stream(self, name: str) -> str:
        """The whole name of a stream that the job reads, which may be a repartition's own: `by-carrier`."""
        known = self.model.partition_counts
        if (whole := whole_name_of(self.application, name, known)) is not None:
            return whole
        raise StreamNotFoundError(
            f"application {self.application!r} reads no stream {name!r}",
            hint_of_missing(name, known, f"name one that it reads: {', '.join(sorted(known))}"),
        )

    def task(self, name: str | TaskName, stream: str) -> TaskName:
        """A task that reads `stream`."""
        reading = sorted({str(task) for ssp, tasks in self.owners.items() if ssp.stream == stream for task in tasks})
        if str(name) in reading:
            return TaskName.parse(str(name))
        if any(str(task.name) == str(name) for task in self.model.tasks):
            what = f"task {str(name)!r} of application {self.application!r} does not read stream {stream!r}"
        else:
            what = f"application {self.application!r} has no task {str(name)!r}"
        raise ConfigError(what, hint_of_missing(str(name), reading, f"name one that reads {stream!r}: {few(reading)}"))


def stored_job(
    application: str, url: str, system: Any, topology: Topology | None = None, elsewhere: MetadataStore | None = None
) -> StoredJob:
    """What is stored of an application; `ConfigError` for one that has not run here, naming those that have."""
    store, manager = system.job_reader(application), StartpointManager(system.metadata_store(application), elsewhere)
    model = store.job_model() if system.has_run(application) else None
    if model is None:
        others = [other for other in system.applications() if other != application]  # its first start may have been refused
        there = f"name one of: {', '.join(others)}" if others else "run it first"
        raise ConfigError(
            f"application {application!r} has not run on {url} yet: it has no positions that could be set",
            hint_of_missing(application, others, there),
        )
    before = manager.records()
    model, checkpoints = plan_and_checkpoints(store)
    assert model is not None
    known = manager.records()
    records = [one.record for one in known.values() if one.record is not None]
    # What has changed in between may be of another plan than the checkpoints are.
    spent = {id_ for id_ in spent_of(records, checkpoints) if before.get(id_) == known[id_]}
    read = {ssp for task in model.tasks for ssp in task.partitions}
    now = {id_: replace(one, is_read=one.entry.key.ssp in read) for id_, one in known.items()}
    for id_ in spent:  # by a commit that no driver has recorded
        now[id_] = replace(known[id_], status=StartpointStatus.APPLIED, deletion_requested=False)
    return StoredJob(application, url, system, model, checkpoints, now, topology, manager.unreadable(), elsewhere)
