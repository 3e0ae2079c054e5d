"""Owns looking, while a job runs, whether its streams have other numbers of partitions than its plan was made with."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from headrace.core.job_plan.partition_growth import changes_of
from headrace.core.job_plan.streams import streams_under_state
from headrace.core.topology.compatibility import check_same_streams
from headrace.driver.planning.job_plan import JobPlan
from headrace.errors import HeadraceError, IncompatibleChangeError
from headrace.ports import JobStore, System

LOG = logging.getLogger("headrace.job")
PARTITION_CHECKS = "partition-checks"  # namespace of the requests that ask to look at once


class PartitionWatch:
    """Compares the streams of a plan with what there is: every `interval_s`, and whenever a command asks for it.

    `settle_s`: after an expansion, until every producer has learned of it.
    """

    def __init__(self, system: System, store: JobStore, interval_s: float, settle_s: float) -> None:
        self._system, self._store = system, store
        self._interval_s, self._settle_us = interval_s, int(settle_s * 1e6)

    def begin(self, plan: JobPlan, now_s: float) -> None:
        """`plan` is in force from now on; it was made with what was there a moment ago."""
        self._plan, self._looked_s = plan, now_s
        self._metadata = self._system.metadata_store(plan.topology.application)

    def is_changed(self, now_s: float) -> bool:
        """Whether a new plan is due. Looks only where it is time to, or a command has asked for it."""
        asked = self._metadata.requests(PARTITION_CHECKS)
        if not asked and now_s - self._looked_s < self._interval_s:
            return False
        self._looked_s = now_s
        found = self._system.partition_counts(sorted(self._plan.found_counts))
        if asked:
            self._store.write_metadata(self._plan.epoch, PARTITION_CHECKS, {}, done=asked)
        changed = {stream: count for stream, count in found.items() if self._is_other(stream, count)}
        for stream, count in sorted(changed.items()):
            LOG.info("stream %s has %d partitions, it had %d", stream, count, self._plan.found_counts[stream])
        return bool(changed)

    def _is_other(self, stream: str, count: int) -> bool:
        """Whether it has changed. No system takes partitions away: fewer ones are those of a stream that was made anew, or
        the answer of a broker that has not heard of the new ones yet."""
        before = self._plan.found_counts[stream]
        if count >= before:
            return count > before
        known = self._plan.model.stream_ids.get(stream)
        return known is not None and self._system.describe_stream(stream).id != known

    def refused(self, streams: Collection[str]) -> Mapping[str, HeadraceError]:
        """Of these streams those that have changed in a way that nobody can follow who reads them, and why."""
        try:
            found = self._system.partition_counts(streams)
        except HeadraceError:
            return {}
        model = self._plan.model
        changed = {stream for stream, count in found.items() if self._is_other(stream, count)}
        before = {stream: count for stream, count in model.partition_counts.items() if stream in changed}
        stateless = before.keys() - streams_under_state(self._plan.subs)
        changes = changes_of(before, found, model.partitioned_otherwise, stateless=stateless)
        refused: dict[str, HeadraceError] = dict(changes.refused)
        for stream in refused:
            try:
                check_same_streams(model, {stream: self._system.describe_stream(stream).id}, found)
            except IncompatibleChangeError as error:  # of another stream the number does not matter
                refused[stream] = error
        return refused

    def settle(self, now_us: int) -> None:
        """Store the lasting barrier of expansions that every producer knows of by now (protocol.md 24)."""
        streams = self._plan.model.partition_counts
        records = self._plan.records
        for stream in records.settle(self._system, self._store, self._plan.epoch, streams, now_us, self._settle_us):
            LOG.info("the expansion of stream %s has settled", stream)

