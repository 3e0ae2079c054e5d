"""A job as other processes see it, for programs: its status, its tasks, its history.

The commands print it with `--json`, the pages of `headrace ui` show it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.adapters.common.lease_holder import is_alive
from headrace.client.job_look import JobLook
from headrace.core.group.grants import processor_of
from headrace.core.health import absent_processors
from headrace.model.change import Change
from headrace.model.durations import time_text
from headrace.model.job_model import SubTopologyModel

_OF_OTHER_VIEWS = frozenset({"job_metrics", "task_metrics", "observed", "rejected_executors"})  # of what is reported


def status_document(job: JobLook, url: str) -> dict[str, Any]:
    """Whether it runs, and per sub-topology what it has reported last, with the lag of now. `url`: of its system."""
    holder = _holder(job.store.holder())
    job.is_running = holder is not None and holder["alive"]
    reported = job.store.status()
    subs: dict[str, dict[str, Any]] = {}
    measured: dict[str, Any] = {}
    rejected: dict[str, str] = {}
    for sub in job.model.sub_topologies:
        last = reported.get(sub.title, {})
        measured |= last.get("job_metrics", {})
        rejected |= last.get("rejected_executors", {}) if job.is_running else {}
        tasks, by_processor = list(sub.tasks), _tasks_by_processor(sub)
        waiting = _waiting_for_processors(by_processor, last) if job.is_running else []
        subs[sub.title] = {name: one for name, one in last.items() if name not in _OF_OTHER_VIEWS} | {
            "tasks": len(tasks),
            "containers": len(sub.containers),
            "tasks_by_processor": by_processor,
            "lag": job.lag_of(tasks) + job.lag_of_new_partitions(sub),
            "notes": [*last.get("notes", ()), *job.notes([sub]), *waiting],
        }
    return {
        "application": job.application,
        "system": url,
        "running": job.is_running,
        "holder": holder,
        "job_model": job.model.version,
        "counts_of": "this run" if job.is_running else "the last run",
        "metrics": measured,
        "rejected_executors": rejected,
        "sub_topologies": subs,
    }


def tasks_document(job: JobLook) -> dict[str, Any]:
    """The job model, and of each task what it reads, its lag of now, and what was measured of it last."""
    reported = job.store.status()
    measured = {name: _metrics_by_task(one) for name, one in reported.items()}
    restoring = {one["task"]: one for sub in reported.values() for one in sub.get("restoring", ())}
    rows = [
        {
            "task": str(task.name),
            "sub_topology": sub.title,
            "container": container.lane,
            "reads": [f"{ssp.stream}/{ssp.partition}" for ssp in task.ssps],
            "lag": job.lag_of([task]),
            "processor": container.processor_id,
            "location": container.location_id,
            "restoring": restoring.get(str(task.name)),
            "metrics": measured.get(sub.title, {}).get(str(task.name), {}),
        }
        for sub in job.model.sub_topologies
        for container in sub.containers
        for task in container.tasks
    ]
    return {"job_model": job.model.version, "tasks": rows, "notes": job.notes(job.model.sub_topologies)}


def change_document(one: Change) -> dict[str, Any]:
    """An entry of the history, for programs."""
    return {
        "at": time_text(one.at_us),
        "kind": one.kind.value,
        "what": one.what,
        "requested_by": one.requested_by or None,
        "outcome": one.outcome.value,
        "job_model": one.job_model,
        "from": one.before or None,
        "to": one.after or None,
        "pause_ms": None if one.pause_us is None else one.pause_us / 1000,
        "phases_ms": {name: phase_us / 1000 for name, phase_us in one.ordered_phases_us.items()},
        "why": one.why or None,
    }


def _tasks_by_processor(sub: SubTopologyModel) -> dict[str, int]:
    """How many tasks each processor of a standalone group, or of a cluster, has."""
    found = Counter[str]()
    for container in sub.containers:
        if (id_ := processor_of(container)) is not None:
            found[id_] += len(container.tasks)
    return dict(found)


def _waiting_for_processors(by_processor: Mapping[str, int], reported: Mapping[str, Any]) -> list[str]:
    return [
        f"{by_processor[id_]:,} tasks wait for processor {id_}, which does not report: it has stopped, or starts"
        for id_ in absent_processors(by_processor, reported)
    ]


def _metrics_by_task(reported: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What a sub-topology has reported of its tasks, by metric."""
    table = reported.get("task_metrics", {"columns": [], "rows": {}})
    return {task: dict(zip(table["columns"], row, strict=True)) for task, row in table["rows"].items()}


def _holder(holder: Any) -> dict[str, Any] | None:
    """Who holds the job. `alive`: not known to have ended, and its last heartbeat is newer than the takeover limit."""
    if holder is None:
        return None
    now_us = time.time_ns() // 1000
    silent_s = round(max(0, now_us - holder.heartbeat_us) / 1e6, 1)
    return {"host": holder.host, "pid": holder.pid, "silent_s": silent_s, "alive": is_alive(holder, now_us)}
