"""Decides when the punctuations of a processor are due: at whole multiples of their interval, so that a restart, another number
of tasks and another place where rounds are cut do not move them.

Of each clock a task keeps in its checkpoint up to where its punctuations are done, and when the next one is due. Where time has
advanced over several multiples, a punctuation is called once, at the last of them: no catch-up, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.rounds.watermarks import TIME_MIN_US


def due_at(interval_us: int, from_us: int, until_us: int) -> int | None:
    """The last multiple of the interval in `from_us` to `until_us`, both included; None where there is none.

    >>> due_at(10, 11, 39), due_at(10, 11, 19), due_at(10, 20, 20), due_at(10, -35, -15)
    (30, None, 20, -20)
    """
    at_us = until_us // interval_us * interval_us
    return at_us if at_us >= from_us else None


def next_at(intervals_us: Iterable[int], from_us: int) -> int | None:
    """The earliest multiple of any of the intervals from `from_us` on; None without intervals.

    >>> next_at([10, 4], 9), next_at([10, 4], 10), next_at([], 0)
    (10, 10, None)
    """
    return min((-(-from_us // interval_us) * interval_us for interval_us in intervals_us), default=None)


def begins_us(reached_us: int | None) -> int:
    """From when on punctuations are due that are new in a round: at their next multiple, or as soon as the clock is known. So
    it does not matter for a key whether its task is a virtual one, and whether other keys came to the task before.
    `reached_us`: what the clock had come to when the round began."""
    return TIME_MIN_US if reached_us is None else reached_us + 1
