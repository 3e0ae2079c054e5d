"""Plans a job: hold the application first, then observe, plan, and commit the plan in one transaction (protocol.md, "Steps").

What is decided is in `core.job_plan`. Nothing that is stored has changed if this raises before the plan is committed, but for
streams that were created.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps

from headrace.codec.documents import Flows, Operators, encode
from headrace.codec.job_records import (
    FLOWS,
    HANDOVERS,
    HISTORY,
    LOCALITY,
    OPERATORS,
    PARTITION_COUNTS,
    REWINDS,
    SCALES,
    SSP_ASSIGNMENT,
    STARTPOINTS,
    STATE_CUTS,
    STATE_VERSIONS,
    origin_entry,
)
from headrace.config.loading import Config
from headrace.core.elasticity.recut import StoredChanges, stored_changes_between
from headrace.core.elasticity.scales import stored_scales
from headrace.core.group.grants import GroupChange
from headrace.core.job_plan.assignment import assignment_of, merged
from headrace.core.job_plan.draft import Draft, PlanTerms
from headrace.core.job_plan.edits import edit_of
from headrace.core.job_plan.history import to_forget
from headrace.core.job_plan.planner import BEFORE_ENGINE, STEPS, Refusal, Step, plan, planned
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.job_plan.streams import check_inputs
from headrace.core.job_plan.tasks import scales
from headrace.core.topology.operator_changes import changes_between
from headrace.core.topology.patterns import new_matches
from headrace.core.topology.program import Program
from headrace.core.topology.resolution import Sides
from headrace.core.topology.sub_topologies import watched_streams
from headrace.driver.planning.job_plan import Backend, JobPlan
from headrace.driver.planning.load_plan import load
from headrace.driver.planning.observe import observe, terms_of
from headrace.driver.planning.stored_assignment import assignment_changes, record_changes
from headrace.driver.planning.stored_locality import locality_changes
from headrace.errors import ConfigError, FencedError, HeadraceError, StorageError, StreamExistsError, UnavailableError
from headrace.exchange.fault_injection import reached
from headrace.model.change import ChangeRequest
from headrace.model.streams import StreamDescription
from headrace.model.topology import Topology
from headrace.ports.coordinator_store import JobReader
from headrace.ports.metadata_store import Metadata
from headrace.ports.system import System

LOG = logging.getLogger("headrace.job")


def check_before_engine(
    topology: Topology, config: Config, system: System, store: JobReader, say: Callable[[str], None]
) -> None:
    """Refuse what can be refused while nothing is held or opened; serdes of `topology` may be open."""
    check_inputs(topology, [stream.name for stream in system.streams(of=topology.application)], config.system)
    terms = terms_of(topology, config, system.name)
    snapshot = observe(terms, system, store)
    steps = BEFORE_ENGINE if snapshot.model is not None else BEFORE_ENGINE[:1]
    made = plan(terms, snapshot, steps)
    if isinstance(made, Refusal):
        if made.step == BEFORE_ENGINE[0].__name__:
            edit = edit_of(terms, snapshot)
            for note in changes_between(edit.operators_before, edit.operators).notes():
                say(note)
        raise made.error


@contextmanager
def uncollected() -> Iterator[None]:
    """Without looks for garbage in cycles: a plan makes up to millions of values, no cycles, and each look goes over all."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def with_seen(plan: JobPlan, draft: Draft, streams: Mapping[str, StreamDescription]) -> JobPlan:
    """The plan with what only the process knows that has made `draft` of these streams: the same plan, or one that leaves it as
    it is."""
    watched = watched_streams(draft.terms.subs, draft.terms.dead_letter_stream)
    return replace(
        plan,
        notes=draft.notes,
        refused=draft.streams.refused,
        found_counts={**plan.found_counts, **{name: streams[name].partitions for name in watched if name in streams}},
        startpoint_requests=draft.waiting,
        waiting_scales=draft.scaling.waiting,
        locations=draft.terms.locations,
        rewound=frozenset(draft.rewound.versions),
    )


@dataclass(frozen=True, slots=True, eq=False)
class JobPlanner:
    """Plans one application on its system: at the start, and whenever its streams or its requests have changed.
    `resolve`: where streams are read by a pattern, gives the topology and its sides as they are now, of these streams only."""

    topology: Topology
    sides: Mapping[str, Sides]
    config: Config
    backend: Backend
    log: Callable[[str], None]
    resolve: Callable[[Collection[str] | None], tuple[Topology, Mapping[str, Sides]]] | None = None

    @uncollected()
    def plan(self, epoch: int, now_us: int, before: JobPlan | None = None, requests: Sequence[ChangeRequest] = ()) -> JobPlan:
        """The committed plan; raises what cannot be planned. `before`: of a job that runs already the plan that it has;
        `requests`: why it needs another one."""
        began_ns, scales_ns = time.perf_counter_ns(), list[int]()
        draft, snapshot = self._drafted(epoch, now_us, before, requests, scales_ns)
        if draft.past is not None:
            reached("scale", 5)
        made = replace(self, topology=draft.terms.topology).commit(draft, snapshot)
        plan_ns = {"": time.perf_counter_ns() - began_ns}
        self.backend.measured({"job-model-generation-ns": plan_ns, "checkpoint-compute-ns": {"": sum(scales_ns)}})
        return made

    def _drafted(
        self, epoch: int, now_us: int, before: JobPlan | None, requests: Sequence[ChangeRequest], scales_ns: list[int]
    ) -> tuple[Draft, Snapshot]:
        """The plan that is to be committed, and of what it is made. Where streams that match a pattern since the last plan
        cannot be read, it is one without them: a job that runs does not end because others have created a stream."""
        if self.resolve is None or before is None:
            return self._draft(epoch, now_us, before, requests, scales_ns)
        try:
            topology, sides = self.resolve(None)
            return replace(self, topology=topology, sides=sides)._draft(epoch, now_us, before, requests, scales_ns)
        except (StorageError, FencedError):
            raise
        except HeadraceError as error:
            if not new_matches(before.topology, self.backend.system.streams()):
                raise
            LOG.error("streams that match a pattern cannot be read, the job keeps running without them: %s", error)
        topology, sides = self.resolve(before.topology.inputs)
        return replace(self, topology=topology, sides=sides)._draft(epoch, now_us, before, requests, scales_ns)

    def _draft(
        self, epoch: int, now_us: int, before: JobPlan | None, requests: Sequence[ChangeRequest], scales_ns: list[int]
    ) -> tuple[Draft, Snapshot]:
        system = self.backend.system
        cluster, slots = self.backend.cluster, self.backend.engine.slots
        locations = None if cluster is None else cluster.for_plan()
        if locations is not None and not locations:  # its containers would belong nowhere
            raise UnavailableError("the cluster has no executor that a job model could be made for", "start one")
        terms = terms_of(self.topology, self.config, system.name, slots, locations, before is not None, self.sides)
        self.config.check_sub_topologies(sub.title for sub in terms.subs)
        reached("start", 6)
        elsewhere = None if self.backend.elsewhere is None else self.backend.elsewhere.requests()
        snapshot = observe(terms, system, self.backend.store, epoch=epoch, now_us=now_us, elsewhere=elsewhere)
        snapshot = replace(snapshot, requests=(*requests, *snapshot.requests))
        return planned(terms, snapshot, [_timed(step, scales_ns) if step is scales else step for step in STEPS]), snapshot

    def commit(self, draft: Draft, snapshot: Snapshot, change: GroupChange | None = None) -> JobPlan:
        """Create the streams that the plan needs, then store it in one transaction, then remove the requests that are done; the
        plan as it is stored. `change`: of a group, of which tasks it writes, and the grants that it gives."""
        if self.backend.store.is_half_forgotten():
            raise StorageError(
                f"application {self.topology.application!r}: a reset was begun, and has not ended",
                "do it again: `headrace reset`; until then what is stored is of no use",
            )
        for line in draft.log:
            self.log(line)
        draft, existing = self._with_created(draft)
        reached("start", 7)
        programs = with_limits(self.topology, draft.programs, self.backend.system)
        changes = {**self._changes(draft, snapshot), **origin_entry(None if change is None else change.origin)}
        reached("start", 8)
        store, elsewhere = self.backend.store, self.backend.elsewhere
        model, checkpoints = draft.job_model, tuple(draft.checkpoints.values())
        grants = None if change is None else change.grants
        if change is not None:
            checkpoints = tuple(one for one in checkpoints if one.task in change.tasks)
        store.commit_job_model(snapshot.epoch, model, checkpoints, changes, snapshot.checkpoints, grants)
        if draft.done:
            store.write_metadata(snapshot.epoch, STARTPOINTS, {}, done=draft.done)
            if elsewhere is not None:
                elsewhere.done(draft.done)
        if draft.scaling.settled:
            reached("scale", 6)
            store.write_metadata(snapshot.epoch, SCALES, {}, done=draft.scaling.settled)
        for note in draft.applied:
            self.log(note)
        there = {**existing, **snapshot.streams}  # also of streams whose change is refused: what was seen of them
        return replace(with_seen(self._loaded(draft.terms, programs, snapshot.epoch), draft, there), changes=draft.changes)

    def _loaded(self, terms: PlanTerms, programs: Mapping[str | None, Program], epoch: int) -> JobPlan:
        store, metadata = self.backend.store, self.backend.system.metadata_store(self.topology.application)
        try:
            return load(store, metadata, terms, programs, epoch)
        finally:  # the plan, or what does not fit in it, may be another driver's that has come in between
            store.check_epoch(epoch)

    def _with_created(self, draft: Draft) -> tuple[Draft, dict[str, StreamDescription]]:
        """The plan with the ids of the streams that it creates, and all streams then."""
        created: dict[str, StreamDescription] = {}
        internal = {node.stream for node in draft.terms.topology.repartitions}
        for stream, count in draft.creates.items():
            owner = draft.terms.application if stream in internal else None
            created[stream] = create(self.backend.system, stream, count, owner)
            self.log(f"created {'repartition ' if owner else ''}stream {stream} with {count} partitions")
        ids = {name: stream.id for name, stream in created.items()}
        model = draft.job_model
        model = replace(model, stream_ids={name: ids.get(name, id_) for name, id_ in model.stream_ids.items()})
        records = {name: replace(one, stream_id=ids.get(name, one.stream_id)) for name, one in draft.records.items()}
        return replace(draft, model=model, records=records), {**draft.streams.existing, **created}

    def _changes(self, draft: Draft, snapshot: Snapshot) -> Metadata:
        """What is stored with the plan, as bytes."""
        assignment = merged(draft.streams.assignment, assignment_of(draft.job_model))
        recut = StoredChanges() if draft.past is None else stored_changes_between(snapshot.stored, draft.past.stored)
        scales = stored_scales(snapshot.scales, draft.scaling)
        changes: dict[str, Mapping[str, bytes | None]] = {
            STARTPOINTS: _encoded({**recut.startpoints, **draft.changed_startpoints}),
            HANDOVERS: _encoded(draft.handovers),
            STATE_VERSIONS: _encoded({**recut.versions, **draft.rewind_changes.versions}),
            STATE_CUTS: _encoded(recut.cuts),
            REWINDS: _encoded({**recut.rewinds, **draft.rewind_changes.rewinds}),
            SCALES: {} if scales == snapshot.scales.stored else {SCALES: encode(scales)},
            HISTORY: {**dict.fromkeys(to_forget(snapshot.history, draft.changes)), **_encoded(draft.changes)},
            SSP_ASSIGNMENT: assignment_changes(snapshot.assignment, assignment),
            PARTITION_COUNTS: record_changes(snapshot.partition_records, draft.records),
            LOCALITY: locality_changes(snapshot.locality, draft.job_model, draft.rewound.versions),
        }
        if snapshot.flows != draft.flows:
            changes[FLOWS] = {FLOWS: encode(Flows(draft.flows))}
        if draft.edit.operators != draft.edit.operators_before:
            changes[OPERATORS] = {OPERATORS: encode(Operators(draft.edit.operators))}
        return changes


def _timed(step: Step, times_ns: list[int]) -> Step:
    """The same step, which adds how long it took."""

    @wraps(step)
    def timed(draft: Draft, snapshot: Snapshot) -> Draft:
        began_ns = time.perf_counter_ns()
        try:
            return step(draft, snapshot)
        finally:
            times_ns.append(time.perf_counter_ns() - began_ns)

    return timed


def _encoded(values: Mapping[str, object]) -> dict[str, bytes | None]:
    return {key: None if value is None else encode(value) for key, value in values.items()}


def with_limits(topology: Topology, programs: Mapping[str | None, Program], system: System) -> dict[str | None, Program]:
    """The programs, with what the streams that they write take."""
    internal = {node.stream for node in topology.repartitions}
    limits = system.limits({stream for program in programs.values() for stream in program.partition_counts})
    for stream, found in sorted(limits.items()):
        if not found.keeps_times and stream in internal:
            raise ConfigError(
                f"repartition stream {stream!r} does not keep the timestamps of records, which its readers need",
                "on Kafka: set message.timestamp.type of that topic to CreateTime",
            )
    return {
        name: replace(program, limits={stream: limits[stream] for stream in program.partition_counts if stream in limits})
        for name, program in programs.items()
    }


def create(system: System, stream: str, count: int, internal_of: str | None) -> StreamDescription:
    """A new stream; or the one that another start created since the snapshot, where it is as it should be. (Which of the two
    starts has the application is seen when the plan is committed.)"""
    try:
        return system.create_stream(stream, count, internal_of=internal_of)
    except StreamExistsError:
        found = system.describe_stream(stream)
        if (found.partitions, found.internal_of) != (count, internal_of):
            raise
        return found
