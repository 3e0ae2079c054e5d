"""Owns the start of a job: from a topology and what is stored to a plan that rounds can be run on.

The order matters (protocol.md, "Start"): hold the application first; then read; check everything that can be refused;
create streams; resolve starts; commit the plan in one transaction. Nothing is consumed before that.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from headrace.config import Config
from headrace.core.compatibility import check_compatible, notes, remembered, store_forms
from headrace.core.containers import containers_of, job_model_of
from headrace.core.groupers import GROUPERS, all_ssps_to_every_task, group_by_partition, group_by_system_stream_partition
from headrace.core.partition_counts import partition_counts_of
from headrace.core.prefix import Endpoint, endpoints_of
from headrace.core.resolution import Sides
from headrace.core.sub_topologies import SubTopology, has_state, is_stateful, sub_topologies_of
from headrace.errors import ConfigError, IncompatibleChangeError, NotSupportedError, StreamNotFoundError
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.job_model import JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP, SystemStream
from headrace.model.tasks import TaskName
from headrace.model.topology import MapValues, Repartition, SelectKey, Sink, Source, SourceKind, Topology, Transform
from headrace.runtime.plan import EndpointSide, Program
from headrace.runtime.steps import reached

STREAM_IDS = "stream-ids"  # namespace of the metadata store: application to the ids of the streams it reads

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
    system: Any,
    store: Any,
    epoch: int,
    slots: int,
    log: Callable[[str], None],
) -> JobPlan:
    """Plan the job and commit the plan; raises what cannot go on, having changed nothing that is stored."""
    subs = sub_topologies_of(topology)
    reached("start", 5)  # nothing to do: on the embedded log the new epoch itself fences every lane
    reached("start", 6)
    previous: JobModel | None = store.job_model()
    stored: dict[TaskName, Checkpoint] = store.checkpoints()
    forms = store_forms(topology)
    check_compatible(previous, forms)
    existing = {stream.name: stream for stream in system.streams()}
    counts = _checked_counts(topology, subs, existing, previous)
    _check_repartition_streams(topology, existing)
    _check_same_streams(system, topology.application, existing, counts, previous)
    models = [_sub_model(sub, config, system.name, counts, slots) for sub in subs]
    model = job_model_of(previous, topology.application, models, counts, remembered(previous, forms))
    config.check_sub_topologies(sub.title for sub in subs)
    for stream, count in sorted((counts | _output_counts(subs, counts, config.dead_letter_stream)).items()):
        if stream not in existing:
            internal = topology.application if _is_repartition(topology, stream) else None
            system.create_stream(stream, count, internal_of=internal)
            log(f"created {'repartition ' if internal else ''}stream {stream} with {count} partitions")
    reached("start", 7)
    checkpoints = _resolved(topology, subs, model, stored, system, epoch)
    reached("start", 8)
    store.commit_job_model(epoch, model, tuple(checkpoints.values()))
    reached("start", 10)
    written = {stream.name: stream.partitions for stream in system.streams()}
    programs = {sub.name: _program(topology, sides, sub, model, config, written) for sub in subs}
    return JobPlan(topology, model, subs, programs, epoch, checkpoints, tuple(notes(previous, forms)))


def _is_repartition(topology: Topology, stream: str) -> bool:
    return any(isinstance(node, Repartition) and node.stream == stream for node in topology.nodes)


def _checked_counts(
    topology: Topology, subs: tuple[SubTopology, ...], existing: Mapping[str, Any], previous: JobModel | None
) -> dict[str, int]:
    """The number of partitions of every stream that the job reads; unknown inputs and grown ones are refused."""
    repartitions = [node for node in topology.nodes if isinstance(node, Repartition)]
    internal = {node.stream for node in repartitions}
    external = {source.stream for source in topology.sources if source.stream not in internal}
    for stream in sorted(external):
        if stream not in existing:
            near = difflib.get_close_matches(stream, existing, 3)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "create it first"
            raise StreamNotFoundError(f"input stream {stream!r} does not exist", hint)
    feeds: dict[str, list[str]] = {stream: [] for stream in internal}
    for sub in subs:
        for stream in sub.writes:
            feeds[stream].extend(sub.reads)
    counts = {stream: existing[stream].partitions for stream in external}
    counts |= partition_counts_of(
        feeds,
        {n.stream: n.partitions for n in repartitions if n.partitions is not None and not n.partitions_is_hint},
        counts,
        {stream: existing[stream].partitions for stream in internal if stream in existing},
        {n.stream: n.partitions for n in repartitions if n.partitions is not None and n.partitions_is_hint},
    )
    for stream in sorted(external) if previous is not None else ():
        before = previous.partition_counts.get(stream) if previous is not None else None
        if before is not None and before != counts[stream] and any(has_state(sub) for sub in subs if stream in sub.reads):
            raise IncompatibleChangeError(
                f"input stream {stream!r} had {before} partitions and now has {counts[stream]}, and the job keeps state",
                "expansion under state comes with a later version; until then write to a stream with the former count",
            )
    return counts


def _check_repartition_streams(topology: Topology, existing: Mapping[str, Any]) -> None:
    for node in topology.nodes:
        if isinstance(node, Repartition) and node.stream in existing:
            owner = existing[node.stream].internal_of
            if owner != topology.application:
                raise IncompatibleChangeError(
                    f"stream {node.stream!r} exists, but is no repartition stream of application {topology.application!r}"
                    + (f" (it belongs to {owner!r})" if owner else ""),
                    "give the repartition another name, or delete that stream if nobody needs it",
                )


def _check_same_streams(
    system: Any, application: str, existing: Mapping[str, Any], counts: Mapping[str, int], previous: JobModel | None
) -> None:
    """Refuse an input that was deleted and made anew: positions and state are those of the stream that is gone."""
    stored = system.metadata.get(STREAM_IDS, application)
    known: dict[str, str] = msgspec.json.decode(stored) if stored is not None and previous is not None else {}
    now = {stream: existing[stream].id for stream in sorted(counts) if stream in existing}
    for stream, identity in now.items():
        if known.get(stream, identity) != identity:
            raise IncompatibleChangeError(
                f"input stream {stream!r} was deleted and made anew since application {application!r} last ran: its "
                "positions and state are of the stream that is gone",
                "run the application under another name, or in another folder, to begin with the new stream",
            )
    if known | now != known or stored is None:
        system.metadata.put(STREAM_IDS, application, msgspec.json.encode(known | now))


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


def _resolved(
    topology: Topology,
    subs: tuple[SubTopology, ...],
    model: JobModel,
    stored: Mapping[TaskName, Checkpoint],
    system: Any,
    epoch: int,
) -> dict[TaskName, Checkpoint]:
    """A checkpoint for every task: the stored one, with starts for SSPs that it does not know."""
    defaults: dict[SSP, int] = {}
    checkpoints: dict[TaskName, Checkpoint] = {}
    for sub in subs:
        sources = {source.stream: source for source in sub.sources}
        for task in model.sub_topology(sub.name).tasks:
            found = stored.get(task.name)
            fresh = {
                ssp: _start_of(sources[ssp.stream], ssp, system, defaults)
                for ssp in task.ssps
                if found is None or ssp not in found.positions or sources[ssp.stream].reset_offset
            }
            if found is None:
                checkpoints[task.name] = Checkpoint(task.name, RoundId(epoch, sub.name, 0), model.version, fresh)
            else:
                positions = {ssp: fresh.get(ssp, found.positions.get(ssp, 0)) for ssp in task.ssps}
                watermarks = {ssp: time for ssp, time in found.watermarks.items() if ssp in positions}
                checkpoints[task.name] = replace(
                    found, positions=positions, watermarks=watermarks, job_model_version=model.version
                )
    return checkpoints


def _start_of(source: Source, ssp: SSP, system: Any, known: dict[SSP, int]) -> int:
    """The first position of an SSP that has none, from its source's `start`; resolved once."""
    if ssp in known:
        return known[ssp]
    start: Any = "earliest" if source.kind is SourceKind.REPARTITION else source.start
    if start == "earliest":
        offsets = system.beginning_offsets(ssp.stream)
    elif start == "latest":
        offsets = system.end_offsets(ssp.stream)
    elif isinstance(start, int):
        low, high = system.beginning_offsets(ssp.stream), system.end_offsets(ssp.stream)
        offsets = {p: min(max(start, low[p]), high[p]) for p in low}
    else:
        offsets = system.offsets_for_time(ssp.stream, start.position)
    for partition, offset in offsets.items():
        known[SSP(ssp.system, ssp.stream, partition)] = offset
    return known[ssp]


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
        endpoint_sides=tuple(_endpoint_side(endpoint, sides) for endpoint in endpoints),
        partition_counts={stream: written[stream] for stream in sorted(outputs)},
        dead_letter=config.dead_letter_stream,
        stateful=has_state(sub),
        key_serdes={node.name: sides[node.parents[0]][0] for node in sub.nodes if is_stateful(node)},
    )


def _endpoint_side(endpoint: Endpoint, sides: Mapping[str, Sides]) -> EndpointSide:
    key, value = sides[endpoint.entry]
    return EndpointSide(
        key,
        value,
        any(isinstance(node, (SelectKey, Transform)) for node in endpoint.chain),
        any(isinstance(node, (MapValues, Transform)) for node in endpoint.chain),
    )
