"""The work of one processor of a standalone group: the rounds of its own containers, under its grant.

What the others commit it hears from their checkpoints, for watermarks, lags and barriers: older knowledge only makes it wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.core.affinity.arrivals import arrivals
from headrace.core.elasticity.scales import Waiting
from headrace.core.group.grants import Grant, holders_of, portion_of, processor_tasks
from headrace.core.group.membership import leader_of
from headrace.core.group.pauses import pause_to_keep
from headrace.core.group.processor_steps import ProcessorView, Work, processor_step, waiting_for
from headrace.core.group.state import GroupState, PauseRequest, Registration
from headrace.core.group.statuses import counted_by
from headrace.driver.change_requests import ChangeRequests
from headrace.driver.generation import Generation
from headrace.driver.group.group_planner import GroupPlanner
from headrace.driver.group.own_maintenance import OwnMaintenance
from headrace.driver.job_preparer import JobPreparer
from headrace.driver.job_status import SubTopologyStatus
from headrace.driver.planning.job_plan import JobPlan, Pace
from headrace.driver.prepared_job import PreparedJob
from headrace.driver.rounds.pauses import Pause
from headrace.driver.rounds.scheduling import CaughtUp
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import FencedError, HeadraceError, UnavailableError
from headrace.exchange.fault_injection import reached
from headrace.group.processor_group import ProcessorGroup
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.model.tasks import TaskName
from headrace.ports.coordinator_store import JobReader

LOG = logging.getLogger("headrace.group")
LOADING = "the plan in force to be read"
RELEASE_S = 8.0  # for so long rounds may end by themselves, before they are dropped


class ProcessorRounds:
    """Runs what this processor is given. `follow` is called by one thread; `drop` by any, when the lease has ended.

    `reader`: what is stored of the job, read by a store that holds nothing.
    """

    def __init__(
        self,
        registration: Registration,
        preparer: JobPreparer,
        plans: GroupPlanner,
        reader: JobReader,
        group: ProcessorGroup,
        pace: Pace,
    ) -> None:
        self.processor_id, self._code = registration.processor_id, registration.code
        self._preparer, self._plans, self._reader = preparer, plans, reader
        self._group, self._pace, self._backend = group, pace, preparer.planner.backend
        self._say = preparer.planner.log
        self.generation: Generation | None = None
        self._grant: Grant | None = None  # under which the generation runs; None: it only hears
        self._last: Generation | None = None  # the one before, for what it has counted
        self._watch = ChangeRequests(self._backend, pace)
        self._looked_s = 0.0  # when streams were looked at last
        self._maintenance = OwnMaintenance(group, reader, self._backend.retention)
        self._incarnation = ""
        self._seen_s: dict[int, float] = {}  # when the pause of a number was first seen
        self._pause: PauseRequest | None = None  # that is kept
        self._rests_for: int | None = None  # the number of the pause that the others know to be kept here
        self.run_id = ""  # of the group
        self._counted: Mapping[str, Mapping[str, Any]] | None = None  # see `ShownRounds.counted`; None: not looked up yet
        self._has_tasks = False  # as far as was seen last
        self.has_seen_model = False  # from then on there is what is stored of the application
        self.ends: Mapping[SSP, int] | None = None  # of a run that is bounded, those of its inputs
        self._error: BaseException | None = None
        self.waiting_for = "a place in the group"  # empty while it works
        self._cannot_lead = ""
        self._ended_by = ""  # what is still to be published of why rounds have ended

    @property
    def has_news(self) -> bool:
        """Whether it has something to tell the group, which does not wait for the next look: where tasks have run."""
        return self._grant is not None and self._maintenance.has_new_locations

    # --- what it runs -----------------------------------------------------------------------------------------------

    def follow(self, state: GroupState, incarnation: str, *, is_leader: bool) -> None:
        """Do what `state` asks for: release what is to change, or run what the grant in force covers, if it is of this
        `incarnation`. Raises what ended the rounds, but where another processor was given them."""
        self._raise_error()
        if self.generation is not None:
            self.generation.look_at_long_rounds()
        if self._grant is not None:  # else its tasks may be with others by now
            self._maintenance.keep_locality()
        if incarnation != self._incarnation:  # what was reported under another registration ended with it
            self._incarnation, self._rests_for = incarnation, None
        self._follow_pause(state)
        view = ProcessorView(self.processor_id, incarnation, self._holds_lease(), is_leader)
        step = processor_step(state, view, self._reader.grants() or {})
        if step.releases:
            self._release(state.versions.proposed)
        if step.joins is not None:
            self._group.join_barrier(step.joins)
        match step.work:
            case Work.ROUNDS:
                assert step.grant is not None
                is_new = self._grant is None or self._grant.number != step.grant.number  # its former number may go
                if self.generation is None or is_new or self._has_other_streams():
                    self._begin(step.grant)
            case Work.HEARS:
                self._hear()
            case Work.NONE:
                self._end()
        if self._grant is None and step.work is not Work.ROUNDS:
            model = self._reader.job_model()
            self.has_seen_model = self.has_seen_model or model is not None
            self._has_tasks = model is not None and self.processor_id in holders_of(model)
            self.waiting_for = waiting_for(state, view, step, model)
        self._report_rest()
        self._maintenance.remove_unused_stores(has_tasks=self._grant is not None)

    @property
    def has_tasks(self) -> bool:
        """Whether it has some in the job model in force, as far as it knows; else it is a spare."""
        return self._has_tasks

    @property
    def waits_for(self) -> str:
        """What it waits for, for people; empty while it works. Of one that is to lead and cannot, that."""
        return self.waiting_for and (self._cannot_lead or self.waiting_for)

    def say_who_leads(self, why_not: str = "") -> None:
        """`why_not`: why this processor, which is to lead, does not; empty where it does, or another is to. Its sub-topologies
        show it."""
        self._cannot_lead = why_not and f"the lead of the group: {why_not}"
        if self.generation is not None:
            self.generation.leader_waits_for = self._cannot_lead

    @property
    def is_coming_to_rest(self) -> bool:
        """Whether a pause is requested that is not reported to be kept."""
        return self._pause is not None and self._rests_for is None and self._grant is not None

    def _follow_pause(self, state: GroupState) -> None:
        """Rest, or continue: then the others know before that this one rests no more."""
        asked, leader, now_s = state.pause, leader_of(state.members), time.monotonic()
        is_new = asked is not None and asked.number not in self._seen_s
        self._seen_s = {} if asked is None else {asked.number: self._seen_s.get(asked.number, now_s)}
        keeps = pause_to_keep(asked, None if leader is None else leader.sequence, self._seen_s, now_s)
        self._pause = asked if keeps else None
        number = None if self._pause is None else self._pause.number
        if self._rests_for not in (None, number):
            reached("group", 16)
            self._group.rest(None)
            self._rests_for = None
        if self.generation is not None:
            if is_new and keeps:
                reached("group", 14)
            self.generation.pause(self._pauses())

    def _pauses(self) -> dict[str, Pause]:
        if self._pause is None:
            return {}
        pause = Pause(self._pause.number, {SSP.parse(ssp): to for ssp, to in self._pause.positions.items()})
        return dict.fromkeys(self._pause.sub_topologies, pause)

    def _report_rest(self) -> None:
        if self._pause is None or self._rests_for is not None or self._grant is None or self.generation is None:
            return
        number = self._pause.number
        if not self.generation.rests(number):
            return
        reached("group", 15)
        if self._group.rest(number):
            self._rests_for = number

    def drop(self, why: str) -> None:
        """End at once: what rounds have not committed is dropped."""
        if self._grant is not None and not self.waiting_for:
            self.waiting_for = self._ended_by = why
            self._fail(FencedError(f"rounds are dropped: {why}"))

    def publish_end(self) -> None:
        """Publish why rounds have ended here, if that was not done: the others go by when this processor has reported last."""
        why, self._ended_by, generation = self._ended_by, "", self.generation or self._last
        if why and generation is not None:
            generation.publish_end(why)

    def close(self, why: str = "") -> None:
        """End the rounds, `why` for who looks at the status."""
        self._end()
        self._ended_by = why
        self.publish_end()

    @property
    def has_caught_up(self) -> bool:
        """Whether all tasks of the group have read what was there, and what came of it."""
        return self.ends is not None and self.generation is not None and self.generation.has_caught_up

    @property
    def runners(self) -> list[SubTopologyRunner]:
        """Of the plan that it goes by; empty where it has none."""
        return [] if self.generation is None else list(self.generation.runners.values())

    def _holds_lease(self) -> bool:
        return self._group.lease.holds(self._group.now_s())

    @property
    def stopped_by(self) -> HeadraceError | None:
        """Why a sub-topology has stopped alone under the plan that it goes by, or went by last; None where none has."""
        generation = self.generation or self._last
        return None if generation is None else next(iter(generation.stopped_by.values()), None)

    def _has_other_streams(self) -> bool:
        """Whether streams have changed in a way that what reads them here cannot follow. The plan stays as it is then, and only
        these stop: rounds end, and begin without them. The last of them ends the processor with its error."""
        generation = self.generation
        assert generation is not None
        if len(generation.stopped_by) == len(generation.runners):
            raise next(iter(generation.stopped_by.values()))
        now_s = time.monotonic()
        if self.ends is not None or now_s - self._looked_s < self._pace.partition_check_s:
            return False
        self._looked_s = now_s
        running = [runner for name, runner in generation.runners.items() if name not in generation.stopped_by]
        if not self._watch.refused({stream for runner in running for stream in runner.sub.reads}):
            return False
        generation.yield_soon()
        generation.join(RELEASE_S)
        return True

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is None:
            return
        self._end()
        self.publish_end()  # of these rounds, and not of those that begin next
        if not isinstance(error, FencedError):
            raise error
        LOG.info("%s", error.message)

    def _fail(self, error: BaseException) -> None:
        """Called by the thread of a round that ends the generation."""
        self._error = self._error or error
        generation = self.generation
        if generation is not None:
            generation.stop()

    def _release(self, version: int) -> None:
        generation = self.generation
        if generation is None:
            return
        self._say(f"job model {version} changes what this processor runs: its rounds end")
        reached("group", 7)
        generation.yield_soon()
        if not generation.join(RELEASE_S):
            LOG.warning(
                "rounds have not ended within %.0f s (%s), and tasks are to move: who gets these does the work again",
                RELEASE_S,
                generation.current_text,
            )
        self._end()
        reached("group", 8)

    def _end(self) -> None:
        if self._backend.restoration is not None:
            self._backend.restoration.end()
        generation, self.generation, self._grant = self.generation, None, None
        if generation is None:
            return
        generation.stop()
        if not generation.join(RELEASE_S):
            LOG.warning("rounds do not end (%s): what they do is not committed, and is done again", generation.current_text)
        self._last = generation

    def _begin(self, grant: Grant) -> None:
        """Load the plan in force, and begin its rounds under the grant. Where that gives more tasks and takes none, the rounds
        of before run meanwhile, and commit what they have reached."""
        works_on = grant.widens(self._grant)
        if not works_on:
            self._end()
            self.waiting_for = LOADING
        plan = self._loaded(grant.number, self.processor_id)
        if works_on and self.generation is not None:
            self.generation.yield_soon()
            self.generation.join(RELEASE_S)
        self._end()
        self.waiting_for = LOADING  # where a call below raises
        if self.processor_id not in holders_of(plan.model):
            self.waiting_for = "tasks: all are with other processors"
            return
        reached("group", 9)
        store = self._backend.processor_store
        store.begin(grant.number, plan.model, self.processor_id)
        self._preparer.paths.control.begin(grant.number)
        found: dict[TaskName, Checkpoint] = {}
        for sub in plan.subs:
            if plan.refused.keys().isdisjoint(sub.reads):
                found |= store.recover(grant.number, sub.name)
            else:  # nothing of it is committed under this grant, nor under one before
                store.shut_out(grant.number, sub.name)
        plan = replace(plan, checkpoints={**plan.checkpoints, **found})
        tasks = len(processor_tasks(plan.model, [self.processor_id]))
        every, version = len(list(plan.model.tasks)), plan.model.version
        self._say(f"job model {version}: this processor has {tasks:,} of {every:,} tasks, under grant {grant.number}")
        self._restore(plan)
        self._run(plan)
        self._grant, self._has_tasks, self.has_seen_model = grant, True, True
        reached("group", 10)

    def _restore(self, plan: JobPlan) -> None:
        """Have those of its tasks sit out that it did not run before, until their local stores are known to be there."""
        restoration = self._backend.restoration
        if restoration is None:
            return
        last = None if self._last is None else portion_of(self._last.plan.model, self.processor_id)
        most = self._preparer.planner.config.restore_inline_bytes
        come = arrivals(last, portion_of(plan.model, self.processor_id), plan.checkpoints, most)
        restoration.begin(plan.epoch, come, most)

    def _hear(self) -> None:
        """A leader without tasks hears of what the others commit: it judges by that. Not of a plan of other code: it does not
        fit this topology, and this leader makes another."""
        model, generation = self._reader.job_model(), self.generation
        if model is None or (generation is not None and self._grant is None and generation.plan.model == model):
            return
        self._end()
        origin = self._plans.origin()
        if origin is None or origin.code != self._code:
            return
        plan = self._loaded(0, "")
        self._backend.processor_store.begin(0, plan.model, "")
        self._run(plan)

    def show_waiting(self, scales: Mapping[str, Waiting]) -> None:
        """Have the status say which changes of scale wait: the leader alone decides them."""
        self._watch.waiting = scales

    def _counted_before(self) -> Mapping[str, Mapping[str, Any]]:
        """What this processor has published as another process of the same run; it is for eyes, and no reason not to begin."""
        if self._counted is None:
            try:
                self._counted = counted_by(self._reader.status(), self.processor_id, self.run_id)
            except HeadraceError as error:
                LOG.warning("what this processor has counted before could not be read: %s", error.message)
                self._counted = {}
        return self._counted

    def _loaded(self, number: int, processor_id: str) -> JobPlan:
        """The plan in force, with what has become of its streams since it was made."""
        try:
            plan = self._plans.loaded(self._reader, number, processor_id)
            self._looked_s = time.monotonic()
            self._watch = ChangeRequests(self._backend, self._pace)
            self._watch.begin(plan, self._looked_s)
            return replace(plan, refused=self._watch.refused({stream for sub in plan.subs for stream in sub.reads}))
        except UnavailableError:
            raise
        except HeadraceError as error:  # a plan is being made just now, say
            raise UnavailableError(f"the plan in force could not be loaded: {error.message}", "it is tried again") from error

    def _run(self, plan: JobPlan) -> None:
        self._maintenance.has_tasks(processor_tasks(plan.model, [self.processor_id]))
        runners = tuple(self._preparer.runner_of(sub, plan) for sub in plan.subs)
        prepared = PreparedJob(plan, runners, self._maintenance)
        generation = Generation(prepared, self._backend, self._pace, None, self._watch, self._fail)
        if self.ends is not None:
            generation.caught_up = CaughtUp(generation.sources, self.ends)
        if self._last is not None:
            generation.inherit_from(self._last)
        generation.leader_waits_for = self._cannot_lead
        generation.run_id, generation.counted = self.run_id or None, self._counted_before()
        self.generation, self.waiting_for = generation, ""
        generation.pause(self._pauses())
        generation.start()

    # --- what people see --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, SubTopologyStatus]:
        """By the titles of sub-topologies, of those that it runs, or ran last."""
        generation = self.generation or self._last
        if generation is None:
            return {}
        return {runner.sub.title: generation.status_of(runner) for runner in generation.runners.values()}
