"""Owns startpoints: a requested position, kept apart from checkpoints. Seed: SEP-18 "Startpoint Model"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName


class PositionType(StrEnum):
    SPECIFIC_OFFSET = "SPECIFIC_OFFSET"
    TIMESTAMP = "TIMESTAMP"
    EARLIEST = "EARLIEST"
    LATEST = "LATEST"
    BOOTSTRAP = "BOOTSTRAP"


_WITH_POSITION = frozenset({PositionType.SPECIFIC_OFFSET, PositionType.TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Startpoint:
    """A position by type; `position` is an offset, or µs since the epoch for TIMESTAMP, and None for the rest."""

    position_type: PositionType
    position: int | None = None

    def __post_init__(self) -> None:
        if (self.position is not None) != (self.position_type in _WITH_POSITION):
            raise ValueError(f"startpoint {self.position_type} with position {self.position!r}")
        if self.position_type is PositionType.SPECIFIC_OFFSET and self.position is not None and self.position < 0:
            raise ValueError(f"startpoint at offset {self.position}: below 0")


@dataclass(frozen=True, slots=True)
class StartpointKey:
    """What a startpoint is for: an SSP, for one task of several that read it, or for all (None)."""

    ssp: SystemStreamPartition
    task: TaskName | None = None


class StatePolicy(StrEnum):
    """What happens to state where a startpoint sets a position: it stays, or goes back with the position, across repartition
    streams too."""

    KEEP = "keep"
    REWIND = "rewind"


@dataclass(frozen=True, slots=True)
class StartpointEntry:
    """A stored startpoint: its own id (a deletion names it), and who wrote it when (µs since the epoch)."""

    id: str
    key: StartpointKey
    startpoint: Startpoint
    written_by: str
    written_at_us: int
    state: StatePolicy = StatePolicy.KEEP


class Became(StrEnum):
    """What became of a startpoint that a driver took up."""

    PENDING = "pending"  # no commit has moved the position yet
    APPLIED = "applied"
    SUPERSEDED = "superseded"  # by a later one, before it was spent
    DELETED = "deleted"  # before it was spent


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a startpoint came to for one task and SSP: `offset`, and position and watermark (µs, None without one) before.

    Where it takes state back, there is one for every SSP of each task that goes back: state and positions go together.
    `until`: of BOOTSTRAP the end as it was, before which the task reads no other stream.
    """

    task: TaskName
    ssp: SystemStreamPartition
    offset: int
    before: int
    watermark_us: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class StartpointRecord:
    """A startpoint that was taken up: resolved once, and stored. Times in µs since the epoch.

    `replay`: the number of the replay that it began, where a position went back; None where none did.
    """

    entry: StartpointEntry
    resolutions: tuple[Resolution, ...]
    taken_up_at_us: int
    became: Became
    changed_at_us: int
    replay: int | None = None
