"""Decides how far timers are followed that set further timers: a round and a catch-up both have a bound.

A timer that `on_timer` sets for a time that is already due fires in the same round, in order of time. So a timer that
repeats each minute catches up a day within one round. A key that has had `FIRINGS_MAX` such firings in a round gets the
others in the next round, if time has advanced for it; where it has not, or by so little that the present would
be `CATCH_UP_MAX` firings away, the timer sets itself for ever: that is an error.
"""

from __future__ import annotations

import enum

FIRINGS_MAX = 10_000  # of timers that were set while timers fired, per operator, key and round
CATCH_UP_MAX = 10_000_000  # of one key until it has caught up: 11 days of a timer that repeats each 100 ms


class Next(enum.Enum):
    """What becomes of a timer that is due."""

    FIRE = "fire"
    NEXT_ROUND = "next round"
    ENDLESS = "endless"


def next_of(fired: int, first_us: int, at_us: int, until_us: int, *, is_time: bool) -> Next:
    """What becomes of the next timer of a key, set for `at_us`, after `fired` timers that were set while timers fired.

    `first_us` is the time of the timer that set the first of them, `until_us` what is due, `is_time` whether the round has
    taken its time. Rounds that are cut are no way to run without end: each begins later in the key's time than the last.

    >>> day, minute = 86_400_000_000, 60_000_000
    >>> next_of(1_439, 0, 1_439 * minute, day, is_time=False)
    <Next.FIRE: 'fire'>
    >>> next_of(10_000, 0, 10_000 * minute, 30 * day, is_time=False)
    <Next.NEXT_ROUND: 'next round'>
    >>> next_of(10_000, 0, 0, day, is_time=False), next_of(10_000, 0, 10_000, day, is_time=False)
    (<Next.ENDLESS: 'endless'>, <Next.ENDLESS: 'endless'>)
    """
    moved_us = at_us - first_us
    if fired < FIRINGS_MAX:
        return Next.NEXT_ROUND if is_time and moved_us > 0 else Next.FIRE
    if moved_us <= 0 or (until_us - at_us) * fired > CATCH_UP_MAX * moved_us:
        return Next.ENDLESS
    return Next.NEXT_ROUND
