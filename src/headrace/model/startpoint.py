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


@dataclass(frozen=True, slots=True)
class StartpointEntry:
    """A stored startpoint: its own id (a deletion names it), and who wrote it when (µs since the epoch)."""

    id: str
    key: StartpointKey
    startpoint: Startpoint
    written_by: str
    written_at_us: int
