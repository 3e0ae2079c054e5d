"""What people see of the rounds of a job model: the status of each sub-topology, shown and published."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.core.group.statuses import counted_on
from headrace.core.metrics.observations import SubTopologyObservation
from headrace.driver.autosizing import LookedAt
from headrace.driver.change_requests import ChangeRequests
from headrace.driver.job_status import SubTopologyStatus, progress_status
from headrace.driver.metrics.observing import observation_of, published_metrics, shown_metrics
from headrace.driver.planning.job_plan import Backend, Pace
from headrace.driver.rounds.planned_round import PlannedRound
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner, inherit
from headrace.errors import HeadraceError
from headrace.exchange.texts import in_a_line

LOG = logging.getLogger("headrace.job")
STATUS_S = 0.5


def described(runner: SubTopologyRunner, planned: PlannedRound) -> str:
    """A round as people count them, and by its name in messages."""
    return f"round {runner.progress.rounds + 1}, {planned.id} in messages"


class ShownRounds:
    """The base of `Generation`, which says here what each sub-topology does. `watch` knows what other scale is requested."""

    def __init__(self, runners: Iterable[SubTopologyRunner], backend: Backend, pace: Pace, watch: ChangeRequests) -> None:
        self.runners = {runner.sub.name: runner for runner in runners}
        self._store, self._engine, self._metrics = backend.processor_store, backend.engine, backend.metrics
        self._pace, self._watch = pace, watch
        self._ending = threading.Event()  # nothing new is begun
        self._waiting_for: dict[str | None, str] = {}
        self._slowed_by: dict[str | None, str] = {}  # what a sub-topology waits for before it writes more
        self._started_s = time.monotonic()
        self._published: dict[str | None, float] = {}
        self.stopped_by: dict[str | None, HeadraceError] = {}  # sub-topologies that have stopped, while others keep running
        self.leader_waits_for = ""  # of a group, where that is this processor and it cannot lead
        self.run_id: str | None = None  # of a group
        self.counted: Mapping[str, Mapping[str, Any]] = {}  # by title what this processor has counted in it as another process
        self.ended_by = ""  # why no rounds run here any more, where that has another reason than that all is done

    def inherit_from(self, before: ShownRounds) -> None:
        """Take over what was counted and learned under another job model."""
        self._started_s = before._started_s
        inherit(self.runners.values(), before.runners)

    def remember(self, published: Mapping[str, Mapping[str, Any]]) -> None:
        """Count on from what earlier runs have published as their status."""
        for runner in self.runners.values():
            runner.progress.remember(published.get(runner.sub.title, {}))

    def observation_of(self, runner: SubTopologyRunner) -> SubTopologyObservation:
        """What is observed of a sub-topology now."""
        observed = observation_of(runner, self._metrics, self._engine.slots, time.monotonic())
        is_merging = runner.sub.title in self._watch.waiting
        return replace(observed, is_changing=self._ending.is_set(), is_merging=is_merging)

    def looked_at(self) -> list[LookedAt]:
        """Each sub-topology as the built-in controller sees it."""
        return [LookedAt(self.observation_of(one), self._slowed_by.get(one.sub.name, "")) for one in self.runners.values()]

    def status_of(self, runner: SubTopologyRunner) -> SubTopologyStatus:
        """The status of a sub-topology, for people."""
        return {
            **progress_status(runner, time.monotonic() - self._started_s),
            "waiting_for": "; ".join(filter(None, (self._waiting_for.get(runner.sub.name), self.leader_waits_for))),
            "scale_waits_for": self._watch.scale_waits_for(runner.sub.title, runner.checkpoints),
            "autosizing": self._watch.autosizing_of(runner.sub.title),
            "restoring": runner.restoring(),
            "stopped_by": str(self.stopped_by.get(runner.sub.name, "")),
            "metrics": shown_metrics(self._metrics, self.observation_of(runner)),
        }

    def _last_minute(self, runner: SubTopologyRunner) -> dict[str, float]:
        """How many records were read in how many seconds of it, as far as this process has run for so long. A round that runs
        is not known yet."""
        until_s = time.monotonic() if runner.meter.running_since_s is None else runner.meter.running_since_s
        seconds = max(0.0, min(60.0, until_s - self._started_s))
        records = self._metrics.read_within(runner.sub.title, until_s - seconds, until_s)
        return {"records": round(records, 1), "seconds": round(seconds, 1)}

    def publish_end(self, why: str) -> None:
        """Publish of all sub-topologies why no rounds run here any more, in a line."""
        self.ended_by = in_a_line(why)
        for runner in self.runners.values():
            self.publish(runner, force=True)

    def publish(self, runner: SubTopologyRunner, force: bool = False) -> bool:
        """Publish the status, unless that was done lately; whether it was time to."""
        now_s = time.monotonic()
        if not force and now_s - self._published.get(runner.sub.name, 0.0) < STATUS_S:
            return False
        self._published[runner.sub.name] = now_s
        measured = published_metrics(self._metrics, self.observation_of(runner))
        status = {**self.status_of(runner), **measured, "updated_us": self._pace.clock_us()}
        status |= runner.progress.of_tasks({str(task.name) for task in runner.tasks})
        status |= {"ended_by": self.ended_by, "last_minute": self._last_minute(runner)}
        if self.run_id is not None:
            status = counted_on(status, dict(self.counted.get(runner.sub.title, {}))) | {"run": self.run_id}
        status["rejected_executors"] = dict(self._engine.rejections())
        try:
            self._store.publish_status(runner.sub.name, status)
        except HeadraceError as error:
            LOG.warning("status could not be published: %s", error)
        return True
