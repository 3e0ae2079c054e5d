"""Owns the search for event times that lie far from their records' own, in the worker, and the driver's warning of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.event_times import NO_TIME_US, FarTime, warning_of
from headrace.model.topology import Source

if TYPE_CHECKING:
    from headrace.runtime.plan import Program, Summary
    from headrace.runtime.rounds import Progress

LOG = logging.getLogger("headrace.job")


class FarTimes:
    """What one container has found. `far_us` 0: nothing is looked at. `streams`: (stream, partition) by SSP number."""

    def __init__(self, far_us: int, streams: Sequence[tuple[str, int]]) -> None:
        self._far_us, self._streams = far_us, streams
        self.first: dict[str, FarTime] = {}  # by stream
        self.count = 0

    def look_at(self, ssps: Any, offsets: Any, times_us: Any, own_us: Any, *, counted: bool = True) -> None:
        """Compare the event times of some rows with their own. Those of which Kafka has no time of its own are left out.

        Without `counted` they are only named: rows that come by several ways count once.
        """
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
            self.first.setdefault(
                stream, FarTime(stream, partition, int(offsets[at]), int(times_us[at]), int(own_us[at]))
            )


class EventTimeChecks:
    """Of one sub-topology, as long as its driver runs: a stream is warned of once."""

    def __init__(self, program: Program) -> None:
        self._far_us = program.far_us
        self._units = {node.stream: node.timestamp_unit for node in program.nodes if isinstance(node, Source)}
        self._warned: set[str] = set()

    def goes_on_from(self, before: EventTimeChecks) -> None:
        """Take over what was said under another plan."""
        self._warned = before._warned

    def look_at(self, summaries: Iterable[Summary], progress: Progress) -> None:
        """Warn of what the containers of a committed round have found."""
        for far in (far for summary in summaries for far in summary.far_times):
            if far.stream in self._warned:
                continue
            self._warned.add(far.stream)
            warning = warning_of(far, self._units.get(far.stream, "us"), self._far_us)
            progress.notes.append(warning)
            LOG.warning("%s", warning)

