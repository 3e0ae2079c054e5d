"""What a sub-topology's rounds have seen of keys, where `check_partitioning` asks for it, and telling people of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.core.rounds.key_samples import METRIC, SeenKeys, looked_at
from headrace.exchange.messages import Summary

if TYPE_CHECKING:
    from headrace.driver.rounds.sub_topology_rounds import Progress

LOG = logging.getLogger("headrace.job")


class KeyChecks:
    """Of one sub-topology, as long as its driver runs. `counts`: as `core.rounds.key_samples.sampled_streams` gives them."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts
        self._known: Mapping[str, SeenKeys] = {}

    def goes_on_from(self, before: KeyChecks) -> None:
        """Take over what was seen under another plan, of the streams that are still looked at."""
        self._known = {stream: seen for stream, seen in before._known.items() if stream in self._counts}

    def look_at(self, summaries: Iterable[Summary], progress: Progress) -> None:
        """Judge what the containers of a committed round have sampled."""
        samples = [sample for summary in summaries for sample in summary.keys]
        if not samples:
            return
        finding = looked_at(self._known, samples, self._counts)
        self._known = finding.known
        if finding.found:
            progress.counters[METRIC] = progress.counters.get(METRIC, 0) + finding.found
        for warning in finding.warnings:
            progress.notes.append(warning)
            LOG.warning("%s", warning)
