"""What the application of these tests must have written, by a plain model; and that no two processes work on a task at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cluster_faults.application import BUCKET_MS, WINDOW_MS

Sent = Sequence[tuple[str, int, int]]  # key, id, time in ms


@dataclass(frozen=True, slots=True)
class Done:
    """A record that is committed: who has worked on it, and from when to when."""

    id: int
    key: str
    count: int
    task: str
    pid: int
    host: str
    spark_task: int
    start: float
    end: float


def done_of(rows: Iterable[Any]) -> list[Done]:
    return [Done(key=row.key, **row.value) for row in rows if "id" in row.value]


def each_once(done: Sequence[Done], sent: Sent) -> bool:
    return Counter(one.id for one in done) == Counter(number for _, number, _ in sent)


def counts_follow_the_input(done: Sequence[Done], sent: Sent) -> bool:
    """Whether the n-th record of a key was counted as the n-th, which needs all records before it, each once and in order."""
    wanted, counts = dict[int, int](), Counter[str]()
    for key, number, _ in sent:
        counts[key] += 1
        wanted[number] = counts[key]
    return all(wanted[one.id] == one.count for one in done)


def timers_of(sent: Sent) -> Counter[tuple[str, str]]:
    """(key, timer) of those that are due: the last records of all partitions have one time."""
    last = max(at for _, _, at in sent)
    due = {(key, at // BUCKET_MS) for key, _, at in sent if (at // BUCKET_MS + 1) * BUCKET_MS <= last}
    return Counter((key, str(bucket)) for key, bucket in due)


def windows_of(sent: Sent) -> Mapping[tuple[str, int], int]:
    return Counter((key, at // WINDOW_MS * WINDOW_MS) for key, _, at in sent)


def overlaps(done: Sequence[Done], *, in_order: bool = True) -> list[tuple[Done, Done]]:
    """Pairs of committed records of a task, one after the other in its input, of which another process began on the second
    before the first one was done with the first: two processes whose work counts have then worked on the task at once. Not
    `in_order`: one after the other as they were begun, where the input of a task is of several partitions."""
    by_task = defaultdict[str, list[Done]](list)
    for one in sorted(done, key=lambda one: one.id if in_order else one.start):
        by_task[one.task].append(one)
    return [(a, b) for mine in by_task.values() for a, b in pairwise(mine) if a.pid != b.pid and b.start < a.end]
