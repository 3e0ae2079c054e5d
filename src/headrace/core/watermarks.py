"""Owns how far event time has come: of an SSP, of a task, of a repartition stream (protocol.md 23). Times are µs.

A watermark is None where nothing is known yet: then no record is late and no event timer is due.

Event times lie in the years 1 to 9999, as those of ISO 8601, of Python's datetime and of Spark. A record with another is
refused where it enters, before it has moved a watermark: one such time, of a wrong unit as a rule, would make all that
follows late. And nothing that is reckoned with times and the lengths of windows leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.errors import OutOfRangeError
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP

TIME_MIN_US = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
TIME_MAX_US = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z


def checked_time_us(time_us: int) -> int:
    """`time_us` if it can be the time of a record."""
    if TIME_MIN_US <= time_us <= TIME_MAX_US:
        return time_us
    raise OutOfRangeError(
        f"timestamp {time_us}: expected µs since 1970 that lie in the years 1 to 9999",
        "is it in another unit, such as nanoseconds?" if abs(time_us) < 1 << 63 else None,
    )


def joined_reports(checkpoints: Iterable[Checkpoint]) -> dict[SSP, int]:
    """Per whole partition the highest time that any task has reported: siblings then judge alike."""
    joined: dict[SSP, int] = {}
    for checkpoint in checkpoints:
        for ssp, watermark in checkpoint.watermarks.items():
            joined[ssp.whole] = max(watermark, joined.get(ssp.whole, watermark))
    return joined


def task_watermark(ssps: Iterable[SSP], known: Mapping[SSP, int | None], idle: Collection[SSP]) -> int | None:
    """The lowest watermark of a task's SSPs. An SSP that is idle at its end holds nothing back, unless all are.

    >>> a, b = SSP("k", "s", 0), SSP("k", "s", 1)
    >>> task_watermark([a, b], {a: 10, b: 5}, idle=()), task_watermark([a, b], {a: 10, b: 5}, idle={b})
    (5, 10)
    >>> task_watermark([a, b], {a: 10}, idle=()) is None, task_watermark([a, b], {a: 10}, idle={b})
    (True, 10)
    """
    whole = sorted({ssp.whole for ssp in ssps})
    active = [known.get(ssp) for ssp in whole if ssp not in idle]
    if not active:
        seen = [watermark for ssp in whole if (watermark := known.get(ssp)) is not None]
        return min(seen, default=None)
    return None if None in active else min(watermark for watermark in active if watermark is not None)


def stream_watermark(tasks: Iterable[tuple[int | None, bool]]) -> int | None:
    """The watermark of a repartition stream, from its writers: (task's watermark, whether all its SSPs are idle).

    The lowest of those that are not idle; where all are idle the lowest that is known.
    """
    everyone = list(tasks)
    active = [watermark for watermark, is_idle in everyone if not is_idle]
    if not active:
        return min((watermark for watermark, _ in everyone if watermark is not None), default=None)
    return None if None in active else min(watermark for watermark in active if watermark is not None)
