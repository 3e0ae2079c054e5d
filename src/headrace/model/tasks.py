"""The one format of task names. A name is a value; its text is parsed back to that value, never cut up elsewhere.

Seed: SEP-5 (`Partition 3`), SEP-32 "JobModel" 3 (virtual tasks: partition, bucket, factor).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, order=True)
class KeyBucket:
    """Bucket `index` of `factor` (a power of two, at least 2): what a virtual task owns of its SSPs."""

    index: int
    factor: int

    def __post_init__(self) -> None:
        if type(self.factor) is not int or type(self.index) is not int:
            raise ValueError(f"key bucket {self.index!r:.80} of {self.factor!r:.80}: expected two whole numbers")
        if self.factor < 2 or self.factor & (self.factor - 1):
            raise ValueError(f"elasticity factor {self.factor}: expected a power of two, at least 2")
        if not 0 <= self.index < self.factor:
            raise ValueError(f"key bucket {self.index}: expected 0 to {self.factor - 1}")


_OF_THE_FORMAT = frozenset(",[]/")


def _check_number(kind: str, number: int) -> None:
    if type(number) is not int:
        raise ValueError(f"{kind} {number!r:.80} of a task: expected a whole number, found {type(number).__name__}")
    if number < 0:
        raise ValueError(f"{kind} {number} of a task: below 0")


@dataclass(frozen=True, slots=True, order=True)
class PartitionGroup:
    """Partition `partition` of every input."""

    partition: int

    def __post_init__(self) -> None:
        _check_number("partition", self.partition)

    def __str__(self) -> str:
        return f"Partition_{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class SspGroup:
    """One SSP by itself."""

    system: str
    stream: str
    partition: int

    def __post_init__(self) -> None:
        _check_number("partition", self.partition)
        for part in (self.system, self.stream):
            if not isinstance(part, str):
                raise ValueError(f"task of SSP {self.system!r:.80}, {self.stream!r:.80}: expected texts")
            if not part or set(part) & _OF_THE_FORMAT:
                raise ValueError(f"task of SSP {self.system!r}, {self.stream!r}: empty, or one of ',[]/' in a name")

    def __str__(self) -> str:
        return f"SystemStreamPartition_[{self.system},{self.stream},{self.partition}]"


@dataclass(frozen=True, slots=True, order=True)
class EverySspGroup:
    """All SSPs, in each of several tasks."""

    index: int

    def __post_init__(self) -> None:
        _check_number("index", self.index)

    def __str__(self) -> str:
        return f"AllSsps_{self.index}"


NAME_CHARS_MAX = 100  # with the application and the sub-topology it becomes a folder's name
_RESERVED_NAME = re.compile(r"(?i:partition_|systemstreampartition_|allssps_).*")
_FREE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BUCKET_AT_END = re.compile(r".*-\d+-\d+")


@dataclass(frozen=True, slots=True, order=True)
class NamedGroup:
    """The SSPs that a user's grouper puts together, under a name of its own.

    Letters, digits, `_`, `-` and single `.`; no beginning of the names of the other groups, and no end like a key bucket's
    (`-1-4`): two tasks must never have one text.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"name {self.name!r:.80} of a task: expected a text, found {type(self.name).__name__}")
        if len(self.name) > NAME_CHARS_MAX:
            raise ValueError(f"{self.name[:40]!r}… is no task name: expected at most {NAME_CHARS_MAX} characters")
        if not _FREE_NAME.fullmatch(self.name) or ".." in self.name:
            raise ValueError(
                f"{self.name!r} is no task name: expected e.g. 'Partition_3', 'by-carrier/Partition_3-1-4', or a name of your "
                "own of letters, digits, '_', '-' and single '.'"
            )
        if _RESERVED_NAME.fullmatch(self.name) or _BUCKET_AT_END.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is no task name: expected one like 'Partition_3', or one that neither begins like the names of "
                "the built-in groupers nor ends like a key bucket (-1-4)"
            )

    def __str__(self) -> str:
        return self.name


Group = PartitionGroup | SspGroup | EverySspGroup | NamedGroup
_GROUPS = (PartitionGroup, SspGroup, EverySspGroup, NamedGroup)  # a union takes five times as long to look at

_PARTITION = re.compile(r"Partition_(\d+)")
_SSP = re.compile(r"SystemStreamPartition_\[([^,\[\]]+),([^,\[\]]+),(\d+)\]")
_EVERY = re.compile(r"AllSsps_(\d+)")
_NAMED = re.compile(r".*?(?=(?:-\d+-\d+)?\Z)", re.DOTALL)  # up to a key bucket
_BUCKET = re.compile(r"-(\d+)-(\d+)")
_VIRTUAL = re.compile(r"(.+)(-\d+-\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TaskName:
    """The identity of a task: its sub-topology (None: the source sub-topology), its group of SSPs, its key bucket.

    >>> str(TaskName(PartitionGroup(3), "by-carrier", KeyBucket(1, 4)))
    'by-carrier/Partition_3-1-4'
    >>> TaskName.parse("SystemStreamPartition_[kafka,views,3]").group
    SspGroup(system='kafka', stream='views', partition=3)
    >>> TaskName.parse("by-carrier/europe-1-4")
    TaskName(group=NamedGroup(name='europe'), sub_topology='by-carrier', bucket=KeyBucket(index=1, factor=4))
    """

    group: Group
    sub_topology: str | None = None
    bucket: KeyBucket | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.group, _GROUPS):
            raise ValueError(
                f"group {self.group!r:.80} of a task: expected a PartitionGroup, SspGroup, EverySspGroup or NamedGroup; "
                "a name is made of its text by TaskName.parse('Partition_3')"
            )
        if self.sub_topology is not None and not isinstance(self.sub_topology, str):
            raise ValueError(f"sub-topology {self.sub_topology!r:.80} of a task: expected a text, or None")
        if self.bucket is not None and not isinstance(self.bucket, KeyBucket):
            raise ValueError(f"key bucket {self.bucket!r:.80} of a task: expected a KeyBucket, or None")
        if self.sub_topology is not None and (not self.sub_topology or "/" in self.sub_topology):
            raise ValueError(f"task of sub-topology {self.sub_topology!r}: empty, or with a '/'; absent is None")

    def __str__(self) -> str:
        prefix = "" if self.sub_topology is None else f"{self.sub_topology}/"
        bucket = "" if self.bucket is None else f"-{self.bucket.index}-{self.bucket.factor}"
        return f"{prefix}{self.group}{bucket}"

    def __lt__(self, other: TaskName) -> bool:
        return self.sort_key < other.sort_key

    @property
    def sort_key(self) -> tuple[str, int, str, str, int, int, int]:
        """A total order in which Partition_2 comes before Partition_10."""
        bucket = (0, 0) if self.bucket is None else (self.bucket.factor, self.bucket.index)
        match self.group:
            case PartitionGroup(partition):
                group = (0, "", "", partition)
            case SspGroup(system, stream, partition):
                group = (1, system, stream, partition)
            case EverySspGroup(index):
                group = (2, "", "", index)
            case NamedGroup(name):
                group = (3, name, "", 0)
        return (self.sub_topology or "", *group, *bucket)

    @property
    def whole(self) -> TaskName:
        """The task that this virtual task is a part of, or itself."""
        return self if self.bucket is None else TaskName(self.group, self.sub_topology)

    def shares_keys_with(self, other: TaskName) -> bool:
        """Whether both are parts of one task, under whatever elasticity factors, and have keys in common."""
        if self.whole != other.whole:
            return False
        if self.bucket is None or other.bucket is None:
            return True
        common = min(self.bucket.factor, other.bucket.factor)
        return self.bucket.index % common == other.bucket.index % common

    @classmethod
    def parse(cls, text: str) -> TaskName:
        """The value whose `str` is `text`; `ValueError` for anything else."""
        found = _VIRTUAL.fullmatch(text)
        if found is None:
            return cls._parse(text)
        try:
            whole, bucket = _whole_of(found[1]), _bucket_of(found[2])
        except ValueError:
            return cls._parse(text)  # whose error names all of it
        return cls(whole.group, whole.sub_topology, bucket) if whole.bucket is None else cls._parse(text)

    @classmethod
    def _parse(cls, text: str) -> TaskName:
        prefix, slash, rest = text.rpartition("/")
        group: Group
        found: re.Match[str] | None
        if found := _PARTITION.match(rest):
            group = PartitionGroup(int(found[1]))
        elif found := _SSP.match(rest):
            group = SspGroup(found[1], found[2], int(found[3]))
        elif found := _EVERY.match(rest):
            group = EverySspGroup(int(found[1]))
        else:
            found = _NAMED.match(rest)
            assert found is not None
            group = NamedGroup(found[0])
        tail = rest[found.end() :]
        bucket = _BUCKET.fullmatch(tail) if tail else None
        if (tail and bucket is None) or (slash and not prefix):
            raise ValueError(f"{text!r} is no task name: {tail or slash!r} is left over")
        name = cls(group, prefix or None, KeyBucket(int(bucket[1]), int(bucket[2])) if bucket else None)
        if str(name) != text:  # leading zeros and the like: two texts must never mean one task
            raise ValueError(f"{text!r} is no task name: it would be written {str(name)!r}")
        return name


@lru_cache(maxsize=16_384)
def _whole_of(text: str) -> TaskName:
    """Siblings have this in common."""
    return TaskName._parse(text)


@lru_cache(maxsize=4_096)
def _bucket_of(text: str) -> KeyBucket:
    """Of the end of a name, such as `-1-4`."""
    bucket = TaskName._parse(f"x{text}").bucket
    assert bucket is not None, text
    return bucket
