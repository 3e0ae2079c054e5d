"""What an assignment of tasks to processors is to be, each as a predicate; and the best one, found by trying all.

It shares nothing with `core.affinity`: an assignment here is a mapping of tasks to processors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
