"""What is recorded of a stream's number of partitions, of its growth, and of which tasks read it. Seed: SEP-5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.streams import SystemStreamPartition
from headrace.model.tasks import TaskName


@dataclass(frozen=True, slots=True)
class Expansion:
    """A stream grew from `before` to `after` partitions; it was noticed at `noticed_us` (µs since the epoch).

    `settled`: partition to the offset at which each of those that lost keys ended once every producer had learned of the new
    ones (protocol.md 24, the lasting barrier); None until then.
    """

    before: int
    after: int
    noticed_us: int
    settled: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.before < self.after:
            raise ValueError(f"an expansion from {self.before} to {self.after} partitions")


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """How many partitions the stream with the id `stream_id` has, and how it came there, the oldest expansion first."""

    stream_id: str
    partitions: int
    expansions: tuple[Expansion, ...] = field(default=())

    @property
    def counts(self) -> tuple[int, ...]:
        """Every number of partitions that it had on record, oldest first, the present one last."""
        return (*(expansion.before for expansion in self.expansions), self.partitions)


@dataclass(frozen=True, slots=True)
class SetSSPTaskMapping:
    """The entry of one SSP (with its bucket, where it has one) in the stored assignment: the tasks that read it, sorted."""

    ssp: SystemStreamPartition
    tasks: tuple[TaskName, ...]
