"""The step that makes what the containers of a sub-topology are given: operators, serdes, the streams that they write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.core.job_plan.draft import Draft, PlanTerms
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.topology.emission import emission_of
from headrace.core.topology.engine_prefix import PARTS, Endpoint, endpoints_of, parts_used
from headrace.core.topology.keyed_behind import keyed_behind
from headrace.core.topology.operator_changes import RunOperator, timer_owners
from headrace.core.topology.program import EndpointSide, Program
from headrace.core.topology.resolution import Sides
from headrace.core.topology.store_changes import emptied_databases, in_databases
from headrace.core.topology.sub_topologies import SubTopology, has_state, is_stateful
from headrace.errors import StreamNotFoundError
from headrace.model.job_model import JobModel
from headrace.model.stream_operators import SetHeaders
from headrace.model.topology import MapValues, Process, Repartition, SelectKey, Sink, Source, SourceKind, Transform


def programs(draft: Draft, snapshot: Snapshot) -> Draft:
    """Make what the containers of each sub-topology are given. Not of a topology whose types only Spark can tell: a dry run.

    Where any startpoint began a replay, records of repartition streams may say that they were written in one, so that their
    headers are looked at.
    """
    terms = draft.terms
    if terms.sides is None:
        return draft
    written = {**{name: stream.partitions for name, stream in draft.streams.existing.items()}, **draft.creates}
    has_replay = any(record.replay for record in draft.startpoints.values())
    return replace(draft, programs=programs_of(terms, terms.sides, draft.job_model, written, draft.edit.operators, has_replay))


def programs_of(
    terms: PlanTerms,
    sides: Mapping[str, Sides],
    model: JobModel,
    written: Mapping[str, int],
    operators: Iterable[RunOperator],
    has_replay: bool,
) -> dict[str | None, Program]:
    """What the containers of each sub-topology are given under `model`. `written`: the partition counts of all streams that may
    be written to; `operators`: those of the plan; `has_replay`: whether a startpoint on record began a replay."""
    owners = timer_owners(operators)
    made = {sub.name: _program_of(sub, terms, sides, model, written, owners) for sub in terms.subs}
    return {name: _seeing_replays(program) for name, program in made.items()} if has_replay else made


def _program_of(
    sub: SubTopology,
    terms: PlanTerms,
    sides: Mapping[str, Sides],
    model: JobModel,
    written: Mapping[str, int],
    owners: Mapping[str, str],
) -> Program:
    """What containers need. `owners`: of timers that are kept under a former name of their operator.

    A sink that chooses its stream by a function may write to any stream that exists now.
    """
    topology, dead_letter, far_us = terms.topology, terms.dead_letter_stream, terms.far_us
    outputs = {node.stream for node in sub.nodes if isinstance(node, (Repartition, Sink)) and isinstance(node.stream, str)}
    if any(not isinstance(sink.stream, str) for sink in sub.sinks):
        outputs = set(written)
    if dead_letter is not None:
        outputs.add(dead_letter)
    if missing := sorted(outputs - written.keys()):
        raise StreamNotFoundError(
            f"sub-topology {sub.title}: stream {', '.join(map(repr, missing))}, to which it writes, does not exist",
            "it was deleted since the job was planned: the next plan creates it again; records that were in it are lost",
        )
    units = [f"{node.timestamp_unit} {far_us}" for node in sub.nodes if isinstance(node, Source) and node.timestamp is not None]
    text = "\n".join([topology.application, str(model.version), sub.title, *(node.name for node in sub.nodes), *units])
    endpoints, is_elastic = endpoints_of(sub, topology), any(task.name.bucket for task in model.sub_topology(sub.name).tasks)
    return Program(
        id=hashlib.sha256(text.encode()).hexdigest()[:16],
        application=topology.application,
        sub_topology=sub.name,
        nodes=tuple(in_databases(node, model.databases) for node in sub.nodes),
        endpoints=endpoints,
        endpoint_sides=tuple(_endpoint_side(sub, endpoint, sides, is_elastic) for endpoint in endpoints),
        partition_counts={stream: written[stream] for stream in sorted(outputs)},
        dead_letter=dead_letter,
        stateful=has_state(sub),
        key_serdes={n.name: sides[n.parents[0]][0] for n in sub.nodes if is_stateful(n) or isinstance(n, Process)},
        removed_stores=emptied_databases(model, sub.title),
        read_by_the_job=frozenset(source.stream for source in topology.sources),
        emission=emission_of(topology.nodes),
        timer_owners={node.name: owners[node.name] for node in sub.nodes if node.name in owners},
        far_us=far_us,
        is_elastic=is_elastic,
        keyed_behind=keyed_behind(sub.nodes),
    )


def _seeing_replays(program: Program) -> Program:
    kinds = {node.name: node.kind for node in program.nodes if isinstance(node, Source)}
    numbers = {i for i, one in enumerate(program.endpoints) if kinds[one.source] is SourceKind.REPARTITION}
    if not numbers:
        return program
    sides = tuple(
        replace(side, parts=side.parts | {"headers"}) if i in numbers else side for i, side in enumerate(program.endpoint_sides)
    )
    # Workers know programs by their ids.
    return replace(program, id=f"{program.id}-replays", endpoint_sides=sides, marked_endpoints=frozenset(numbers))


def _endpoint_side(sub: SubTopology, endpoint: Endpoint, sides: Mapping[str, Sides], is_elastic: bool) -> EndpointSide:
    key, value = sides[endpoint.entry]
    parts = PARTS if endpoint.chain else parts_used(sub.nodes, endpoint)
    return EndpointSide(
        key,
        value,
        any(isinstance(node, (SelectKey, Transform)) for node in endpoint.chain),
        any(isinstance(node, (MapValues, Transform)) for node in endpoint.chain),
        parts | {"key"} if is_elastic else parts,
        any(isinstance(node, (SetHeaders, Transform)) for node in endpoint.chain),
    )
