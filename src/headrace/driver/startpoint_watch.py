"""Owns noticing, while a job runs, that startpoints are asked for, and storing that those of its plan are applied."""

from __future__ import annotations

import logging

from headrace.codec.startpoint import STARTPOINTS
from headrace.driver.planning.job_plan import JobPlan
from headrace.driver.request_copies import RequestsElsewhere
from headrace.ports import JobStore, System

LOG = logging.getLogger("headrace.job")


class StartpointWatch:
    """Looks at the requests of a job that runs, also at those `elsewhere`. Not for several threads."""

    def __init__(self, system: System, store: JobStore, elsewhere: RequestsElsewhere | None = None) -> None:
        self._system, self._store, self._elsewhere = system, store, elsewhere

    def begin(self, plan: JobPlan) -> None:
        """`plan` is in force from now on."""
        self._plan = plan
        self._metadata = self._system.metadata_store(plan.topology.application)
        if self._elsewhere is not None:
            self._elsewhere.watch()

    def is_asked(self) -> bool:
        """Whether there are requests that the plan has not seen: a new one takes them up."""
        there = frozenset() if self._elsewhere is None else self._elsewhere.new_ids()
        asked = (self._metadata.requests(STARTPOINTS).keys() | there) - self._plan.startpoint_requests
        if asked:
            LOG.info("%d requests for startpoints", len(asked))
        return bool(asked)

    def settle(self, now_us: int) -> None:
        """Store that startpoints are applied which commits have spent."""
        for id_ in self._plan.startpoints.settle(self._store, self._plan.epoch, now_us):
            LOG.info("startpoint %s is applied", id_)
