"""What is done with the local stores of all machines that have workers: they are sealed, and removed when they are not used."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from headrace.adapters.common import lease_holder as holders
from headrace.adapters.lmdb import seal
from headrace.adapters.lmdb.former_stores import remove_unused_stores
from headrace.driver.rounds.planned_round import WorkerPaths
from headrace.exchange.engine import Engine
from headrace.model.job_model import JobModel
from headrace.model.tasks import TaskName
from headrace.wiring.worker.location import local_folder_of, location_of

LOG = logging.getLogger("headrace.state_files")
SEAL_S_MAX = 5.0
SEAL_START_S_MAX = 25.0  # until workers on other machines begin to seal
REMOVE_S_MAX = 60.0


def sealing(engine: Engine, paths: WorkerPaths, application: str) -> Callable[[], None]:
    """What seals, at the end of a run, the stores that it has left on each machine that has workers: the next run need not scan
    them. They are looked for then, as tasks come and go with each job model. On this machine Spark and its workers are to have
    ended before."""
    work = partial(_seal_stores, paths.local_store_dir, application, paths.run_id)
    return partial(engine.on_each_machine, work, SEAL_START_S_MAX + SEAL_S_MAX)


def _seal_stores(local_store_dir: str, application: str, run_id: str) -> None:
    """Seal the stores that the run has left in order on this machine, as far as `SEAL_S_MAX` goes: those first that were used
    last."""
    started, boot_id = time.monotonic(), holders.boot_id()
    root = Path(local_folder_of(local_store_dir)) / application
    folders = [one for one in root.iterdir() if one.is_dir()] if root.is_dir() else []
    folders.sort(key=lambda folder: folder.stat().st_mtime_ns, reverse=True)  # a change of its status changes the folder
    sealed = [seal(folder, run_id, boot_id, started + SEAL_S_MAX) for folder in folders]
    LOG.debug("sealed %d of %d local stores in %.2f s", sum(sealed), len(folders), time.monotonic() - started)


def remove_unused(engine: Engine, paths: WorkerPaths, retention_s: float, model: JobModel) -> None:
    """Remove, on each machine that has workers, the stores of this application that were not used for `retention_s`, but for
    those of the tasks that are assigned to it under `model`."""
    tasks: dict[str | None, list[TaskName]] = {}  # by location; None: of any
    for sub in model.sub_topologies:
        for container in sub.containers:
            tasks.setdefault(container.location_id, []).extend(task.name for task in container.tasks)
    work = partial(_remove_unused, paths.local_store_dir, model.application, tasks, paths.location_id, retention_s)
    engine.on_each_machine(work, REMOVE_S_MAX)


def _remove_unused(
    local_store_dir: str,
    application: str,
    tasks: Mapping[str | None, Sequence[TaskName]],
    location_id: str | None,
    retention_s: float,
) -> None:
    is_placed = any(location is not None for location in tasks)
    here = location_of(location_id) if is_placed else None
    mine = {*tasks.get(None, ()), *tasks.get(here, ())}
    root = Path(local_folder_of(local_store_dir)) / application
    remove_unused_stores(root, mine, time.time_ns() // 1000, int(retention_s * 1e6))
