"""Leaving a job's local stores so that the next run need not scan them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from headrace.adapters.lmdb import seal
from headrace.core.topology.sub_topologies import has_state
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.rounds.planned_round import WorkerPaths
from headrace.exchange.engine import Engine
from headrace.state.files import task_folder_of
from headrace.worker.host import this_host

LOG = logging.getLogger("headrace.state")
SEAL_S_MAX = 5.0
START_S_MAX = 25.0  # until workers on other machines begin to seal


def sealing(engine: Engine, place: WorkerPaths, plan: JobPlan) -> Callable[[], None]:
    """What seals, at the end of a run, the stores of all tasks on each machine that has workers."""
    tasks = [task.name for sub in plan.subs if has_state(sub) for task in plan.model.sub_topology(sub.name).tasks]
    folders = [task_folder_of(plan.topology.application, task) for task in tasks]
    work = partial(seal_stores, place.local_store_dir, folders, place.run_id)
    return partial(engine.on_each_machine, work, START_S_MAX + SEAL_S_MAX) if tasks else lambda: None


def seal_stores(local_store_dir: str, folders: list[str], run_id: str) -> None:
    """Seal the stores that the run has left in order on this machine, as far as `SEAL_S_MAX` goes."""
    started, host = time.monotonic(), this_host(local_store_dir)
    stores = [host.local_store_dir / folder for folder in folders]
    sealed = [seal(store, run_id, host.boot_id, started + SEAL_S_MAX) for store in stores]
    LOG.debug("sealed %d of %d local stores in %.2f s", sum(sealed), len(folders), time.monotonic() - started)
