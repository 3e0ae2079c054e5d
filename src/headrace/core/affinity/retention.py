"""Which local stores of a machine are removed, as their tasks have lived elsewhere for long."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A store that is on a machine: its folder, whose it is, and when it was used last, by the machine's wall clock."""

    folder: str
    task: TaskName
    used_us: int


def unused_stores(
    found: Iterable[FoundStore], tasks: Collection[TaskName], now_us: int, retention_us: int
) -> tuple[FoundStore, ...]:
    """Those of `found` that no task has used for `retention_us`; `tasks` are those that are assigned to this machine.

    >>> mine, other = TaskName.parse("Partition_0"), TaskName.parse("Partition_1")
    >>> stores = [FoundStore("a", mine, 0), FoundStore("b", other, 0), FoundStore("c", other, 70)]
    >>> [store.folder for store in unused_stores(stores, {mine}, now_us=100, retention_us=50)]
    ['b']
    """
    kept = frozenset(tasks)
    return tuple(store for store in found if store.task not in kept and now_us - store.used_us >= retention_us)
