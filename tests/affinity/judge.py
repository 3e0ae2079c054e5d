"""What an assignment of tasks to processors is to be, each as a predicate; and the best one, found by trying all.

It shares nothing with `core.affinity`: an assignment here is a mapping of tasks to processors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def balanced_ones(tasks: Sequence[str], processors: Mapping[str, str | None]) -> Iterator[Owners]:
    for chosen in product(processors, repeat=len(tasks)):
        owners = dict(zip(tasks, chosen, strict=True))
        if is_balanced(owners, processors):
            yield owners


def best(
    tasks: Sequence[str], processors: Mapping[str, str | None], before: Owners, homes: Mapping[str, str]
) -> tuple[int, int]:
    """Of all balanced assignments the most tasks that stay, and of those that have so many the most tasks at home."""
    return max((stayed(one, before), at_home(one, homes, processors)) for one in balanced_ones(tasks, processors))


def least_moves(before: Owners, processors: Mapping[str, str | None], count: int) -> int:
    """How many of `count` tasks at least have to move from where they were, by counting alone: those whose processor is not
    there, and those that one has beyond its share."""
    low, more = divmod(count, len(processors))
    had = Counter(before.values())
    beyond = sum(max(0, had[one] - low) for one in processors)
    may_keep = min(more, sum(had[one] > low for one in processors))
    return sum(had[one] for one in had if one not in processors) + beyond - may_keep
