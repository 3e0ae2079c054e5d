"""The built-in controller of a job that runs: it looks at how busy the sub-topologies are, and asks for other scales as people
do, by requests. What it asks for is decided in `core.elasticity.autosizing`. Off unless `autosizing` is on. Seed: SEP-32.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypedDict

from headrace.codec.documents import encode
from headrace.codec.job_records import SCALES, history_of
from headrace.config.keys import Config
from headrace.core.elasticity.autosizing import AutosizingPolicy, Cause, Decision, decide
from headrace.core.elasticity.loads import Load, ScaleFacts, load_of
from headrace.core.elasticity.scales import refusal_of
from headrace.core.metrics.observations import SubTopologyObservation
from headrace.driver.planning.job_plan import JobPlan
from headrace.model.change import ChangeKind, Outcome
from headrace.model.scale import Scale, ScaleRequest, request_text
from headrace.ports.metadata_store import MetadataStore

LOG = logging.getLogger("headrace.job")
REQUESTED_BY = "autosizing"


class AutosizingStatus(TypedDict):
    """What the controller decided last about a sub-topology: when (µs since the epoch), the cause in a word, the reason, and
    what it requested, empty where it left the scale."""

    at_us: int
    cause: str
    reason: str
    requested: str


def policy_of(config: Config, sub_topology: str | None) -> AutosizingPolicy | None:
    """What is configured for a sub-topology; None where its autosizing is off."""
    if config.of("autosizing", sub_topology) == "off":
        return None
    return AutosizingPolicy(
        factor_min=config.of("autosizing_factor_min", sub_topology),
        factor_max=config.of("autosizing_factor_max", sub_topology),
        containers_min=config.of("autosizing_containers_min", sub_topology),
        containers_max=config.of("autosizing_containers_max", sub_topology),
        catch_up_s=config.of("autosizing_catch_up_s", sub_topology),
        quiet_s=config.of("autosizing_quiet_s", sub_topology),
        cool_down_s=config.of("autosizing_cool_down_s", sub_topology),
    )


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A sub-topology of the plan that is in force: what is observed of it, and what it waits for, as `status` shows it."""

    observation: SubTopologyObservation
    slowed_by: str = ""


@dataclass(slots=True)
class _Watched:
    """What is remembered of a sub-topology: recent loads, when its scale was changed or another one was requested, and for how
    long that paused the job."""

    loads: deque[Load] = field(default_factory=deque)
    changed_at_us: int | None = None
    pause_s: float | None = None


class ScaleController:
    """Not thread-safe, but any may ask for `status_of`. `clock_us`: the time of requests, and of what is observed."""

    def __init__(self, config: Config, clock_us: Callable[[], int]) -> None:
        self._config, self._clock_us = config, clock_us
        self._interval_s = config.autosizing_interval_s
        self._due_s = 0.0
        self._epoch = 0
        self._watched: dict[str, _Watched] = {}
        self._status: Mapping[str, AutosizingStatus] = {}

    def status_of(self, title: str) -> AutosizingStatus | None:
        """The last decision; None where there is none, or autosizing is off."""
        return self._status.get(title)

    def look(
        self, now_s: float, plan: JobPlan, looked_at: Callable[[], Iterable[LookedAt]], metadata: MetadataStore
    ) -> tuple[str, ...]:
        """Look at the load, if that is due, and leave requests in `metadata`, the job's: their ids. `now_s` is of a clock that
        only goes forward."""
        if now_s < self._due_s:
            return ()
        self._due_s = now_s + self._interval_s
        names = {sub.title: sub.name for sub in plan.subs}
        policies = {title: found for title, name in names.items() if (found := policy_of(self._config, name)) is not None}
        if not policies:
            return ()
        if plan.epoch != self._epoch:
            self._read_history(metadata, policies)
            self._epoch = plan.epoch
        requests, now_us = [], self._clock_us()
        is_requested = bool(metadata.requests(SCALES).keys() - set(plan.scales.settled))  # and is being prepared, say
        for seen in looked_at():
            one = replace(seen, observation=replace(seen.observation, is_changing=True)) if is_requested else seen
            title = one.observation.sub_topology
            if title not in policies:
                continue
            load = load_of(one.observation, self._facts(one, plan, now_us, names[title]))
            decision = self._decided(title, load, policies[title])
            request = None if decision.scale is None else _request_of(title, load.scale, decision, now_us)
            if request is not None and (why := refusal_of(request, plan.scale_terms)) is not None:
                decision, request = Decision(decision.cause, f"{decision.reason}: but {why}"), None
            self._note(title, decision, request, now_us)
            if request is not None:
                requests.append(metadata.request(SCALES, encode(request)))
        return tuple(requests)

    def _read_history(self, metadata: MetadataStore, titles: Iterable[str]) -> None:
        """When scales were changed last: by any request, also before this driver."""
        changes = [one for one in history_of(metadata, lambda error: None).values() if one.kind is ChangeKind.SCALE]
        for title in titles:
            watched = self._watched.setdefault(title, _Watched())
            mine = [one for one in changes if one.what == title and one.outcome is Outcome.APPLIED]
            if mine:
                watched.changed_at_us = max(mine[-1].at_us, watched.changed_at_us or 0)
                watched.pause_s = None if mine[-1].pause_us is None else mine[-1].pause_us / 1e6

    def _facts(self, one: LookedAt, plan: JobPlan, now_us: int, name: str | None) -> ScaleFacts:
        title = one.observation.sub_topology
        watched, wanted = self._watched[title], plan.scales.scales.get(title)
        scale = Scale(one.observation.elasticity_factor) if wanted is None else wanted.scale
        pause_s = watched.pause_s if one.observation.last_pause_s is None else one.observation.last_pause_s
        threads = self._config.task_threads_of(name)
        return ScaleFacts(now_us, scale, watched.changed_at_us, pause_s, threads, one.slowed_by)

    def _decided(self, title: str, load: Load, policy: AutosizingPolicy) -> Decision:
        """Also by what was observed before. What a round does is not known while it runs: nothing new was observed then."""
        loads = self._watched[title].loads
        if loads and loads[-1].observed_s == load.observed_s and loads[-1].scale == load.scale:
            loads.pop()
        while loads and loads[0].at_us < load.at_us - policy.kept_s * 1e6:
            loads.popleft()
        loads.append(load)
        return decide(loads, policy)

    def _note(self, title: str, decision: Decision, request: ScaleRequest | None, now_us: int) -> None:
        asked = "" if request is None else request_text(request)
        before = self._status.get(title)
        status = AutosizingStatus(at_us=now_us, cause=decision.cause.value, reason=decision.reason, requested=asked)
        self._status = {**self._status, title: status}
        if request is not None:
            self._watched[title].changed_at_us = now_us
            LOG.info("autosizing of sub-topology %s requests %s: %s", title, asked, decision.reason)
        elif before is None or before["cause"] != decision.cause.value:
            level = logging.DEBUG if decision.cause in (Cause.KEEPS_UP, Cause.LEARNING, Cause.COOL_DOWN) else logging.INFO
            LOG.log(level, "autosizing leaves sub-topology %s: %s", title, decision.reason)


def _request_of(title: str, before: Scale, decision: Decision, now_us: int) -> ScaleRequest:
    after = decision.scale
    assert after is not None and after != before, (before, decision)
    factor = None if after.factor == before.factor else after.factor
    containers = None if after.containers == before.containers else after.containers
    return ScaleRequest(REQUESTED_BY, now_us, title, factor, containers, decision.reason)
