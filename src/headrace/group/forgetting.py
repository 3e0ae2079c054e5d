"""Deleting a group that nobody is in: all that it has stored in its nodes."""

from __future__ import annotations

from headrace.coordination import Delete, Tree, TreeConflictError
from headrace.group.layout import GroupPaths


def is_there(tree: Tree, paths: GroupPaths) -> bool:
    """Whether anything of the group is stored."""
    return tree.read(paths.root) is not None


def processors_of(tree: Tree, paths: GroupPaths) -> int:
    """How many are registered; one that was killed is, until its session ends."""
    return len(tree.children(paths.processors))


def forget_group(tree: Tree, paths: GroupPaths) -> bool:
    """Delete its nodes; False where a processor is, or comes to be, registered: what was deleted by then it makes again. Again
    where it was interrupted; nothing where nothing is there."""
    # This first, as a node that has others below it is not deleted: nothing is, while somebody is registered.
    return all(_is_deleted(tree, path, below) for path, below in ((paths.processors, False), (paths.root, True)))


def _is_deleted(tree: Tree, path: str, below: bool) -> bool:
    if tree.read(path) is None:
        return True
    if below and not all(_is_deleted(tree, f"{path}/{name}", True) for name in tree.children(path)):
        return False
    try:
        tree.commit([Delete(path)])
    except TreeConflictError as error:
        return error.reason == "missing"
    return True
