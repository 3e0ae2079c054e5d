"""Which processor has which tasks: each stays where its state is, the shares are equal, and no task moves without need.

Seed: SEP-11 "Container to physical host assignment": the processor that had a task, else one at the same location, else any.
What is shared out are *portions*: a task; the virtual tasks of one together, or where there are fewer tasks than slots slices
of them, as `core.job_plan.containers` cuts them. They are shared out to the processes of a group, or the locations of a
cluster, and what each of these has to its slots (`sharing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.affinity.improving import improve
from headrace.core.affinity.lived import Left
from headrace.core.affinity.sharing import Holder, Portion, Shares, first_shares, seen_by_slot
from headrace.core.job_plan.containers import portions_of
from headrace.core.job_plan.elasticity import bucketed
from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.tasks import TaskName

SLOT = "#"  # between the id of a process, or of a location, and the number of a slot


@dataclass(frozen=True, slots=True)
class Member:
    """What a container is assigned to: a member of a group, or a slot of a cluster. Ids are unique, and stay when it is started
    again. `location_id`: where its disk is; None where that is not known, which is no place that another has."""

    id: str
    location_id: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TaskHistory:
    """What is known of tasks from before.

    `containers`: of the plan before, of the same sub-topology, perhaps of another elasticity factor. `last_locations`: where
    tasks have run last, as their containers have said. `former_locations`: where they ran before that and may have a local
    store, with when they left. `state_bytes`: how much a task would have to restore.
    """

    containers: Collection[ContainerModel] = ()
    last_locations: Mapping[TaskName, str] = field(default_factory=dict)
    state_bytes: Mapping[TaskName, int] = field(default_factory=dict)
    former_locations: Mapping[TaskName, Mapping[str, Left]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TasksToAssign:
    """The tasks of one sub-topology, and the processors that may have some."""

    tasks: Sequence[TaskModel]
    processors: Collection[Member]
    history: TaskHistory = TaskHistory()


@dataclass(frozen=True, slots=True)
class _Known:
    """The tasks of a portion, and what is known of it."""

    tasks: tuple[TaskModel, ...]
    portion: Portion


def assigned(
    tasks: Sequence[TaskModel], processors: Collection[Member], history: TaskHistory | None = None
) -> tuple[ContainerModel, ...]:
    """One container for each processor that has tasks, by lane. Equal arguments give equal containers, in whatever order they
    are given. Shares differ by at most one portion; as many portions stay with their processor as such shares allow; of those
    that do not as many as can be come to the location where they have run last, of the others to one where they ran before.
    (Nearly as many, where a process of several slots has changed its location.)

    >>> from headrace.model.streams import SSP
    >>> tasks = [TaskModel(TaskName.parse(f"Partition_{p}"), (SSP("k", "a", p),)) for p in range(4)]
    >>> before = assigned(tasks, [Member("a", "host-1"), Member("b", "host-2")])
    >>> after = assigned(tasks, [Member("b", "host-2"), Member("c", "host-1")], TaskHistory(before))
    >>> for one in (*before, *after):
    ...     print(one.lane, one.processor_id, one.location_id, *(task.name for task in one.tasks))
    0 a host-1 Partition_0 Partition_2
    1 b host-2 Partition_1 Partition_3
    0 c host-1 Partition_0 Partition_2
    1 b host-2 Partition_1 Partition_3
    """
    (found,) = assigned_together([TasksToAssign(tasks, processors, history or TaskHistory())])
    return found


def assigned_together(subs: Sequence[TasksToAssign]) -> tuple[tuple[ContainerModel, ...], ...]:
    """As `assigned`, of several sub-topologies. Where all have the same processors, what a processor has of all of them
    together differs by at most one portion, too, and as many portions stay, and are where they have run, as both allow; else it
    is as level as the shares of each sub-topology can be.

    >>> from headrace.model.streams import SSP
    >>> tasks = [TaskModel(TaskName.parse("Partition_0"), (SSP("k", "a", 0),))]
    >>> (one,) = assigned(tasks, [Member("a")])
    >>> found = assigned_together([TasksToAssign(tasks, [Member("a"), Member("b")], TaskHistory([one]))] * 5)
    >>> [container.processor_id for sub in found for container in sub]
    ['b', 'b', 'a', 'a', 'a']

    Members may be slots of units: of processes (`ID`, `ID#1` and so on) or of locations (`LOCATION#0` and so on). Then of each
    sub-topology slots differ by at most one portion, and of what is beyond the least of all slots no unit has two portions more
    than another that has a slot free for one. As many portions stay in their unit as that allows; the others come where they
    have run, as above; and of what a unit has as many as can be stay in their slot. What all sub-topologies have together is as
    level as this allows, by slots and then by units.

    >>> slots = [Member(id_) for id_ in ("a", "a#1", "a#2", "b", "b#1")]
    >>> tasks = [TaskModel(TaskName.parse(f"Partition_{p}"), (SSP("k", "a", p),)) for p in range(10)]
    >>> [[(one.processor_id, len(one.tasks)) for one in assigned(tasks[:count], slots)] for count in (2, 10)]
    [[('a', 1), ('b', 1)], [('a', 2), ('a#1', 2), ('a#2', 2), ('b', 2), ('b#1', 2)]]
    """
    known = [_known(sub.tasks, len(sub.processors), sub.history) for sub in subs]
    held = _shared_out([_shared_by_units(own, sub) for own, sub in zip(known, subs, strict=True)])
    slots = [_slots(sub) for sub in subs]
    given = [_Given() for _ in subs]
    for holder in sorted({id_ for own in slots for id_ in own}):
        having = [number for number, own in enumerate(slots) if holder in own]
        mine = [[_in_slot(known[number][one]) for one in held[number][holder]] for number in having]
        shared = _shared_out([(own, slots[number][holder]) for own, number in zip(mine, having, strict=True)])
        for number, shares in zip(having, shared, strict=True):
            for id_, own in shares.items():
                given[number][id_] = tuple(task for one in own for task in known[number][one].tasks)
    return tuple(_containers(shares, sub) for sub, shares in zip(subs, given, strict=True))


_Given = dict[str, tuple[TaskModel, ...]]  # the tasks of each member


def process_of(id_: str) -> str:
    """What a slot is of: a process of a group, or a location of a cluster."""
    return id_.partition(SLOT)[0]


def _slots(sub: TasksToAssign) -> dict[str, list[Holder]]:
    """By process, or location."""
    found: dict[str, list[Holder]] = {}
    for one in sub.processors:
        found.setdefault(process_of(one.id), []).append(Holder(one.id))
    return found


def _holders(sub: TasksToAssign) -> list[Holder]:
    ids = [one.id for one in sub.processors]
    assert ids, "there is no processor"
    assert len(set(ids)) == len(ids), f"two processors of one id: {sorted(ids)}"
    places = {process_of(one.id): one.location_id for one in sub.processors}
    return [Holder(id_, places[id_], len(slots)) for id_, slots in _slots(sub).items()]


def _shared_by_units(known: Sequence[_Known], sub: TasksToAssign) -> tuple[list[Portion], list[Holder]]:
    holders = _holders(sub)
    return seen_by_slot([one.portion for one in known], holders, {one.id for one in sub.processors}), holders


def _shared_out(subs: Sequence[tuple[Sequence[Portion], Sequence[Holder]]]) -> list[dict[str, list[int]]]:
    """By sub-topology the numbers of the portions that each of its holders is to have."""
    if all(len(holders) == 1 for _, holders in subs):
        return [{holders[0].id: [one.number for one in portions]} for portions, holders in subs]
    totals, shared = Counter[str](), list[Shares]()
    for portions, holders in subs:
        one = first_shares(portions, holders, totals)
        totals.update(one.holding.values())
        shared.append(one)
    improve(shared)
    found: list[dict[str, list[int]]] = []
    for one in shared:
        found.append({holder.id: [] for holder in one.holders})
        for number, id_ in sorted(one.holding.items()):
            found[-1][id_].append(number)
    return found


def _in_slot(known: _Known) -> Portion:
    return known.portion._replace(owner=known.portion.slot, last=None, former={})


def _containers(shares: _Given, sub: TasksToAssign) -> tuple[ContainerModel, ...]:
    members = {one.id: one for one in sub.processors if shares[one.id]}
    lanes = lanes_by_processor(sorted(members), sub.history.containers)
    by_lane = sorted((lane, id_) for id_, lane in lanes.items())
    return tuple(ContainerModel(lane, shares[id_], id_, members[id_].location_id) for lane, id_ in by_lane)


def moved_tasks(before: Collection[ContainerModel], after: Collection[ContainerModel]) -> frozenset[TaskName]:
    """The tasks that have another processor than before, of those that were there before."""
    owners = {task.name: container.processor_id for container in before for task in container.tasks}
    return frozenset(
        task.name
        for container in after
        for task in container.tasks
        if task.name in owners and owners[task.name] != container.processor_id
    )


def _known(tasks: Sequence[TaskModel], count: int, history: TaskHistory) -> list[_Known]:
    """`tasks` as they are shared out among `count` slots, in order of their names, and what is known of them; of a task that
    was cut otherwise before what is known of those that had its keys, but for where these ran before: their stores are of no
    use."""
    before = {task.name: container for container in history.containers for task in container.tasks}
    former_of, last_of = _former(before), _former(history.last_locations)
    found = []
    for number, portion in enumerate(portions_of(tasks, count)):
        had = [before[name] for task in portion for name in former_of(task.name)]
        owner = _most(process_of(one.processor_id) for one in had if one.processor_id is not None)
        own = [one for one in had if one.processor_id is not None and process_of(one.processor_id) == owner]
        last = _most(history.last_locations[name] for task in portion for name in last_of(task.name))
        last = last or _most(one.location_id for one in own or had)
        left: dict[str, Left] = {}
        for task in portion:
            places = history.former_locations.get(task.name, {}) if task.name in before else {}
            left |= {place: max(one, left.get(place, one)) for place, one in places.items() if place != last}
        size = sum(history.state_bytes.get(task.name, 0) for task in portion)
        slot = _most(one.processor_id for one in own)
        found.append(_Known(tuple(portion), Portion(number, size, owner, last, left, slot)))
    return found


def _former(known: Mapping[TaskName, object]) -> Callable[[TaskName], list[TaskName]]:
    """What gives those of the `known` tasks that had keys of a task, under whatever elasticity factor."""
    factors = {name.whole: 1 if name.bucket is None else name.bucket.factor for name in known}

    def former(name: TaskName) -> list[TaskName]:
        if name in known:
            return [name]
        return [one for one in bucketed(name, factors.get(name.whole, 1)) if one in known]

    return former


def _most(values: Iterable[str | None]) -> str | None:
    """The most frequent value, of several the least; None where there is none."""
    counts = Counter(value for value in values if value is not None)
    return min(counts, key=lambda value: (-counts[value], value), default=None)


def lanes_by_processor(ids: Sequence[str], before: Collection[ContainerModel]) -> dict[str, int]:
    """The lane of each processor: the one that it had, else the lowest that is free."""
    had: dict[str, int] = {}
    for container in sorted(before, key=lambda one: one.lane, reverse=True):
        if container.processor_id is not None:
            had[container.processor_id] = container.lane
    lanes = {id_: had[id_] for id_ in ids if id_ in had}
    taken = set(lanes.values())
    free = (lane for lane in range(len(ids) + len(taken)) if lane not in taken)
    return lanes | {id_: next(free) for id_ in ids if id_ not in lanes}
