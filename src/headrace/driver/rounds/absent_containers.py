"""The containers of a sub-topology that took no part in its last round: how the round counts for them, and what is logged."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from headrace.core.affinity.absences import Absence, BusyLanes, busy_lanes, failed_lanes
from headrace.driver.planning.job_plan import Backend
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.exchange.engine import EngineFailure
from headrace.exchange.messages import Summary

LOG = logging.getLogger("headrace.job")
_BUSY = (
    "round %s: no executor at %s was free for container %d, which was run at %s and declined (in a row: %d). Its tasks wait. "
    "If none is busy there, `location_id` gives processes of one machine different answers"
)


class AbsentContainers:
    """What is known of them since the last round. `places`: by lane the location of its container. `lanes`: theirs.
    `failed`: the lanes of those that were run elsewhere because attempts at home have failed, and `failure` how one of these
    did; the others of the round may commit before it is raised."""

    def __init__(self, places: Mapping[int, str], backend: Backend) -> None:
        self._places, self._cluster, self._engine = places, backend.cluster, backend.engine
        self._busy = BusyLanes()
        self.begin()

    def begin(self) -> None:
        """Another round begins, of which nothing is known yet."""
        self.lanes: frozenset[int] = frozenset()
        self.failed: frozenset[int] = frozenset()
        self.failure: EngineFailure | None = None

    def heard(self, planned: PlannedRound, declined: Sequence[Summary]) -> None:
        """A round has ended in which these have declined."""
        absences = [Absence(one.lane, self._places.get(one.lane), one.declined) for one in declined]
        self.lanes = frozenset(one.lane for one in absences)
        busy: frozenset[int] = frozenset()
        if any(one.run_at is not None for one in absences):
            failed_at = self._engine.failed_at(str(planned.id))
            self.failed = failed_lanes(absences, failed_at)
            if self.failed:
                self.failure = failed_at[self._places[min(self.failed)]]
            busy = busy_lanes(absences, self.failed, () if self._cluster is None else self._cluster.present())
        self._busy = self._busy.after_round(busy, planned.lanes - busy, time.monotonic())
        for one in absences:
            if one.lane in busy:
                LOG.warning(_BUSY, planned.id, one.home, one.lane, one.run_at, self._busy.held[one.lane][0])
            elif one.run_at is not None:
                LOG.info("round %s: container %d of %s was run elsewhere, at %s", planned.id, one.lane, one.home, one.run_at)
        for lost in (one.lane for one in declined if one.lost):
            LOG.info("round %s: container %d was lost, at %s", planned.id, lost, self._places[lost])

    def due_in_s(self) -> float:
        """In how many seconds the first of these lanes takes part again; infinite where none sits out."""
        return self._busy.due_in_s(time.monotonic())

    def sitting_out(self) -> frozenset[int]:
        """The lanes that take no part in rounds now, as their location is busy."""
        return self._busy.sitting_out(time.monotonic())
