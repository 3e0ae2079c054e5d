"""The names of inputs and outputs: a stream of a system, and one partition (or key bucket) of it.

Seed: SEP-32 "Public Interfaces" 1 (the fourth component, the key bucket).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SystemStream:
    """A stream and the system that holds it."""

    system: str
    stream: str

    def __str__(self) -> str:
        return f"{self.system}.{self.stream}"


@dataclass(frozen=True, slots=True)
class SystemStreamPartition:
    """One partition of a stream, or one key bucket of it (`key_bucket` is None for the whole partition).

    >>> str(SystemStreamPartition("kafka", "views", 3)), str(SystemStreamPartition("kafka", "views", 3, 1))
    ('kafka.views.3', 'kafka.views.3/1')
    """

    system: str
    stream: str
    partition: int
    key_bucket: int | None = None

    def __post_init__(self) -> None:
        system, stream, bucket = self.system, self.stream, self.key_bucket
        if type(system) is str is type(stream) and type(self.partition) is int and (bucket is None or type(bucket) is int):
            fits = bool(system and stream) and self.partition >= 0 and (bucket is None or bucket >= 0)
            if fits and "." not in system and "/" not in system and "/" not in stream:
                return  # a plan makes hundreds of thousands
        for part, text in (("system", self.system), ("stream", self.stream)):
            if not isinstance(text, str):
                raise ValueError(f"SSP: {part}={text!r:.80}: expected a text, found {type(text).__name__}")
        for part, number in (("partition", self.partition), ("key_bucket", self.key_bucket)):
            if type(number) is not int and (part == "partition" or number is not None):
                raise ValueError(f"SSP: {part}={number!r:.80}: expected a whole number, found {type(number).__name__}")
        if not self.system or not self.stream or "." in self.system or "/" in self.system or "/" in self.stream:
            raise ValueError(f"SSP of system {self.system!r}, stream {self.stream!r}: empty, '/', or '.' in the system")
        if self.partition < 0:
            raise ValueError(f"partition {self.partition} of {self.system}.{self.stream}: below 0")
        if self.key_bucket is not None and self.key_bucket < 0:
            raise ValueError(f"key bucket {self.key_bucket} of {self.system}.{self.stream}: below 0; absent is None")

    def __str__(self) -> str:
        bucket = "" if self.key_bucket is None else f"/{self.key_bucket}"
        return f"{self.system}.{self.stream}.{self.partition}{bucket}"

    def __lt__(self, other: SystemStreamPartition) -> bool:
        return self.sort_key < other.sort_key

    @property
    def sort_key(self) -> tuple[str, str, int, int]:
        """A total order: by system, stream, partition; a whole partition before its buckets."""
        return (self.system, self.stream, self.partition, -1 if self.key_bucket is None else self.key_bucket)

    @property
    def system_stream(self) -> SystemStream:
        return SystemStream(self.system, self.stream)

    @property
    def whole(self) -> SystemStreamPartition:
        """The partition that this is a bucket of, or itself."""
        return self if self.key_bucket is None else SystemStreamPartition(self.system, self.stream, self.partition)

    def bucket(self, key_bucket: int) -> SystemStreamPartition:
        return SystemStreamPartition(self.system, self.stream, self.partition, key_bucket)

    @classmethod
    def parse(cls, text: str) -> SystemStreamPartition:
        """The value whose `str` is `text`; stream names may contain dots, systems may not."""
        body, slash, bucket = text.partition("/")
        system, _, rest = body.partition(".")
        stream, _, partition = rest.rpartition(".")
        if not (system and stream and partition.isdecimal() and (bucket.isdecimal() if slash else True)):
            raise ValueError(f"{text!r} is no SSP: expected SYSTEM.STREAM.PARTITION or SYSTEM.STREAM.PARTITION/BUCKET")
        ssp = cls(system, stream, int(partition), int(bucket) if slash else None)
        if str(ssp) != text:  # leading zeros and the like: two texts must never mean one SSP
            raise ValueError(f"{text!r} is no SSP: it would be written {str(ssp)!r}")
        return ssp


SSP = SystemStreamPartition


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream that exists. `id` changes when it is deleted and recreated; `internal_of` names the application whose
    repartition stream it is, None for a user's."""

    name: str
    partitions: int
    id: str
    internal_of: str | None = None
