"""Which lanes take no part in rounds for a while, and why; and how the local stores of one are coming along."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.model.names import few


@dataclass(frozen=True, slots=True)
class SittingOut:
    """The lanes of a sub-topology that take no part in a round, with what each waits for. `inline`: those that restore in a
    round whatever their stores lack, as that could not be done before. `elsewhere`: those that another processor of a group
    runs, which no round here waits for.

    >>> out = SittingOut({2: "the state of Partition_2"}).with_absent({0: "host-1", 1: "host-2", 2: "host-2"}, {"host-2"})
    >>> out.text
    'an executor at host-1, the state of Partition_2'
    """

    reasons: Mapping[int, str] = field(default_factory=dict)
    inline: frozenset[int] = frozenset()
    elsewhere: frozenset[int] = frozenset()

    @property
    def lanes(self) -> frozenset[int]:
        """All of them."""
        return self.elsewhere.union(self.reasons)

    def with_absent(self, places: Mapping[int, str | None], present: Collection[str]) -> SittingOut:
        """The same with the lanes of locations where there is no worker now."""
        away = {lane: place for lane, place in places.items() if place is not None and place not in present}
        return replace(self, reasons={**self.reasons, **{lane: f"an executor at {place}" for lane, place in away.items()}})

    @property
    def text(self) -> str:
        """What is waited for, for people; empty for nothing."""
        return few(sorted(set(self.reasons.values())))


EVERY_LANE = SittingOut()


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far the local store of one task is. Bytes are of state files; `entries` have come, some perhaps twice."""

    task: str
    done_bytes: int
    total_bytes: int
    entries: int = 0


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """How far the stores of one lane at `location` are. `since_s` and `since_bytes`: when it was first heard of how much had
    been done, by a clock that only goes forward. `problem`: why it could not be done in the background."""

    location: str
    tasks: tuple[TaskProgress, ...]
    since_s: float | None = None
    since_bytes: int = 0
    problem: str = ""

    @property
    def done_bytes(self) -> int:
        return sum(task.done_bytes for task in self.tasks)

    @property
    def total_bytes(self) -> int:
        return sum(task.total_bytes for task in self.tasks)

    @property
    def text(self) -> str:
        """What a lane waits for, for people."""
        return f"the state of {few([task.task for task in self.tasks], 3)} at {self.location}"

    def heard(self, done: Mapping[str, tuple[int, int]], now_s: float) -> LaneProgress:
        """The same with the bytes and entries of tasks that are known at `now_s`; none gets less than it had."""
        tasks = tuple(
            replace(task, done_bytes=max(task.done_bytes, min(found[0], task.total_bytes)), entries=max(task.entries, found[1]))
            for task in self.tasks
            for found in [done.get(task.task, (0, 0))]
        )
        after = replace(self, tasks=tasks)
        begins = self.since_s is None and after.done_bytes > 0
        return replace(after, since_s=now_s, since_bytes=after.done_bytes) if begins else after

    def left_s(self, now_s: float) -> float | None:
        """How long it takes still, at the rate so far; None where nothing is known of that yet.

        >>> lane = LaneProgress("host-1", (TaskProgress("Partition_0", 0, 1000),))
        >>> lane = lane.heard({"Partition_0": (100, 1)}, 10.0)
        >>> lane.left_s(11.0), lane.heard({"Partition_0": (400, 4)}, 13.0).left_s(13.0)
        (None, 6.0)
        """
        done = self.done_bytes - self.since_bytes
        if self.since_s is None or done <= 0 or now_s <= self.since_s:
            return None
        return (self.total_bytes - self.done_bytes) * (now_s - self.since_s) / done


def under_way(waiting: Sequence[tuple[str, int]], slots: int) -> tuple[tuple[str, int], ...]:
    """Which of the lanes that wait at one location are restored now, the first ones: as many as it runs Spark tasks at once."""
    return tuple(waiting[: max(1, slots)])
