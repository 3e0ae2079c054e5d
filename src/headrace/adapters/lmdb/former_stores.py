"""Removing the local stores of virtual tasks that are there no more, since the elasticity factor has changed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

from headrace.adapters.lmdb import environments
from headrace.adapters.lmdb.ownership import owned_now
from headrace.model.tasks import TaskName

_log = logging.getLogger("headrace.state")


def remove_former_stores(root: Path, tasks: Collection[TaskName]) -> int:
    """Remove the stores under `root` of parts of the same tasks under another factor than that of `tasks`; how many. Those that
    a process uses stay, a stopped one perhaps."""
    removed = 0
    factors = {task.whole: _factor(task) for task in tasks}
    for place in list(root.iterdir()):
        former = _task_of(place)
        if former is None or factors.get(former.whole, _factor(former)) == _factor(former):
            continue
        if remove_store(place):
            removed += 1
            _log.info("local store %s is removed: its task is cut otherwise now", place)
    return removed


def remove_store(place: Path) -> bool:
    """Remove a local store, unless a process uses it."""
    with owned_now(place) as is_ours:
        if is_ours:
            environments.close_others(place, None)
            shutil.rmtree(place, ignore_errors=True)
        return is_ours


def _factor(task: TaskName) -> int:
    return 1 if task.bucket is None else task.bucket.factor


def _task_of(place: Path) -> TaskName | None:
    """Whose store a folder is, one that was made beside it (`~1`) included; None of any other folder."""
    try:
        return TaskName.parse(unquote(place.name.partition("~")[0])) if place.is_dir() else None
    except ValueError:
        return None
