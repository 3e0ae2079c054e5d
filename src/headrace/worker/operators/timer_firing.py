"""In which order the due timers of an operator fire in a round, and how far those are followed that they set.

Timers fire by time. What `on_timer` sets and cancels meanwhile counts: a timer that it sets for a time that is due fires in
its turn, one that it cancels or moves does not fire. How many of a key do so in one round `core.rounds.timer_chains` decides;
those that are left are set again, and fire in the next round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from headrace.core.rounds.timer_chains import FIRINGS_MAX, Next, next_of
from headrace.errors import EndlessTimersError
from headrace.exchange.texts import shown
from headrace.model.durations import duration_text
from headrace.worker.operators.base import Due
from headrace.worker.operators.timers import CLOCKS

_LOOK_EACH = 256  # timers from one look at the round's time to the next


@dataclass(slots=True)
class _Chain:
    """Of a key: how many timers fired that were set while timers fired, and from which time on, by clock."""

    fired: int = 0
    first_us: dict[str, int] = field(default_factory=dict)


class DueTimers:
    """The due timers of one operator: `take` gives them one by one; `changed` records what `on_timer` sets. `due` were taken
    out of the task's timers; they are of one clock, and in the order of their times. Timers that are set meanwhile are followed
    by the clocks in `until_us`, the times up to which timers are due."""

    def __init__(self, operator: str, task_run: Any, due: list[Due], until_us: Mapping[str, int]) -> None:
        self._operator, self._task_run, self._timers = operator, task_run, task_run.timers
        self._owner = task_run.program.timer_owner_of(operator)  # under which name the operator's timers are kept
        self._due, self._next, self._until_us = due, 0, until_us
        self._set: list[tuple[int, Due]] = []  # a heap of those that were set while timers fired, after the clock's place
        # What has become of timers that `on_timer` has changed: the time that they are followed for, None where they are not.
        self._changed: dict[tuple[bytes, str, str], int | None] = {}
        self._chains: dict[bytes, _Chain] = {}
        self._resting: set[bytes] = set()  # keys whose other timers fire in the next round
        self._changes: dict[tuple[str, str], int | None] = {}  # by the firing at work
        self._looked = 0
        self._is_time = False

    def take(self) -> Due | None:
        """The next timer that fires, None where all have; `EndlessTimersError` where a key's timers have no end."""
        while self._set or self._next < len(self._due):
            self._looked += 1
            if self._looked % _LOOK_EACH == 0:
                self._is_time = self._task_run.is_time()
            if self._is_one_set_first():
                timer = heappop(self._set)[1]
                at_us, key, name, clock = timer
                if self._changed[key, name, clock] != at_us:
                    continue
                self._changed[key, name, clock] = None
                if key not in self._resting and self._fires_now(timer):
                    return timer
                self._resting.add(key)
            else:
                timer = self._due[self._next]
                self._next += 1
                at_us, key, name, clock = timer
                if self._changed and (key, name, clock) in self._changed:
                    continue
                if key not in self._resting:
                    return timer
            self._timers.set(self._owner, key, name, clock, at_us)
        return None

    def changed(self, name: str, clock: str, at_us: int | None) -> None:
        """`on_timer` has set a timer of its key, or cancelled it (None)."""
        self._changes[name, clock] = at_us

    def fired(self, timer: Due, *, failed: bool = False) -> None:
        """`on_timer` is done with `timer`; where it failed, all that it did was taken back."""
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        if failed:
            return
        fired_us, key, _, clock_at_work = timer
        for (name, clock), at_us in changes.items():
            is_due = at_us is not None and clock in self._until_us and at_us <= self._until_us[clock]
            self._changed[key, name, clock] = at_us if is_due else None
            if at_us is None or not is_due:
                continue
            self._timers.delete(self._owner, key, name, clock)
            heappush(self._set, (CLOCKS.index(clock), (at_us, key, name, clock)))
            chain = self._chains.setdefault(key, _Chain())
            chain.first_us.setdefault(clock, fired_us if clock == clock_at_work else at_us)

    def _is_one_set_first(self) -> bool:
        if not self._set or self._next == len(self._due):
            return bool(self._set)
        due = self._due[self._next]
        return self._set[0] < (CLOCKS.index(due[3]), due)

    def _fires_now(self, timer: Due) -> bool:
        """Whether a timer that was set while timers fired fires in this round."""
        at_us, key, _, clock = timer
        chain = self._chains[key]
        first_us = chain.first_us[clock]
        found = next_of(chain.fired, first_us, at_us, self._until_us[clock], is_time=self._is_time)
        if found is Next.ENDLESS:
            raise self._endless(timer, first_us)
        chain.fired += 1
        return found is Next.FIRE

    def _endless(self, timer: Due, first_us: int) -> EndlessTimersError:
        at_us, key, name, clock = timer
        moved_us, left_us = at_us - first_us, self._until_us[clock] - at_us
        moved = "at no later time" if moved_us <= 0 else f"over {duration_text(moved_us)}"
        until = "the watermark" if clock == "event" else "the present"
        left = f", with {duration_text(left_us)} left to {until}" if left_us > 0 else ""
        key_text = shown(self._task_run.program.key_serdes[self._operator].decode(key))
        return EndlessTimersError(
            f"operator {self._operator!r} has not caught up after {FIRINGS_MAX:,} timers of key {key_text} in one round: its "
            f"on_timer sets timers that are due at once, the last one {shown(name)} ({clock} clock), {moved}{left}\n"
            f"  in {self._task_run.place}",
            "set the next one for later than the one that fires, such as at=timer.timestamp_us + 60_000_000 for each minute; "
            "nothing of this round was committed",
        )
