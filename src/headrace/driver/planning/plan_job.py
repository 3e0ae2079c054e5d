"""The start of a job: from a topology and what is stored to a plan that rounds can be run on.

The order matters (protocol.md, "Start"): hold the application first; then read; check everything that can be refused;
create streams; resolve starts; commit the plan in one transaction. Nothing is consumed before that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from headrace.codec.operators import encode_operators
from headrace.codec.rewind import encode_flows
from headrace.codec.rewind_records import FLOWS, cuts_of, rewinds_of, stored_flows
from headrace.codec.run_operators import OPERATORS
from headrace.config.loading import Config
from headrace.core.job_plan.assignment import Assignment, assignment_of, merged, tasks_of
from headrace.core.job_plan.checkpoint_inheritance import begun_otherwise, carried_of, carrying_notes, check_tasks, left_of
from headrace.core.job_plan.containers import containers_of, job_model_of
from headrace.core.rewind.rewinds import Rewind, flows_of, gaps_of
from headrace.core.rounds.partition_barrier import born_in, recorded
from headrace.core.topology.co_partitioning import check_co_partitioned
from headrace.core.topology.compatibility import remembered
from headrace.core.topology.operator_changes import timer_owners
from headrace.core.topology.partition_counts import untaken_hints
from headrace.core.topology.partition_families import upstream_of
from headrace.core.topology.partitioning import partitioned_otherwise
from headrace.core.topology.resolution import Sides
from headrace.core.topology.sub_topologies import SubTopology, sub_topologies_of
from headrace.driver.maintenance.state_history import versions_of
from headrace.driver.planning.application_edits import edit_of, found_streams
from headrace.driver.planning.apply_rewinds import Kept, StateRewinds
from headrace.driver.planning.apply_startpoints import Asked, TakenUp, asked_of, taken_up, with_bootstraps
from headrace.driver.planning.grouper_config import grouper_of
from headrace.driver.planning.partition_history import PartitionRecords
from headrace.driver.planning.programs import is_repartition, program_of, seeing_replays, with_limits
from headrace.driver.planning.snapshot import hints_of, partitioners_of
from headrace.driver.planning.start_offsets import check_nothing_stranded, check_stored, resolved_starts
from headrace.driver.planning.startpoint_log import STARTPOINTS, StartpointRecords
from headrace.driver.request_copies import RequestsElsewhere
from headrace.driver.rounds.handover import NAMESPACE as HANDOVERS
from headrace.driver.rounds.handover import handovers_set_elsewhere
from headrace.driver.rounds.output_checks import watched_streams
from headrace.errors import HeadraceError, StreamExistsError
from headrace.exchange.fault_injection import reached
from headrace.exchange.messages import Program
from headrace.model.checkpoint import Checkpoint
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel, SubTopologyModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Topology
from headrace.ports import JobStore, Metadata, StreamDescription, System


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """Everything that stays the same until the job model changes.

    `refused`: streams that changed, while the job runs, in a way that their readers cannot follow: these stop, and are in
    the model as they were. `found_counts`: what numbers of partitions were seen, of all streams that are read or written.
    `startpoint_requests`: those that were seen, and wait for something that the job does not read. `rewinds`: those of which
    some range is skipped still, or that may be undone.
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


def planned(
    topology: Topology,
    sides: Mapping[str, Sides],
    config: Config,
    system: System,
    store: JobStore,
    epoch: int,
    slots: int,
    log: Callable[[str], None],
    now_us: int,
    going_on: bool = False,
    elsewhere: RequestsElsewhere | None = None,
) -> JobPlan:
    """Plan the job and commit the plan; raises what cannot continue, having changed nothing that is stored.

    `going_on`: the job runs already, and a change of its streams needs a new plan. `elsewhere`: where startpoints are requested
    outside of `system`.
    """
    subs = sub_topologies_of(topology)
    reached("start", 6)
    edit = edit_of(topology, config, system, store)
    edit.check(config.system)
    previous, stored = edit.previous, store.checkpoints()
    stored_metadata = system.metadata_store(topology.application)
    asked = asked_of(stored_metadata, None if elsewhere is None else elsewhere.requests())
    found = found_streams(topology, subs, previous, system, config, going_on)
    seen, on_record, assignment = found.seen, found.on_record, found.assignment
    existing, counts, before = dict(seen.existing), dict(seen.counts), seen.before
    for growth in seen.grown:
        log(growth.warning or f"stream {growth.stream!r} grew from {growth.before} to {growth.after} partitions")
    known = {name: existing[name].id if name in existing else None for name in counts}
    by_users, otherwise = partitioners_of(topology), partitioned_otherwise(topology)
    check_nothing_stranded(topology.application, stored, counts, existing, system)
    carried = carried_of(previous, stored, known)
    as_planned = {name: count for name, count in counts.items() if name in existing and name not in seen.refused}
    gaps = gaps_of(rewinds_of(stored_metadata))
    check_stored(subs, carried, as_planned, system, config.on_lost_offsets, asked.ssps, gaps)
    models = [_sub_model(sub, config, system.name, counts, slots, assignment) for sub in subs]
    for sub, sub_model in zip(subs, models, strict=True):
        check_co_partitioned(sub, counts, sub_model.tasks, by_users)
    check_tasks(edit.carried, stored, edit.forms, subs, models)
    config.check_sub_topologies(sub.title for sub in subs)
    for note in untaken_hints(hints_of(topology), counts):
        log(note)
    outputs = _output_counts(subs, counts, config.dead_letter_stream)
    existing |= _created(topology, counts | outputs, existing, system, log)
    reached("start", 7)
    ids = {stream: existing[stream].id for stream in counts}
    left = left_of(previous, stored, counts)
    model = job_model_of(
        previous,
        topology.application,
        models,
        counts,
        remembered(edit.carried, edit.forms),
        stream_ids=ids,
        left=left,
        partitioned_by_users=tuple(by_users),
        partitioned_otherwise=otherwise,
        databases=edit.databases,
        dropped=None if edit.carried is None else edit.carried.dropped,
    )
    records = recorded(on_record, before, counts, ids, otherwise, now_us)
    written = {stream.name: stream.partitions for stream in existing.values()}
    owners = timer_owners(edit.operators)
    programs = {sub.name: program_of(topology, sides, sub, model, config, written, records, owners) for sub in subs}
    programs = with_limits(topology, programs, system)
    begun = resolved_starts(subs, model, stored, carried, system, epoch, before, is_start=not going_on)
    for note in begun.notes:
        log(note)
    asked = with_bootstraps(asked, begun.bootstraps, now_us)
    taken, rewinds, changes = _taken_up(
        topology, subs, model, stored, begun.checkpoints, asked, records, system, config, now_us, seen.recreated
    )
    programs = seeing_replays(programs, taken.records.values())
    changes = {**changes, **found.manager.changes(merged(assignment, assignment_of(model)), records)}
    if edit.operators != edit.operators_before:
        changes[OPERATORS] = {OPERATORS: encode_operators(edit.operators)}
    _commit(store, epoch, model, taken, changes, elsewhere, log)
    there = {**existing, **seen.found}
    watched = {name: there[name].partitions for name in watched_streams(subs, config.dead_letter_stream) if name in there}
    said = (*edit.notes(), *carrying_notes(previous, stored, known))
    return JobPlan(
        topology,
        model,
        subs,
        programs,
        epoch,
        taken.checkpoints,
        said,
        PartitionRecords(records),
        seen.refused,
        watched,
        StartpointRecords(taken.records),
        taken.waiting,
        rewinds,
    )


def _taken_up(
    topology: Topology,
    subs: tuple[SubTopology, ...],
    model: JobModel,
    stored: Mapping[TaskName, Checkpoint],
    checkpoints: Mapping[TaskName, Checkpoint],
    asked: Asked,
    records: Mapping[str, PartitionRecord],
    system: System,
    config: Config,
    now_us: int,
    made_anew: Collection[str],
) -> tuple[TakenUp, tuple[Rewind, ...], Metadata]:
    """What comes of the requested startpoints, the rewinds that matter, and what is to be stored with the plan."""
    metadata, consumer = system.metadata_store(topology.application), system.consumer()
    anew = {source.stream for sub in subs for source in sub.sources if source.reset_offset}
    flows = flows_of(subs)
    rewinds = StateRewinds(
        Kept(versions_of(metadata), cuts_of(metadata), rewinds_of(metadata)),
        flows,
        born_in(assignment_of(model), {stream: record.expansions for stream, record in records.items()}),
        consumer,
        system.high_watermarks,
        now_us,
        begun_otherwise(model),
        made_anew,
    )
    named = f"--application {topology.application} --system {config.system}"
    taken = taken_up(asked, stored, checkpoints, consumer, anew, now_us, subs, rewinds, named)
    in_force = rewinds.in_force(taken.checkpoints)
    handovers = handovers_set_elsewhere(subs, metadata, stored, taken.checkpoints, gaps_of(in_force))
    changes = {STARTPOINTS: taken.written, HANDOVERS: handovers, **rewinds.changes(in_force)}
    if stored_flows(metadata) != flows:
        changes[FLOWS] = {FLOWS: encode_flows(flows)}
    return taken, in_force, changes


def _commit(
    store: JobStore,
    epoch: int,
    model: JobModel,
    taken: TakenUp,
    metadata: Metadata,
    elsewhere: RequestsElsewhere | None,
    log: Callable[[str], None],
) -> None:
    """Commit the plan, then remove the requests for startpoints that are in it."""
    reached("start", 8)
    store.commit_job_model(epoch, model, tuple(taken.checkpoints.values()), metadata)
    if taken.done:
        store.write_metadata(epoch, STARTPOINTS, {}, done=taken.done)
        if elsewhere is not None:
            elsewhere.done(taken.done)
    for note in taken.notes:
        log(note)


def _created(
    topology: Topology,
    counts: Mapping[str, int],
    existing: Mapping[str, StreamDescription],
    system: System,
    log: Callable[[str], None],
) -> dict[str, StreamDescription]:
    """The streams that were not there, made."""
    created: dict[str, StreamDescription] = {}
    for stream, count in sorted(counts.items()):
        if stream not in existing:
            internal = topology.application if is_repartition(topology, stream) else None
            created[stream] = _made(system, stream, count, internal)
            log(f"created {'repartition ' if internal else ''}stream {stream} with {count} partitions")
    return created


def _made(system: System, stream: str, count: int, internal_of: str | None) -> StreamDescription:
    """A new stream; or the one that another start made since we looked, where it is as it should be. (Which of the two
    starts has the application is seen when the plan is committed.)"""
    try:
        return system.create_stream(stream, count, internal_of=internal_of)
    except StreamExistsError:
        found = system.describe_stream(stream)
        if (found.partitions, found.internal_of) != (count, internal_of):
            raise
        return found


def _sub_model(
    sub: SubTopology, config: Config, system: str, counts: Mapping[str, int], slots: int, previous: Assignment
) -> SubTopologyModel:
    ssps = [SSP(system, stream, partition) for stream in sub.reads for partition in range(counts[stream])]
    wanted = config.containers_of(sub.name) or slots
    grouper = grouper_of(config.ssp_grouper, wanted)
    # `check_tasks` knows which tasks have state of stores that stay: a partition may well leave any other.
    tasks = tasks_of(sub, ssps, previous, grouper, config.elasticity_factor, stateful=())
    return SubTopologyModel(sub.name, containers_of(tasks, wanted))


def _output_counts(
    subs: tuple[SubTopology, ...], counts: Mapping[str, int], dead_letter_stream: str | None
) -> dict[str, int]:
    """Partitions for output streams that have to be made: as many as the largest has that their records come of."""
    outputs: dict[str, int] = {}
    for sub in subs:
        upstream = upstream_of(sub)
        for sink in sub.sinks:
            if isinstance(sink.stream, str):
                largest = max(counts[stream] for stream in upstream[sink.name])
                outputs[sink.stream] = max(largest, outputs.get(sink.stream, 0))
    if dead_letter_stream is not None:
        outputs.setdefault(dead_letter_stream, 1)
    return {stream: count for stream, count in outputs.items() if stream not in counts}
