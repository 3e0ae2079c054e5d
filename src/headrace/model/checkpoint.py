"""What a task's commit consists of: positions, the head of its state, watermarks.

A position is the offset of the next record to process, everywhere (design.md invariant 6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

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

    @classmethod
    def parse(cls, text: str) -> RoundId:
        """The value whose `str` is `text`.

        >>> RoundId.parse("3:source:8"), RoundId.parse("3:by:8").sub_topology
        (RoundId(epoch=3, sub_topology=None, number=8), 'by')
        """
        epoch, title, number = text.split(":")
        return cls(int(epoch), None if title == "source" else title, int(number))


_STATE_FILE = re.compile(r"\d+-(\d+)-[0-9a-f]+\.arrow")


def state_file_name(folder: str, version: int, epoch: int, unique: str) -> str:
    """The name of a file of a task's state: `folder` is the task's, `epoch` that of the round that writes it, in a group its
    grant, and `unique` a hexadecimal number that no other file has."""
    return f"{folder}/{version}-{epoch}-{unique}.arrow"


def epoch_of_file(name: str) -> int | None:
    """Under which epoch, or grant, a file of a task's state was written; None where its name does not have it, as before
    groups were.

    >>> epoch_of_file(state_file_name("app/Partition_0", 7, 31, "00ff")), epoch_of_file("app/Partition_0/7-00ff00ff00ff.arrow")
    (31, None)
    """
    found = _STATE_FILE.fullmatch(name.rpartition("/")[2])
    return None if found is None else int(found[1])


_SLOTS = 1024  # `core.keys.key_layout`


@dataclass(frozen=True, slots=True, order=True)
class Slots:
    """The slots low <= slot < high of the 1,024 that keys are in (`core.keys.key_layout`)."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= _SLOTS:
            raise ValueError(f"slots {self.low} to {self.high}: expected a range within 0 to {_SLOTS}")

    @property
    def count(self) -> int:
        return self.high - self.low

    def within(self, other: Slots) -> Slots | None:
        """Those that are in both; None where no slot is.

        >>> Slots(0, 512).within(Slots(256, 1024)), Slots(0, 512).within(Slots(512, 1024))
        (Slots(low=256, high=512), None)
        """
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Slots(low, high) if low < high else None


ALL_SLOTS = Slots(0, _SLOTS)


class StateFileKind(StrEnum):
    SNAPSHOT = "snapshot"  # every entry of the state
    DELTA = "delta"  # entries that changed, and deletions


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file that a head builds on: a unique name under `state_uri`, its kind, size and checksum.

    It takes the state from what the files before it in the head make to `version`. `reaches` is the identity of the
    state after it where another file reached that state first: files 1, 2, 3 folded into one file make the state that
    file 3 made, and a store that holds it needs nothing of the fold. Empty: the state is named after this file.

    A file may be in the heads of several tasks, each of which has its part of it. `covers`: the slots of the task that wrote
    it, None for all. `slots`: those of whose entries this head has, None for all that the file holds. `whole`: the databases
    whose entries are taken whatever `slots` says, of stores that are whole in every task; sorted.
    """

    name: str
    kind: StateFileKind
    bytes: int
    entries: int
    checksum: str
    version: int = 0
    reaches: str = ""
    covers: Slots | None = None
    slots: Slots | None = None
    whole: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """The identity of the state after this file, in the head of the task that wrote it."""
        return self.reaches or f"{self.version}-{self.name}-{self.checksum}"

    @property
    def counted(self) -> Slots:
        """The slots of whose entries a head with this file has."""
        return self.slots or self.covers or ALL_SLOTS

    def part(self, slots: Slots | None, whole: tuple[str, ...] = ()) -> StateFile:
        """The file as it is in a head that has the entries of `slots`, and of the databases `whole` all."""
        written = (self.name, self.kind, self.bytes, self.entries, self.checksum, self.version, self.reaches, self.covers)
        return StateFile(*written, slots, whole)

    @property
    def counted_bytes(self) -> int:
        """About how many of its bytes are of these slots."""
        return self.bytes * self.counted.count // (self.covers or ALL_SLOTS).count


@dataclass(frozen=True, slots=True)
class Head:
    """The identity of a task's state: the version and the files that make it, oldest first.

    A version alone names nothing (protocol.md, "Terms"): two attempts may each write a "version 18". `identity` does.
    `slots`: of the task whose state it is, None for all. After a change of the elasticity factor a task's files are those of
    the tasks that had its slots before, until it has written a snapshot of its own (`core.keys.heads`).
    """

    version: int
    files: tuple[StateFile, ...]
    slots: Slots | None = None

    @property
    def identity(self) -> str:
        """A short text that no other state of any task has."""
        newest = self.files[-1]
        if not self.is_own(newest):
            return self.identities[-1]
        return newest.reaches or f"{self.version}-{newest.name}-{newest.checksum}"

    @property
    def identities(self) -> tuple[str, ...]:
        """The identity of the state after each file.

        After a file of the task itself it is the file's. A part of a file is in the heads of several tasks, and may follow
        other files in each: there it is made of all that comes before, and of which part it is.
        """
        found, before = [], EMPTY
        for file in self.files:
            before = file.identity if self.is_own(file) else _identity_after(before, file)
            found.append(before)
        if self.is_own(self.files[-1]):
            found[-1] = self.identity
        return tuple(found)

    def is_own(self, file: StateFile) -> bool:
        """Whether a task with just these slots has written the file, all of which counts."""
        return file.slots is None and file.covers == self.slots


def _identity_after(before: str, file: StateFile) -> str:
    parts = (before, file.identity, str(file.counted.low), str(file.counted.high), *file.whole)
    return f"{file.version}-{blake2b(chr(0).join(parts).encode(), digest_size=16).hexdigest()}"


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
    `punctuations`: by clock from when on they are not done, and when the next one is due (`core.rounds.punctuations`).
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
    punctuations: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def due_us(self) -> tuple[int | None, int | None]:
        """When something is due by event time and by the wall clock, a timer or a punctuation; None where nothing will be."""
        return self._earliest("event", self.event_timer_us), self._earliest("wall", self.wall_timer_us)

    def _earliest(self, clock: str, timer_us: int | None) -> int | None:
        due_us = self.punctuations[clock][1] if clock in self.punctuations else None
        return min((time_us for time_us in (timer_us, due_us) if time_us is not None), default=None)
