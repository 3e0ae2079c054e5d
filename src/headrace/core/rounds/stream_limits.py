"""What a stream takes: how large a record may be, and which times it may have. Sizes are bytes, times µs.

A system refuses at the end of a round, and all of it. What is known before is asked of every record, so that the one which
does not fit is named, or sent to the dead-letter stream, and the others are processed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
RECORD_BYTES_MAX = 64 * 1024 * 1024  # of any system: key, value, and the names and values of the headers


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What one stream takes. `bytes_max`: of a record; where `compression` names how records are packed, of what that
    leaves of it. `time_min_us`: the earliest time that it can keep. `age_us_max`, `ahead_us_max`: how far a time may lie
    behind and ahead of the clock, None for any. `keeps_times` False: records get the time at which they are written.

    >>> StreamLimits(age_us_max=60).times(100), StreamLimits(time_min_us=0).times(100)[0]
    ((40, 9223372036854775807), 0)
    """

    bytes_max: int = RECORD_BYTES_MAX
    time_min_us: int = _INT64_MIN
    age_us_max: int | None = None
    ahead_us_max: int | None = None
    keeps_times: bool = True
    compression: str | None = None

    def times(self, now_us: int) -> tuple[int, int]:
        """The earliest and the latest time that a record may have now."""
        earliest = self.time_min_us if self.age_us_max is None else max(self.time_min_us, now_us - self.age_us_max)
        latest = _INT64_MAX if self.ahead_us_max is None else min(_INT64_MAX, now_us + self.ahead_us_max)
        return earliest, latest

    def with_room_for(self, size: int) -> StreamLimits:
        """What the stream takes of a record that gets `size` bytes more."""
        return replace(self, bytes_max=self.bytes_max - size)

    def refusal_of_time(self, stream: str, time_us: int, now_us: int) -> str | None:
        """Why the stream does not take a record of this time; None where it does.

        >>> StreamLimits(time_min_us=0).refusal_of_time("out", -1, 100)
        "timestamp -1: stream 'out' keeps no times before 0 (µs since 1970)"
        """
        earliest, latest = self.times(now_us)
        if earliest <= time_us <= latest:
            return None
        if time_us < self.time_min_us:
            return f"timestamp {time_us}: stream {stream!r} keeps no times before {self.time_min_us} (µs since 1970)"
        if self.age_us_max is not None and time_us < earliest:
            apart, most, side = now_us - time_us, self.age_us_max, "old"
        else:
            apart, most, side = time_us - now_us, self.ahead_us_max or 0, "ahead of the clock"
        return (
            f"timestamp {time_us}: it is {apart / 1e6:,.0f} s {side}, and stream {stream!r} takes at most {most / 1e6:,.0f} s"
        )

    def refusal_of_size(self, stream: str, size: int) -> str | None:
        """Why the stream does not take a record of this size; None where it does.

        >>> StreamLimits(bytes_max=2000).refusal_of_size("out", 5000)
        "5,000 bytes, stream 'out' takes records of at most 2,000"
        """
        if size <= self.bytes_max:
            return None
        return f"{size:,} bytes, stream {stream!r} takes records of at most {self.bytes_max:,}"


ANY = StreamLimits()
