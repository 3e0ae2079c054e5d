"""What a task's commit consists of: positions, the head of its state, watermarks.

A position is the offset of the next record to process, everywhere (design.md invariant 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True, order=True)
class RoundId:
    """(epoch, sub-topology, number): names one attempt to make progress, for ever."""

    epoch: int
    sub_topology: str | None
    number: int

    @property
    def order(self) -> tuple[int, int]:
        """Rises from round to round of a task: epochs do, and numbers within each."""
        return self.epoch, self.number

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sub_topology or 'source'}:{self.number}"


class StateFileKind(StrEnum):
    SNAPSHOT = "snapshot"  # every entry of the state
    DELTA = "delta"  # entries that changed, and deletions


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file that a head builds on: a unique name under `state_uri`, its kind, size and checksum.

    It takes the state from what the files before it in the head make to `version`. `reaches` is the identity of the
    state after it where another file reached that state first: files 1, 2, 3 folded into one file make the state that
    file 3 made, and a store that holds it needs nothing of the fold. Empty: the state is named after this file.
    """

    name: str
    kind: StateFileKind
    bytes: int
    entries: int
    checksum: str
    version: int = 0
    reaches: str = ""

    @property
    def identity(self) -> str:
        """The identity of the state after this file."""
        return self.reaches or f"{self.version}-{self.name}-{self.checksum}"


@dataclass(frozen=True, slots=True)
class Head:
    """The identity of a task's state: the version and the files that make it, oldest first.

    A version alone names nothing (protocol.md, "Terms"): two attempts may each write a "version 18". `identity` does.
    """

    version: int
    files: tuple[StateFile, ...]

    @property
    def identity(self) -> str:
        """A short text that no other state of any task has."""
        newest = self.files[-1]
        return newest.reaches or f"{self.version}-{newest.name}-{newest.checksum}"


EMPTY = "0"  # the identity of the state of a task that never committed any


def identity_of(head: Head | None) -> str:
    return EMPTY if head is None else head.identity


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one task committed, as one value.

    Everything is by whole partition. A virtual task is there in its key bucket of them; in all of those of the streams in
    `broadcast`. As stored, each SSP of a virtual task carries its bucket.
    `watermarks`: per SSP the task's own report in µs since the epoch (protocol.md 23); an SSP without any is absent.
    `event_timer_us`, `wall_timer_us`: when the earliest timer of each clock is due, None without one.
    `expiry_us`: not after the time from which the next entry of the state is expired, None where none will be.
    `closed_us`: the highest watermark at which a final result of a window was given, None before the first.
    `spent_startpoints`: per SSP the id of the startpoint that its position began at, since it has moved from there.
    """

    task: TaskName
    round_id: RoundId
    job_model_version: int
    positions: Mapping[SystemStreamPartition, int]
    head: Head | None = None
    watermarks: Mapping[SystemStreamPartition, int] = field(default_factory=dict)
    event_timer_us: int | None = None
    wall_timer_us: int | None = None
    spent_startpoints: Mapping[SystemStreamPartition, str] = field(default_factory=dict)
    broadcast: frozenset[str] = frozenset()
    expiry_us: int | None = None
    closed_us: int | None = None
