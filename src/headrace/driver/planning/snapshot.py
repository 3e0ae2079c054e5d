"""The streams of a job as a plan finds them: which there are, how many partitions they have, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.core.job_plan.assignment import Assignment, bases_of
from headrace.core.job_plan.partition_growth import Growth, changes_of
from headrace.core.topology.compatibility import check_same_streams
from headrace.core.topology.partition_counts import partition_counts_of
from headrace.core.topology.partition_families import feeds_of, meetings_of
from headrace.core.topology.partitioning import partitioned_otherwise
from headrace.core.topology.sub_topologies import SubTopology, has_state
from headrace.errors import HeadraceError, IncompatibleChangeError, StreamNotFoundError, hint_of_missing
from headrace.model.expansion import PartitionRecord
from headrace.model.job_model import JobModel
from headrace.model.topology import Function, Repartition, Topology
from headrace.ports import StreamDescription, System

HEARD_S = 5.0  # for this long a broker may not have heard of a change


@dataclass(frozen=True, slots=True)
class SeenStreams:
    """`found`: what there is. `existing`: what the plan uses: those of `refused`, whose change their readers cannot follow, as
    they were. `counts`: the partitions of every stream that is read, those too that are to be made; `before`: how many
    those had when they were last read. `recreated`: streams on record that are others now, under the same names. `grown`: what
    is followed."""

    found: Mapping[str, StreamDescription]
    existing: Mapping[str, StreamDescription]
    counts: Mapping[str, int]
    before: Mapping[str, int]
    recreated: frozenset[str]
    grown: tuple[Growth, ...]
    refused: Mapping[str, HeadraceError]


def seen_streams(
    topology: Topology,
    subs: tuple[SubTopology, ...],
    previous: JobModel | None,
    assignment: Assignment,
    on_record: Mapping[str, PartitionRecord],
    system: System,
    url: str,
    going_on: bool,
) -> SeenStreams:
    """Look, and compare with what the job model before was made from. `url` is the system's, for messages.

    Raises what no reader can follow, unless `going_on`: then the job runs, and only those that read it stop.
    """
    reads = {stream for sub in subs for stream in sub.reads}
    began_s = time.monotonic()
    while True:
        found = {stream.name: stream for stream in system.streams(of=topology.application)}
        before = _counts_before(previous, on_record, found, reads)
        fewer = [name for name, count in before.items() if found[name].partitions < count]
        # No system takes partitions away: one that reports fewer has not heard of the new ones yet.
        if not fewer or time.monotonic() - began_s > HEARD_S:
            break
        time.sleep(0.1)
    check_inputs(topology, found, url)
    by_users = _by_users_under_state(subs, partitioners_of(topology))
    otherwise, stateless = partitioned_otherwise(topology), reads - streams_under_state(subs)
    changes = changes_of(before, _partitions(found), otherwise, by_users, stateless=stateless, system=url)
    refused = {**_made_anew(previous, found), **changes.refused} if going_on else {}
    existing = found | {name: _as_it_was(previous, found[name]) for name in refused}
    recorded = {name: on_record[name].counts for name in before if name in on_record}
    counts = _counts(topology, subs, existing, recorded, assignment)
    _check_repartition_streams(topology, existing, system)
    check_same_streams(previous, {name: existing[name].id if name in existing else None for name in counts}, counts)
    for stream in changes.refused.keys() - refused.keys():
        raise changes.refused[stream]
    anew = {name for name, record in on_record.items() if name in existing and existing[name].id != record.stream_id}
    return SeenStreams(found, existing, counts, before, frozenset(anew), changes.grown, refused)


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
    """How many partitions those of `reads` had when they were last read; without those that were deleted or recreated."""
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
    return streams_under_state(subs).intersection(by_users)


def streams_under_state(subs: Iterable[SubTopology]) -> set[str]:
    """The streams that operators with state take."""
    return {stream for sub in subs if has_state(sub) for stream in sub.reads}


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
    counts = {stream: existing[stream].partitions for stream in external}
    meetings = meetings_of(subs)
    counts |= partition_counts_of(
        feeds_of(subs),
        {n.stream: n.partitions for n in repartitions if n.partitions is not None and not n.partitions_is_hint},
        counts,
        {stream: existing[stream].partitions for stream in internal if stream in existing},
        hints_of(topology),
        meetings.joined,
        recorded_counts,
        bases_of(assignment, recorded_counts),
        meetings.keyed,
        meetings.merged,
    )
    return counts


def partitioners_of(topology: Topology) -> dict[str, Function]:
    """The partitioners of users, by the repartition streams that have one."""
    nodes = [node for node in topology.nodes if isinstance(node, Repartition)]
    return {node.stream: node.partitioner for node in nodes if node.partitioner is not None}


def hints_of(topology: Topology) -> dict[str, int]:
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
            f"stream {node.stream!r} exists, but is not a repartition stream of application {topology.application!r}"
            + (f" (it belongs to {owner!r})" if owner else ""),
            "give the repartition another name, or delete that stream if it is not needed",
        )
