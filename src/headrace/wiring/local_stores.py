"""Leaving a job's local stores so that the next run need not scan them."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from headrace.adapters.lmdb import seal
from headrace.core.topology.sub_topologies import has_state
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.rounds.round_planner import WorkerPaths
from headrace.state.files import task_folder_of

LOG = logging.getLogger("headrace.state")
SEAL_S_MAX = 5.0


def seal_stores(place: WorkerPaths, plan: JobPlan) -> None:
    """At the end of a run: seal the stores of all tasks that this machine has, as far as `SEAL_S_MAX` goes."""
    started = time.monotonic()
    stateful = [sub for sub in plan.subs if has_state(sub)]
    tasks = [task.name for sub in stateful for task in plan.model.sub_topology(sub.name).tasks]
    stores = Path(place.local_store_dir)
    folders = [stores / task_folder_of(plan.topology.application, task) for task in tasks]
    sealed = [seal(folder, place.run_id, place.boot_id, started + SEAL_S_MAX) for folder in folders]
    LOG.debug("sealed %d of %d local stores in %.2f s", sum(sealed), len(tasks), time.monotonic() - started)
