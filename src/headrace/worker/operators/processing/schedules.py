"""What a processor has scheduled: a callback, called again and again for a task as a whole. When is due what,
`core.rounds.punctuations` decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.core.rounds.punctuations import due_at
from headrace.errors import ConfigError, TopologyError
from headrace.exchange.texts import shown
from headrace.model.durations import duration_us
from headrace.worker.operators.processing.timer_store import CLOCKS


@dataclass(slots=True, eq=False)
class Schedule:
    """A callback that is called again and again, until it is cancelled."""

    interval_us: int
    callback: Callable[[int], object]
    clock: str
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Do not call it any more, until the processor's object is made again: after a restart `init` schedules it again."""
        self.is_cancelled = True

    def due_at(self, clock: str, from_us: int, until_us: int) -> int | None:
        """For which time it is to be called, None where it is not."""
        return due_at(self.interval_us, from_us, until_us) if clock == self.clock else None


def schedule_of(operator: str, interval: Any, callback: Callable[[int], object], clock: str) -> Schedule:
    """`TopologyError` for what is none."""
    if clock not in CLOCKS:
        raise TopologyError(f"{operator}: schedule: clock {clock!r}, expected 'event' or 'wall'")
    if not callable(callback):
        raise TopologyError(f"{operator}: schedule: {shown(callback)} is no function", "give a function of the time, in µs")
    try:
        interval_us = duration_us(interval, "interval")
    except ConfigError as error:
        raise TopologyError(f"{operator}: schedule: {error.message}", error.hint) from None
    if interval_us <= 0:
        raise TopologyError(
            f"{operator}: schedule: {interval!r} is no length of time above 0",
            'write a duration such as "10 seconds"',
        )
    return Schedule(interval_us, callback, clock)
