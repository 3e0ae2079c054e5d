"""What is observed of a running job, as values: how busy its tasks are, and how far behind. `Job.observations()` gives
them, and what decides about a job's scale goes by them. Seed: SEP-32 "Monitoring and Operations".
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.tasks import TaskName

OBSERVED_TASKS_MAX = 1_000  # of a sub-topology with more tasks only sums and maxima are kept and published


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """What one task did over a span of time. `busy_share`: for how much of that time the task was being processed: functions,
    operators and state. `wait_share`: for how much of it the task was being processed and waited for something else than a
    processor: a service, a disk, or in a container with several threads another one of them. So
    0 <= `wait_share` <= `busy_share` <= 1. `records_per_s`: records that it processed, per second."""

    busy_share: float = 0.0
    wait_share: float = 0.0
    records_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskObservation:
    """One task. `container`: its lane. `lag`: offsets of its partitions that can be read and that it is not past yet; a virtual
    task counts those of its siblings' records too, so lags of virtual tasks do not add up."""

    task: TaskName
    container: int
    lag: int
    last_10_s: TaskLoad = TaskLoad()
    last_60_s: TaskLoad = TaskLoad()


@dataclass(frozen=True, slots=True)
class SubTopologyLoad:
    """What a sub-topology did over a span of time; shares are of that time.

    `records_per_s`: records that its tasks processed. `incoming_per_s`: offsets by which its inputs grew; None where that is
    not known yet. `round_share`: a round was running, from its plan to the end of its commit. `commit_share`: state was
    written, or something committed, in the slowest container and by the driver. `busy_share`: the busiest container had its
    threads process tasks: near `round_share` where functions are the limit. `wait_share`: the same container's threads
    processed tasks and waited meanwhile. `hot_share`: processed time of the largest task over that of the mean one, 1.0 where
    all are alike; None where nothing was processed. `written_per_s`: records that it wrote to streams."""

    records_per_s: float = 0.0
    incoming_per_s: float | None = None
    round_share: float = 0.0
    commit_share: float = 0.0
    busy_share: float = 0.0
    wait_share: float = 0.0
    hot_share: float | None = None
    written_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SubTopologyObservation:
    """One sub-topology, by its title (`source` for that of the inputs), under the plan that is in force.

    `slots`: how many Spark tasks the engine runs at once. `threads`: the most that one of its containers works with. `lag`:
    offsets that it can read and has not read. `observed_s`: how long this plan has been observed: the loads are of that time,
    where it is shorter than theirs. `last_pause_s`: how long no round ran for the last change of plan of this run, None without
    one. `is_changing`: another plan is due. `is_merging`: tasks are brought, or wait to come, to one position, before a smaller
    factor. `is_replaying`: a task reads again what it has read before, or has not come past what it skips.
    `tasks`: in the order of the job model; empty where there are more than `OBSERVED_TASKS_MAX`."""

    sub_topology: str
    elasticity_factor: int
    task_count: int
    containers: int
    slots: int
    threads: int
    lag: int
    observed_s: float
    last_10_s: SubTopologyLoad
    last_60_s: SubTopologyLoad
    last_pause_s: float | None = None
    is_changing: bool = False
    is_merging: bool = False
    is_replaying: bool = False
    tasks: tuple[TaskObservation, ...] = ()
