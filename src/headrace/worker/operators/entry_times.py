"""The times of a store's entries, in a database of their own, `STORE~times`: layout key -> 8 bytes. So the entries are as they
were before times were kept, and state without them is used as it is: a time that is not there counts for none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core.keys.key_layout import TIMES, time_bytes, time_from

NO_TIME_US = -(1 << 63)  # lower than any


class EntryTimes:
    """The times of the entries of `database`, in µs."""

    def __init__(self, context: Any, database: str) -> None:
        self._context, self._name = context, database + TIMES

    def get_many(self, layouts: Sequence[bytes]) -> list[int]:
        """`NO_TIME_US` for what has none."""
        stored = self._context.database(self._name).get_many(layouts)
        return [NO_TIME_US if data is None else time_from(data) for data in stored]

    def put(self, layout: bytes, time_us: int | None) -> None:
        """None deletes it."""
        self._context.database(self._name).put(layout, None if time_us is None else time_bytes(time_us))

    def put_many(self, layouts: Sequence[bytes], times_us: Sequence[int | None]) -> None:
        stored = [None if time_us is None else time_bytes(time_us) for time_us in times_us]
        self._context.database(self._name).put_many(layouts, stored)
