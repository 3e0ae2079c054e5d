"""How busy a sub-topology is, in the few numbers by which its scale is decided. `core.metrics.observations` has more of it,
task by task, for people and for controllers of their own; the built-in one keeps only this, of many moments. Seed: SEP-32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from headrace.core.metrics.observations import SubTopologyObservation, TaskObservation
from headrace.core.rounds.task_threads import threads_of
from headrace.model.scale import Scale
from headrace.model.tasks import TaskName

WAITS_MIN = 0.5  # of the busy time, for work that waits
COMPUTES_MIN = 0.7  # of the time of a container, for work that computes


@dataclass(frozen=True, slots=True)
class ScaleFacts:
    """What is known of a sub-topology besides its observation, at `at_us` (µs since the epoch).

    `scale`: what is in force, `changed_at_us` since when, None where no change is on record, and `pause_s` how long no round
    ran for that change. `task_threads`: as configured. `slowed_by`: the sub-topology that has to read first, with its lag, for
    people.
    """

    at_us: int
    scale: Scale
    changed_at_us: int | None = None
    pause_s: float | None = None
    task_threads: int | None = None
    slowed_by: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """What a sub-topology did lately. Shares are parts of the time. `observed_s`: for how long its plan had been observed then.

    `held_by`: a change, an alignment or a replay that is on, for people; empty where there is none. `is_replaying`: it is a
    replay. `lag`: offsets that it has not read; `read_per_s`: that it read, `incoming_per_s`: that came.

    - `busy_share`: of the busiest container or task. A container with several threads is as busy as its busiest task; with one,
      its tasks take turns
    - `total_share`: of all tasks, summed, and `merged_share`: of the busiest task that there would be under half the factor
    - `processor_share`: of the busiest container, the part in which its tasks used a processor
    - `wait_share`: of the busy time of all tasks, the part in which they waited for something else than a processor
    - `commit_share`: state was written, or something committed
    - `hot_key_share`: of the partition with the busiest task, the part of the load that one key would have, if all others
      were spread evenly; `hot_task`: the task with that key
    """

    facts: ScaleFacts
    observed_s: float = 0.0
    tasks: int = 1
    containers: int = 1
    slots: int = 1
    threads: int = 1
    lag: int = 0
    read_per_s: float = 0.0
    incoming_per_s: float | None = None
    busy_share: float = 0.0
    total_share: float = 0.0
    merged_share: float = 0.0
    processor_share: float = 0.0
    wait_share: float = 0.0
    commit_share: float = 0.0
    hot_key_share: float = 0.0
    hot_task: str = ""
    held_by: str = ""
    is_replaying: bool = False

    @property
    def at_us(self) -> int:
        return self.facts.at_us

    @property
    def scale(self) -> Scale:
        return self.facts.scale

    @property
    def waits(self) -> bool:
        """Whether more tasks can work at the same time without more processors. Threads of one Python process that compute
        wait for each other; they show as a container that uses a processor all the time."""
        return self.wait_share > WAITS_MIN and self.processor_share < COMPUTES_MIN

    @property
    def at_once(self) -> int:
        """How many tasks are processed at the same time."""
        return min(self.tasks, self.containers * self.threads)

    def tasks_with(self, factor: int) -> int:
        return max(1, self.tasks * factor // self.scale.factor)

    def at_once_with(self, factor: int, containers: int) -> int:
        """How many tasks would be processed at the same time under another scale."""
        tasks = self.tasks_with(factor)
        lanes = min(containers, tasks)
        threads = threads_of(self.facts.task_threads, -(-tasks // lanes), are_virtual=factor > 1, wait=self.waits)
        return min(tasks, lanes * threads)


def load_of(seen: SubTopologyObservation, facts: ScaleFacts) -> Load:
    """What counts of an observation.

    >>> from headrace.core.metrics.observations import SubTopologyLoad, TaskLoad
    >>> from headrace.model.tasks import KeyBucket, PartitionGroup
    >>> def task(index, busy):
    ...     name = TaskName(PartitionGroup(0), None, KeyBucket(index, 2))
    ...     return TaskObservation(name, 0, 9, TaskLoad(busy, 0.75 * busy))
    >>> load = SubTopologyLoad(records_per_s=50.0, incoming_per_s=60.0, busy_share=0.5, wait_share=0.375)
    >>> both = task(0, 0.75), task(1, 0.25)
    >>> seen = SubTopologyObservation("source", 2, 2, 1, 2, 2, 9, 10.0, load, load, tasks=both)
    >>> found = load_of(seen, ScaleFacts(0, Scale(2)))
    >>> found.busy_share, found.total_share, found.merged_share, found.wait_share, found.waits, found.hot_key_share
    (0.75, 1.0, 1.0, 0.75, True, 0.5)
    """
    whole, tasks = seen.last_10_s, seen.tasks
    busiest = max((task.last_10_s.busy_share for task in tasks), default=0.0)
    computed = _summed((one.container, one.last_10_s.busy_share - one.last_10_s.wait_share) for one in tasks)
    merged = _summed((_under_half(one.task), one.last_10_s.busy_share) for one in tasks)
    per_container = whole.busy_share * seen.threads  # of the busiest; all that is known where tasks are too many to be listed
    total = sum(one.last_10_s.busy_share for one in tasks) if tasks else per_container * seen.containers
    waited = sum(one.last_10_s.wait_share for one in tasks) if tasks else whole.wait_share * seen.threads * seen.containers
    hot_key_share, hot_task = _hot_key(tasks)
    return Load(
        facts,
        observed_s=seen.observed_s,
        tasks=max(1, seen.task_count),
        containers=max(1, seen.containers),
        slots=seen.slots,
        threads=max(1, seen.threads),
        lag=seen.lag,
        read_per_s=whole.records_per_s,
        incoming_per_s=whole.incoming_per_s,
        busy_share=min(1.0, max(whole.busy_share, busiest)),
        total_share=total,
        merged_share=max(merged.values(), default=2 * whole.busy_share),
        processor_share=max(computed.values(), default=(whole.busy_share - whole.wait_share) * seen.threads),
        wait_share=waited / total if total else 0.0,
        commit_share=whole.commit_share,
        hot_key_share=hot_key_share,
        hot_task=hot_task,
        held_by=_held_by(seen),
        is_replaying=seen.is_replaying,
    )


def _held_by(seen: SubTopologyObservation) -> str:
    if seen.is_merging:
        return "tasks that are to be merged are brought together"
    if seen.is_changing:
        return "another change of the plan is due"
    return "records are read again that were read before" if seen.is_replaying else ""


def _summed(parts: Iterable[tuple[Hashable, float]]) -> dict[Hashable, float]:
    found: dict[Hashable, float] = defaultdict(float)
    for key, part in parts:
        found[key] += part
    return found


def _under_half(task: TaskName) -> Hashable:
    """What a task would be a part of under half the factor: buckets 1 and 3 of 4 are bucket 1 of 2."""
    return task.whole, 0 if task.bucket is None else task.bucket.index % max(1, task.bucket.factor // 2)


def _hot_key(tasks: Iterable[TaskObservation]) -> tuple[float, str]:
    """The part q of its partition's load that one key has: its task among n has q + (1 - q) / n."""
    busiest = max(tasks, key=lambda one: one.last_10_s.busy_share, default=None)
    if busiest is None or busiest.task.bucket is None:
        return 0.0, ""
    whole, count = busiest.task.whole, busiest.task.bucket.factor
    load = sum(one.last_10_s.busy_share for one in tasks if one.task.whole == whole)
    if not load:
        return 0.0, ""
    return max(0.0, (busiest.last_10_s.busy_share / load * count - 1) / (count - 1)), str(busiest.task)
