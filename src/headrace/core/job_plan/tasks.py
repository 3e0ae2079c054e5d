"""The steps that make tasks and containers, refuse what takes state from its partitions, and make the job model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from headrace.core.affinity.groupers import containers_by
from headrace.core.affinity.members import TaskHistory, assigned
from headrace.core.elasticity.recut import recut
from headrace.core.elasticity.scales import decided
from headrace.core.job_plan.assignment import tasks_of
from headrace.core.job_plan.checkpoint_inheritance import check_tasks, left_of
from headrace.core.job_plan.containers import containers_of, kept_as_they_are, next_job_model
from headrace.core.job_plan.draft import Draft, PlanTerms
from headrace.core.job_plan.snapshot import Snapshot, WithPartitions
from headrace.core.job_plan.streams import partitioners_of
from headrace.core.rounds.partition_barrier import recorded
from headrace.core.topology.co_partitioning import check_co_partitioned
from headrace.core.topology.compatibility import remembered
from headrace.core.topology.partition_counts import unused_hints
from headrace.core.topology.partition_families import count_requests_of, upstream_of
from headrace.core.topology.partitioning import partitioned_otherwise
from headrace.core.topology.sub_topologies import SubTopology
from headrace.model.job_model import JobModel, SubTopologyModel
from headrace.model.streams import SSP


def scales(draft: Draft, snapshot: Snapshot) -> Draft:
    """Settle the scale of each sub-topology. Where an elasticity factor changes, the steps that follow see what is stored as if
    it had always been the new one."""
    decision = decided(draft.terms.scale_terms, snapshot.scales, snapshot.model, snapshot.checkpoints)
    draft = replace(draft, scaling=decision)
    if not decision.recuts:
        return draft
    stored, notes = recut(snapshot.stored, decision.recuts)
    return replace(draft, past=snapshot.with_stored(stored), applied=(*draft.applied, *notes))


def tasks(draft: Draft, snapshot: Snapshot) -> Draft:
    """Group partitions into tasks, cut these into virtual tasks, and put them into containers."""
    models, load = [], Counter[str]()
    for sub in draft.terms.subs:
        models.append(_sub_model(sub, draft, snapshot, load))
        for container in models[-1].containers:
            if container.processor_id is not None:
                load[container.processor_id] += len(container.tasks)
    return replace(draft, tasks=tuple(models))


def _sub_model(sub: SubTopology, draft: Draft, snapshot: Snapshot, load: Mapping[str, int]) -> SubTopologyModel:
    """`load`: how many tasks processors have of other sub-topologies."""
    terms, counts = draft.terms, draft.streams.counts
    ssps = [SSP(terms.system, stream, partition) for stream in sub.reads for partition in range(counts[stream])]
    chosen, factor = draft.scaling.containers_of(sub.title), draft.scaling.factor_of(sub.title)
    made = tasks_of(sub, ssps, draft.streams.assignment, terms.grouper(chosen or terms.slots), factor)
    members = terms.members(chosen)
    if not members:
        return SubTopologyModel(sub.name, containers_of(made, chosen or terms.slots), factor)
    is_new = snapshot.model is None or terms.forgets_locality
    before = [one for one in snapshot.model.sub_topologies if one.name == sub.name] if snapshot.model and not is_new else []
    if terms.task_name_grouper is not None:
        containers = before[0].containers if before else ()
        grouped = containers_by(terms.task_name_grouper, made, members, containers, sub.title)
        return SubTopologyModel(sub.name, grouped, factor)
    if terms.forgets_locality:
        return SubTopologyModel(sub.name, assigned(made, members, TaskHistory(load=load)), factor)
    heads = {task.name: one.head for task in made if (one := snapshot.checkpoints.get(task.name)) is not None}
    sizes = {name: sum(file.bytes for file in head.files) for name, head in heads.items() if head is not None}
    history = TaskHistory(before[0].containers if before else (), snapshot.last_locations, sizes, load)
    return SubTopologyModel(sub.name, assigned(made, members, history), factor)


def compatibility(draft: Draft, snapshot: Snapshot) -> Draft:
    """Refuse what keeps a key's records of several streams apart, or takes state from the partitions that it is of."""
    terms, by_users = draft.terms, partitioners_of(draft.terms.topology)
    for sub, model in zip(terms.subs, draft.tasks, strict=True):
        check_co_partitioned(sub, draft.streams.counts, model.tasks, by_users)
    check_tasks(draft.edit.carried, snapshot.checkpoints, draft.edit.forms, terms.subs, draft.tasks)
    return draft.saying(*unused_hints(count_requests_of(terms.subs).hints, draft.streams.counts))


def creations(draft: Draft, snapshot: Snapshot) -> Draft:
    """Settle which streams are to be created: repartition streams, and outputs."""
    counts = {**draft.streams.counts, **_output_counts(draft.terms, draft.streams.counts)}
    creates = {name: count for name, count in sorted(counts.items()) if name not in draft.streams.existing}
    return replace(draft, creates=creates, offsets=WithPartitions(draft.offsets, creates, frozenset(creates)))


def _output_counts(terms: PlanTerms, counts: Mapping[str, int]) -> dict[str, int]:
    """Partitions for output streams: as many as the largest stream has that their records come from."""
    outputs: dict[str, int] = {}
    for sub in terms.subs:
        upstream = upstream_of(sub)
        for sink in sub.sinks:
            if isinstance(sink.stream, str):
                largest = max(counts[stream] for stream in upstream[sink.name])
                outputs[sink.stream] = max(largest, outputs.get(sink.stream, 0))
    if terms.dead_letter_stream is not None:
        outputs.setdefault(terms.dead_letter_stream, 1)
    return {stream: count for stream, count in outputs.items() if stream not in counts}


def _in_group(draft: Draft, snapshot: Snapshot) -> tuple[SubTopologyModel, ...]:
    version = draft.terms.next_version
    assert version is not None, "a plan of a group has a number of its own"
    return kept_as_they_are(draft.tasks, snapshot.model, version)


def job_model(draft: Draft, snapshot: Snapshot) -> Draft:
    """Make the job model, and the records of the streams' partitions. Ids of streams to be created stay open."""
    terms, seen, edit = draft.terms, draft.streams, draft.edit
    otherwise = partitioned_otherwise(terms.topology)
    ids = {stream: seen.existing[stream].id if stream in seen.existing else "" for stream in seen.counts}
    model = JobModel(
        terms.application,
        1,
        _in_group(draft, snapshot) if terms.processors else draft.tasks,
        seen.counts,
        remembered(edit.carried, edit.forms),
        stream_ids=ids,
        left=left_of(snapshot.model, snapshot.checkpoints, seen.counts),
        partitioned_by_users=tuple(partitioners_of(terms.topology)),
        partitioned_otherwise=otherwise,
        databases=edit.databases,
        dropped={} if edit.carried is None else edit.carried.dropped,
    )
    model = next_job_model(snapshot.model, model, terms.next_version)
    records = recorded(snapshot.partition_records, seen.before, seen.counts, ids, otherwise, snapshot.now_us)
    return replace(draft, model=model, records=records)
