"""Two jobs on Spark whose input grows under them, one with state and one without, in a process that tests kill.

`python storm_child.py serve` speaks as `support/child.py` does. What the jobs look like while they run (their job model, tasks,
Spark application) is written to a file at each change: a killed process leaves no report.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
import headrace.adapters.kafka.coordinator_store
import headrace.adapters.spark.engine
import headrace.wiring.launch  # a driver would import these anyway: before it is forked, each start is that much quicker
from expansion.growing_job import BUILDS
from headrace import wiring
from support.forking import print_to_file, report_end, serve, trap_steps


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the applications `NAME-stateful` and `NAME-stateless`, which read `NAME-in`."""

    name: str
    servers: str
    folder: str
    report: str
    steps_log: str
    until: str | None = None
    traps: str = ""
    run_s: float = 300.0

    @property
    def seen(self) -> Path:
        """The file of what was seen of the jobs, a line of JSON for each change."""
        return Path(f"{self.report}.seen")


def applications(run: Run) -> dict[str, hr.App]:
    """By build; they share one Spark."""
    made: dict[str, hr.App] = {}
    for build in BUILDS:
        name = f"{run.name}-{build}"
        app = hr.App(
            name,
            f"kafka://{run.servers}",
            config={"spark.master": "local[2,4]"},
            local_store_dir=f"{run.folder}/stores",
            state_uri=f"{run.folder}/state",
            max_records_per_round=400,
            trigger_interval_ms=20,
            partition_check_interval_s=0.5,
        )
        made[build] = BUILDS[build](app, f"{run.name}-in")
    return made


def finish(run: Run) -> int:
    """Run the jobs until they have caught up."""

    def work() -> dict[str, Any]:
        jobs = _started(run)
        last: Any = None
        deadline_s = time.monotonic() + run.run_s
        while any(job.is_running for job, _ in jobs.values()):
            assert time.monotonic() < deadline_s, {build: job.status() for build, (job, _) in jobs.items()}
            now = {build: _looks(*started) for build, started in jobs.items()}
            if now != last:
                with run.seen.open("a") as file:
                    file.write(json.dumps(now) + "\n")
                last = now
            time.sleep(0.05)
        for job, _ in jobs.values():
            job.wait(0)
        return {}

    return report_end(run, work)


def _started(run: Run) -> dict[str, tuple[Any, str]]:
    """By build the job and its Spark application's id. They share a session that neither stops when it ends."""
    jobs: dict[str, tuple[Any, str]] = {}
    session: Any = None
    for build, app in applications(run).items():
        if session is None:
            session = app.spark
        app.session.running = session
        jobs[build] = (wiring.start(app, run.until), session.sparkContext.applicationId)
    return jobs


def _looks(job: Any, spark: str) -> dict[str, Any]:
    source = job.status()["sub_topologies"]["source"]
    return {
        "model": job.status()["job_model"],
        "tasks": source["tasks"],
        "at_work": source["records"] > 0,
        "spark": spark,
        "partitions": max(job.plan.model.partition_counts.values()),
    }


def prepare(run: Run) -> None:
    trap_steps(run)
    print_to_file(run)


if __name__ == "__main__":
    serve(Run, prepare, finish, 30)
