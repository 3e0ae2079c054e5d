"""Which processor has which tasks: each stays where its state is, the shares are equal, and no task moves without need.

Seed: SEP-11 "Container to physical host assignment": the processor that had a task, else one at the same location, else any.
What is shared out are *portions*: a task; the virtual tasks of one together, or where there are fewer tasks than processors
slices of them, as `core.job_plan.containers` cuts them. Shares are equal in each sub-topology, and all sub-topologies together:
five sub-topologies of one task each do not meet on one processor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headrace.core.affinity.quotas import Extras, levelled
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
    tasks have run last, as their containers have said. `state_bytes`: how much a task would have to restore.
    """

    containers: Collection[ContainerModel] = ()
    last_locations: Mapping[TaskName, str] = field(default_factory=dict)
    state_bytes: Mapping[TaskName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TasksToAssign:
    """The tasks of one sub-topology, and the processors that may have some. `slots`: how many these have, where it is not one
    each."""

    tasks: Sequence[TaskModel]
    processors: Collection[Member]
    history: TaskHistory = TaskHistory()
    slots: int | None = None


class _Portion(NamedTuple):
    """What is given to one processor. `owner`: the processor that had it, also one that is not there any more. `home`: where it
    has run last, as far as that is known."""

    number: int
    tasks: tuple[TaskModel, ...]
    state_bytes: int
    owner: str | None
    home: str | None


def assigned(
    tasks: Sequence[TaskModel], processors: Collection[Member], history: TaskHistory | None = None
) -> tuple[ContainerModel, ...]:
    """One container for each processor that has tasks, by lane. Equal arguments give equal containers, in whatever order they
    are given. Shares differ by at most one portion; as many portions stay with their processor as such shares allow; of those
    that do not as many as can be come to the location where they have run. (Nearly as many, where processors have themselves
    changed their location, or had not run yet what they had.)

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
    together differs by at most one portion, too, and as many portions stay as both allow; else it is as level as it can be.

    >>> from headrace.model.streams import SSP
    >>> tasks = [TaskModel(TaskName.parse("Partition_0"), (SSP("k", "a", 0),))]
    >>> (one,) = assigned(tasks, [Member("a")])
    >>> found = assigned_together([TasksToAssign(tasks, [Member("a"), Member("b")], TaskHistory([one]))] * 5)
    >>> [container.processor_id for sub in found for container in sub]
    ['b', 'b', 'a', 'a', 'a']

    Where members are slots of processes (`ID`, `ID#1` and so on), as many of each, the shares of processes are equal as well:

    >>> slots = [Member(id_) for id_ in ("a", "a#1", "b", "b#1")]
    >>> tasks = [TaskModel(TaskName.parse(f"Partition_{p}"), (SSP("k", "a", p),)) for p in range(2)]
    >>> [one.processor_id for one in assigned(tasks, slots)]
    ['a', 'b']
    """
    given = _of_slots(subs) if all(_has_equal_slots(sub.processors) for sub in subs) else _given(subs)
    return tuple(_containers(shares, sub) for sub, shares in zip(subs, given, strict=True))


_Given = dict[str, tuple[TaskModel, ...]]  # the tasks of each member


def process_of(id_: str) -> str:
    """The process of a group that a slot is of."""
    return id_.partition(SLOT)[0]


def _has_equal_slots(members: Collection[Member]) -> bool:
    """Whether all are slots of processes of a group, of which the first has the id of its process. (Those of a cluster are
    processors by themselves.)"""
    counts = Counter(process_of(one.id) for one in members)
    return counts.keys() <= {one.id for one in members} and len(set(counts.values())) == 1 and max(counts.values()) > 1


def _of_slots(subs: Sequence[TasksToAssign]) -> list[_Given]:
    """Share out among processes first, and then what each has among its slots."""
    of_processes = _given([_by_process(sub) for sub in subs])
    found = [_Given() for _ in subs]
    for process in sorted({process_of(one.id) for sub in subs for one in sub.processors}):
        having = [at for at, shares in enumerate(of_processes) if process in shares]
        own = [
            replace(
                subs[at],
                tasks=of_processes[at][process],
                processors=[one for one in subs[at].processors if process_of(one.id) == process],
            )
            for at in having
        ]
        for at, shares in zip(having, _given(own), strict=True):
            found[at] |= shares
    return found


def _by_process(sub: TasksToAssign) -> TasksToAssign:
    members = {process_of(one.id): Member(process_of(one.id), one.location_id) for one in sub.processors}
    containers = [
        one if one.processor_id is None else replace(one, processor_id=process_of(one.processor_id))
        for one in sub.history.containers
    ]
    history = replace(sub.history, containers=containers)
    return TasksToAssign(sub.tasks, list(members.values()), history, len(sub.processors))


def _given(subs: Sequence[TasksToAssign]) -> list[_Given]:
    """By sub-topology the tasks that each of its members is to have."""
    totals, shared = Counter[str](), list[_Shared]()
    for sub in subs:
        one = _shared(sub, totals)
        totals.update(one.quotas)
        shared.append(one)
    chosen = levelled([one.extras for one in shared], {one.id: totals[one.id] for sub in shared for one in sub.members})
    found = []
    for one, having in zip(shared, chosen, strict=True):
        shares = _shares(one, {member.id: one.low + (member.id in having) for member in one.members})
        found.append({id_: tuple(task for portion in sorted(mine) for task in portion.tasks) for id_, mine in shares.items()})
    return found


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


def _portions(tasks: Sequence[TaskModel], count: int, history: TaskHistory) -> list[_Portion]:
    """`tasks` in order of their names, and what is known of them; of a task that was cut otherwise before what is known of
    those that had its keys."""
    before = {task.name: container for container in history.containers for task in container.tasks}
    former_of, last_of = _former(before), _former(history.last_locations)
    found = []
    for number, portion in enumerate(portions_of(tasks, count)):
        had = [before[name] for task in portion for name in former_of(task.name)]
        owner = _most(container.processor_id for container in had)
        home = _most(history.last_locations[name] for task in portion for name in last_of(task.name))
        home = home or _most(container.location_id for container in had if container.processor_id == owner)
        size = sum(history.state_bytes.get(task.name, 0) for task in portion)
        found.append(_Portion(number, tuple(portion), size, owner, home))
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


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """A sub-topology's portions. `owned`: by id of each processor those that it had, the first ones stay longest; `free`: of
    those that are not there any more. Each processor is to have `low` portions, and those of `having` one more."""

    members: Sequence[Member]
    owned: Mapping[str | None, Sequence[_Portion]]
    free: Sequence[_Portion]
    low: int
    having: frozenset[str]

    @property
    def quotas(self) -> dict[str, int]:
        return {one.id: self.low + (one.id in self.having) for one in self.members}

    @property
    def extras(self) -> Extras:
        mine = {one.id: self.owned[one.id] for one in self.members}
        kept = {id_: owned[self.low].state_bytes for id_, owned in mine.items() if len(owned) > self.low}
        return Extras(tuple(mine), self.having, kept)


def _shared(sub: TasksToAssign, load: Mapping[str, int]) -> _Shared:
    """What is best for one sub-topology alone; `load`: how many portions processors have of others."""
    assert sub.processors, "there is no processor"
    members = sorted(sub.processors, key=lambda one: one.id)
    assert len({one.id for one in members}) == len(members), f"two processors of one id: {members}"
    portions = _portions(sub.tasks, sub.slots or len(members), sub.history)
    low, more = divmod(len(portions), len(members))
    owned: dict[str | None, list[_Portion]] = {one.id: [] for one in members}
    free: list[_Portion] = []
    for portion in portions:
        owned.get(portion.owner, free).append(portion)
    there = {one.location_id for one in members}

    def leaves_late(portion: _Portion, here: str | None) -> tuple[int, int, int]:
        """First what has run elsewhere and may find a place there, then what is soonest restored, then the last by name."""
        elsewhere = 0 if portion.home in (None, here) else 2 if portion.home in there else 1
        return elsewhere, -portion.state_bytes, portion.number

    for one in members:
        owned[one.id].sort(key=lambda portion: leaves_late(portion, one.location_id))
    return _Shared(members, owned, free, low, _having_more(members, owned, free, low, more, load))


def _shares(shared: _Shared, quotas: Mapping[str, int]) -> dict[str, list[_Portion]]:
    """The portions of each processor, by its id."""
    members, owned = shared.members, shared.owned
    shares = {one.id: list(owned[one.id][: quotas[one.id]]) for one in members}
    free = [*shared.free, *(portion for one in members for portion in owned[one.id][quotas[one.id] :])]
    free.sort()
    places = {one.id: one.location_id for one in members}
    room = {id_: quota - len(shares[id_]) for id_, quota in quotas.items()}
    for place_of, home_of in ((places.__getitem__, lambda portion: portion.home), (_anywhere, _anywhere)):
        free = _placed(free, home_of, shares, place_of, room)
    assert not free, free
    return shares


def _having_more(
    members: Sequence[Member],
    owned: Mapping[str | None, Sequence[_Portion]],
    free: Sequence[_Portion],
    low: int,
    more: int,
    load: Mapping[str, int],
) -> frozenset[str]:
    """Which `more` processors are to have one portion above `low`: first those that keep a portion by it, and among them, then
    among the others, where more portions are at home than there is room for."""
    crowd = Counter(portion.home for portion in free)  # by location: portions that look for a place there, less the places
    for one in members:
        crowd.update(portion.home for portion in owned[one.id][low:])
        crowd[one.location_id] -= max(0, low - len(owned[one.id]))

    def gain(one: Member) -> int:
        """By how many more portions are at home."""
        if len(owned[one.id]) <= low:
            return int(one.location_id is not None and crowd[one.location_id] > 0)
        home = owned[one.id][low].home
        finds_none = home is None or crowd[home] > 0
        return int(home is not None and home == one.location_id) - (not finds_none)

    chosen = set[str]()
    keepers = {one.id for one in members if len(owned[one.id]) > low}
    waiting = sorted(members, key=lambda one: (load.get(one.id, 0), -len(owned[one.id]), one.id))
    for _ in range(more):
        best = max(waiting, key=lambda one: (one.id in keepers, gain(one)))  # of equal ones the first
        waiting.remove(best)
        chosen.add(best.id)
        crowd[owned[best.id][low].home if best.id in keepers else best.location_id] -= 1
    return frozenset(chosen)


def _anywhere(_: object) -> str:
    return ""


def _placed(
    free: Sequence[_Portion],
    home_of: Callable[[_Portion], str | None],
    shares: Mapping[str, list[_Portion]],
    place_of: Callable[[str], str | None],
    room: dict[str, int],
) -> list[_Portion]:
    """Put each portion where it is at home, with the processor there that has most room; gives those that find none."""
    rooms: dict[str | None, list[tuple[int, str]]] = {}
    for id_, left in room.items():
        if left:
            rooms.setdefault(place_of(id_), []).append((-left, id_))
    for heap in rooms.values():
        heapify(heap)
    homeless = []
    for portion in free:
        home = home_of(portion)
        heap = rooms.get(home, []) if home is not None else []
        if not heap:
            homeless.append(portion)
            continue
        left, id_ = heappop(heap)
        shares[id_].append(portion)
        room[id_] -= 1
        if room[id_]:
            heappush(heap, (left + 1, id_))
    return homeless


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
