"""A job as other processes see it, for programs: its status, its tasks, its history.

The commands print it with `--json`, the pages of `headrace ui` show it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.adapters.common.lease_holder import is_alive
from headrace.client.job_look import JobLook, group_at_work
from headrace.core.group.grants import processor_of
from headrace.core.health import absent_processors
from headrace.driver.planning.stored_locality import StoredLocality
from headrace.model.change import Change
from headrace.model.durations import time_text
from headrace.model.job_model import ContainerModel, SubTopologyModel
from headrace.model.tasks import TaskName

_OF_OTHER_VIEWS = frozenset(  # of what is reported
    {"job_metrics", "task_metrics", "observed", "rejected_executors", "task_commits", "task_errors", "host_before"}
)


def status_document(job: JobLook, url: str) -> dict[str, Any]:
    """Whether it runs, and per sub-topology what it has reported last, with the lag of now. `url`: of its system."""
    holder = _holder(job.store.holder())
    working = group_at_work(job.store)
    job.is_running = bool(working) or (holder is not None and holder["alive"])
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
        "working_processors": working,
        "job_model": job.model.version,
        "counts_of": "this run" if job.is_running else "the last run",
        "metrics": measured,
        "rejected_executors": rejected,
        "sub_topologies": subs,
    }


def tasks_document(job: JobLook) -> dict[str, Any]:
    """The job model, and of each task where it is and how it came there, what it reads, its lag of now, when it has committed
    last, what went wrong last in it, and what was measured of it last. Of a job that is not on a cluster and not in a group
    `host` is where it runs, or ran."""
    reported = job.store.status()
    ran = {str(task): place for task, place in _locality(job).items()}
    commits = {task: at_us for one in reported.values() for task, at_us in one.get("task_commits", {}).items()}
    errors = _last_errors(reported)
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
            "host": last.get("host") if container.location_id is None else None,
            "came": came_of(str(task.name) in restoring, job.model.version, container, ran.get(str(task.name)), last),
            "last_commit": time_text(commits[str(task.name)]) if str(task.name) in commits else None,
            "last_error": errors.get(str(task.name)),
            "restoring": restoring.get(str(task.name)),
            "metrics": measured.get(sub.title, {}).get(str(task.name), {}),
        }
        for sub, last in ((sub, reported.get(sub.title, {})) for sub in job.model.sub_topologies)
        for container in sub.containers
        for task in container.tasks
    ]
    return {"job_model": job.model.version, "tasks": rows, "notes": job.notes(job.model.sub_topologies)}


def came_of(
    is_restoring: bool, version: int, container: ContainerModel, ran: str | None, reported: Mapping[str, Any]
) -> str | None:
    """How a task came to where it is under job model `version`, None where that is not known. `ran`: where it has run last;
    `reported`: by its sub-topology, with the hosts of this run and of the one before it.

    >>> came_of(False, 3, ContainerModel(0, (), "a", "host-1", since=1), "host-1", {})
    'same processor'
    >>> came_of(False, 3, ContainerModel(0, (), "a", "host-1"), "host-2", {})
    'moved'
    >>> came_of(False, 3, ContainerModel(0, ()), None, {"host": "h", "host_before": "h"})
    'same host'
    """
    if is_restoring:
        return "restoring"
    if container.since is not None and container.since < version:
        return "same processor"
    here, before = container.location_id, ran
    if here is None:
        here, before = reported.get("host"), reported.get("host_before")
    if here is None:
        return None
    return "new" if before is None else "same host" if before == here else "moved"


def _locality(job: JobLook) -> Mapping[TaskName, str]:
    return StoredLocality(job.system.metadata_store(job.application)).read_processor_locality().get_locality()


def _last_errors(reported: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By task: several processors may have reported of one that has moved."""
    found: dict[str, tuple[int, str]] = {}
    for one in reported.values():
        for at_us, text, tasks in one.get("task_errors", ()):
            for task in tasks:
                found[task] = max(found.get(task, (0, "")), (at_us, text))
    return {task: {"at": time_text(at_us), "error": text} for task, (at_us, text) in found.items()}


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
