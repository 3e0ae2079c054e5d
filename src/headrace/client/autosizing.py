"""What a controller of an application's scale needs, from any process: how busy the application is, and changing its scale.

Seed: SEP-32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.client.application_client import named
from headrace.client.job_look import JobLook
from headrace.client.scales import Elasticity
from headrace.codec.observations import observation_from
from headrace.core.metrics.observations import (
    OBSERVED_TASKS_MAX,
    SubTopologyLoad,
    SubTopologyObservation,
    TaskObservation,
)
from headrace.model.job_model import SubTopologyModel


@dataclass(frozen=True, slots=True)
class AutosizingDecision:
    """What the built-in controller decided last about a sub-topology: when (µs since the epoch), the cause in a word, the
    reason, and what it requested, empty where it left the scale."""

    sub_topology: str
    at_us: int
    cause: str
    reason: str
    requested: str = ""


def autosizing(application: Any, system: str | None = None) -> Autosizing:
    """What a controller of the application's scale needs, by its `App` or by its name: what is observed of it, and its scales.

    `system` is the URL of where it runs, as configured if None. Use it in a `with`.
    """
    return Autosizing(*named(application, system))


class Autosizing(Elasticity):
    """How busy one application is, and its scales. Use it in a `with`."""

    def observations(self) -> tuple[SubTopologyObservation, ...]:
        """Each sub-topology and its tasks over the last 10 and 60 s: lag, rates, busy share. Of a running job as it reported
        last, some seconds ago at most, or when the round began that runs; of any other the lag of now, and no load."""
        requested = self._stored().asked.open.values()  # it says what is wrong with the name of an application
        look = JobLook(self._system, self.application)
        reported = look.store.status() if self.is_running else {}
        found = []
        for sub in look.model.sub_topologies:
            seen = observation_from(reported.get(sub.title, {}).get("observed"))
            is_of_this_plan = seen is not None and seen.elasticity_factor == sub.elasticity_factor
            one = seen if seen is not None and is_of_this_plan else _not_observed(sub, look)
            is_requested = any(request.sub_topology in (None, sub.title) for request in requested)
            found.append(replace(one, is_changing=one.is_changing or is_requested))
        return tuple(found)

    def decisions(self) -> tuple[AutosizingDecision, ...]:
        """What the built-in controller decided last, of the sub-topologies where it is on, in this run or in the last one."""
        reported = self._system.job_store(self.application).status()
        found = {title: one.get("autosizing") for title, one in sorted(reported.items())}
        return tuple(AutosizingDecision(title, **one) for title, one in found.items() if one)


def _not_observed(sub: SubTopologyModel, look: JobLook) -> SubTopologyObservation:
    """Of a job that does not run: where its tasks are. How much an engine would run at once is not known: 0 slots."""
    tasks, none = list(sub.tasks), SubTopologyLoad()
    lanes = [(task, container.lane) for container in sub.containers for task in container.tasks]
    seen = [TaskObservation(task.name, lane, look.lag_of([task])) for task, lane in lanes if len(tasks) <= OBSERVED_TASKS_MAX]
    lag = look.lag_of(tasks) + look.lag_of_new_partitions(sub)
    return SubTopologyObservation(
        sub.title, sub.elasticity_factor, len(tasks), len(sub.containers), 0, 1, lag, 0.0, none, none, tasks=tuple(seen)
    )
