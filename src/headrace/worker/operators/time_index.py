"""`TimeIndex`: the entries of a task's state by time; which are due, and when the next one is. Keys: `core.keys.key_layout`.

An index has a range per slot of the hash, so that it is split and merged with the task, and each range is in order of time.
The earliest entry of all is therefore the earliest of the first ones of the slots: one seek for each slot in use, whatever
the number of entries.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headrace.core.keys.key_layout import SLOT_BYTES, due_range, time_of


class TimeIndex:
    """A view of `database`, a `task_state.Database` whose keys are time keys."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def earliest_us(self) -> int | None:
        """The lowest time in the index, in µs; None where it is empty."""
        return min(map(time_of, self._first_of_slots()), default=None)

    def due(self, until_us: int) -> list[tuple[bytes, bytes]]:
        """The entries with a time <= `until_us`, by slot and time."""
        ranges = sorted(due_range(key, until_us) for key in self._first_of_slots() if time_of(key) <= until_us)
        return [entry for low, high in ranges for entry in self._database.scan(low, high)]

    def _first_of_slots(self) -> Collection[bytes]:
        found: Collection[bytes] = self._database.first_keys(SLOT_BYTES)
        return found
