"""A planned round, and what it is planned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.affinity.sitting_out import EVERY_TASK, SittingOut
from headrace.core.rounds.for_each_round import HandoverRound
from headrace.core.rounds.lost_offsets import OnLostOffsets
from headrace.core.rounds.offset_ranges import OffsetRange
from headrace.exchange.engine import ContainerWork, RoundControl
from headrace.model.checkpoint import RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class WorkerPaths:
    """Where workers find things, how they get signals, and how long a container may work. Folders are absolute."""

    run_id: str
    local_store_dir: str
    state_uri: str
    control: RoundControl
    max_round_s: float
    has_other_machines: bool = False
    location_id: str | None = None  # how a worker knows where it is, as configured
    log_as: str | None = None  # the application, where workers log JSON lines


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """What is the same for all rounds of a sub-topology under one plan."""

    max_records: int
    place: WorkerPaths
    on_lost: OnLostOffsets = "fail"
    max_bytes: int | None = None  # where the system knows sizes; None: no bound
    task_threads: int | None = None  # of a container; None: as its tasks need them
    max_bucket_lead: int = 100_000  # offsets that a virtual task may be ahead of another
    restore_inline_bytes: int | None = None  # more bytes of state files are restored in the background; None: never


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """One attempt: what it reads, what each of its tasks builds on, and the work of its containers, packed into Spark
    tasks. `lost`: offsets that were deleted before they were read, and that it skips.

    `handover`: what the functions of `for_each_round` are given, and `handed` the work that reads it, in Spark tasks.
    """

    id: RoundId
    ranges: tuple[OffsetRange, ...]
    bases: Mapping[TaskName, RoundId]
    works: tuple[tuple[ContainerWork, ...], ...]
    lost: tuple[OffsetRange, ...] = ()
    handover: HandoverRound | None = None
    handed: tuple[tuple[ContainerWork, ...], ...] = ()

    @property
    def lanes(self) -> frozenset[int]:
        return frozenset(work.lane for group in self.works for work in group)


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """What is known of the world when a round is planned: up to where streams can be read, and how far event time is. `limit`:
    where to end, for SSPs that have one. `now_us` is what wall-clock timers go by. `sitting_out`: tasks that take no part.
    `ended_us`: since when nothing is left to be read for a job that is to end, None while there is."""

    ends: Mapping[SSP, int]
    idle: frozenset[SSP]
    now_us: int
    limit: Mapping[SSP, int] | None = None
    sitting_out: SittingOut = EVERY_TASK
    ended_us: int | None = None
