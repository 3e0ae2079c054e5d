"""How long a broker is waited for, and that a job which ends waits no longer for one that does not answer."""

from __future__ import annotations

import threading
import time

HURRIED_S = 5.0  # a broker under load may take that long to answer
GAVE_UP_S = 0.5  # once one wait ended without an answer, the others need not find out again
SLICE_S = 3.0  # a call into librdkafka cannot be broken off: it is made in pieces of this length


class Deadline:
    """What all waits of one system look at. Threads share it. Each wait has a bound of its own; `expedite` makes it shorter."""

    def __init__(self) -> None:
        self._hurried_s: float | None = None
        self._gave_up = False
        self._changed = threading.Event()

    def expedite(self) -> None:
        """From now on wait `HURRIED_S` at most, those who wait already too: what is waited for hardly matters any more."""
        if self._hurried_s is None:
            self._hurried_s = time.monotonic()
            self._changed.set()

    @property
    def is_expedited(self) -> bool:
        return self._hurried_s is not None

    def left_s(self, began_s: float, bound_s: float) -> float:
        """What is left, 0 or less for nothing, of a wait that began then and may take `bound_s`."""
        now_s = time.monotonic()
        left_s = began_s + bound_s - now_s
        if self._hurried_s is None:
            return left_s
        hurried_s = max(began_s, self._hurried_s) + (GAVE_UP_S if self._gave_up else HURRIED_S) - now_s
        if hurried_s <= 0:
            self._gave_up = True
        return min(left_s, hurried_s)

    def piece_s(self, began_s: float, bound_s: float) -> float:
        """For how long the next call of such a wait may take."""
        return max(0.05, min(SLICE_S, self.left_s(began_s, bound_s)))

    def pause(self, seconds: float) -> None:
        """Sleep, but not through the moment at which haste begins."""
        if self.is_expedited:
            time.sleep(min(seconds, 0.1))
        else:
            self._changed.wait(seconds)
