"""Startpoints: a requested position, kept apart from checkpoints. Seed: SEP-18 "Startpoint Model"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.errors import ConfigError, StartpointError
from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName


class PositionType(StrEnum):
    SPECIFIC_OFFSET = "SPECIFIC_OFFSET"
    TIMESTAMP = "TIMESTAMP"
    EARLIEST = "EARLIEST"
    LATEST = "LATEST"
    BOOTSTRAP = "BOOTSTRAP"


OFFSET_MAX = 2**63 - 1
_TYPES = ", ".join(f"hr.PositionType.{one}" for one in PositionType)
_TIME = "a time as a whole number of microseconds since 1970 UTC, in 64 bits"
# The least position of a type that has one, what is expected, and a hint.
_POSITIONS = {
    PositionType.SPECIFIC_OFFSET: (
        0,
        f"an offset, a whole number from 0 to {OFFSET_MAX}",
        "write for example hr.Startpoint(hr.PositionType.SPECIFIC_OFFSET, 1200); int(...) converts other numbers",
    ),
    PositionType.TIMESTAMP: (
        -(2**63),
        _TIME,
        "give an aware datetime or ISO 8601 text in place of the Startpoint, or time.time_ns() // 1000 and the like",
    ),
}


@dataclass(frozen=True, slots=True)
class Startpoint:
    """A position by type; `position` is an offset, or µs since the epoch for TIMESTAMP, and None for the rest.

    `StartpointError` for any other value, at once: a startpoint that exists can be stored and read back.

    >>> Startpoint(PositionType.SPECIFIC_OFFSET, 7).position, Startpoint(PositionType.LATEST).position
    (7, None)
    """

    position_type: PositionType
    position: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.position_type, PositionType):
            raise StartpointError(
                f"startpoint: position_type={self.position_type!r:.80}: expected a hr.PositionType, "
                f"found {type(self.position_type).__name__}",
                f"give one of {_TYPES}",
            )
        none = None, "None, that type has no position", f"write hr.Startpoint(hr.PositionType.{self.position_type})"
        least, expected, hint = _POSITIONS.get(self.position_type, none)
        given = self.position
        # not isinstance: True is an int, and no position
        fits = given is None if least is None else type(given) is int and least <= given <= OFFSET_MAX
        if not fits:
            found = "" if given is None or type(given) is int else f", found {type(given).__name__}"
            raise StartpointError(f"startpoint {self.position_type}: position={given!r:.80}: expected {expected}{found}", hint)


@dataclass(frozen=True, slots=True)
class StartpointKey:
    """What a startpoint is for: an SSP, for one task of several that read it, or for all (None)."""

    ssp: SystemStreamPartition
    task: TaskName | None = None

    def __post_init__(self) -> None:
        _check("StartpointKey", "ssp", self.ssp, SystemStreamPartition, 'hr.SystemStreamPartition("log", "flights", 3)')
        _check_text("StartpointKey", "ssp", str(self.ssp))
        if self.task is not None:
            _check("StartpointKey", "task", self.task, TaskName, 'hr.TaskName.parse("Partition_3"), or None')
            _check_text("StartpointKey", "task", str(self.task))


class StatePolicy(StrEnum):
    """What happens to state where a startpoint sets a position: it stays, or goes back with the position, across repartition
    streams too."""

    KEEP = "keep"
    REWIND = "rewind"


def state_policy_of(given: Any) -> StatePolicy:
    """The policy that "keep" and "rewind" stand for, or the policy itself; `ConfigError` for anything else."""
    try:
        return StatePolicy(given)
    except ValueError:
        hint = "keep leaves state as it is, rewind takes it back to versions from before the new position"
        raise ConfigError(f"state {given!r:.80}: expected 'keep' or 'rewind'", hint) from None


@dataclass(frozen=True, slots=True)
class StartpointEntry:
    """A stored startpoint: its own id (a deletion names it), and who wrote it when (µs since the epoch)."""

    id: str
    key: StartpointKey
    startpoint: Startpoint
    written_by: str
    written_at_us: int
    state: StatePolicy = StatePolicy.KEEP

    def __post_init__(self) -> None:
        _check_text("StartpointEntry", "id", self.id)
        _check("StartpointEntry", "key", self.key, StartpointKey, "hr.StartpointKey(ssp, task)")
        _check("StartpointEntry", "startpoint", self.startpoint, Startpoint, "hr.Startpoint(position_type, position)")
        _check_text("StartpointEntry", "written_by", self.written_by)
        _check("StartpointEntry", "state", self.state, StatePolicy, "hr.StatePolicy.KEEP or hr.StatePolicy.REWIND")
        if type(self.written_at_us) is not int or not -(2**63) <= self.written_at_us <= OFFSET_MAX:
            raise StartpointError(
                f"StartpointEntry: written_at_us={self.written_at_us!r:.80}: expected {_TIME}", "write time.time_ns() // 1000"
            )


@dataclass(frozen=True, slots=True)
class StartpointRequest:
    """What somebody asks of the driver: startpoints to be set, ids of others to be deleted."""

    entries: tuple[StartpointEntry, ...] = ()
    deleted: tuple[str, ...] = ()


class StartpointStatus(StrEnum):
    """The status of a startpoint that a driver has applied."""

    PENDING = "pending"  # no commit has moved the position yet
    APPLIED = "applied"
    SUPERSEDED = "superseded"  # by a later one, before it was spent
    DELETED = "deleted"  # before it was spent
    REFUSED = "refused"  # it could not be resolved; the job's history says why


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
    """A startpoint that was applied: resolved once, and stored. Times in µs since the epoch.

    `replay`: the number of the replay that it began, where a position went back; None where none did.
    """

    entry: StartpointEntry
    resolutions: tuple[Resolution, ...]
    applied_at_us: int
    status: StartpointStatus
    changed_at_us: int
    replay: int | None = None


def _check(what: str, field: str, given: Any, kind: type, example: str) -> None:
    if not isinstance(given, kind):
        raise StartpointError(
            f"{what}: {field}={given!r:.80}: expected a {kind.__name__}, found {type(given).__name__}", f"give {example}"
        )


def _check_text(what: str, field: str, given: Any) -> None:
    """`StartpointError` unless `given` is a text that has a UTF-8 form."""
    _check(what, field, given, str, "a text")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise StartpointError(f"{what}: {field}={given!a:.80}: expected a text, found a lone surrogate in it") from None
