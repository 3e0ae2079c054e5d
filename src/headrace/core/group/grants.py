"""Who may commit in a standalone group: grants, and which of them a change of the plan takes back.

A *grant* is the right of one incarnation of a processor to commit in its containers. Its number is of the counter of the
epochs, so that the round ids of all processors and drivers differ for ever. A processor gets a new one whenever its portion of
the plan changes, and when it registers again. One that a plan gives more tasks, and takes none from, commits under its former
number until it begins under the new one: its tasks do not wait for the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.core.affinity.members import SLOT, Member, process_of
from headrace.core.group.proposals import changed_processors
from headrace.core.group.state import ModelOrigin
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import ContainerModel, JobModel, SubTopologyModel, TaskModel
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class Grant:
    """See the module. `incarnation`: who has it, see `core.group.state.incarnation_of`. `former`: the number under which the
    processor may commit as well, as it had all of what that covers before; 0: none."""

    number: int
    incarnation: str
    former: int = 0

    def widens(self, other: Grant | None) -> bool:
        """Whether its processor may work on under that one, until it begins under this."""
        return other is not None and other.number == self.former


Grants = Mapping[str, Grant]
"""By processor id."""


def numbers_in_force(grants: Grants) -> frozenset[int]:
    """Those under which may be committed."""
    return frozenset(number for grant in grants.values() for number in (grant.number, grant.former) if number)


@dataclass(frozen=True, slots=True)
class InForce:
    """Who may commit, as the broker has it: the coordinator's epoch and, in a group, the numbers of the grants. None:
    there is one driver, and its epoch alone counts.

    >>> InForce(7).allows(7), InForce(7, frozenset({5, 6})).allows(7), InForce(7, frozenset({5, 6})).allows(5)
    (True, False, True)
    """

    epoch: int
    grants: frozenset[int] | None = None

    def allows(self, number: int) -> bool:
        """Whether rounds under this epoch, or grant, may commit."""
        return number == self.epoch if self.grants is None else number in self.grants


@dataclass(frozen=True, slots=True)
class GroupShape:
    """What a plan of a group is made for: the slots of its processors, and the number that the plan has. `forgets`: tasks need
    not stay where they were."""

    processors: tuple[Member, ...]
    version: int
    forgets: bool = False


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The tasks whose checkpoints and positions a plan writes, the grants that come into force with it, and what it is made
    for."""

    tasks: frozenset[TaskName]
    grants: Grants
    origin: ModelOrigin


def processor_slots(processor_id: str, location_id: str | None, slots: int) -> tuple[Member, ...]:
    """What containers are assigned to: the first slot has the id of the processor itself.

    >>> [one.id for one in processor_slots("p", "host-1", 3)]
    ['p', 'p#1', 'p#2']
    """
    ids = (processor_id if number == 0 else f"{processor_id}{SLOT}{number}" for number in range(slots))
    return tuple(Member(id_, location_id) for id_ in ids)


def processor_of(container: ContainerModel) -> str | None:
    """The id of the processor that runs a container; None under a job model that was not made for a group."""
    return None if container.processor_id is None else process_of(container.processor_id)


def holders_of(model: JobModel) -> frozenset[str]:
    """The ids of the processors that have tasks."""
    found = (processor_of(one) for sub in model.sub_topologies for one in sub.containers)
    return frozenset(id_ for id_ in found if id_ is not None)


def members_in(model: JobModel, processors: Collection[str]) -> list[Member]:
    """The slots of these processors, as a job model has them."""
    containers = [one for sub in model.sub_topologies for one in sub.containers if processor_of(one) in processors]
    found = {one.processor_id: one.location_id for one in containers if one.processor_id is not None}
    return [Member(id_, location) for id_, location in sorted(found.items())]


def lanes_of(model: JobModel, processors: Collection[str]) -> dict[str, frozenset[int]]:
    """The lanes of these processors, by the titles of sub-topologies."""
    return {
        sub.title: frozenset(one.lane for one in sub.containers if processor_of(one) in processors)
        for sub in model.sub_topologies
    }


def processor_tasks(model: JobModel, processors: Collection[str]) -> frozenset[TaskName]:
    """The tasks that these processors have."""
    containers = (one for sub in model.sub_topologies for one in sub.containers if processor_of(one) in processors)
    return frozenset(task.name for container in containers for task in container.tasks)


def portion_of(model: JobModel, processor_id: str) -> JobModel:
    """The job model with the containers of one processor alone."""
    subs = model.sub_topologies
    own = [tuple(one for one in sub.containers if processor_of(one) == processor_id) for sub in subs]
    return replace(model, sub_topologies=tuple(replace(sub, containers=mine) for sub, mine in zip(subs, own, strict=True)))


@dataclass(frozen=True, slots=True)
class ContainerPortion:
    """What the work of one container depends on. `shared`: those of its partitions that other containers read as well."""

    title: str
    lane: int
    tasks: tuple[TaskModel, ...]
    location_id: str | None
    shared: frozenset[SSP]

    def extends(self, before: ContainerPortion, written: Collection[TaskName]) -> bool:
        """Whether it is `before` with more tasks, and what these read no other of its tasks did: a container has one position
        in each partition. Of the tasks of before nothing is `written`."""
        stays = set(before.tasks)
        kept, came = _read(before.tasks), _read(task for task in self.tasks if task not in stays)
        return (
            stays <= set(self.tasks)
            and self.location_id == before.location_id
            and self.shared & kept == before.shared
            and kept.isdisjoint(came)
            and not any(task.name in written for task in before.tasks)
        )


@dataclass(frozen=True, slots=True)
class ProcessorPortion:
    """All of a plan that the work of one processor depends on. `common`: what is the same for all."""

    common: object
    containers: tuple[ContainerPortion, ...]


def processor_portions(model: JobModel | None, startpoints: Collection[str]) -> dict[str, ProcessorPortion]:
    """The portion of each processor that has containers, by its id. `startpoints`: ids of those in force."""
    if model is None:
        return {}
    common = _common(model, startpoints)
    own: dict[str, list[ContainerPortion]] = {}
    for sub in model.sub_topologies:
        shared = _shared(sub)
        for container in sub.containers:
            id_ = processor_of(container)
            if id_ is not None:
                read = _read(container.tasks)
                mine = ContainerPortion(sub.title, container.lane, container.tasks, container.location_id, read & shared)
                own.setdefault(id_, []).append(mine)
    return {id_: ProcessorPortion(common, tuple(mine)) for id_, mine in own.items()}


def _read(tasks: Iterable[TaskModel]) -> frozenset[SSP]:
    return frozenset(ssp for task in tasks for ssp in task.partitions)


def _common(model: JobModel, startpoints: Collection[str]) -> object:
    """What counts for all processors; two are equal where a plan has changed nothing but who runs what."""
    subs = tuple(
        (sub.title, sub.elasticity_factor, frozenset((task.name, task.partitions, task.broadcast) for task in sub.tasks))
        for sub in model.sub_topologies
    )
    named = (model.partition_counts, model.stores, model.stream_ids, model.databases, model.dropped)
    lists = (model.left, model.partitioned_by_users, model.partitioned_otherwise)
    return subs, tuple(tuple(sorted(one.items())) for one in named), lists, frozenset(startpoints)


def _shared(sub: SubTopologyModel) -> frozenset[SSP]:
    """The partitions that several containers read: their positions are in groups of their own (protocol.md 10)."""
    reads = (_read(one.tasks) for one in sub.containers)
    return frozenset(ssp for ssp, count in Counter(ssp for read in reads for ssp in read).items() if count > 1)


def changes_of(
    before: Mapping[str, ProcessorPortion],
    after: Mapping[str, ProcessorPortion],
    model: JobModel,
    stored: Mapping[TaskName, Checkpoint],
    planned: Mapping[TaskName, Checkpoint],
) -> tuple[frozenset[str], frozenset[str]]:
    """The processors that a plan changes, of both plans: those with other portions, and those of whose tasks it writes
    checkpoints. And those among them that it only gives tasks, which read none of the partitions that their containers read
    before: nothing else that their work depends on changes, and of what they had nothing is written. `model` is the new plan's;
    `stored`: the checkpoints that it was made from, `planned`: those that it gives. That these name no startpoints that were
    spent is no change: such are applied on record (protocol.md 25)."""
    written = {name for name, checkpoint in planned.items() if _but_spent(stored.get(name)) != _but_spent(checkpoint)}
    others = changed_processors(before, after)
    gain = (id_ for id_ in others & before.keys() & after.keys() if _only_gains(before[id_], after[id_], written))
    return others | _holders(model, written), frozenset(gain)


def _but_spent(checkpoint: Checkpoint | None) -> Checkpoint | None:
    if checkpoint is None or not checkpoint.spent_startpoints:
        return checkpoint
    return replace(checkpoint, spent_startpoints={})


def known_to_have_begun(grants: Grants, model: JobModel | None, checkpoints: Mapping[TaskName, Checkpoint]) -> frozenset[str]:
    """Of the processors that have a former number those of which a commit under the newer one is known, in the tasks that they
    have under the plan in force, `model`: what they committed under the former one was before that."""
    return frozenset(
        id_
        for id_, grant in grants.items()
        if grant.former and model is not None
        for task in processor_tasks(model, [id_])
        if task in checkpoints and checkpoints[task].round_id.epoch == grant.number
    )


def _only_gains(before: ProcessorPortion, after: ProcessorPortion, written: Collection[TaskName]) -> bool:
    now = {(one.title, one.lane): one for one in after.containers}
    return before.common == after.common and all(
        (then := now.get((one.title, one.lane))) is not None and then.extends(one, written) for one in before.containers
    )


def _holders(model: JobModel, tasks: Collection[TaskName]) -> frozenset[str]:
    containers = (one for sub in model.sub_topologies for one in sub.containers)
    found = (processor_of(one) for one in containers if any(task.name in tasks for task in one.tasks))
    return frozenset(id_ for id_ in found if id_ is not None)


def after_change(
    grants: Grants,
    changed: Collection[str],
    holders: Collection[str],
    present: Mapping[str, str],
    highest: int,
    gains: Collection[str] = (),
    begun: Collection[str] = (),
) -> dict[str, Grant]:
    """The grants that come into force with a plan: those that stay, and new ones for the `changed` processors that have tasks
    in it and are there, and for those that it only `gains`, which keep the number they have beside it. `present`: id to
    incarnation; `highest`: no number above it was ever given; `begun`: these need no former number any more."""
    kept = {id_: replace(grant, former=0) if id_ in begun else grant for id_, grant in grants.items() if id_ not in changed}
    new = sorted({id_ for id_ in changed if id_ in holders and id_ in present} | set(gains))
    numbers = zip(new, range(highest + 1, highest + 1 + len(new)), strict=True)
    return kept | {id_: Grant(number, present[id_], kept[id_].number if id_ in gains else 0) for id_, number in numbers}
