"""Removing the local stores of tasks that are there no more, since the elasticity factor has changed, or live elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

from headrace.adapters.lmdb import environments
from headrace.adapters.lmdb.ownership import LOCK_FILE, owned_now, remove_owned
from headrace.adapters.lmdb.store_status import FILE_NAME as STATUS_FILE
from headrace.adapters.lmdb.store_status import read_status
from headrace.core.affinity.retention import FoundStore, unused_stores
from headrace.model.tasks import TaskName

_log = logging.getLogger("headrace.state_files")


def remove_former_stores(root: Path, tasks: Collection[TaskName]) -> int:
    """Remove the stores under `root` of parts of the same tasks under another factor than that of `tasks`; how many. Those that
    a process uses stay, a stopped one perhaps."""
    removed = 0
    factors = {task.whole: _factor(task) for task in tasks}
    for place in list(root.iterdir()) if root.is_dir() else ():
        former = _task_of(place)
        if former is None or factors.get(former.whole, _factor(former)) == _factor(former):
            continue
        if remove_store(place):
            removed += 1
            _log.info("local store %s is removed: its task is cut otherwise now", place)
    return removed


def remove_unused_stores(root: Path, tasks: Collection[TaskName], now_us: int, retention_us: int) -> int:
    """Remove the stores under `root` that were not used for `retention_us`, but for those of `tasks`; how many. Those that a
    process uses, or has used meanwhile, stay."""
    places = sorted(root.iterdir()) if root.is_dir() else []
    owners = ((place, _task_of(place)) for place in places)
    found = [FoundStore(str(place), task, _used_us(place)) for place, task in owners if task is not None]
    removed = 0
    for store in unused_stores(found, tasks, now_us, retention_us):
        place = Path(store.folder)
        with owned_now(place) as is_ours:
            if not is_ours or _used_us(place) != store.used_us:
                continue
            environments.close_others(place, None)
            remove_owned(place)
        removed += 1
        hours = (now_us - store.used_us) / 3.6e9
        _log.info("local store %s is removed: its task is not here, and has not used it for %.1f hours", place, hours)
    return removed


def _used_us(place: Path) -> int:
    """When a store was used last, as its status says; of an older version's, or without one, when that or it was written."""
    status = read_status(place)
    if status is not None and status.used_us:
        return status.used_us
    try:
        return (place / STATUS_FILE if status is not None else place).stat().st_mtime_ns // 1000
    except OSError:
        return sys.maxsize  # it was removed meanwhile


def remove_store(place: Path) -> bool:
    """Remove a local store, unless a process uses it."""
    with owned_now(place) as is_ours:
        if is_ours:
            environments.close_others(place, None)
            remove_owned(place)
        return is_ours


def _factor(task: TaskName) -> int:
    return 1 if task.bucket is None else task.bucket.factor


def _task_of(place: Path) -> TaskName | None:
    """Whose store a folder is, one that was made beside it (`~1`) included; None of any other folder."""
    try:
        return TaskName.parse(unquote(place.name.partition("~")[0])) if (place / LOCK_FILE).is_file() else None
    except ValueError:
        return None
