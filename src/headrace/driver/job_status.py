"""The status of a job: what `Job.status()` and `App.run()` return."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headrace.driver.autosizing import AutosizingStatus
from headrace.driver.rounds.progress import LastRounds
from headrace.driver.store_restoration import RestoringStatus

if TYPE_CHECKING:
    from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner


ShownMetrics = dict[str, float | dict[str, float] | None]
"""Metrics by name: a number, or several by a name of their own; None where one is not known."""


class ProgressStatus(TypedDict):
    """How far a sub-topology is, since the start of the job. `lag`: records, on Kafka offsets, that it has not read yet.
    `timings_ms`: the last round by phase, `last_rounds` also those before it, of earlier runs too."""

    records: int
    records_per_s: int
    records_written: int
    lag: int
    round: int
    tasks: int
    containers: int
    counters: dict[str, int]
    counters_of_all_runs: dict[str, int]
    timings_ms: dict[str, float]
    last_rounds: LastRounds
    elasticity_factor: int
    notes: list[str]
    known_failures: int


class SubTopologyStatus(ProgressStatus):
    """One sub-topology. `scale_waits_for`: why another elasticity factor is not in force yet; empty where none waits.
    `autosizing`: what the built-in controller decided last, None where it is off.
    `restoring`: on a cluster, the tasks whose local stores are restored in the background.
    `metrics`: by name, since the plan was made: a number; of tasks and containers `sum` and `max`; and loads of the last 10 and
    60 s."""

    waiting_for: str
    scale_waits_for: str
    autosizing: AutosizingStatus | None
    restoring: list[RestoringStatus]
    stopped_by: str
    metrics: ShownMetrics


def progress_status(runner: SubTopologyRunner, seconds: float) -> ProgressStatus:
    """What a sub-topology has done in so many seconds, for people."""
    progress = runner.progress
    return {
        "records": progress.records,
        "records_per_s": round(progress.records / max(seconds, 1e-3)),
        "records_written": progress.records_written,
        "lag": progress.lag,
        "round": progress.rounds,
        "tasks": len(runner.tasks),
        "containers": len(runner.model.containers),
        "counters": dict(sorted(progress.counters.items())),
        "counters_of_all_runs": progress.counters_of_all_runs(),
        "timings_ms": progress.timings_ms,
        "last_rounds": progress.last_rounds(),
        "elasticity_factor": runner.model.elasticity_factor,
        "notes": progress.notes[-3:],
        "known_failures": len(runner.planner.known_failures),
    }


class JobStatus(TypedDict):
    """A job as a whole, and each of its sub-topologies by name; `source` is the one that reads the inputs. `metrics`: of the
    job itself, by name. `rejected_executors`: by host, why Spark's executors there get no work."""

    application: str
    running: bool
    epoch: int
    job_model: int
    metrics: ShownMetrics
    rejected_executors: dict[str, str]
    sub_topologies: dict[str, SubTopologyStatus]


class ProcessorStatus(JobStatus):
    """What one processor of a standalone group runs: sub-topologies have counters of its containers alone, and lags of all.
    `waiting_for`: why it runs none; `has_tasks`: whether the job model in force has some for it, which wait for it when it
    stops."""

    processor_id: str
    is_leader: bool
    waiting_for: str
    has_tasks: bool


class RunStatus(JobStatus):
    """The last status of a job that ran in the foreground. `stopped`: a signal or a request ended it; `signal`: its
    number, None where it was a request."""

    stopped: bool
    signal: int | None
