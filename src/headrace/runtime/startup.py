"""Owns the start of a job: from a topology and what is stored to a plan that rounds can be run on.

The order matters (protocol.md, "Start"): hold the application first; then read; check everything that can be refused;
create streams; resolve starts; commit the plan in one transaction. Nothing is consumed before that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.config import Config
from headrace.core.carrying import carried_of, carrying_notes, check_tasks, left_of
from headrace.core.co_partitioning import check_co_partitioned, joined_streams
from headrace.core.compatibility import (
    check_compatible,
    check_same_partitioning,
    check_same_streams,
    gone_from,
    notes,
    remembered,
    store_forms,
)
from headrace.core.containers import containers_of, job_model_of
from headrace.core.groupers import GROUPERS, all_ssps_to_every_task, group_by_partition, group_by_system_stream_partition
from headrace.core.near_names import hint_of_missing
from headrace.core.partition_counts import partition_counts_of, untaken_hints
from headrace.core.prefix import Endpoint, endpoints_of
from headrace.core.record_parts import PARTS, parts_used
from headrace.core.resolution import Sides
from headrace.core.sub_topologies import SubTopology, has_state, is_stateful, sub_topologies_of
from headrace.errors import ConfigError, IncompatibleChangeError, NotSupportedError, StreamExistsError, StreamNotFoundError
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP, SystemStream
from headrace.model.tasks import TaskName
from headrace.model.topology import Function, MapValues, Repartition, SelectKey, Sink, Topology, Transform
from headrace.ports import JobStore, StreamDescription, System
from headrace.runtime.plan import EndpointSide, Program
from headrace.runtime.starts import check_nothing_stranded, check_stored, resolved_starts
from headrace.runtime.steps import reached

GROUPER_NAMES: Mapping[str, Any] = {
    **GROUPERS,
    "partition": group_by_partition,
    "system_stream_partition": group_by_system_stream_partition,
}


@dataclass(frozen=True, slots=True, eq=False)
class JobPlan:
    """Everything that stays the same until the job model changes."""

    topology: Topology
    model: JobModel
    subs: tuple[SubTopology, ...]
    programs: Mapping[str | None, Program]
    epoch: int
    checkpoints: Mapping[TaskName, Checkpoint]
    notes: tuple[str, ...]


def planned(
    topology: Topology,
    sides: Mapping[str, Sides],
    config: Config,
    system: System,
    store: JobStore,
    epoch: int,
    slots: int,
    log: Callable[[str], None],
) -> JobPlan:
    """Plan the job and commit the plan; raises what cannot go on, having changed nothing that is stored."""
    subs = sub_topologies_of(topology)
    reached("start", 6)
    previous = store.job_model()
    stored = store.checkpoints()
    forms = store_forms(topology)
    check_compatible(previous, forms)
    existing = {stream.name: stream for stream in system.streams(of=topology.application)}
    check_inputs(topology, existing, config.system)
    counts = _checked_counts(topology, subs, existing, previous)
    _check_repartition_streams(topology, existing, system)
    known = {name: existing[name].id if name in existing else None for name in counts}
    check_same_streams(previous, known)
    by_users = _partitioners(topology)
    check_same_partitioning(previous, by_users, {stream for sub in subs if has_state(sub) for stream in sub.reads})
    check_nothing_stranded(topology.application, stored, counts, existing, system)
    carried = carried_of(previous, stored, known)
    there = {name: count for name, count in counts.items() if name in existing}
    check_stored(subs, carried, there, system, config.on_lost_offsets)
    models = [_sub_model(sub, config, system.name, counts, slots) for sub in subs]
    for sub, sub_model in zip(subs, models, strict=True):
        check_co_partitioned(sub, counts, sub_model.tasks, by_users)
    check_tasks(previous, stored, forms, subs, models)
    config.check_sub_topologies(sub.title for sub in subs)
    for note in untaken_hints(_hints(topology), counts):
        log(note)
    for stream, count in sorted((counts | _output_counts(subs, counts, config.dead_letter_stream)).items()):
        if stream not in existing:
            internal = topology.application if _is_repartition(topology, stream) else None
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
    )
    written = {stream.name: stream.partitions for stream in existing.values()}
    programs = {sub.name: _program(topology, sides, sub, model, config, written) for sub in subs}
    programs = _with_limits(topology, programs, system)
    checkpoints = resolved_starts(subs, model, stored, carried, system, epoch)
    reached("start", 8)
    store.commit_job_model(epoch, model, tuple(checkpoints.values()))
    said = (*notes(previous, forms), *carrying_notes(previous, stored, known))
    return JobPlan(topology, model, subs, programs, epoch, checkpoints, said)


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


def _is_repartition(topology: Topology, stream: str) -> bool:
    return any(isinstance(node, Repartition) and node.stream == stream for node in topology.nodes)


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


def _checked_counts(
    topology: Topology, subs: tuple[SubTopology, ...], existing: Mapping[str, StreamDescription], previous: JobModel | None
) -> dict[str, int]:
    """The number of partitions of every stream that the job reads; grown ones are refused."""
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
    )
    for stream in sorted(external) if previous is not None else ():
        before = previous.partition_counts.get(stream) if previous is not None else None
        if before is not None and before != counts[stream] and any(has_state(sub) for sub in subs if stream in sub.reads):
            raise IncompatibleChangeError(
                f"input stream {stream!r} had {before} partitions and now has {counts[stream]}, and the job keeps state",
                "expansion under state comes with a later version; until then write to a stream with the former count",
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


def _sub_model(sub: SubTopology, config: Config, system: str, counts: Mapping[str, int], slots: int) -> SubTopologyModel:
    ssps = [SSP(system, stream, partition) for stream in sub.reads for partition in range(counts[stream])]
    broadcast = frozenset(SystemStream(system, source.stream) for source in sub.sources if source.broadcast)
    tasks = _grouped(config.ssp_grouper, ssps, sub, broadcast, config, slots)
    wanted = config.containers_of(sub.name) or slots
    return SubTopologyModel(sub.name, containers_of(tasks, wanted))


def _grouped(
    grouper: Any, ssps: list[SSP], sub: SubTopology, broadcast: frozenset[SystemStream], config: Config, slots: int
) -> tuple[TaskModel, ...]:
    if grouper is None:
        return group_by_partition(ssps, sub.name, broadcast)
    if grouper in ("all_ssps_to_every_task", "AllSspsToEveryTask"):
        if has_state(sub):
            raise NotSupportedError(
                f"ssp_grouper {grouper!r}: sub-topology {sub.title!r} has state, and every task would count every record"
            )
        return all_ssps_to_every_task(ssps, config.containers_of(sub.name) or slots, sub.name)
    if isinstance(grouper, str):
        if grouper not in GROUPER_NAMES:
            raise ConfigError(f"ssp_grouper {grouper!r} is not known", f"known are: {', '.join(sorted(GROUPER_NAMES))}")
        grouper = GROUPER_NAMES[grouper]
    return tuple(grouper(ssps, sub.name, broadcast))


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


def _program(
    topology: Topology,
    sides: Mapping[str, Sides],
    sub: SubTopology,
    model: JobModel,
    config: Config,
    written: Mapping[str, int],
) -> Program:
    """What containers need. A sink that chooses its stream by a function may write to any stream that exists now."""
    outputs = {node.stream for node in sub.nodes if isinstance(node, (Repartition, Sink)) and isinstance(node.stream, str)}
    if any(not isinstance(sink.stream, str) for sink in sub.sinks):
        outputs = set(written)
    if config.dead_letter_stream is not None:
        outputs.add(config.dead_letter_stream)
    text = "\n".join([topology.application, str(model.version), sub.title, *(node.name for node in sub.nodes)])
    endpoints = endpoints_of(sub, topology)
    return Program(
        id=hashlib.sha256(text.encode()).hexdigest()[:16],
        application=topology.application,
        sub_topology=sub.name,
        nodes=sub.nodes,
        endpoints=endpoints,
        endpoint_sides=tuple(_endpoint_side(sub, endpoint, sides) for endpoint in endpoints),
        partition_counts={stream: written[stream] for stream in sorted(outputs)},
        dead_letter=config.dead_letter_stream,
        stateful=has_state(sub),
        key_serdes={node.name: sides[node.parents[0]][0] for node in sub.nodes if is_stateful(node)},
        gone_stores=gone_from(model.stores, sub.title),
        read_by_the_job=frozenset(source.stream for source in topology.sources),
    )


def _with_limits(
    topology: Topology, programs: Mapping[str | None, Program], system: System
) -> dict[str | None, Program]:
    """The programs, with what the streams that they write take."""
    limits = system.limits({stream for program in programs.values() for stream in program.partition_counts})
    for stream, found in sorted(limits.items()):
        if not found.keeps_times and _is_repartition(topology, stream):
            raise ConfigError(
                f"repartition stream {stream!r} does not keep the times of records, and what reads it goes by them",
                "on Kafka: set message.timestamp.type of that topic to CreateTime",
            )
    return {
        name: replace(program, limits={stream: limits[stream] for stream in program.partition_counts if stream in limits})
        for name, program in programs.items()
    }


def _endpoint_side(sub: SubTopology, endpoint: Endpoint, sides: Mapping[str, Sides]) -> EndpointSide:
    key, value = sides[endpoint.entry]
    return EndpointSide(
        key,
        value,
        any(isinstance(node, (SelectKey, Transform)) for node in endpoint.chain),
        any(isinstance(node, (MapValues, Transform)) for node in endpoint.chain),
        PARTS if endpoint.chain else parts_used(sub.nodes, endpoint),
    )
