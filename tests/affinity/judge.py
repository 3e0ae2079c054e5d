"""What an assignment of tasks to processors is to be, each as a predicate; and the best one, found by trying all.

It shares nothing with `core.affinity`: an assignment here is a mapping of tasks to processors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product

from headrace.model.job_model import ContainerModel

Owners = dict[str, str]  # task to processor


def owners_of(containers: Iterable[ContainerModel]) -> Owners:
    found: Owners = {}
    for container in containers:
        assert container.processor_id is not None
        for task in container.tasks:
            assert str(task.name) not in found, f"{task.name} is in two containers"
            found[str(task.name)] = container.processor_id
    return found


def has_every_task_once(owners: Owners, tasks: Sequence[str], processors: Mapping[str, str | None]) -> bool:
    return sorted(owners) == sorted(tasks) and set(owners.values()) <= processors.keys()


def is_balanced(owners: Owners, processors: Mapping[str, str | None]) -> bool:
    """Whether no processor has two tasks more than another."""
    counts = Counter(owners.values())
    shares = [counts[one] for one in processors]
    return max(shares) - min(shares) <= 1


def unit_of(processor: str) -> str:
    """The process, or the location of a cluster, that a slot is of."""
    return processor.partition("#")[0]


def by_unit(owners: Owners) -> Owners:
    return {task: unit_of(processor) for task, processor in owners.items()}


def extras_of(owners: Owners, processors: Iterable[str]) -> dict[str, int]:
    """How many tasks each unit has beyond those that every slot has at least."""
    slots = Counter(map(unit_of, processors))
    low = len(owners) // slots.total()
    counts = Counter(by_unit(owners).values())
    return {unit: counts[unit] - low * slots[unit] for unit in slots}


def is_level_by_units(owners: Owners, processors: Iterable[str]) -> bool:
    """Whether beyond what each slot has no process or location has two tasks more than another that has a slot free for one."""
    slots, extras = Counter(map(unit_of, processors)), extras_of(owners, processors)
    return all(
        0 <= extras[one] <= slots[one] and (extras[one] <= extras[other] + 1 or extras[other] >= slots[other])
        for one in slots
        for other in slots
    )


def is_balanced_within_units(owners: Owners, processors: Iterable[str]) -> bool:
    """Whether no slot has two tasks more than another of its process, or location."""
    counts, names = Counter(owners.values()), sorted(processors)
    return all(counts[one] <= counts[other] + 1 for one in names for other in names if unit_of(one) == unit_of(other))


def most_in_their_units(before: Owners, processors: Iterable[str], count: int) -> int:
    """Of all assignments of so many tasks that are level by units, the most that stay in theirs, by counting alone."""
    slots = Counter(map(unit_of, processors))
    had, low = Counter(by_unit(before).values()), count // slots.total()
    shares, left = {unit: low * slots[unit] for unit in slots}, count % slots.total()
    while left:
        open_ones = [unit for unit in slots if shares[unit] < (low + 1) * slots[unit]]
        fewest = min(shares[unit] - low * slots[unit] for unit in open_ones)
        next_ones = [unit for unit in open_ones if shares[unit] - low * slots[unit] == fewest]
        next_ones.sort(key=lambda unit: had[unit] <= shares[unit])  # first those that keep one more by it
        for unit in next_ones[:left]:
            shares[unit] += 1
        left = max(0, left - len(next_ones))
    return sum(min(had[unit], share) for unit, share in shares.items())


def most_in_their_slots(owners: Owners, before: Owners, processors: Iterable[str]) -> int:
    """Of all ways to share out what each unit has among its slots, evenly, the most tasks that stay in their slots."""
    names, found = sorted(processors), 0
    for unit in {unit_of(name) for name in names}:
        mine = [name for name in names if unit_of(name) == unit]
        here = [task for task, processor in owners.items() if unit_of(processor) == unit]
        had = Counter(before.get(task) for task in here)
        low, more = divmod(len(here), len(mine))
        found += sum(min(had[name], low) for name in mine) + min(more, sum(had[name] > low for name in mine))
    return found


def stayed(owners: Owners, before: Owners) -> int:
    """How many tasks have the processor that they had."""
    return sum(before.get(task) == processor for task, processor in owners.items())


def at_home(owners: Owners, homes: Mapping[str, str], processors: Mapping[str, str | None]) -> int:
    """How many tasks are at the location where they have run."""
    return sum(task in homes and homes[task] == processors[processor] for task, processor in owners.items())


def is_balanced_in_all(subs: Iterable[Owners], processors: Mapping[str, str | None]) -> bool:
    """Whether no processor has two tasks more than another of all sub-topologies together."""
    counts = Counter(one for owners in subs for one in owners.values())
    shares = [counts[one] for one in processors]
    return max(shares) - min(shares) <= 1


@cache
def _balanced_choices(count: int, processors: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Every way to give `count` tasks to these such that it is balanced: who has each."""
    most = -(-count // len(processors))
    found: list[tuple[str, ...]] = [()]
    for _ in range(count):  # of what has too many already nothing comes
        found = [(*one, name) for one in found for name in processors if one.count(name) < most]
    return tuple(one for one in found if is_balanced(dict(enumerate(one)), dict.fromkeys(processors)))  # type: ignore[arg-type]


def balanced_ones(tasks: Sequence[str], processors: Mapping[str, str | None]) -> Iterator[Owners]:
    for chosen in _balanced_choices(len(tasks), tuple(processors)):
        yield dict(zip(tasks, chosen, strict=True))


def best(
    tasks: Sequence[str], processors: Mapping[str, str | None], before: Owners, homes: Mapping[str, str]
) -> tuple[int, int]:
    """Of all balanced assignments the most tasks that stay, and of those that have so many the most tasks at home."""
    return max((stayed(one, before), at_home(one, homes, processors)) for one in balanced_ones(tasks, processors))


def with_a_store(owners: Owners, stores: Mapping[str, Iterable[str]], processors: Mapping[str, str | None]) -> int:
    """How many tasks are at a location where they ran before they ran where they ran last."""
    return sum(processors[processor] in stores.get(task, ()) for task, processor in owners.items())


def level_ones(tasks: Sequence[str], processors: Mapping[str, str | None]) -> Iterator[Owners]:
    """All assignments to slots that are level by units, and by slots."""
    for chosen in product(sorted(processors), repeat=len(tasks)):
        owners = dict(zip(tasks, chosen, strict=True))
        if is_balanced(owners, processors) and is_level_by_units(owners, processors):
            yield owners


Value = tuple[int, int, int, int]


def value_of(
    owners: Owners,
    processors: Mapping[str, str | None],
    before: Owners,
    homes: Mapping[str, str],
    stores: Mapping[str, Iterable[str]],
) -> Value:
    """How many tasks stay in their unit, how many of these in their slot, how many are where they have run last, and how many
    others where they ran before: what an assignment is to have most of, the first first."""
    in_units, in_slots = stayed(by_unit(owners), by_unit(before)), stayed(owners, before)
    return in_units, in_slots, at_home(owners, homes, processors), with_a_store(owners, stores, processors)


def unevenness(counts: Mapping[str, int], slots: Mapping[str, int]) -> tuple[int, int]:
    """Of tasks of all sub-topologies together, which units share out among their slots: how uneven those of all slots are; and
    of equally even ones how uneven what the units have beyond what each of their slots has."""
    by_slots = by_units = 0
    for unit, number in slots.items():
        low, more = divmod(counts[unit], number)
        by_slots += low * low * (number - more) + (low + 1) * (low + 1) * more
        by_units += low * number * (number - 1) + more * (more - 1)
    return by_slots, by_units


def best_of_all(
    subs: Sequence[tuple[Iterable[Owners], Callable[[Owners], Value]]], processors: Iterable[str]
) -> tuple[tuple[int, int], Value]:
    """Of all ways to take one assignment of each sub-topology the best of the least uneven ones, and how uneven these are.
    `subs`: the assignments of each that are level, and the value of one."""
    slots = Counter(map(unit_of, processors))
    names = sorted(slots)
    together: dict[tuple[int, ...], Value] = {(0,) * len(names): (0, 0, 0, 0)}  # by how many tasks the units have
    for choices, value in subs:
        own: dict[tuple[int, ...], Value] = {}
        for owners in choices:
            counts = Counter(by_unit(owners).values())
            shares = tuple(counts[name] for name in names)
            own[shares] = max(value(owners), own.get(shares, (0, 0, 0, 0)))
        sums: dict[tuple[int, ...], Value] = {}
        for (had, worth), (shares, more) in product(together.items(), own.items()):
            total = tuple(map(sum, zip(had, shares, strict=True)))
            found = (worth[0] + more[0], worth[1] + more[1], worth[2] + more[2], worth[3] + more[3])
            sums[total] = max(found, sums.get(total, found))
        together = sums
    return max(
        ((unevenness(dict(zip(names, total, strict=True)), slots), worth) for total, worth in together.items()),
        key=lambda one: (-one[0][0], -one[0][1], one[1]),
    )


def most_that_stay(
    subs: Sequence[tuple[Sequence[str], Owners]], processors: Mapping[str, str | None]
) -> int:
    """Of all assignments that are balanced in each sub-topology, and in all of them together, the most tasks that stay.
    `subs`: the tasks of each, and who had them."""
    best_of: list[dict[tuple[int, ...], int]] = []  # per sub-topology: shares of the processors, to the most that stay
    for tasks, before in subs:
        found: dict[tuple[int, ...], int] = {}
        for one in balanced_ones(tasks, processors):
            counts = Counter(one.values())
            shares = tuple(counts[name] for name in processors)
            found[shares] = max(found.get(shares, 0), stayed(one, before))
        best_of.append(found)
    together = {(0,) * len(processors): 0}
    for found in best_of:
        sums: dict[tuple[int, ...], int] = {}
        for (had, before_stay), (shares, stay) in product(together.items(), found.items()):
            total = tuple(map(sum, zip(had, shares, strict=True)))
            sums[total] = max(sums.get(total, 0), before_stay + stay)
        together = sums
    return max(stay for total, stay in together.items() if max(total) - min(total) <= 1)


def least_moves(before: Owners, processors: Mapping[str, str | None], count: int) -> int:
    """How many of `count` tasks at least have to move from where they were, by counting alone: those whose processor is not
    there, and those that one has beyond its share."""
    low, more = divmod(count, len(processors))
    had = Counter(before.values())
    beyond = sum(max(0, had[one] - low) for one in processors)
    may_keep = min(more, sum(had[one] > low for one in processors))
    return sum(had[one] for one in had if one not in processors) + beyond - may_keep
