"""A job under load, reckoned second by second: what its tasks can process, how far behind it is, and what would be observed.

It knows nothing of how a controller decides. Keys have fixed hashes, so that a hot key stays in one task under any factor.
Threads of one container use one processor together. A change takes a pause, and where it merges tasks an alignment before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.core.metrics.observations import SubTopologyLoad, SubTopologyObservation, TaskLoad, TaskObservation
from headrace.model.scale import Scale
from headrace.model.tasks import KeyBucket, PartitionGroup, TaskName

LOOK_S = 10


@dataclass(frozen=True)
class Work:
    """What one record takes, and what else there is. `wait_s`: of something else than a processor; `compute_s`: of one.
    `services`: so many records wait at once at most, whatever the number of threads. `commit_share`: of all time."""

    wait_s: float = 0.0
    compute_s: float = 0.0
    services: float = float("inf")
    commit_share: float = 0.02


@dataclass
class LoadedJob:
    """`keys`: of each partition the keys' hashes and their parts of its records. `arrivals`: records per second, of all
    partitions, at a time in seconds."""

    work: Work
    arrivals: Callable[[float], float]
    keys: Sequence[Sequence[tuple[int, float]]]
    slots: int = 2
    scale: Scale = field(default_factory=Scale)
    pause_s: float = 0.5
    align_s: float = 2.0
    noise: float = 0.0
    seed: int = 0
    now_s: float = 0.0
    changed_at_s: float | None = None
    changes: list[tuple[float, Scale, Scale]] = field(default_factory=list)
    slowed_by: str = ""
    replayed: float = 0.0  # records of the lag that were read before
    tick_s: float = 2.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.partition = np.array([number for number, keys in enumerate(self.keys) for _ in keys])
        self.hash = np.array([hash_ for keys in self.keys for hash_, _ in keys])
        self.part = np.array([part for keys in self.keys for _, part in keys]) / len(self.keys)
        self.backlog = np.zeros(len(self.part))
        self.due: tuple[float, Scale] | None = None
        self.paused_until_s = 0.0
        self.planned_s = 0.0
        self._place()
        self._forget()

    @property
    def lag(self) -> float:
        return float(self.backlog.sum())

    @property
    def tasks(self) -> int:
        return len(self.keys) * self.scale.factor

    @property
    def containers(self) -> int:
        return min(self.scale.containers or self.slots, self.slots, self.tasks)

    @property
    def threads(self) -> int:
        """One for each virtual task of a container, as soon as it was seen that these wait."""
        waits = self.work.wait_s > 0.3 * (self.work.wait_s + self.work.compute_s)
        return min(32, -(-self.tasks // self.containers)) if waits and self.scale.factor > 1 else 1

    def set(self, scale: Scale) -> None:
        merges = scale.factor < self.scale.factor
        self.due = self.now_s + (self.align_s if merges else 0.0), scale

    def add(self, records: float, replayed: bool = False) -> None:
        self.backlog += records * self.part
        self.replayed += records if replayed else 0.0

    def run(self, seconds: float = LOOK_S) -> SubTopologyObservation:
        for _ in range(round(seconds / self.tick_s)):
            self._tick()
        return self.observed()

    def _tick(self) -> None:
        coming = self.tick_s * self.arrivals(self.now_s) * self.random.uniform(1 - self.noise, 1 + self.noise)
        self.add(coming)
        self.came += coming
        if self.due is not None and self.now_s >= self.due[0]:
            self.changes.append((self.now_s, self.scale, self.due[1]))
            self.scale, self.due, self.changed_at_s, self.planned_s = self.due[1], None, self.now_s, self.now_s
            self.paused_until_s = self.now_s + self.pause_s
            self._place()
            self._forget()
        free_s = min(self.tick_s, max(0.0, self.now_s + self.tick_s - self.paused_until_s)) * (1 - self.work.commit_share)
        if not self.slowed_by and free_s > 0:
            self._process(free_s)
        self.now_s += self.tick_s
        self.observed_s += self.tick_s

    def _place(self) -> None:
        """Keys into tasks, and tasks into containers in turn."""
        factor = self.scale.factor
        self.task_of_key = self.partition * factor + (self.hash & (factor - 1))
        self.lanes = np.arange(self.tasks) % self.containers

    def _process(self, free_s: float) -> None:
        """What each task would like to process, cut to what threads, processors and the service allow."""
        work, threads, each_s = self.work, self.threads, self.work.wait_s + self.work.compute_s
        wanted = np.bincount(self.task_of_key, self.backlog, self.tasks)
        busy = np.minimum(wanted * each_s, free_s)
        within = np.bincount(self.lanes, busy, self.containers)
        busy *= np.minimum(1.0, threads * free_s / np.maximum(within, 1e-12))[self.lanes]
        computed = np.bincount(self.lanes, busy, self.containers) * work.compute_s / each_s
        slower = np.maximum(1.0, computed / free_s)[self.lanes]  # as tasks of a container wait for one processor
        crowd = max(1.0, busy.sum() * work.wait_s / each_s / (work.services * free_s))
        done = busy / each_s / np.maximum(slower, crowd)
        self.backlog *= np.maximum(0.0, 1 - done / np.maximum(wanted, 1e-12))[self.task_of_key]
        self.replayed = max(0.0, self.replayed - done.sum())
        self.busy += busy
        self.waited += np.maximum(0.0, busy - done * work.compute_s)
        self.done += done

    def _forget(self) -> None:
        """A new plan is observed from its beginning."""
        self.observed_s = self.came = 0.0
        self.busy, self.waited, self.done = np.zeros(self.tasks), np.zeros(self.tasks), np.zeros(self.tasks)

    def _name(self, number: int) -> TaskName:
        partition, bucket = divmod(number, self.scale.factor)
        return TaskName(
            PartitionGroup(partition), None, KeyBucket(bucket, self.scale.factor) if self.scale.factor > 1 else None
        )

    def observed(self) -> SubTopologyObservation:
        """Of the time since the last look, or since the last change."""
        seconds = max(self.observed_s, 1e-9)
        busy, waited, done = (np.round(each / seconds, 6) for each in (self.busy, self.waited, self.done))
        tasks = tuple(
            TaskObservation(
                self._name(number), int(self.lanes[number]), 0, TaskLoad(busy[number], waited[number], done[number])
            )
            for number in range(self.tasks)
        )
        busiest = float(np.bincount(self.lanes, busy, self.containers).max()) / self.threads
        load = SubTopologyLoad(
            float(done.sum()), self.came / seconds, 1.0, self.work.commit_share, busiest, float(waited.max()), None
        )
        found = SubTopologyObservation(
            "source",
            self.scale.factor,
            self.tasks,
            self.containers,
            self.slots,
            self.threads,
            round(self.lag),
            self.now_s - self.planned_s,
            load,
            load,
            last_pause_s=self.pause_s if self.changes else None,
            is_merging=self.due is not None and self.due[1].factor < self.scale.factor,
            is_changing=self.due is not None,
            is_replaying=self.replayed > 0,
            tasks=tasks,
        )
        self._forget()
        return found


def even_keys(partitions: int = 1, count: int = 64) -> list[list[tuple[int, float]]]:
    """Keys whose hashes fall evenly into the buckets of any factor."""
    return [[(number, 1 / count) for number in range(count)] for _ in range(partitions)]


def hot_keys(part: float, count: int = 64) -> list[list[tuple[int, float]]]:
    """One partition, of which one key has this part of the records."""
    return [[(5, part), *((number, (1 - part) / count) for number in range(count))]]
