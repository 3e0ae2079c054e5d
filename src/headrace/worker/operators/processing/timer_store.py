"""Timers: set by a key under a name, by event time or by wall clock, kept with the task's state until they fire. Database
`~timers`: routing key | operator, clock and name (digest) -> time; `~timers.event`, `~timers.wall`: the index by time. No store
can have a name with a tilde.

Timers fire by time. What `on_timer` sets and cancels meanwhile counts: a timer that it sets for a time that is due fires in
its turn, one that it cancels or moves does not fire. How many of a key do so in one round `core.rounds.timer_chains` decides;
those that are left are set again, and fire in the next round."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

import msgspec
import xxhash

from headrace.core.keys.key_layout import state_key, time_bytes, time_from, time_key, time_of
from headrace.core.rounds.timer_chains import FIRINGS_MAX, Next, next_of
from headrace.errors import EndlessTimersError
from headrace.exchange.texts import shown
from headrace.model.durations import duration_text
from headrace.worker.operators.base import Due
from headrace.worker.operators.expiry import due_entries, earliest_us

CLOCKS = ("event", "wall")
_LOOK_EACH = 256  # timers from one look at the round's time to the next
_ENTRY = msgspec.msgpack.Decoder(tuple[str, bytes, str])


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that fires: what `on_timer` is given. `timestamp_us` is the time it was set for."""

    name: str
    key: Any
    timestamp_us: int
    clock: str


class Timers:
    """The timers of one task. `earliest[clock]` is the µs at which the next one is due, None without any."""

    def __init__(self, context: Any, earliest: dict[str, int | None]) -> None:
        self._context = context
        self.earliest = earliest
        self._removed: set[str] = set()
        self._due: dict[str, list[tuple[Due, bytes]]] | None = None  # by operator, each with its place in the index
        self._due_for: tuple[str, int] = ("", 0)  # the clock, and up to which µs

    def set(self, operator: str, key: bytes, name: str, clock: str, at_us: int) -> None:
        """Set it: a timer of the same key, operator, clock and name is replaced."""
        digest = _digest(operator, clock, name)
        by_key = self._context.database("~timers")
        layout = state_key(key, digest)
        self._forget(by_key.get(layout), key, clock, digest)
        by_key.put(layout, time_bytes(at_us))
        index = self._context.database(f"~timers.{clock}")
        index.put(time_key(key, at_us, _rest(digest, key)), msgspec.msgpack.encode((operator, key, name)))
        self._has_changed(clock, at_us)
        before = self.earliest[clock]
        self.earliest[clock] = at_us if before is None else min(before, at_us)

    def at(self, operator: str, key: bytes, name: str, clock: str) -> int | None:
        """The µs that a timer is set for, None where it is not."""
        stored = self._context.database("~timers").get(state_key(key, _digest(operator, clock, name)))
        return None if stored is None else time_from(stored)

    def delete(self, operator: str, key: bytes, name: str, clock: str) -> None:
        digest = _digest(operator, clock, name)
        layout = state_key(key, digest)
        by_key = self._context.database("~timers")
        self._forget(by_key.get(layout), key, clock, digest)
        by_key.delete(layout)

    def _forget(self, stored: bytes | None, key: bytes, clock: str, digest: bytes) -> None:
        if stored is not None:
            at_us = time_from(stored)
            self._context.database(f"~timers.{clock}").delete(time_key(key, at_us, _rest(digest, key)))
            self._removed.add(clock)
            self._has_changed(clock, at_us)

    def _has_changed(self, clock: str, at_us: int) -> None:
        if clock == self._due_for[0] and at_us <= self._due_for[1]:
            self._due = None

    def due(self, clock: str, until_us: int | None) -> Collection[str]:
        """The operators that have timers which are due."""
        earliest = self.earliest[clock]
        if until_us is None or earliest is None or earliest > until_us:
            return ()
        if self._due is None or self._due_for != (clock, until_us):
            self._due, self._due_for = {}, (clock, until_us)
            self._removed.add(clock)  # where none is found, the earliest was of a task that this one was made of
            for layout, value in due_entries(self._context.database(f"~timers.{clock}"), until_us):
                operator, key, name = _ENTRY.decode(value)
                self._due.setdefault(operator, []).append(((time_of(layout), key, name, clock), layout))
        return self._due

    def take(self, operator: str) -> list[Due]:
        """Take out the timers of an operator that `due` has found, in order of time."""
        assert self._due is not None, "`due` comes first"
        taken = sorted(self._due.pop(operator))
        clock = self._due_for[0]
        index, by_key = self._context.database(f"~timers.{clock}"), self._context.database("~timers")
        for (_, key, name, _), layout in taken:
            index.delete(layout)
            by_key.delete(state_key(key, _digest(operator, clock, name)))
        return [due for due, _ in taken]

    def include(self, others: Timers) -> None:
        """Count what was set and deleted through `others` for these: the next one that is due may be another."""
        self._removed |= others._removed
        self._due = None

    def settle(self) -> None:
        """At the end of a round: where timers were taken out, look for the next one that is due."""
        for clock in sorted(self._removed):
            self.earliest[clock] = earliest_us(self._context.database(f"~timers.{clock}"))
        self._removed.clear()


def _digest(operator: str, clock: str, name: str) -> bytes:
    return xxhash.xxh3_128_digest(f"{operator}\0{clock}\0{name}".encode())


def _rest(digest: bytes, key: bytes) -> bytes:
    return digest + blake2b(key, digest_size=16).digest()  # no user can make two keys whose timers would be one


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
