"""The step that looks at the streams: which there are, how many partitions they have, and what became of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from headrace.core.job_plan.assignment import Assignment, as_first_shared_out, assignment_of, bases_of
from headrace.core.job_plan.draft import Draft, PlanTerms, SeenStreams
from headrace.core.job_plan.growth_rules import changes_of
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.topology.compatibility import check_same_partitioning, check_same_streams
from headrace.core.topology.partition_counts import partition_counts_of
from headrace.core.topology.partition_families import count_requests_of
from headrace.core.topology.partitioning import partitioned_otherwise
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.errors import HeadraceError, IncompatibleChangeError, StreamNotFoundError, hint_of_missing
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel
from headrace.model.streams import StreamDescription
from headrace.model.topology import Function, Topology


def streams(draft: Draft, snapshot: Snapshot) -> Draft:
    """Compare the streams with what the job model before was made from, and settle how many partitions each is read with.

    Raises what no reader can follow; under `is_replan` the job runs, and only those that read it stop.
    """
    terms, previous, found = draft.terms, snapshot.model, snapshot.streams
    assignment = _known_assignment(terms, snapshot)
    before = counts_before(previous, snapshot.partition_records, found, terms.reads)
    check_inputs(terms.topology, found, terms.url)
    under_state = streams_under_state(terms.subs)
    by_users = under_state.intersection(partitioners_of(terms.topology))
    otherwise, stateless = partitioned_otherwise(terms.topology), terms.reads - under_state
    changes = changes_of(before, _partitions(found), otherwise, by_users, stateless=stateless, system=terms.url)
    refused = dict(terms.refused_streams)
    if terms.is_replan:
        refused |= {**_recreated_inputs(previous, found), **changes.refused}
    existing = {**found, **{name: _as_it_was(previous, found[name]) for name in refused}}
    recorded = {name: snapshot.partition_records[name].counts for name in before if name in snapshot.partition_records}
    counts = _counts(terms.topology, terms.subs, existing, recorded, assignment)
    _check_repartition_streams(terms.topology, existing)
    check_same_streams(previous, {name: existing[name].id if name in existing else None for name in counts}, counts)
    for stream in changes.refused.keys() - refused.keys():
        raise changes.refused[stream]
    check_same_partitioning(previous, partitioners_of(terms.topology), under_state)
    on_record = snapshot.partition_records.items()
    recreated = frozenset(name for name, one in on_record if name in existing and existing[name].id != one.stream_id)
    assignment = {ssp: names for ssp, names in assignment.items() if ssp.stream not in recreated}
    grown = tuple(one for one in changes.grown if one.stream not in refused)
    seen = SeenStreams(existing, counts, before, recreated, grown, refused, assignment)
    grew = (one.warning or f"stream {one.stream!r} grew from {one.before} to {one.after} partitions" for one in grown)
    return replace(draft.saying(*grew), streams=seen)


def changed_streams(terms: PlanTerms, snapshot: Snapshot) -> frozenset[str]:
    """The streams that are read and are others than in the last plan: with more partitions, or recreated."""
    before = counts_before(snapshot.model, snapshot.partition_records, snapshot.streams, terms.reads)
    grown = {name for name, count in before.items() if snapshot.streams[name].partitions != count}
    return frozenset(grown | _recreated_inputs(snapshot.model, snapshot.streams).keys()) & terms.reads


def _known_assignment(terms: PlanTerms, snapshot: Snapshot) -> Assignment:
    """The stored assignment; of a job model that was stored without one, its own. Under state as streams were first."""
    stored = snapshot.assignment
    assignment = stored if stored or snapshot.model is None else assignment_of(snapshot.model)
    kept, records = streams_under_state(terms.subs), snapshot.partition_records.items()
    grown = {stream: one.counts[0] for stream, one in records if stream in kept and one.expansions}
    return as_first_shared_out(assignment, grown)


def check_inputs(topology: Topology, existing: Iterable[str], system: str) -> None:
    """`StreamNotFoundError` for a stream that the job reads and does not make itself, and that is not there."""
    names = sorted(existing)
    missing = [stream for stream in topology.inputs if stream not in names]
    if missing:
        first, named = missing[0], ", ".join(map(repr, missing))
        hint = hint_of_missing(first, names, f"create it first: headrace stream create {first} --system {system}")
        raise StreamNotFoundError(f"input stream {named} does not exist on {system}", hint)


def _partitions(streams: Mapping[str, StreamDescription]) -> dict[str, int]:
    return {name: stream.partitions for name, stream in streams.items()}


def counts_before(
    previous: JobModel | None,
    on_record: Mapping[str, PartitionRecord],
    found: Mapping[str, StreamDescription],
    reads: Collection[str],
) -> dict[str, int]:
    """How many partitions those of `reads` had when they were last read; without those that were deleted or
    recreated."""
    there = {name: record for name, record in on_record.items() if name in found and found[name].id == record.stream_id}
    counts = {name: record.partitions for name, record in there.items()}
    if previous is not None:
        same = {name for name, id_ in previous.stream_ids.items() if name in found and found[name].id == id_}
        counts |= {name: count for name, count in previous.partition_counts.items() if name in same}
    return {name: count for name, count in counts.items() if name in reads}


def _recreated_inputs(previous: JobModel | None, found: Mapping[str, StreamDescription]) -> dict[str, HeadraceError]:
    """Of the streams that were read those that are others now, with the error for it."""
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


def streams_under_state(subs: Iterable[SubTopology]) -> set[str]:
    """The streams that operators with state take."""
    return {stream for sub in subs if has_state(sub) for stream in sub.reads}


def _counts(
    topology: Topology,
    subs: tuple[SubTopology, ...],
    existing: Mapping[str, StreamDescription],
    recorded: Mapping[str, tuple[int, ...]],
    assignment: Assignment,
) -> dict[str, int]:
    counts = {stream: existing[stream].partitions for stream in topology.inputs}
    made = {node.stream: existing[node.stream].partitions for node in topology.repartitions if node.stream in existing}
    bases = bases_of(assignment, recorded)
    return counts | partition_counts_of(count_requests_of(subs), counts, made, recorded, bases)


def partitioners_of(topology: Topology) -> dict[str, Function]:
    """The partitioners of users, by the repartition streams that have one."""
    return {node.stream: node.partitioner for node in topology.repartitions if node.partitioner is not None}


def _check_repartition_streams(topology: Topology, existing: Mapping[str, StreamDescription]) -> None:
    for node in topology.repartitions:
        owner = existing[node.stream].internal_of if node.stream in existing else topology.application
        if owner == topology.application:
            continue
        raise IncompatibleChangeError(
            f"stream {node.stream!r} exists, but is not a repartition stream of application {topology.application!r}"
            + (f" (it belongs to {owner!r})" if owner else ""),
            "give the repartition another name, or delete that stream if it is not needed",
        )
