"""What the driver warns of, from what the workers have seen of the records: event times that lie far from their records'
own, once for each stream."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.core.rounds.event_times import warning_of
from headrace.core.topology.program import Program
from headrace.exchange.messages import Summary
from headrace.model.topology import Source

if TYPE_CHECKING:
    from headrace.driver.rounds.sub_topology_runner import Progress

LOG = logging.getLogger("headrace.job")


class EventTimeChecks:
    """Of one sub-topology, as long as its driver runs: a stream is warned of once."""

    def __init__(self, program: Program) -> None:
        self._far_us = program.far_us
        self._units = {node.stream: node.timestamp_unit for node in program.nodes if isinstance(node, Source)}
        self._warned: set[str] = set()

    def inherit_from(self, before: EventTimeChecks) -> None:
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
