"""Decides whether a task is due, without a record to read: by its timers and punctuations.

The wall clock never stops. So a sub-topology that is to end does not work for what the clock alone makes due after it was at
its end: else a punctuation that is due again before its round has ended would keep it for ever.
"""

from __future__ import annotations


def is_task_due(due_us: tuple[int | None, int | None], watermark_us: int | None, wall_us: int) -> bool:
    """Whether a timer or a punctuation is due. `due_us`: when the next ones are, by event time and by the wall clock;
    `wall_us`: up to when the wall clock counts.

    >>> is_task_due((10, None), 10, 0), is_task_due((10, None), None, 99)
    (True, False)
    >>> is_task_due((None, 10), None, 9), is_task_due((20, 10), 19, 10)
    (False, True)
    """
    event_us, by_wall_us = due_us
    is_due_by_event = event_us is not None and watermark_us is not None and event_us <= watermark_us
    return is_due_by_event or (by_wall_us is not None and by_wall_us <= wall_us)


def wall_until_us(now_us: int, ended_us: int | None) -> int:
    """Up to when the wall clock counts for a sub-topology that is at its end since `ended_us`, None for not yet.

    >>> wall_until_us(30, None), wall_until_us(30, 20)
    (30, 20)
    """
    return now_us if ended_us is None else min(now_us, ended_us)
