"""The scales of an application's sub-topologies as users see and change them, from any process, whether the job runs or not.
Seed: SEP-32.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from headrace.adapters.common.consistent_reads import plan_and_checkpoints
from headrace.client.application_client import ApplicationClient, named
from headrace.client.job_look import is_run
from headrace.codec.documents import encode
from headrace.codec.job_records import SCALES, history_of, rewinds_of, scales_of, startpoints_of
from headrace.core.elasticity.preparation import PREPARED_BYTES_MIN
from headrace.core.elasticity.recut import rewinds_for_good
from headrace.core.elasticity.scales import (
    ScaleDecision,
    ScaledSub,
    ScaleRequests,
    ScaleTerms,
    decided,
    refusal_of,
    scaled_sub,
)
from headrace.core.job_plan.groupers import AllSspsToEveryTask, GroupByPartition, SystemStreamPartitionGrouper
from headrace.core.topology.sub_topologies import sub_topologies_of
from headrace.driver.planning.grouper_config import grouper_of
from headrace.environment import this_user
from headrace.errors import ConfigError
from headrace.model.change import Change, ChangeKind
from headrace.model.checkpoint import Checkpoint
from headrace.model.job_model import JobModel
from headrace.model.scale import Scale, ScaleRequest
from headrace.model.tasks import EverySspGroup, TaskName


@dataclass(frozen=True, slots=True)
class ScaleView:
    """The scale of one sub-topology. `tasks` and `containers`: how many there are. `configured`: what the configuration said at
    the last look; `set_by`: who has set another scale since, empty for the configuration."""

    sub_topology: str
    scale: Scale
    tasks: int
    containers: int
    configured: Scale
    set_by: str = ""


@dataclass(frozen=True, slots=True)
class ScaleEffect:
    """What a request would do to one sub-topology. `state_bytes`: of the state files that tasks take over, which stay in
    place. `behind`: tasks that are to be merged with others further on, and how many offsets each reads before that."""

    sub_topology: str
    before: Scale
    after: Scale
    tasks_before: int
    tasks_after: int
    state_bytes: int
    behind: dict[TaskName, int]


@dataclass(frozen=True, slots=True)
class ScalePreview:
    """What a request would do now. `pause_s`: for how long no round ran in earlier changes of this job's scale, the
    median; None where none is on record, and of a job that does not run. `superseded`: requests that are not in force yet, and
    never would be. `is_requested`: open requests bring the same. `for_good`: startpoints that took state back, and cannot be
    deleted from then on. `refusal`: why it cannot be done."""

    request: ScaleRequest
    effects: tuple[ScaleEffect, ...]
    pause_s: float | None = None
    superseded: tuple[str, ...] = ()
    refusal: str | None = None
    is_requested: bool = False
    for_good: tuple[str, ...] = ()

    @property
    def is_large(self) -> bool:
        """Whether a running job makes local stores for its new tasks before it changes."""
        return any(one.state_bytes >= PREPARED_BYTES_MIN for one in self.effects)


@dataclass(frozen=True, slots=True)
class _Stored:
    model: JobModel
    checkpoints: Mapping[TaskName, Checkpoint]
    asked: ScaleRequests
    terms: ScaleTerms


def elasticity(application: Any, system: str | None = None) -> Elasticity:
    """The scales of an application, by its `App` or by its name: elasticity factor and containers of each sub-topology.

    `system` is the URL of where it runs, as configured if None. Use it in a `with`.
    """
    return Elasticity(*named(application, system))


class Elasticity(ApplicationClient):
    """The scales of one application. Use it in a `with`.

    A running job applies what is set within a second, any other at its next start, and keeps it: a restart changes a scale only
    where the configuration was edited. Errors are raised before anything is written.
    """

    # --- changing ---------------------------------------------------------------------------------------------------

    def preview(
        self, factor: int | None = None, *, containers: int | None = None, sub_topology: str | None = None, reason: str = ""
    ) -> ScalePreview:
        """What `set` would do now. `factor`: virtual tasks per task, a power of two up to 1,024. `containers`: in how many of
        them the tasks run, 0 for as many as Spark has slots; in a group only that. None leaves each as it is.
        `sub_topology`: its name, `source` for that of the inputs; None for all."""
        stored = self._stored()
        request = ScaleRequest(this_user(), time.time_ns() // 1000, sub_topology, factor, containers, reason)
        why = refusal_of(request, stored.terms)
        if why is not None:
            return ScalePreview(request, (), refusal=why)
        so_far = decided(stored.terms, stored.asked, stored.model, stored.checkpoints)
        ids = {**stored.asked.requests, "~": request}
        asked = ScaleRequests(stored.asked.stored, ids, stored.asked.unreadable)
        decision = decided(stored.terms, asked, stored.model, stored.checkpoints)
        return ScalePreview(
            request,
            tuple(_effects(stored, decision)),
            self._pause_s() if self.is_running else None,
            tuple(id_ for id_ in decision.superseded if id_ not in so_far.superseded),
            is_requested=bool(stored.asked.open) and _outcome(decision) == _outcome(so_far),
            for_good=self._for_good(decision),
        )

    def set(
        self, factor: int | None = None, *, containers: int | None = None, sub_topology: str | None = None, reason: str = ""
    ) -> str:
        """Ask for another scale; the id of the request. Arguments as for `preview`; `reason` is kept in the history.
        `ConfigError` for what cannot be done."""
        return self.write(self.preview(factor, containers=containers, sub_topology=sub_topology, reason=reason))

    def write(self, preview: ScalePreview) -> str:
        """Ask for what was previewed; the id of the request."""
        if preview.refusal is not None:
            raise ConfigError(preview.refusal)
        requested: str = self._system.metadata_store(self.application).request(SCALES, encode(preview.request))
        return requested

    # --- looking ----------------------------------------------------------------------------------------------------

    def scales(self) -> tuple[ScaleView, ...]:
        """What is in force."""
        stored = self._stored()
        found = []
        for sub in stored.model.sub_topologies:
            there = stored.asked.stored.scales.get(sub.title)
            known = Scale(sub.elasticity_factor)
            found.append(
                ScaleView(
                    sub.title,
                    Scale(sub.elasticity_factor, known.containers if there is None else there.scale.containers),
                    len(list(sub.tasks)),
                    len(sub.containers),
                    known if there is None else there.configured,
                    "" if there is None else there.set_by,
                )
            )
        return tuple(found)

    def open_requests(self) -> dict[str, ScaleRequest]:
        """What was requested and is not in force yet, by id, oldest first."""
        return self._stored().asked.open

    def superseded_requests(self) -> tuple[str, ...]:
        """The ids of open requests that will not come into force: later ones count."""
        stored = self._stored()
        return decided(stored.terms, stored.asked, stored.model, stored.checkpoints).superseded

    def history(self) -> tuple[Change, ...]:
        """All changes of scale, and requests that were refused, oldest first."""
        changes = history_of(self._system.metadata_store(self.application)).values()
        return tuple(one for one in changes if one.kind is ChangeKind.SCALE)

    @property
    def is_running(self) -> bool:
        """Whether a driver holds the application that was heard of lately."""
        return is_run(self._system.job_reader(self.application))

    def _in_group(self) -> bool:
        """Whether a standalone group runs the application; where nothing does, whether it is configured to."""
        if self.is_running:
            return self._system.job_reader(self.application).grants() is not None
        return self._config.coordinator is not None

    def _pause_s(self) -> float | None:
        paused = [one.pause_us for one in self.history() if one.pause_us is not None]
        return median(paused) / 1e6 if paused else None

    def _for_good(self, decision: ScaleDecision) -> tuple[str, ...]:
        metadata = self._system.metadata_store(self.application)
        recuts = [*decision.recuts, *(waiting.recut for waiting in decision.waiting.values())]
        former = {task for recut in recuts for task in recut.former}
        return rewinds_for_good(startpoints_of(metadata).records, rewinds_of(metadata), former) if former else ()

    def _stored(self) -> _Stored:
        store = self._system.job_store(self.application)
        model, checkpoints = plan_and_checkpoints(store) if self._system.has_run(self.application) else (None, {})
        if model is None:
            there = ", ".join(one for one in self._system.applications() if one != self.application)
            is_named = self._topology is None and bool(there)
            raise ConfigError(
                f"application {self.application!r} has not run on {self._config.system} yet",
                f"name one of: {there}" if is_named else "its first start has the elasticity_factor of its configuration",
            )
        asked = scales_of(self._system.metadata_store(self.application))
        return _Stored(model, checkpoints, asked, self._terms(model, asked))

    def _terms(self, model: JobModel, asked: ScaleRequests) -> ScaleTerms:
        """Of the application as it last ran: its configuration is edited for the next start only."""
        subs = {sub.name: ScaledSub(sub.name) for sub in model.sub_topologies}
        if self._topology is not None:
            subs |= {sub.name: scaled_sub(sub) for sub in sub_topologies_of(self._topology) if sub.name in subs}

        def configured(name: str | None) -> Scale:
            there = asked.stored.scales.get(name or "source")
            return Scale(model.sub_topology(name).elasticity_factor) if there is None else there.configured

        def grouper(containers: int) -> SystemStreamPartitionGrouper:
            if self._topology is None:
                return _grouper_seen_in(model, containers)
            return grouper_of(self._config.ssp_grouper, containers)

        return ScaleTerms(tuple(subs.values()), configured, grouper, self._in_group())


def _grouper_seen_in(model: JobModel, containers: int) -> SystemStreamPartitionGrouper:
    """As far as it matters to a factor: where the application is known by its name alone, its configuration is not."""
    is_every = any(isinstance(task.name.group, EverySspGroup) for task in model.tasks)
    return AllSspsToEveryTask(containers) if is_every else GroupByPartition()


def _outcome(decision: ScaleDecision) -> dict[str, tuple[Scale, int | None]]:
    """By the titles of sub-topologies what comes into force, and the factor that waits."""
    waiting = {title: one.recut.factor for title, one in decision.waiting.items()}
    return {title: (one.scale, waiting.get(title)) for title, one in decision.in_force.items()}


def _effects(stored: _Stored, decision: ScaleDecision) -> Iterator[ScaleEffect]:
    for sub in stored.terms.subs:
        before = decision.in_force[sub.title].scale
        change = next((one for one in decision.changes if one.sub_topology == sub.title), None)
        waiting = decision.waiting.get(sub.title)
        recut = waiting.recut if waiting else next((r for r in decision.recuts if r.sub_topology == sub.name), None)
        if change is None and waiting is None:
            continue
        after = change.after if change else Scale(waiting.recut.factor if waiting else before.factor, before.containers)
        former = [] if recut is None else list(recut.former)
        now = len(list(stored.model.sub_topology(sub.name).tasks))
        behind = {} if waiting is None else waiting.behind(stored.checkpoints)
        files = {f.name: f.bytes for task in former if (h := stored.checkpoints[task].head) for f in h.files}
        was = change.before if change else before
        tasks = len(recut.parents) if recut else now
        yield ScaleEffect(sub.title, was, after, now, tasks, sum(files.values()), behind)
