"""Owns how far event time has come: of an SSP, of a task, of a repartition stream (protocol.md 23). Times are µs.

A watermark is None where nothing is known yet: then no record is late and no event timer is due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP


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
