"""In how many threads a container processes the rows of its tasks.

Threads of one Python process compute no faster than one. But functions that wait, for a service or a database, wait at the same
time in several. So a sub-topology whose tasks are virtual begins with one thread, and has one for each task of a container as
soon as a round has shown that they wait. It keeps them: while there are several, time that they wait for each other looks like
any other waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from headrace.core.topology.program import Program
from headrace.model.job_model import ContainerModel
from headrace.model.streams import SSP

THREADS_MAX = 32  # that are chosen automatically
WAITED_SHARE_MIN = 0.3
WAITED_S_MIN = 0.1  # shorter rounds show nothing: a first look-up on a disk may take as long


def has_waited(worked_s: float, waited_s: float) -> bool:
    """Whether tasks waited much in a round, of which they processed rows for `worked_s`.

    >>> has_waited(2.0, 1.9), has_waited(2.0, 0.3), has_waited(0.05, 0.05)
    (True, False, False)
    """
    return waited_s >= WAITED_S_MIN and waited_s > WAITED_SHARE_MIN * worked_s


def threads_of(configured: int | None, tasks: int, *, are_virtual: bool, wait: bool) -> int:
    """The threads of a container with so many tasks: as configured, else one for each virtual task where they `wait`.

    >>> threads_of(None, 16, are_virtual=True, wait=True), threads_of(None, 16, are_virtual=True, wait=False)
    (16, 1)
    >>> threads_of(None, 16, are_virtual=False, wait=True), threads_of(4, 16, are_virtual=False, wait=False)
    (1, 4)
    """
    assert tasks >= 1, tasks
    automatic = THREADS_MAX if are_virtual and wait else 1
    return min(automatic if configured is None else configured, tasks)


def led_ends(positions: Mapping[SSP, int], ends: Mapping[SSP, int], lead: int, ssps: Collection[SSP]) -> dict[SSP, int]:
    """Up to where partitions may be read. In those of `ssps` no task goes further than `lead` offsets beyond the lowest
    position.

    >>> a, b = SSP("k", "s", 0), SSP("k", "s", 1)
    >>> led_ends({a: 5, b: 5}, {a: 900, b: 900}, 100, {a}) == {a: 105, b: 900}
    True
    """
    return {ssp: min(end, positions[ssp] + lead) if ssp in ssps and ssp in positions else end for ssp, end in ends.items()}


def led_ssps(containers: Iterable[ContainerModel], program: Program) -> frozenset[SSP]:
    """The partitions of virtual tasks whose lead a container cannot bound alone: the tasks are in several containers, or
    take what they read in an order of its own, and so all of it (`worker.merging`)."""
    lanes: dict[SSP, set[int]] = {}
    found = set()
    sides = Counter(program.source(number).stream for number in range(len(program.endpoints)))
    for container in containers:
        for task in container.tasks:
            for ssp in task.partitions if task.name.bucket is not None else ():
                lanes.setdefault(ssp, set()).add(container.lane)
                if sum(sides[other.stream] for other in task.partitions) > 1:
                    found.add(ssp)
    return frozenset(found | {ssp for ssp, mine in lanes.items() if len(mine) > 1})
