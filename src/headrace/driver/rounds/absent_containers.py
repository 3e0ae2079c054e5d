"""The containers of a sub-topology that took no part in its last round: how the round counts for them, and what is logged."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from headrace.core.affinity.absences import Absence, BusyLanes, LossesInARow, busy_lanes, failed_lanes
from headrace.driver.planning.job_plan import Backend
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.exchange.engine import EXECUTOR_LOST, EngineFailure
from headrace.exchange.messages import Summary
from headrace.model.job_model import ContainerModel

LOG = logging.getLogger("headrace.job")
_BUSY = (
    "round %s: no executor at %s was free for container %d, which was run at %s and declined (in a row: %d). Its tasks wait. "
    "If none is busy there, `location_id` gives processes of one machine different answers"
)


class AbsentContainers:
    """What is known of them since the last round. `containers`: by lane. `lanes`: theirs. `failed`: the lanes of those that
    were run elsewhere because attempts at home have failed, or whose location was lost once more, and `failure` how one of
    these did; the others of the round may commit before it is raised. `times_lost`: how many times in a row it was."""

    def __init__(self, containers: Mapping[int, ContainerModel], backend: Backend) -> None:
        self._containers, self._cluster, self._engine = containers, backend.cluster, backend.engine
        self._busy, self._losses = BusyLanes(), LossesInARow()
        self.begin()

    def inherit_from(self, before: AbsentContainers) -> None:
        """Know what was known of its tasks under another plan."""
        self._losses = before._losses

    def begin(self) -> None:
        """Another round begins, of which nothing is known yet."""
        self.lanes: frozenset[int] = frozenset()
        self.failed: frozenset[int] = frozenset()
        self.failure: EngineFailure | None = None
        self.times_lost = 0

    def heard(self, planned: PlannedRound, declined: Sequence[Summary]) -> None:
        """A round has ended in which these have declined."""
        absences = [Absence(one.lane, self._containers[one.lane].location_id, one.declined) for one in declined]
        self.lanes = frozenset(one.lane for one in absences)
        busy: frozenset[int] = frozenset()
        if any(one.run_at is not None for one in absences):
            failed_at = self._engine.failed_at(str(planned.id))
            self.failed = failed_lanes(absences, failed_at)
            if self.failed:
                self.failure = failed_at[str(self._containers[min(self.failed)].location_id)]
            busy = busy_lanes(absences, self.failed, () if self._cluster is None else self._cluster.present())
        self._busy = self._busy.after_round(busy, planned.lanes - busy, time.monotonic())
        for one in absences:
            if one.lane in busy:
                LOG.warning(_BUSY, planned.id, one.home, one.lane, one.run_at, self._busy.held[one.lane][0])
            elif one.run_at is not None:
                LOG.info("round %s: container %d of %s was run elsewhere, at %s", planned.id, one.lane, one.home, one.run_at)
        self._lost(planned, [self._containers[one.lane] for one in declined if one.lost])

    def _lost(self, planned: PlannedRound, lost: Sequence[ContainerModel]) -> None:
        """These were lost with their locations: once that may happen, and counts as a failure when it does again."""
        for one in lost:
            LOG.info("round %s: container %d was lost, at %s", planned.id, one.lane, one.location_id)
        tasks = {one.lane: [task.name for task in one.tasks if task.name in planned.bases] for one in lost}
        self._losses = self._losses.after_round({name: planned.bases[name] for names in tasks.values() for name in names})
        times = {lane: self._losses.of(names) for lane, names in tasks.items()}
        again = frozenset(lane for lane, count in times.items() if count > 1)
        if again and self.failure is None:
            worst = max(again, key=times.__getitem__)
            self.failed, self.times_lost = again, times[worst]
            text = f"the executor at {self._containers[worst].location_id}, {times[worst]} times in a row"
            self.failure = EngineFailure(text, error_class=EXECUTOR_LOST)

    def due_in_s(self) -> float:
        """In how many seconds the first of these lanes takes part again; infinite where none sits out."""
        return self._busy.due_in_s(time.monotonic())

    def sitting_out(self) -> frozenset[int]:
        """The lanes that take no part in rounds now, as their location is busy."""
        return self._busy.sitting_out(time.monotonic())
