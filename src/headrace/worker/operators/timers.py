"""Timers: set by a key under a name, by event time or by wall clock, kept with the task's state until they fire. Database
`~timers`: routing key | operator, clock and name (digest) -> time; `~timers.event`, `~timers.wall`: the index by time. No store
can have a name with a tilde."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
import xxhash

from headrace.core.keys.key_layout import state_key, time_bytes, time_from, time_key, time_of
from headrace.worker.operators.expiry import due_entries, earliest_us

CLOCKS = ("event", "wall")
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

    def set(self, operator: str, key: bytes, name: str, clock: str, at_us: int) -> None:
        """Set it: a timer of the same key, operator, clock and name is replaced."""
        digest = _digest(operator, clock, name)
        by_key = self._context.database("~timers")
        layout = state_key(key, digest)
        self._forget(by_key.get(layout), key, clock, digest)
        by_key.put(layout, time_bytes(at_us))
        index = self._context.database(f"~timers.{clock}")
        index.put(time_key(key, at_us, _rest(digest, key)), msgspec.msgpack.encode((operator, key, name)))
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
            self._context.database(f"~timers.{clock}").delete(time_key(key, time_from(stored), _rest(digest, key)))
            self._removed.add(clock)

    def due(self, clock: str, until_us: int | None) -> list[tuple[int, str, bytes, str]]:
        """Take out all timers that are due: (time, operator, key, name), in order of time."""
        earliest = self.earliest[clock]
        if until_us is None or earliest is None or earliest > until_us:
            return []
        index = self._context.database(f"~timers.{clock}")
        by_key = self._context.database("~timers")
        found = []
        for layout, value in due_entries(index, until_us):
            operator, key, name = _ENTRY.decode(value)
            index.delete(layout)
            by_key.delete(state_key(key, _digest(operator, clock, name)))
            found.append((time_of(layout), operator, key, name))
        self._removed.add(clock)
        return sorted(found)

    def settle(self) -> None:
        """At the end of a round: where timers were taken out, look for the next one that is due."""
        for clock in sorted(self._removed):
            self.earliest[clock] = earliest_us(self._context.database(f"~timers.{clock}"))
        self._removed.clear()


def _digest(operator: str, clock: str, name: str) -> bytes:
    return xxhash.xxh3_128_digest(f"{operator}\0{clock}\0{name}".encode())


def _rest(digest: bytes, key: bytes) -> bytes:
    return digest + blake2b(key, digest_size=16).digest()  # no user can make two keys whose timers would be one
