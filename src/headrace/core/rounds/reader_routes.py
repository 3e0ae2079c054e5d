"""Which Spark task of a round reads a partition, and to which Spark tasks its records go: each partition has one reader,
however many containers take its records. SSPs are numbers, and so are Spark tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.model.tasks import KeyBucket

Targets = tuple[tuple[int, ...], ...]  # the Spark tasks that take the records of key bucket i of n, a power of two


@dataclass(frozen=True, slots=True)
class Taken:
    """Of partition `ssp`, of which a round reads about `records`, a container takes key bucket `bucket`; None: all of it."""

    ssp: int
    records: int
    bucket: KeyBucket | None = None


@dataclass(frozen=True, slots=True)
class Routes:
    """`reads`: of each Spark task the partitions that it reads. `targets`: of partitions that other Spark tasks than their
    reader take, or that several do, which take which key buckets; the records of all others stay with their reader."""

    reads: tuple[frozenset[int], ...]
    targets: Mapping[int, Targets]

    def takers(self, reader: int) -> tuple[int, ...]:
        """The Spark tasks that take what one of them reads: itself, and then others."""
        found = {task for ssp in self.reads[reader] for tasks in self.targets.get(ssp, ()) for task in tasks}
        return (reader, *sorted(found - {reader}))


def routes_of(taken: Sequence[Sequence[Taken]]) -> Routes:
    """`taken`: of each Spark task what its containers take.

    What several Spark tasks take is read by the one among them that has the fewest records to read so far.

    >>> half = [Taken(0, 100, KeyBucket(number, 2)) for number in range(2)]
    >>> routes = routes_of([[half[0], Taken(1, 500)], [half[1]]])
    >>> [sorted(ssps) for ssps in routes.reads], dict(routes.targets)
    ([[1], [0]], {0: ((0,), (1,))})
    >>> routes.takers(0), routes.takers(1)
    ((0,), (1, 0))
    """
    takers: dict[int, list[tuple[int, KeyBucket | None]]] = {}
    sizes: dict[int, int] = {}
    for task, mine in enumerate(taken):
        for one in mine:
            takers.setdefault(one.ssp, []).append((task, one.bucket))
            sizes[one.ssp] = max(one.records, sizes.get(one.ssp, 0))
    reads: list[set[int]] = [set() for _ in taken]
    loads = [0] * len(taken)
    tasks_of = {ssp: sorted({task for task, _ in found}) for ssp, found in takers.items()}
    for ssp in sorted(takers, key=lambda ssp: (len(tasks_of[ssp]) > 1, -sizes[ssp], ssp)):
        reader = min(tasks_of[ssp], key=lambda task: (loads[task], task))
        reads[reader].add(ssp)
        loads[reader] += sizes[ssp]
    shared = sorted(ssp for ssp, tasks in tasks_of.items() if len(tasks) > 1)
    return Routes(tuple(map(frozenset, reads)), {ssp: _targets_of(takers[ssp]) for ssp in shared})


def _targets_of(takers: Sequence[tuple[int, KeyBucket | None]]) -> Targets:
    buckets = max((bucket.factor for _, bucket in takers if bucket is not None), default=1)
    return tuple(
        tuple(sorted({task for task, own in takers if own is None or number % own.factor == own.index}))
        for number in range(buckets)
    )
