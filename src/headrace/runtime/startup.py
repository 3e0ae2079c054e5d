"""Owns the start of a job: from a topology and what is stored to a plan that rounds can be run on.

The order matters (protocol.md, "Start"): hold the application first; then read; check everything that can be refused;
create streams; resolve starts; commit the plan in one transaction. Nothing is consumed before that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.config import Config
from headrace.core.assignments import Assignment, assignment_of, bases_of, merged, tasks_of
from headrace.core.carrying import carried_of, carrying_notes, check_tasks, left_of
from headrace.core.co_partitioning import check_co_partitioned, joined_streams
from headrace.core.compatibility import (
    check_compatible,
    check_same_partitioning,
    check_same_streams,
    notes,
    remembered,
    store_forms,
)
from headrace.core.containers import containers_of, job_model_of
from headrace.core.expansion import recorded
from headrace.core.growth import changes_of
from headrace.core.near_names import hint_of_missing
from headrace.core.partition_counts import partition_counts_of, untaken_hints
from headrace.core.partitioning import partitioned_otherwise
from headrace.core.resolution import Sides
from headrace.core.sub_topologies import SubTopology, has_state, sub_topologies_of
from headrace.errors import HeadraceError, IncompatibleChangeError, StreamExistsError, StreamNotFoundError
from headrace.model.checkpoint import Checkpoint
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel, SubTopologyModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.model.topology import Function, Repartition, Topology
from headrace.ports import JobStore, StreamDescription, System
from headrace.runtime.assignments import SystemStreamPartitionAssignmentManager
from headrace.runtime.grouping import grouper_of
from headrace.runtime.output_streams import watched_streams
from headrace.runtime.partition_records import PartitionRecords
from headrace.runtime.plan import Program
from headrace.runtime.programs import is_repartition, program_of, with_limits
from headrace.runtime.starts import check_nothing_stranded, check_stored, resolved_starts
from headrace.runtime.steps import reached


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """Everything that stays the same until the job model changes.

    `refused`: streams that changed, while the job runs, in a way that their readers cannot follow: these stop, and stand in
    the model as they stood. `found_counts`: what numbers of partitions were seen, of all streams that are read or written.
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
) -> JobPlan:
    """Plan the job and commit the plan; raises what cannot go on, having changed nothing that is stored.

    `going_on`: the job runs already, and a change of its streams asks for a new plan.
    """
    subs = sub_topologies_of(topology)
    reached("start", 6)
    previous = store.job_model()
    stored = store.checkpoints()
    forms = store_forms(topology)
    check_compatible(previous, forms)
    found = {stream.name: stream for stream in system.streams(of=topology.application)}
    check_inputs(topology, found, config.system)
    manager = SystemStreamPartitionAssignmentManager(system.metadata_store(topology.application))
    on_record = manager.read_partition_records()
    by_users, otherwise = _partitioners(topology), partitioned_otherwise(topology)
    reads = {stream for sub in subs for stream in sub.reads}
    before = _counts_before(previous, on_record, found, reads)
    changes = changes_of(before, _partitions(found), otherwise, _by_users_under_state(subs, by_users))
    refused = {**_made_anew(previous, found), **changes.refused} if going_on else {}
    existing = found | {name: _as_it_was(previous, found[name]) for name in refused}
    assignment = _previous_assignment(manager, previous)
    counts = _counts(topology, subs, existing, {name: on_record[name].counts for name in before if name in on_record}, assignment)
    _check_repartition_streams(topology, existing, system)
    known = {name: existing[name].id if name in existing else None for name in counts}
    check_same_streams(previous, known, counts)
    for stream in changes.refused.keys() - refused.keys():
        raise changes.refused[stream]
    for growth in changes.grown:
        log(growth.warning or f"stream {growth.stream!r} grew from {growth.before} to {growth.after} partitions")
    check_same_partitioning(previous, by_users, {stream for sub in subs if has_state(sub) for stream in sub.reads})
    check_nothing_stranded(topology.application, stored, counts, existing, system)
    carried = carried_of(previous, stored, known)
    as_planned = {name: count for name, count in counts.items() if name in existing and name not in refused}
    check_stored(subs, carried, as_planned, system, config.on_lost_offsets)
    models = [_sub_model(sub, config, system.name, counts, slots, assignment) for sub in subs]
    for sub, sub_model in zip(subs, models, strict=True):
        check_co_partitioned(sub, counts, sub_model.tasks, by_users)
    check_tasks(previous, stored, forms, subs, models)
    config.check_sub_topologies(sub.title for sub in subs)
    for note in untaken_hints(_hints(topology), counts):
        log(note)
    for stream, count in sorted((counts | _output_counts(subs, counts, config.dead_letter_stream)).items()):
        if stream not in existing:
            internal = topology.application if is_repartition(topology, stream) else None
            existing[stream] = _made(system, stream, count, internal)
            log(f"created {'repartition ' if internal else ''}stream {stream} with {count} partitions")
    reached("start", 7)
    ids = {stream: existing[stream].id for stream in counts}
    left = left_of(previous, stored, counts)
    stores = remembered(previous, forms)
    model = job_model_of(
        previous,
        topology.application,
        models,
        counts,
        stores,
        stream_ids=ids,
        left=left,
        partitioned_by_users=tuple(by_users),
        partitioned_otherwise=otherwise,
    )
    records = recorded(on_record, before, counts, ids, otherwise, now_us)
    written = {stream.name: stream.partitions for stream in existing.values()}
    programs = {sub.name: program_of(topology, sides, sub, model, config, written, records) for sub in subs}
    programs = with_limits(topology, programs, system)
    checkpoints = resolved_starts(subs, model, stored, carried, system, epoch, before, is_start=not going_on)
    reached("start", 8)
    anew = {stream for stream, record in on_record.items() if ids.get(stream, record.stream_id) != record.stream_id}
    metadata = manager.changes(merged(assignment, assignment_of(model), anew), records)
    store.commit_job_model(epoch, model, tuple(checkpoints.values()), metadata)
    there = {**existing, **found}
    seen = {name: there[name].partitions for name in watched_streams(subs, config.dead_letter_stream) if name in there}
    said = (*notes(previous, forms), *carrying_notes(previous, stored, known))
    return JobPlan(topology, model, subs, programs, epoch, checkpoints, said, PartitionRecords(records), refused, seen)


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


def check_inputs(topology: Topology, existing: Iterable[str], system: str) -> None:
    """`StreamNotFoundError` for a stream that the job reads and does not make itself, and that is not there."""
    internal = {node.stream for node in topology.nodes if isinstance(node, Repartition)}
    external = {source.stream for source in topology.sources} - internal
    names = sorted(existing)
    for stream in sorted(external.difference(names)):
        create = f"create it first: headrace stream create {stream} --system {system}"
        raise StreamNotFoundError(
            f"input stream {stream!r} does not exist on {system}", hint_of_missing(stream, names, create)
        )


def _partitions(streams: Mapping[str, StreamDescription]) -> dict[str, int]:
    return {name: stream.partitions for name, stream in streams.items()}


def _counts_before(
    previous: JobModel | None,
    on_record: Mapping[str, PartitionRecord],
    found: Mapping[str, StreamDescription],
    reads: Collection[str],
) -> dict[str, int]:
    """How many partitions those of `reads` had when they were last read; without those that are gone, or were made anew."""
    there = {name: record for name, record in on_record.items() if name in found and found[name].id == record.stream_id}
    counts = {name: record.partitions for name, record in there.items()}
    if previous is not None:
        same = {name for name, id_ in previous.stream_ids.items() if name in found and found[name].id == id_}
        counts |= {name: count for name, count in previous.partition_counts.items() if name in same}
    return {name: count for name, count in counts.items() if name in reads}


def _made_anew(previous: JobModel | None, found: Mapping[str, StreamDescription]) -> dict[str, HeadraceError]:
    """Of the streams that were read those that are others now, with what is to be said of it."""
    errors: dict[str, HeadraceError] = {}
    for name in previous.stream_ids if previous is not None else ():
        if name in found:
            try:
                check_same_streams(previous, {name: found[name].id}, _partitions(found))
            except IncompatibleChangeError as error:
                errors[name] = error
    return errors


def _as_it_was(previous: JobModel | None, stream: StreamDescription) -> StreamDescription:
    assert previous is not None
    return replace(
        stream, partitions=previous.partition_counts[stream.name], id=previous.stream_ids.get(stream.name, stream.id)
    )


def _by_users_under_state(subs: Iterable[SubTopology], by_users: Collection[str]) -> set[str]:
    """The streams that a user's partitioner distributes, and that operators with state take."""
    return {stream for sub in subs if has_state(sub) for stream in sub.reads if stream in by_users}


def _previous_assignment(
    manager: SystemStreamPartitionAssignmentManager, previous: JobModel | None
) -> Assignment:
    """The stored assignment; of a job model that was stored without one, its own."""
    stored = {ssp: mapping.tasks for ssp, mapping in manager.read_assignment().items()}
    return stored if stored or previous is None else assignment_of(previous)


def _counts(
    topology: Topology,
    subs: tuple[SubTopology, ...],
    existing: Mapping[str, StreamDescription],
    recorded_counts: Mapping[str, tuple[int, ...]],
    assignment: Assignment,
) -> dict[str, int]:
    """The number of partitions of every stream that the job reads."""
    repartitions = [node for node in topology.nodes if isinstance(node, Repartition)]
    internal = {node.stream for node in repartitions}
    external = {source.stream for source in topology.sources if source.stream not in internal}
    feeds: dict[str, list[str]] = {stream: [] for stream in internal}
    for sub in subs:
        for stream in sub.writes:
            shared = sorted({source.stream for source in sub.sources if not source.broadcast})
            feeds[stream].extend(shared or sub.reads)
    counts = {stream: existing[stream].partitions for stream in external}
    counts |= partition_counts_of(
        feeds,
        {n.stream: n.partitions for n in repartitions if n.partitions is not None and not n.partitions_is_hint},
        counts,
        {stream: existing[stream].partitions for stream in internal if stream in existing},
        _hints(topology),
        {join: streams for sub in subs for join, streams in joined_streams(sub).items()},
        recorded_counts,
        bases_of(assignment, recorded_counts),
    )
    return counts


def _partitioners(topology: Topology) -> dict[str, Function]:
    """The partitioners of users, by the repartition streams that have one."""
    nodes = [node for node in topology.nodes if isinstance(node, Repartition)]
    return {node.stream: node.partitioner for node in nodes if node.partitioner is not None}


def _hints(topology: Topology) -> dict[str, int]:
    """The numbers of partitions that groupings ask for, by the repartition streams that they put in."""
    nodes = [node for node in topology.nodes if isinstance(node, Repartition) and node.partitions_is_hint]
    return {node.stream: node.partitions for node in nodes if node.partitions is not None}


def _check_repartition_streams(topology: Topology, existing: Mapping[str, StreamDescription], system: System) -> None:
    repartitions = [node for node in topology.nodes if isinstance(node, Repartition) and node.stream in existing]
    for node in repartitions:
        if existing[node.stream].internal_of == topology.application:
            continue
        owner = system.describe_stream(node.stream).internal_of
        raise IncompatibleChangeError(
            f"stream {node.stream!r} exists, but is no repartition stream of application {topology.application!r}"
            + (f" (it belongs to {owner!r})" if owner else ""),
            "give the repartition another name, or delete that stream if nobody needs it",
        )


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
    """Partitions for output streams that have to be made: as many as the largest input of the sub-topology has."""
    outputs: dict[str, int] = {}
    for sub in subs:
        largest = max(counts[stream] for stream in sub.reads)
        for sink in sub.sinks:
            if isinstance(sink.stream, str):
                outputs[sink.stream] = max(largest, outputs.get(sink.stream, 0))
    if dead_letter_stream is not None:
        outputs.setdefault(dead_letter_stream, 1)
    return {stream: count for stream, count in outputs.items() if stream not in counts}
