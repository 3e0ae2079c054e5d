"""How far event time has come: of an SSP, of a task, of a repartition stream (protocol.md 23). Times are µs.

A watermark is None where nothing is known yet: then no record is late and no event timer is due.

Event times lie in the years 1 to 9999, as those of ISO 8601, of Python's datetime and of Spark. A record with another is
refused where it enters, before it has moved a watermark: one such time, of a wrong unit as a rule, would make all that
follows late. And nothing that is reckoned with times and the lengths of windows leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.core.rounds.purging import lowest_positions
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
        "is it in another unit? timestamp_unit= says which timestamp= gives: 'us', 'ms', 's' or 'ns'",
    )


def joined_reports(checkpoints: Collection[Checkpoint]) -> dict[SSP, int]:
    """Per partition the highest time that was reported by a task at the lowest position: of those that have read on, records
    come that are not read by all. So virtual tasks judge alike, and none closes the windows of one that is behind."""
    reporting = [checkpoint for checkpoint in checkpoints if checkpoint.watermarks]
    lowest = lowest_positions(checkpoints) if reporting else {}
    joined: dict[SSP, int] = {}
    for checkpoint in reporting:
        for ssp, time_us in checkpoint.watermarks.items():
            if ssp in checkpoint.positions and checkpoint.positions[ssp] == lowest[ssp]:
                joined[ssp] = max(time_us, joined.get(ssp, time_us))
    return joined


def joint_watermark(inputs: Iterable[tuple[int | None, bool]]) -> int | None:
    """The watermark of what reads these inputs, each given as (its watermark, whether it is idle).

    The lowest of the inputs that are not idle. An idle input never holds the watermark back: where all are idle, the highest
    that is known. So each input that becomes idle leaves the watermark where it is or moves it forward, and it ends at the
    same time in whichever order they become idle. The inputs are SSPs of a task, or the tasks that write a repartition stream.

    >>> a, b, a_idle, b_idle = (10, False), (5, False), (10, True), (5, True)
    >>> joint_watermark([a, b]), joint_watermark([a, b_idle]), joint_watermark([a_idle, b]), joint_watermark([a_idle, b_idle])
    (5, 10, 5, 10)
    >>> joint_watermark([a, (None, False)]) is None, joint_watermark([a, (None, True)])
    (True, 10)
    """
    everyone = list(inputs)
    active = [watermark for watermark, is_idle in everyone if not is_idle]
    if not active:
        return max((watermark for watermark, _ in everyone if watermark is not None), default=None)
    return None if None in active else min(watermark for watermark in active if watermark is not None)


def watermark_after(inputs: Iterable[int], reports: Iterable[Mapping[int, int]]) -> int | None:
    """Where the watermark of a task is at least, whichever inputs are idle, once its round is committed: if nothing else reads
    its `inputs`, which are numbers. `reports`: of inputs, up to which time they had come before the round, and in it. None
    where nothing is known of one of them.

    >>> watermark_after([0, 1], [{0: 5, 1: 4}, {1: 9}])
    5
    >>> watermark_after([0, 1], [{0: 5}, {0: 7}]) is None
    True
    """
    known = list(reports)
    marks = [max((report[one] for report in known if one in report), default=None) for one in inputs]
    return joint_watermark((mark, False) for mark in marks)


def task_watermark(ssps: Iterable[SSP], known: Mapping[SSP, int | None], idle: Collection[SSP]) -> int | None:
    """The watermark of a task that reads `ssps`: see `joint_watermark`. `idle`: whole SSPs."""
    return joint_watermark((known.get(ssp), ssp in idle) for ssp in ssps)
