"""Which tasks take no part in rounds for a while, and why; and how the local stores of a lane are coming along."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.model.job_model import ContainerModel, TaskModel
from headrace.model.names import few
from headrace.model.tasks import TaskName


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


@dataclass(frozen=True, slots=True)
class WaitingStores:
    """The lanes of a sub-topology whose stores are restored in the background: how far those are. `inline`: the lanes that
    restore in a round whatever their stores lack, as that could not be done before."""

    lanes: Mapping[int, LaneProgress] = field(default_factory=dict)
    inline: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SittingOut:
    """The tasks of a sub-topology that take no part in a round, with what each waits for. `inline`: see `WaitingStores`.
    `elsewhere`: the tasks that other processors of a group run, which no round here waits for."""

    reasons: Mapping[TaskName, str] = field(default_factory=dict)
    inline: frozenset[int] = frozenset()
    elsewhere: frozenset[TaskName] = frozenset()

    def __contains__(self, task: TaskName) -> bool:
        return task in self.reasons or task in self.elsewhere

    def __bool__(self) -> bool:
        return bool(self.reasons or self.elsewhere)

    def part_of(self, container: ContainerModel) -> tuple[TaskModel, ...]:
        """The tasks of a container that take part; none where it sits out as a whole."""
        if not self:
            return container.tasks
        return tuple(task for task in container.tasks if task.name not in self)

    @property
    def text(self) -> str:
        """What is waited for, for people; empty for nothing."""
        return few(sorted(set(self.reasons.values())))


EVERY_TASK = SittingOut()


def sitting_out(
    containers: Iterable[ContainerModel],
    present: Collection[str] | None,
    waiting: WaitingStores,
    busy: Collection[int] = (),
) -> SittingOut:
    """Which tasks sit out: those of locations that have no worker now, or had none that was free just now, and those whose
    stores are restored. With such a one go those of its container that read a partition together with it, as the container has
    one position there (protocol.md 10); its others take part. `present`: the locations that have a worker; None: all have one.
    `busy`: the lanes whose workers are given time.

    >>> from headrace.model.streams import SSP
    >>> tasks = [TaskModel(TaskName.parse(f"Partition_{p}"), (SSP("k", "a", p),)) for p in range(3)]
    >>> containers = [ContainerModel(0, tuple(tasks[:2]), "1", "host-1"), ContainerModel(1, (tasks[2],), "2", "host-2")]
    >>> waiting = WaitingStores({0: LaneProgress("host-1", (TaskProgress("Partition_1", 0, 9),))})
    >>> out = sitting_out(containers, {"host-1"}, waiting)
    >>> print(out.text, "|", *(task.name for task in out.part_of(containers[0])))
    an executor at host-2, the state of Partition_1 at host-1 | Partition_0
    """
    reasons = dict[TaskName, str]()
    for one in containers:
        if present is not None and one.location_id is not None and one.location_id not in present:
            reasons |= dict.fromkeys((task.name for task in one.tasks), f"an executor at {one.location_id}")
        elif one.lane in busy:
            reasons |= dict.fromkeys((task.name for task in one.tasks), f"a free executor at {one.location_id}")
        elif (progress := waiting.lanes.get(one.lane)) is not None:
            waits = {TaskName.parse(task.task) for task in progress.tasks}
            reasons |= dict.fromkeys(_tied(one.tasks, waits), progress.text)
    return SittingOut(reasons, waiting.inline)


def _tied(tasks: Sequence[TaskModel], names: Collection[TaskName]) -> set[TaskName]:
    """These tasks, and all that read a partition together with one of them, or with one of those."""
    found = set(names)
    while True:
        read = {ssp for task in tasks if task.name in found for ssp in task.partitions}
        more = {task.name for task in tasks if not read.isdisjoint(task.partitions)}
        if more <= found:
            return found
        found |= more


def waits_for_lost(left: Collection[str | None], present: Collection[str]) -> bool:
    """Whether a round waits for nothing but what was lost. `left`: where those of its Spark tasks are to run that have not
    ended (None: anywhere); `present`: the locations that have a worker.

    >>> waits_for_lost(["host-1"], {"host-2"}), waits_for_lost(["host-1", "host-2"], {"host-2"}), waits_for_lost([], ())
    (True, False, False)
    """
    return bool(left) and all(location is not None and location not in present for location in left)


def under_way(waiting: Sequence[tuple[str, int]], slots: int) -> tuple[tuple[str, int], ...]:
    """Which of the lanes that wait at one location are restored now, the first ones: as many as it runs Spark tasks at once."""
    return tuple(waiting[: max(1, slots)])
