"""What a topic takes, by its settings: how large a record may be, and which times it may have."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.core.rounds.stream_limits import RECORD_BYTES_MAX, StreamLimits

TIME_MIN_US = 0  # Kafka counts from 1970 on
BATCH_BYTES = 1_000_000  # what is sent at once, where nothing asks for less
# max.message.bytes is of a batch: what one of a single record has beside key, value and headers.
FRAME_BYTES = 100
_EVER = 2**62  # ms: no bound is written as 2**63 - 1
_CODECS = frozenset({"lz4", "gzip", "snappy", "zstd"})


def limits_of(topic: Mapping[str, str | None], client: Mapping[str, str]) -> StreamLimits:
    """What a topic with these settings takes of a producer with those of `client`; settings that are not told bound nothing.

    >>> limits_of({"max.message.bytes": "2100", "message.timestamp.before.max.ms": "1000"}, {"compression.type": "none"})
    StreamLimits(bytes_max=2000, time_min_us=0, age_us_max=1000000, ahead_us_max=None, keeps_times=True, compression=None)
    >>> limits_of({"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1000"}, {}).age_us_max
    """
    packing = client.get("compression.type", "lz4")
    keeps_times = topic.get("message.timestamp.type") != "LogAppendTime"
    either = topic.get("message.timestamp.difference.max.ms")  # of brokers before 3.6
    behind = topic.get("message.timestamp.before.max.ms") or either
    ahead = topic.get("message.timestamp.after.max.ms") or either
    bounds = [text for text in (topic.get("max.message.bytes"), client.get("message.max.bytes")) if text]
    return StreamLimits(
        bytes_max=min([RECORD_BYTES_MAX, *(max(1, int(text) - FRAME_BYTES) for text in bounds)]),
        time_min_us=TIME_MIN_US if keeps_times else StreamLimits().time_min_us,
        age_us_max=_bound_us(behind) if keeps_times else None,
        ahead_us_max=_bound_us(ahead) if keeps_times else None,
        keeps_times=keeps_times,
        compression=packing if packing in _CODECS else None,
    )


def _bound_us(text: str | None) -> int | None:
    return None if text is None or int(text) > _EVER else int(text) * 1000


def batch_bytes(limits: Collection[StreamLimits], given: str | None = None) -> int:
    """How much a producer may send at once, so that each of these streams takes it; `given` is what the user asks for.

    >>> batch_bytes([StreamLimits(bytes_max=20_000), StreamLimits()]), batch_bytes([StreamLimits()], "500")
    (20000, 500)
    """
    return min([int(given or BATCH_BYTES), *(one.bytes_max for one in limits)])
