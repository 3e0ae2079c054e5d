"""What the containers of a sub-topology are given: its operators, serdes, and the streams that it writes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.config.loading import Config
from headrace.core.topology.emission import emission_of
from headrace.core.topology.engine_prefix import Endpoint, endpoints_of
from headrace.core.topology.record_parts import PARTS, parts_used
from headrace.core.topology.resolution import Sides
from headrace.core.topology.store_changes import emptied_databases, in_databases
from headrace.core.topology.sub_topologies import SubTopology, has_state, is_stateful
from headrace.errors import ConfigError
from headrace.exchange.messages import EndpointSide, Program
from headrace.model.job_model import JobModel
from headrace.model.startpoint import StartpointRecord
from headrace.model.topology import MapValues, Repartition, SelectKey, Sink, Source, SourceKind, Topology, Transform
from headrace.ports import System


def is_repartition(topology: Topology, stream: str) -> bool:
    return any(isinstance(node, Repartition) and node.stream == stream for node in topology.nodes)


def program_of(
    topology: Topology,
    sides: Mapping[str, Sides],
    sub: SubTopology,
    model: JobModel,
    config: Config,
    written: Mapping[str, int],
    owners: Mapping[str, str],
) -> Program:
    """What containers need. `owners`: of timers that are kept under a former name of their operator.

    A sink that chooses its stream by a function may write to any stream that exists now.
    """
    outputs = {node.stream for node in sub.nodes if isinstance(node, (Repartition, Sink)) and isinstance(node.stream, str)}
    if any(not isinstance(sink.stream, str) for sink in sub.sinks):
        outputs = set(written)
    if config.dead_letter_stream is not None:
        outputs.add(config.dead_letter_stream)
    far_us = round(config.event_time_warning_s * 1_000_000)
    units = [f"{node.timestamp_unit} {far_us}" for node in sub.nodes if isinstance(node, Source) and node.timestamp is not None]
    text = "\n".join([topology.application, str(model.version), sub.title, *(node.name for node in sub.nodes), *units])
    endpoints = endpoints_of(sub, topology)
    return Program(
        id=hashlib.sha256(text.encode()).hexdigest()[:16],
        application=topology.application,
        sub_topology=sub.name,
        nodes=tuple(in_databases(node, model.databases) for node in sub.nodes),
        endpoints=endpoints,
        endpoint_sides=tuple(_endpoint_side(sub, endpoint, sides) for endpoint in endpoints),
        partition_counts={stream: written[stream] for stream in sorted(outputs)},
        dead_letter=config.dead_letter_stream,
        stateful=has_state(sub),
        key_serdes={node.name: sides[node.parents[0]][0] for node in sub.nodes if is_stateful(node)},
        removed_stores=emptied_databases(model, sub.title),
        read_by_the_job=frozenset(source.stream for source in topology.sources),
        emission=emission_of(topology.nodes),
        timer_owners={node.name: owners[node.name] for node in sub.nodes if node.name in owners},
        far_us=far_us,
    )


def with_limits(
    topology: Topology, programs: Mapping[str | None, Program], system: System
) -> dict[str | None, Program]:
    """The programs, with what the streams that they write take."""
    limits = system.limits({stream for program in programs.values() for stream in program.partition_counts})
    for stream, found in sorted(limits.items()):
        if not found.keeps_times and is_repartition(topology, stream):
            raise ConfigError(
                f"repartition stream {stream!r} does not keep the timestamps of records, which its readers need",
                "on Kafka: set message.timestamp.type of that topic to CreateTime",
            )
    return {
        name: replace(program, limits={stream: limits[stream] for stream in program.partition_counts if stream in limits})
        for name, program in programs.items()
    }


def seeing_replays(
    programs: Mapping[str | None, Program], startpoints: Iterable[StartpointRecord]
) -> dict[str | None, Program]:
    """The programs; where any of `startpoints` began a replay, records of repartition streams may say that they were written
    in one, so that their headers are looked at."""
    if not any(record.replay for record in startpoints):
        return dict(programs)
    return {name: _seeing_replays(program) for name, program in programs.items()}


def _seeing_replays(program: Program) -> Program:
    kinds = {node.name: node.kind for node in program.nodes if isinstance(node, Source)}
    numbers = {i for i, one in enumerate(program.endpoints) if kinds[one.source] is SourceKind.REPARTITION}
    if not numbers:
        return program
    sides = tuple(
        replace(side, parts=side.parts | {"headers"}) if i in numbers else side
        for i, side in enumerate(program.endpoint_sides)
    )
    # Workers know programs by their ids.
    return replace(program, id=f"{program.id}-replays", endpoint_sides=sides, marked_endpoints=frozenset(numbers))


def _endpoint_side(sub: SubTopology, endpoint: Endpoint, sides: Mapping[str, Sides]) -> EndpointSide:
    key, value = sides[endpoint.entry]
    return EndpointSide(
        key,
        value,
        any(isinstance(node, (SelectKey, Transform)) for node in endpoint.chain),
        any(isinstance(node, (MapValues, Transform)) for node in endpoint.chain),
        PARTS if endpoint.chain else parts_used(sub.nodes, endpoint),
    )
