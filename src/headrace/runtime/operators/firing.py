"""Owns in which order the due timers of an operator fire in a round, and how far those are followed that they set.

Timers fire by time. What `on_timer` sets and cancels meanwhile counts: a timer that it sets for a time that is due fires in
its turn, one that it cancels or moves does not fire. How many of a key do so in one round `core.timer_chains` decides;
those that are left are set again, and fire in the next round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from headrace.core.described import duration_text
from headrace.core.timer_chains import FIRINGS_MAX, Next, next_of
from headrace.errors import EndlessTimersError
from headrace.runtime.operators.timers import CLOCKS
from headrace.runtime.operators.words import shown

_LOOK_EACH = 256  # timers from one look at the round's time to the next

Due = tuple[int, bytes, str, str]  # time, key, name, clock


class _Entry(NamedTuple):
    """A timer, in the order in which they fire."""

    clock: int  # its place in CLOCKS
    at_us: int
    key: bytes
    name: str

    @property
    def due(self) -> Due:
        return self.at_us, self.key, self.name, CLOCKS[self.clock]


@dataclass(slots=True)
class _Chain:
    """Of a key: how many timers fired that were set while timers fired, and from which time on, by clock."""

    fired: int = 0
    first_us: dict[int, int] = field(default_factory=dict)


class DueTimers:
    """The due timers of one operator: `take` gives them one by one, and is told by `changed` what `on_timer` sets.

    `due` were taken out of the task's timers. Those that are set meanwhile are followed by the clocks in `until_us`, the
    times up to which timers are due.
    """

    def __init__(self, operator: str, task_run: Any, due: list[Due], until_us: dict[str, int]) -> None:
        self._operator, self._task_run, self._timers = operator, task_run, task_run.timers
        self._until_us = {CLOCKS.index(clock): until for clock, until in until_us.items()}
        self._heap = [_Entry(CLOCKS.index(clock), at_us, key, name) for at_us, key, name, clock in due]
        heapify(self._heap)
        self._pending: dict[bytes, dict[tuple[int, str], _Entry]] = {}  # by key; what is not in here does not fire
        for entry in self._heap:
            self._pending.setdefault(entry.key, {})[entry.clock, entry.name] = entry
        self._followed: set[_Entry] = set()  # those that were set while timers fired
        self._chains: dict[bytes, _Chain] = {}
        self._changes: dict[tuple[int, str], int | None] = {}  # by the firing at work: time, None where it was cancelled
        self._looked = 0
        self._is_time = False

    def take(self) -> Due | None:
        """The next timer that fires, None where all have; `EndlessTimersError` where a key's timers have no end."""
        while self._heap:
            self._looked += 1
            if self._looked % _LOOK_EACH == 0:
                self._is_time = self._task_run.is_time()
            entry = heappop(self._heap)
            mine = self._pending.get(entry.key, {})
            if mine.get((entry.clock, entry.name)) != entry:
                continue
            if entry in self._followed and not self._goes_on(entry):
                self._put_back(entry.key)
                continue
            self._followed.discard(entry)
            del mine[entry.clock, entry.name]
            if not mine:
                del self._pending[entry.key]
            return entry.due
        return None

    def changed(self, name: str, clock: str, at_us: int | None) -> None:
        """`on_timer` has set a timer of its key, or cancelled it (None)."""
        self._changes[CLOCKS.index(clock), name] = at_us

    def fired(self, timer: Due, *, failed: bool = False) -> None:
        """`on_timer` is done with `timer`; where it failed, all that it did was taken back."""
        changes, self._changes = self._changes, {}
        if failed or not changes:
            return
        at_us, key, _, clock = timer
        for (number, name), time_us in changes.items():
            mine = self._pending.setdefault(key, {})
            mine.pop((number, name), None)
            if time_us is None or time_us > self._until_us.get(number, time_us - 1):
                continue
            self._timers.delete(self._operator, key, name, CLOCKS[number])
            entry = mine[number, name] = _Entry(number, time_us, key, name)
            self._followed.add(entry)
            heappush(self._heap, entry)
            chain = self._chains.setdefault(key, _Chain())
            chain.first_us.setdefault(number, at_us if CLOCKS[number] == clock else time_us)

    def _goes_on(self, entry: _Entry) -> bool:
        """Whether a timer that was set while timers fired fires in this round."""
        chain = self._chains[entry.key]
        first_us, until_us = chain.first_us[entry.clock], self._until_us[entry.clock]
        found = next_of(chain.fired, first_us, entry.at_us, until_us, is_time=self._is_time)
        if found is Next.ENDLESS:
            raise self._endless(entry, first_us)
        chain.fired += 1
        return found is Next.FIRE

    def _put_back(self, key: bytes) -> None:
        """What a key has left fires in the next round."""
        for entry in self._pending.pop(key).values():
            self._followed.discard(entry)
            self._timers.set(self._operator, key, entry.name, CLOCKS[entry.clock], entry.at_us)

    def _endless(self, entry: _Entry, first_us: int) -> EndlessTimersError:
        key = shown(self._task_run.key_serde_of(self._operator).decode(entry.key))
        clock, moved_us = CLOCKS[entry.clock], entry.at_us - first_us
        moved = "at no later time" if moved_us <= 0 else f"over {duration_text(moved_us)}"
        left_us = self._until_us[entry.clock] - entry.at_us
        left = f", with {duration_text(left_us)} left to the present" if left_us > 0 else ""
        return EndlessTimersError(
            f"operator {self._operator!r} has not caught up after {FIRINGS_MAX:,} timers of key {key} in one round: its "
            f"on_timer sets timers that are due at once, the last one {entry.name!r} ({clock} clock), {moved}{left}\n"
            f"  in {self._task_run.place}",
            "set the next one for later than the one that fires, such as at=timer.timestamp_us + 60_000_000 for each minute; "
            "nothing of this round was committed",
        )
