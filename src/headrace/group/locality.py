"""Where tasks have run last, on the tree. Seed: SEP-11 (localityData, LocalityManager)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from headrace.coordination import Create, Delete, Operation, Tree, TreeNode, Write
from headrace.core.affinity.groupers import LocalityInfo, locality_of
from headrace.core.affinity.lived import Lived, after_running, lived_of
from headrace.core.affinity.locations import LocationId
from headrace.errors import UnavailableError
from headrace.group.layout import GroupPaths, unescaped
from headrace.group.registration import TRIES_MAX, OwnNode
from headrace.model.tasks import TaskName

OPERATIONS_MAX = 200  # of one commit


class GroupLocality:
    """See `core.affinity.groupers.LocalityManager`. Each processor writes its own tasks, under its own registration: who has
    lost it gets a `FencedError`, and nothing is written. Entries that cannot be read are left out; the next write replaces
    them."""

    def __init__(self, tree: Tree, paths: GroupPaths, own: OwnNode) -> None:
        self._tree, self._paths, self._own = tree, paths, own

    def read_processor_locality(self) -> LocalityInfo:
        names = self._tree.children(self._paths.localities)
        nodes = self._tree.read_all([f"{self._paths.localities}/{name}" for name in names])
        found: dict[TaskName, Lived] = {}
        for name, node in zip(names, nodes, strict=True):
            task, lived = _task_of(name), _lived_in(node)
            if task is not None and lived is not None:
                found[task] = lived
        return locality_of(found)

    def write_processor_locality(self, info: LocalityInfo) -> bool:
        """Keep these; whether anything was another."""
        for _ in range(TRIES_MAX):
            changes = self._changes(info.get_locality())
            if self._are_done(changes):
                return bool(changes)
        raise UnavailableError(
            f"{self._tree.name}: other processes change the same entries of {self._paths.localities}",
            "other processors write them too: it is tried again",
        )

    def remove_all_but(self, tasks: Collection[TaskName], by: int) -> int:
        """For the leader, with its registration: delete the entries of tasks that there are no more; how many."""
        kept = {str(task) for task in tasks}
        names = [name for name in self._tree.children(self._paths.localities) if str(_task_of(name)) not in kept]
        removed = [Delete(f"{self._paths.localities}/{name}") for name in names]
        for start in range(0, len(removed), OPERATIONS_MAX):
            self._own.commit(removed[start : start + OPERATIONS_MAX], by)
        return len(removed)

    def forget_former(self, tasks: Collection[TaskName], by: int) -> None:
        """For the leader, with its registration: these forget where they came from, as the stores that they have left there are
        of no use. Where processors write the same entries meanwhile some may stay: they are hints."""
        paths = [self._paths.locality(str(task)) for task in sorted(tasks)]
        changes = list[Operation]()
        for path, node in zip(paths, self._tree.read_all(paths), strict=True):
            lived = _lived_in(node)
            if node is not None and lived is not None and lived.former:
                changes.append(Write(path, Lived(lived.last).text.encode(), node.version))
        for start in range(0, len(changes), OPERATIONS_MAX):
            self._own.commit(changes[start : start + OPERATIONS_MAX], by)

    def _changes(self, locality: Mapping[TaskName, LocationId]) -> Sequence[Operation]:
        wanted = {self._paths.locality(str(task)): place for task, place in sorted(locality.items())}
        changes, now_us = list[Operation](), time.time_ns() // 1000
        for (path, place), node in zip(wanted.items(), self._tree.read_all(list(wanted)), strict=True):
            data = after_running(_lived_in(node), place, now_us).text.encode()
            if node is None:
                changes.append(Create(path, data))
            elif node.data != data:
                changes.append(Write(path, data, node.version))
        return changes

    def _are_done(self, changes: Sequence[Operation]) -> bool:
        left = iter(changes)
        while some := list(islice(left, OPERATIONS_MAX)):
            if not self._own.commit(some):
                return False
        return True


def _task_of(node: str) -> TaskName | None:
    try:
        return TaskName.parse(unescaped(node))
    except ValueError:
        return None


def _lived_in(node: TreeNode | None) -> Lived | None:
    return None if node is None else lived_of(node.data.decode(errors="replace"))
