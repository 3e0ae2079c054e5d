"""Owns windows of time: which windows a timestamp falls into, when one closes, how long it is kept. All in µs.

A window [start, end) holds the timestamps start <= t < end; starts are multiples of `advance_us` since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

DAY_US = 86_400_000_000
RETENTION_DEFAULT_US = 7 * DAY_US


@dataclass(frozen=True, slots=True)
class Windows:
    """Tumbling (advance = size) or hopping windows. `grace_us` None: no record is late while its window is kept."""

    size_us: int
    advance_us: int
    grace_us: int | None = None
    retention_us: int = RETENTION_DEFAULT_US

    def __post_init__(self) -> None:
        if self.size_us <= 0 or self.advance_us <= 0:
            raise ValueError(f"window of {self.size_us} µs advancing by {self.advance_us} µs: expected more than 0")
        if self.advance_us > self.size_us:
            raise ValueError(f"advance of {self.advance_us} µs above the size of {self.size_us} µs would leave gaps")
        if self.grace_us is not None and self.grace_us < 0 or self.retention_us < 0:
            raise ValueError("grace and retention must not be below 0")

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

    @property
    def kept_us(self) -> int:
        """How long after its end a window is kept: records for it are late from then on at the latest."""
        return self.retention_us if self.grace_us is None else self.grace_us

    def is_late(self, start_us: int, watermark_us: int | None) -> bool:
        """Whether a record for the window at `start_us` comes too late, by the watermark from before the round."""
        return watermark_us is not None and start_us + self.size_us + self.kept_us <= watermark_us
