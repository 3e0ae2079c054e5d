"""The status of a job: what `Job.status()` and `App.run()` return."""

from __future__ import annotations

from typing import TypedDict


class SubTopologyStatus(TypedDict):
    """One sub-topology since the start of the job. `lag`: records, on Kafka offsets, that it has not read yet.
    `scale_waits_for`: why another elasticity factor is not in force yet; empty where none waits."""

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
    waiting_for: str
    elasticity_factor: int
    scale_waits_for: str
    stopped_by: str
    notes: list[str]
    known_failures: int


class JobStatus(TypedDict):
    """A job as a whole, and each of its sub-topologies by name; `source` is the one that reads the inputs."""

    application: str
    running: bool
    epoch: int
    job_model: int
    sub_topologies: dict[str, SubTopologyStatus]


class RunStatus(JobStatus):
    """The last status of a job that ran in the foreground. `signal`: the number of the signal that stopped it."""

    stopped: bool
    signal: int | None
