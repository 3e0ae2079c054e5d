"""The steps that make tasks and containers, refuse what takes state from its partitions, and make the job model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.core.affinity.groupers import containers_by
from headrace.core.affinity.lived import with_store
from headrace.core.affinity.members import TaskHistory, TasksToAssign, assigned_together
from headrace.core.elasticity.recut import recut
from headrace.core.elasticity.scales import decided
from headrace.core.group.grants import processor_of
from headrace.core.job_plan.assignment import tasks_of
from headrace.core.job_plan.checkpoint_inheritance import check_tasks, left_of
from headrace.core.job_plan.containers import containers_of, next_job_model
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
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import EverySspGroup


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
    terms, scaling = draft.terms, draft.scaling
    wanted = [scaling.containers_of(sub.title) for sub in terms.subs]
    made = [_tasks_of(sub, draft, count, snapshot) for sub, count in zip(terms.subs, wanted, strict=True)]
    containers: Sequence[tuple[ContainerModel, ...]]
    if terms.has_members:
        pairs = zip(terms.subs, made, wanted, strict=True)
        containers = _assigned(
            [TasksToAssign(own, terms.members(count), _history(sub, own, terms, snapshot)) for sub, own, count in pairs], terms
        )
    else:
        containers = [containers_of(own, count or terms.slots) for own, count in zip(made, wanted, strict=True)]
    models = zip(terms.subs, containers, strict=True)
    return replace(
        draft, tasks=tuple(SubTopologyModel(sub.name, own, scaling.factor_of(sub.title)) for sub, own in models)
    )


def _assigned(subs: Sequence[TasksToAssign], terms: PlanTerms) -> Sequence[tuple[ContainerModel, ...]]:
    grouper = terms.task_name_grouper
    if grouper is None:
        return assigned_together(subs)
    return [
        containers_by(grouper, own.tasks, own.processors, own.history.containers, sub.title)
        for sub, own in zip(terms.subs, subs, strict=True)
    ]


def _tasks_of(sub: SubTopology, draft: Draft, wanted: int | None, snapshot: Snapshot) -> tuple[TaskModel, ...]:
    """`wanted`: how many containers the sub-topology is to have; None for as many as there are slots."""
    terms, counts = draft.terms, draft.streams.counts
    ssps = [SSP(terms.system, stream, partition) for stream in sub.reads for partition in range(counts[stream])]
    factor, containers = draft.scaling.factor_of(sub.title), wanted or _slots(sub, terms, snapshot)
    return tasks_of(sub, ssps, draft.streams.assignment, terms.grouper(containers), factor)


def _slots(sub: SubTopology, terms: PlanTerms, snapshot: Snapshot) -> int:
    """How many there are. Processors of a group and hosts of a cluster come and go: tasks that each read everything are as many
    as the slots of all were at the first plan. One that went would take its positions with it."""
    if not terms.has_members:
        return terms.slots
    before = [task for container in _containers_before(sub, snapshot) for task in container.tasks]
    return sum(isinstance(task.name.group, EverySspGroup) for task in before) or len(terms.members(None))


def _containers_before(sub: SubTopology, snapshot: Snapshot) -> tuple[ContainerModel, ...]:
    stored = () if snapshot.model is None else snapshot.model.sub_topologies
    return next((one.containers for one in stored if one.name == sub.name), ())


def _history(sub: SubTopology, tasks: Sequence[TaskModel], terms: PlanTerms, snapshot: Snapshot) -> TaskHistory:
    if terms.forgets_locality:
        return TaskHistory()
    heads = {task.name: one.head for task in tasks if (one := snapshot.checkpoints.get(task.name)) is not None}
    sizes = {name: sum(file.bytes for file in head.files) for name, head in heads.items() if head is not None}
    former = with_store(snapshot.locality.former, snapshot.now_us, terms.store_retention_us)
    return TaskHistory(_containers_before(sub, snapshot), snapshot.locality.get_locality(), sizes, former)


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


def kept_as_they_are(
    subs: Sequence[SubTopologyModel], previous: JobModel | None, version: int
) -> tuple[SubTopologyModel, ...]:
    """`subs`, where each container that is as it was is so since the same version; the others are since `version`. For
    standalone groups: a new plan writes nothing of what it leaves alone. Of a processor that loses none of its tasks a
    container that gets more is as it was: it works on meanwhile (`core.group.grants.changes_of`)."""
    before = _by_lane(previous.sub_topologies) if previous else {}
    now = _by_lane(subs)
    losing = {processor_of(one) for place, one in before.items() if not _extends(now.get(place), one)}

    def stamped(name: str | None, container: ContainerModel) -> ContainerModel:
        then = before.get((name, container.lane))
        is_same = then is not None and replace(then, since=None) == container
        works_on = then is not None and _extends(container, then) and processor_of(container) not in losing
        if then is None or not (is_same or works_on):
            return replace(container, since=version)
        assert previous is not None
        return replace(container, since=then.since or previous.version)

    return tuple(replace(sub, containers=tuple(stamped(sub.name, one) for one in sub.containers)) for sub in subs)


def _by_lane(subs: Sequence[SubTopologyModel]) -> dict[tuple[str | None, int], ContainerModel]:
    return {(sub.name, one.lane): one for sub in subs for one in sub.containers}


def _extends(now: ContainerModel | None, then: ContainerModel) -> bool:
    """Whether the same processor has all its tasks in the container, as they were."""
    return now is not None and replace(then, tasks=now.tasks, since=now.since) == now and set(then.tasks) <= set(now.tasks)
