"""Windows of time: which windows a timestamp falls into, when one closes, how long it is kept. All in µs.

A window [start, end) holds the timestamps start <= t < end; starts are multiples of `advance_us` since the epoch. A
session is named by the times of its first and its last record, both in it: its end is no bound, as in Kafka Streams. Of a
sliding window [start, end] both are in it, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DAY_US = 86_400_000_000
RETENTION_DEFAULT_US = 7 * DAY_US
WINDOWS_PER_RECORD_MAX = 10_000  # each is a state to read and write: 1 day advancing by 10 seconds is 8,640
END_US = 253_402_300_799_999_999  # of a window without an end: the last µs of the year 9999, after which there are no dates


class _Kept:
    """How long after its end a window (after the gap behind its last record a session) takes records, and how long it is kept.

    `grace_us` None: it takes them as long as it is kept. `retention_us`: its result is kept so long, at least until it closes.
    """

    __slots__ = ()
    grace_us: int | None
    retention_us: int

    @property
    def open_us(self) -> int:
        """How long it takes records."""
        return self.retention_us if self.grace_us is None else self.grace_us

    @property
    def kept_us(self) -> int:
        return max(self.retention_us, self.open_us)

    def _check_kept(self) -> None:
        if self.retention_us < 0 or self.open_us < 0:
            raise ValueError("grace and retention must not be below 0")


@dataclass(frozen=True, slots=True)
class Windows(_Kept):
    """Tumbling (advance = size) or hopping windows."""

    size_us: int
    advance_us: int
    grace_us: int | None = None
    retention_us: int = RETENTION_DEFAULT_US

    def __post_init__(self) -> None:
        if self.size_us <= 0 or self.advance_us <= 0:
            raise ValueError(f"window of {self.size_us} µs advancing by {self.advance_us} µs: expected more than 0")
        if self.advance_us > self.size_us:
            raise ValueError(f"advance of {self.advance_us} µs above the size of {self.size_us} µs would leave gaps")
        if self.per_record > WINDOWS_PER_RECORD_MAX:
            raise ValueError(f"{self.per_record} windows per record: expected at most {WINDOWS_PER_RECORD_MAX}")
        self._check_kept()

    def starts_of(self, timestamp_us: int) -> list[int]:
        """The starts of the windows that hold `timestamp_us`, oldest first.

        >>> Windows(10, 5).starts_of(12)   # [5, 15) and [10, 20)
        [5, 10]
        >>> Windows(10, 10).starts_of(-1)
        [-10]
        """
        last = timestamp_us - timestamp_us % self.advance_us
        count = -((timestamp_us - self.size_us - last) // self.advance_us)
        first = last - (count - 1) * self.advance_us
        return [start for start in range(first, last + 1, self.advance_us) if start + self.size_us > timestamp_us]

    def last_start(self, timestamp_us: Any) -> Any:
        """The start of the last window that holds a time, or of each of an array."""
        return timestamp_us - timestamp_us % self.advance_us

    def end_of(self, start_us: Any) -> Any:
        """The end of the window that begins at a time, or at each of an array."""
        return start_us + self.size_us

    @property
    def per_record(self) -> int:
        """In how many windows a record is, at most.

        >>> Windows(10, 5).per_record, Windows(10, 4).per_record
        (2, 3)
        """
        return -(-self.size_us // self.advance_us)

    def closes_us(self, end_us: int) -> int:
        """The watermark from which on the window that ends at `end_us` is closed."""
        return end_us + self.open_us

    def expires_us(self, end_us: int) -> int:
        """The watermark from which on the window that ends at `end_us` is deleted.

        >>> hour = Windows(60, 60, grace_us=1, retention_us=1500)
        >>> hour.closes_us(60), hour.expires_us(60)
        (61, 1560)
        """
        return end_us + self.kept_us

    def is_late(self, start_us: int, watermark_us: int | None) -> bool:
        """Whether a record for the window at `start_us` comes too late, by the watermark from before the round."""
        return watermark_us is not None and self.closes_us(start_us + self.size_us) <= watermark_us


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window, from `start_us` on. It never closes, and is kept for ever. A record before it is in no window."""

    start_us: int
    grace_us: None = None
    open_us: int = 0
    advance_us: int = 0
    per_record: int = 1

    def starts_of(self, timestamp_us: int) -> list[int]:
        """
        >>> UnlimitedWindows(5).starts_of(7), UnlimitedWindows(5).starts_of(4)
        ([5], [])
        """
        return [self.start_us] if timestamp_us >= self.start_us else []

    def last_start(self, timestamp_us: Any) -> Any:
        return timestamp_us * 0 + self.start_us

    def end_of(self, start_us: Any) -> Any:
        return start_us * 0 + END_US

    def is_late(self, start_us: int, watermark_us: int | None) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class SlidingWindows(_Kept):
    """Windows [t - length, t] and [t + 1, t + 1 + length] for each time t of a record of the key; of the second kind those
    that hold a record (KIP-450). So there is one for each set of records that lie at most `length_us` apart.

    Length 10, records at 0 and 7: [-10, 0] holds the first, [-3, 7] both, [1, 11] the second.
    """

    length_us: int
    grace_us: int | None = None
    retention_us: int = RETENTION_DEFAULT_US

    def __post_init__(self) -> None:
        if self.length_us <= 0:
            raise ValueError(f"sliding windows of {self.length_us} µs: expected more than 0")
        self._check_kept()

    def end_of(self, start_us: int) -> int:
        return start_us + self.length_us

    def closes_us(self, end_us: int) -> int:
        """The watermark from which on the window that ends at `end_us`, which is in it, is closed."""
        return end_us + self.open_us + 1

    def expires_us(self, end_us: int) -> int:
        """The watermark from which on the window that ends at `end_us` is deleted. A record in time at t may lie `length_us`
        before the end of the last window that is open, and those that begin with it are made of one that ends before t - 1."""
        return end_us + self.kept_us + 2 * self.length_us + 2

    def is_closed(self, end_us: int, watermark_us: int | None) -> bool:
        """Whether the window that ends at `end_us` is closed, by the watermark from before the round."""
        return watermark_us is not None and self.closes_us(end_us) <= watermark_us


@dataclass(frozen=True, slots=True)
class SessionWindows(_Kept):
    """Records of a key that lie at most `gap_us` apart are one session.

    Gap 10, sessions of records at 0 and 15: one at 7 joins both into [0, 15], one at 4 makes the first [0, 4].
    """

    gap_us: int
    grace_us: int | None = None
    retention_us: int = RETENTION_DEFAULT_US

    def __post_init__(self) -> None:
        if self.gap_us <= 0:
            raise ValueError(f"session gap of {self.gap_us} µs: expected more than 0")
        self._check_kept()

    def closes_us(self, end_us: int) -> int:
        """The watermark from which on the session whose last record is at `end_us` is closed.

        Not before the gap is over: with gap 10 and no grace a record at 10 still joins a session that ends at 0, and is
        no late one while the watermark is 10.

        >>> SessionWindows(10, grace_us=0).closes_us(0)
        11
        """
        return end_us + self.gap_us + self.open_us + 1

    def expires_us(self, end_us: int) -> int:
        """The watermark from which on the session whose last record is at `end_us` is deleted."""
        return end_us + self.gap_us + self.kept_us + 1

    def is_closed(self, end_us: int, watermark_us: int | None) -> bool:
        """Whether the session that ends at `end_us` is closed, by the watermark from before the round."""
        return watermark_us is not None and self.closes_us(end_us) <= watermark_us


def skips_null_values(windows: AnyWindows | None) -> bool:
    """Whether an aggregate skips records without a value: so does Kafka Streams, which gives them to those of other windows."""
    return windows is None or isinstance(windows, SlidingWindows)


TimeWindows = Windows | UnlimitedWindows  # which a record falls into by its time alone
ClosingWindows = Windows | SessionWindows | SlidingWindows
AnyWindows = ClosingWindows | UnlimitedWindows
