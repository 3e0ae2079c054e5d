"""Notices, while a job runs, what asks for another plan: requests of people, and streams with other numbers of partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from headrace.codec.documents import encode
from headrace.codec.job_records import (
    HISTORY,
    PARTITION_CHECKS,
    SCALES,
    STARTPOINTS,
    STOPS,
    expanders_of,
    history_of,
    scales_of,
    stop_requested_by,
)
from headrace.core.affinity.sightings import Sightings
from headrace.core.elasticity.preparation import heads_ahead, is_worth_it
from headrace.core.elasticity.recut import Recut
from headrace.core.elasticity.scales import ScaleDecision, ScaleRequests, Waiting, decided
from headrace.core.job_plan.growth_rules import changes_of
from headrace.core.job_plan.history import new_keys, refusals_of, scale_entries
from headrace.core.job_plan.streams import partitioners_of, streams_under_state
from headrace.core.topology.compatibility import check_same_streams
from headrace.core.topology.patterns import has_patterns, new_matches
from headrace.driver.autosizing import AutosizingStatus, LookedAt, ScaleController
from headrace.driver.planning.job_plan import Backend, JobPlan, Pace
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.driver.store_preparation import StorePreparation
from headrace.errors import HeadraceError, IncompatibleChangeError
from headrace.exchange.fault_injection import reached
from headrace.model.change import ChangeKind, ChangeRequest
from headrace.model.checkpoint import Checkpoint
from headrace.model.tasks import TaskName

LOG = logging.getLogger("headrace.job")
AGAIN_S = 30.0


class ChangeRequests:
    """What is requested of a running job. It is not thread-safe. Requests are looked for at each call; streams every
    `pace.partition_check_s`, and at once where a command asks for it. `autosizing` requests scales itself."""

    def __init__(self, backend: Backend, pace: Pace, autosizing: ScaleController | None = None) -> None:
        self._autosizing = autosizing
        self._system, self._store, self._elsewhere = backend.system, backend.store, backend.elsewhere
        self._cluster, self._sightings = backend.cluster, Sightings(0.0)
        self._store_builder = backend.store_builder
        self._preparation: StorePreparation | None = None
        self._clock_us = pace.clock_us
        self._partition_check_s, self._settle_us = pace.partition_check_s, int(pace.settle_s * 1e6)
        self._again_s: dict[str, float] = {}  # when tasks that could not be brought together are tried again
        self._matched: set[str] = set()  # streams that have come since the start, and match a pattern
        self._expanded_by: dict[tuple[str, int], str] = {}  # who has expanded a stream to so many partitions

    def begin(self, plan: JobPlan, now_s: float) -> None:
        """`plan` is in force from now on; it was made with what was there a moment ago."""
        self._plan, self._looked_s = plan, now_s
        self._sightings = Sightings(0.0)  # those of before the plan: it may have seen more
        self.waiting: Mapping[str, Waiting] = plan.waiting_scales
        self._again_s = {title: at_s for title, at_s in self._again_s.items() if title in plan.waiting_scales}
        self._expanded_by.clear()
        self._metadata = self._system.metadata_store(plan.topology.application)
        if self._elsewhere is not None:
            self._elsewhere.watch()

    def look_at_cluster(self) -> None:
        """See which locations there are, for `found`; who holds a lock that heartbeats need must not wait for the engine."""
        if self._cluster is not None:
            self._sightings = self._cluster.looked()

    def found(self, now_s: float, with_streams: bool = True) -> tuple[ChangeRequest, ...]:
        """What the plan has not seen; with any of it a new plan is due. Without `with_streams` only requests are looked for."""
        return (*self._startpoints(), *self._rebalance(now_s), *(self._expansions(now_s) if with_streams else ()))

    def stop_requested_by(self, run_id: str) -> str:
        """Who has requested that this run stops; empty where it is not to. Requests of other runs are deleted too."""
        asked = self._metadata.requests(STOPS)
        if asked:
            self._store.write_metadata(self._plan.epoch, STOPS, {}, done=asked)
        return stop_requested_by(asked.values(), run_id)

    def scales(self, now_s: float, runners: Iterable[SubTopologyRunner]) -> tuple[tuple[ChangeRequest, ...], dict[str, Recut]]:
        """Changes of scale that can be made now, and by the titles of sub-topologies those that merge tasks, which are to be
        brought together first: none has more before it than a round reads. What is further apart waits, see `waiting`."""
        plan = self._plan
        ids = self._metadata.requests(SCALES).keys() - set(plan.scales.settled)
        if not (ids or plan.waiting_scales):
            self.waiting = {}
            self.end_preparation()
            return (), {}
        asked = replace(scales_of(self._metadata), stored=plan.scales)
        checkpoints = {task: one for runner in runners for task, one in list(runner.checkpoints.items())}
        near = {runner.sub.title: runner.terms.max_records for runner in runners}
        decision = decided(plan.scale_terms, asked, plan.model, checkpoints)
        closing = {
            title: waiting.recut
            for title, waiting in decision.waiting.items()
            if max(waiting.behind(checkpoints).values(), default=0) <= near[title] and now_s >= self._again_s.get(title, now_s)
        }
        self.waiting = {title: waiting for title, waiting in decision.waiting.items() if title not in closing}
        merging = {one.sub_topology or "source": one for one in decision.recuts if one.merges}
        if not (decision.changes or closing):
            self.end_preparation()
            self._settle_scales(asked, decision)
            return (), {}
        recuts = {one.sub_topology or "source": one for one in decision.recuts}
        if not self._is_prepared({**recuts, **closing}, checkpoints):
            return (), {}
        reached("scale", 2)
        self._again_s |= dict.fromkeys(closing, now_s + AGAIN_S)
        LOG.info("another scale is requested")
        requests = [ChangeRequest(ChangeKind.SCALE, id_) for id_ in sorted(ids)] or [ChangeRequest(ChangeKind.SCALE, "")]
        return tuple(requests), {**merging, **closing}

    def autosize(self, now_s: float, looked_at: Callable[[], Iterable[LookedAt]]) -> None:
        """Let the built-in controller look at the load, and leave its requests."""
        if self._autosizing is not None:
            self._autosizing.look(now_s, self._plan, looked_at, self._metadata)

    def autosizing_of(self, title: str) -> AutosizingStatus | None:
        """What the built-in controller decided last about a sub-topology; None where it is off."""
        return None if self._autosizing is None else self._autosizing.status_of(title)

    def scale_waits_for(self, title: str, checkpoints: Mapping[TaskName, Checkpoint]) -> str:
        """Why another elasticity factor of a sub-topology is not in force yet, for people; empty where none waits."""
        preparation, waiting = self._preparation, self.waiting.get(title)
        preparing = "" if preparation is None else preparation.text(title)
        return preparing or ("" if waiting is None else waiting.text(checkpoints))

    def between_rounds(self, runner: SubTopologyRunner) -> None:
        """Called by the thread of a runner's rounds while none is on its way."""
        preparation = self._preparation
        if preparation is not None:
            preparation.between_rounds(runner)

    def _is_prepared(self, recuts: Mapping[str, Recut], checkpoints: Mapping[TaskName, Checkpoint]) -> bool:
        """Whether the change may come; else the local stores of its tasks are being made, as they are large."""
        if self._preparation is not None and self._preparation.recuts == recuts:
            return self._preparation.is_done
        self.end_preparation()
        ahead = {task: head for one in recuts.values() for task, head in heads_ahead(one, checkpoints).items()}
        if self._store_builder is None or not is_worth_it(ahead):
            return True
        reached("scale", 1)
        LOG.info("another scale is requested: local stores are made for it")
        self._preparation = StorePreparation(recuts, self._store_builder())
        return False

    def end_preparation(self) -> float:
        """Make no local stores ahead any more; those that are made stay. How long it took, in s."""
        preparation, self._preparation = self._preparation, None
        if preparation is None:
            return 0.0
        preparation.end()
        return preparation.seconds

    def _settle_scales(self, asked: ScaleRequests, decision: ScaleDecision) -> None:
        """Record what has come of requests that change nothing: no round waits for it."""
        if not decision.settled:
            return
        entries = scale_entries(decision, asked.requests, self._plan.model.version, self._clock_us())
        keys = new_keys(self._plan.epoch, self._metadata.all(HISTORY).keys())
        found = {key: encode(entry) for key, entry in zip(keys, entries, strict=False)}
        self._store.write_metadata(self._plan.epoch, HISTORY, found)
        self._store.write_metadata(self._plan.epoch, SCALES, {}, done=decision.settled)

    def _startpoints(self) -> Iterable[ChangeRequest]:
        there = frozenset() if self._elsewhere is None else self._elsewhere.new_ids()
        asked = (self._metadata.requests(STARTPOINTS).keys() | there) - self._plan.startpoint_requests
        if asked:
            LOG.info("%d requests for startpoints", len(asked))
        return [ChangeRequest(ChangeKind.STARTPOINT, id_) for id_ in sorted(asked)]

    def _rebalance(self, now_s: float) -> Iterable[ChangeRequest]:
        why = self._sightings.change_due(self._plan.locations, now_s)
        if why:
            LOG.info("the cluster has changed: %s", why)
            yield ChangeRequest(ChangeKind.REBALANCE, why)

    def _expansions(self, now_s: float) -> Iterable[ChangeRequest]:
        asked = self._metadata.requests(PARTITION_CHECKS)
        if not asked and now_s - self._looked_s < self._partition_check_s:
            return ()
        self._looked_s = now_s
        found = self._system.partition_counts(sorted(self._plan.found_counts))
        self._expanded_by |= expanders_of(asked.values())
        if asked:
            self._store.write_metadata(self._plan.epoch, PARTITION_CHECKS, {}, done=asked)
        changed = sorted(stream for stream, count in found.items() if self._is_other(stream, count))
        for stream in changed:
            LOG.info("stream %s has %d partitions, it had %d", stream, found[stream], self._plan.found_counts[stream])
        by = self._expanded_by
        grown = [ChangeRequest(ChangeKind.EXPANSION, stream, by.get((stream, found[stream]), "")) for stream in changed]
        return [*grown, *(ChangeRequest(ChangeKind.EXPANSION, stream) for stream in self._matches())]

    def _matches(self) -> Iterable[str]:
        """Streams that match a pattern and are not read yet; each once: one that cannot be read is not tried again."""
        if not has_patterns(self._plan.topology):
            return
        for stream in new_matches(self._plan.topology, self._system.streams()):
            if stream not in self._matched:
                self._matched.add(stream)
                LOG.info("stream %s matches a pattern", stream)
                yield stream

    def _is_other(self, stream: str, count: int) -> bool:
        """Whether it has changed. No system takes partitions away: fewer ones are those of a recreated stream, or the answer
        of a broker that has not heard of the new ones yet."""
        before = self._plan.found_counts[stream]
        if count >= before:
            return count > before
        known = self._plan.model.stream_ids.get(stream)
        return known is not None and self._system.describe_stream(stream).id != known

    def refused(self, streams: Collection[str]) -> Mapping[str, HeadraceError]:
        """Of these streams those that have changed in a way that their readers cannot follow, and why. None where the system
        cannot tell now."""
        try:
            return self._refused(streams)
        except HeadraceError:
            return {}

    def _refused(self, streams: Collection[str]) -> Mapping[str, HeadraceError]:
        plan, model = self._plan, self._plan.model
        found = self._system.partition_counts(streams)
        changed = {stream: count for stream, count in found.items() if self._is_other(stream, count)}
        if not changed:
            return {}
        before = {stream: count for stream, count in model.partition_counts.items() if stream in changed}
        under_state = streams_under_state(plan.subs)
        by_users = under_state.intersection(partitioners_of(plan.topology))
        stateless = before.keys() - under_state
        changes = changes_of(before, found, model.partitioned_otherwise, by_users, stateless=stateless)
        # A plan refuses more: what it says of a growth can depend on all else that it is made from.
        refused = {**refusals_of(history_of(self._metadata, lambda error: None).values(), changed), **changes.refused}
        for stream in refused:
            try:
                check_same_streams(model, {stream: self._system.describe_stream(stream).id}, found)
            except IncompatibleChangeError as error:  # of another stream the number does not matter
                refused[stream] = error
        return refused

    def settle(self, now_us: int) -> None:
        """Store that startpoints are applied which commits have spent, and the lasting barrier of expansions that every
        producer knows of by now (protocol.md 24)."""
        plan, streams = self._plan, self._plan.model.partition_counts
        for stream in plan.records.settle(self._system, self._store, plan.epoch, streams, now_us, self._settle_us):
            LOG.info("the expansion of stream %s has settled", stream)
        self.settle_startpoints(now_us)

    def settle_startpoints(self, now_us: int) -> None:
        """Store that startpoints are applied which commits have spent."""
        for id_ in self._plan.startpoints.settle(self._store, self._plan.epoch, now_us):
            LOG.info("startpoint %s is applied", id_)
