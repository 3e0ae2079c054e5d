"""Amounts of the last seconds: what was done in a span of time, and how much of it lies in any window.

A round reports what it did when it ends. Its amounts are taken to be spread evenly over it, so that a round of 20 s counts half
in a window of its last 10 s. Times are of a clock that only goes forward, in seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

KEPT_S = 60.0
SLOT_S = 1.0  # short spans are put together, up to this length
Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Slot(Generic[Key]):
    began_s: float
    ended_s: float
    amounts: dict[Key, float]

    def share_of(self, since_s: float, until_s: float) -> float:
        """How much of it lies within; of a moment all or nothing."""
        if self.ended_s <= self.began_s:
            return float(since_s < self.ended_s <= until_s)
        return max(0.0, min(self.ended_s, until_s) - max(self.began_s, since_s)) / (self.ended_s - self.began_s)


class RecentAmounts(Generic[Key]):
    """Amounts by key, of the last `KEPT_S` before the newest. Not thread-safe."""

    def __init__(self) -> None:
        self._slots = deque[_Slot[Key]]()

    def add(self, began_s: float, ended_s: float, amounts: Mapping[Key, float]) -> None:
        """So much was done between these times. They may overlap with those of before, and do not end earlier."""
        last = self._slots[-1] if self._slots else None
        if last is None or ended_s - min(began_s, last.began_s) > SLOT_S:
            self._slots.append(_Slot(began_s, ended_s, dict(amounts)))
            while self._slots[0].ended_s < ended_s - KEPT_S:
                self._slots.popleft()
            return
        last.began_s, last.ended_s = min(began_s, last.began_s), max(ended_s, last.ended_s)
        for key, amount in amounts.items():
            last.amounts[key] = last.amounts.get(key, 0.0) + amount

    def within(self, since_s: float, until_s: float) -> dict[Key, float]:
        """How much lies in this window, which is not to begin before what is kept."""
        found: dict[Key, float] = {}
        for slot in self._slots:
            share = slot.share_of(since_s, until_s)
            for key, amount in slot.amounts.items() if share else ():
                found[key] = found.get(key, 0.0) + share * amount
        return found
