"""Where the time of a round goes: its phases, and how what containers have measured is cut into them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

READ, DECODE, PROCESS, STATE, WRITE, COMMIT, OTHER = "read", "decode", "process", "state", "write", "commit", "other"
PHASES = (READ, DECODE, PROCESS, STATE, WRITE, COMMIT, OTHER)
ROUNDS_KEPT = 60  # of each sub-topology the last ones are shown


@dataclass(frozen=True, slots=True)
class ContainerTimes:
    """What one container has measured of a round, in ns. `work_ns`: from its begin to the end of its tasks; within that so much
    was waited for its input, and decoded, processed, and done with state, in all of its threads. `commit_ns`: of the container
    itself, where workers commit; `apply_ns`: after that of bringing local stores to it."""

    work_ns: int = 0
    read_ns: int = 0
    decode_ns: int = 0
    process_ns: int = 0
    state_ns: int = 0
    write_ns: int = 0
    commit_ns: int = 0
    apply_ns: int = 0

    @property
    def whole_ns(self) -> int:
        return self.work_ns + self.write_ns + self.commit_ns + self.apply_ns


def phases_of(round_ns: int, commit_ns: int, containers: Iterable[ContainerTimes]) -> dict[str, int]:
    """The time of a round by phase, in ns, together `round_ns`: of the container that took longest, and of the driver, whose
    commit took `commit_ns`. `other` is the rest: the engine's start of the containers and its answer, and the handing out of
    rows. Where several threads work, their times are scaled to the time that passed.

    >>> phases_of(100, 10, [ContainerTimes(40, 10, 5, 20, 5, 10, 20), ContainerTimes(30)])
    {'read': 10, 'decode': 5, 'process': 20, 'state': 5, 'write': 10, 'commit': 30, 'other': 20}
    >>> phases_of(50, 10, [ContainerTimes(40, 0, 20, 40, 20)])  # two threads
    {'read': 0, 'decode': 10, 'process': 20, 'state': 10, 'write': 0, 'commit': 10, 'other': 0}
    """
    slowest = max(containers, key=lambda one: one.whole_ns, default=ContainerTimes())
    worked = {READ: slowest.read_ns, DECODE: slowest.decode_ns, PROCESS: slowest.process_ns, STATE: slowest.state_ns}
    total_ns = sum(worked.values())
    if total_ns > slowest.work_ns:
        worked = {name: spent_ns * slowest.work_ns // total_ns for name, spent_ns in worked.items()}
    worked[STATE] += slowest.apply_ns
    found = worked | {WRITE: slowest.write_ns, COMMIT: slowest.commit_ns + commit_ns}
    return found | {OTHER: max(0, round_ns - sum(found.values()))}
