"""Searches a container's records for event times that lie far from the records' own. The driver warns of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.core.rounds.event_times import NO_TIME_US, FarTime


class FarTimes:
    """What one container has found. `far_us` 0: nothing is looked at. `streams`: (stream, partition) by SSP number."""

    def __init__(self, far_us: int, streams: Sequence[tuple[str, int]]) -> None:
        self._far_us, self._streams = far_us, streams
        self.first: dict[str, FarTime] = {}  # by stream
        self.count = 0

    def look_at(self, ssps: Any, offsets: Any, times_us: Any, own_us: Any, *, counted: bool = True) -> None:
        """Compare the event times of some rows with their own. Those of which Kafka has no time of its own are left out.
        Without `counted` they are only named: rows that come by several ways count once."""
        if not self._far_us or not len(times_us):
            return
        # as floats: a time that is no time, and is rejected for it, must not overflow
        apart = np.abs(times_us.astype(np.float64) - own_us.astype(np.float64)) > self._far_us
        far = np.flatnonzero(apart & (own_us != NO_TIME_US))
        if not len(far):
            return
        self.count += len(far) if counted else 0
        for ssp in np.unique(ssps[far]).tolist():
            at = far[ssps[far] == ssp][0]
            stream, partition = self._streams[ssp]
            self.first.setdefault(stream, FarTime(stream, partition, int(offsets[at]), int(times_us[at]), int(own_us[at])))
