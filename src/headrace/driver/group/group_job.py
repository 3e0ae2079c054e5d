"""A job that one processor of a standalone group takes part in: its life, from registering to leaving. Seed: SEP-11."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from headrace.core.elasticity.scales import ScaleTerms
from headrace.core.group.membership import (
    DuplicateAction,
    duplicate_action,
    duplicate_error,
    duplicate_of,
    duplicate_text,
    leader_of,
    must_step_back,
)
from headrace.core.group.runs import run_as_leader, run_as_member
from headrace.core.group.settling import look_in_s
from headrace.core.group.state import GroupMember, GroupState, incarnation_of
from headrace.core.metrics.observations import SubTopologyObservation
from headrace.driver.group.coordinator import GroupCoordinator
from headrace.driver.group.launched_processor import LaunchedProcessor
from headrace.driver.group.presence import Presence
from headrace.driver.group.processor_rounds import ProcessorRounds
from headrace.driver.job_status import ProcessorStatus
from headrace.driver.metrics.observing import shown_job_metrics
from headrace.driver.planning.job_plan import JobPlan, Pace
from headrace.driver.running_job import RunningJob
from headrace.errors import FencedError, HeadraceError, JobHeldError, StateError, UnavailableError
from headrace.group.lease_keeper import LeaseKeeper
from headrace.model.streams import SSP

LOG = logging.getLogger("headrace.group")
GUARD_S = 0.1
TIDY_S = 10.0
LEASE_ENDED = "ZooKeeper, which has not answered for two thirds of the session's timeout: processing has stopped until it does"
LEFT = "nothing: it was stopped in order; its tasks wait for it to come back, and go to others then"
HELD_S = 20.0  # a driver that was killed elsewhere is known to have ended after half of it
UNAVAILABLE_S = 300.0  # how long Kafka may not answer a processor, which ZooKeeper answers, before it gives up


class GroupJob(RunningJob):
    """A processor that runs. `status()` reports its progress, `wait()` waits for its end, `stop()` ends it: it leaves in order,
    and its tasks wait for it for a while, then go to the others."""

    def __init__(self, launched: LaunchedProcessor, pace: Pace, until: str | None = None) -> None:
        super().__init__(launched.preparer.planner, pace)
        self._launched, self._group = launched, launched.group
        mine, plans = launched.registration, launched.plans
        self._rounds = ProcessorRounds(mine, launched.preparer, plans, launched.reader, launched.group, pace)
        self._presence = Presence(launched.preparer.planner.backend.processor_store, mine.processor_id)
        self._is_bounded = until is not None
        self._coordinator: GroupCoordinator | None = None
        self._run_id: str | None = None
        self._signed_run: str | None = None  # for which the state's place was looked at
        self._duplicate_since_s: float | None = None
        self._held_since_s: float | None = None
        self._registered_s = self._followed_s = 0.0  # when, and for how long since then another led
        self._tidied_s = time.monotonic()
        self._say = launched.preparer.planner.log
        self._told = self._rounds.waiting_for  # what it waits for, as it has said
        self._unanswered = ""  # by whom, while that is so
        self._is_first = False  # of the group: it is to lead
        self._leaves = False

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> GroupJob:
        try:
            self._register()
        except UnavailableError as error:  # it answered before Spark was started: it is waited for, as while it runs
            LOG.warning("%s: it is tried again", error.message)
        except BaseException:
            self._launched.close()
            raise
        threading.Thread(target=self._live, name="headrace-group", daemon=True).start()
        return self

    def _stop(self) -> None:
        self._stopping.set()
        self._launched.leading.planner.backend.store.expedite()

    @property
    def _is_in(self) -> str:
        generation = self._rounds.generation
        if self._leaves:
            return f"leaving the group{self._unanswered and ': '}{self._unanswered}"
        return self._rounds.waits_for or ("no round" if generation is None else generation.current_text)

    @property
    def _scale_terms(self) -> ScaleTerms | None:
        generation = self._rounds.generation
        return None if generation is None else generation.plan.scale_terms

    @property
    def plan(self) -> JobPlan:
        """The plan that this processor goes by now; `UnavailableError` while it has none."""
        generation = self._rounds.generation
        if generation is None:
            raise UnavailableError(
                f"this processor has no plan: it waits for {self._rounds.waits_for}",
                "wait until it has one: the leader gives it tasks when it plans again",
            )
        return generation.plan

    def observations(self) -> tuple[SubTopologyObservation, ...]:
        """How busy each sub-topology and its tasks are here, over the last 10 and 60 s; empty while it runs none."""
        generation = self._rounds.generation
        return () if generation is None else tuple(map(generation.observation_of, generation.runners.values()))

    def wake(self) -> None:
        """Look for new records now, without waiting for the trigger interval."""
        generation = self._rounds.generation
        if generation is not None:
            generation.wake()

    def _live(self) -> None:
        guard = threading.Thread(target=self._guard, name="headrace-lease-guard", daemon=True)
        guard.start()
        try:
            with LeaseKeeper(self._group):
                self._take_turns()
                self._leave()
                self._error = self._rounds.stopped_by
        except BaseException as error:
            self._error = self._error or error
            why = getattr(error, "message", "") or type(error).__name__
            LOG.error("the processor ends: %s", why)
            self._give_up("" if isinstance(error, UnavailableError) else f"nothing: it ended with: {why}")
        finally:
            self._stopping.set()
            guard.join()
            try:
                self._launched.close()
            finally:
                self._has_ended()

    def _take_turns(self) -> None:
        unanswered_s: float | None = None
        while not self._stopping.is_set():
            try:
                self._turn()
                unanswered_s = None
                if self._unanswered:
                    self._say(f"this processor is answered again, after: {self._unanswered}")
                self._unanswered = ""
            except UnavailableError as error:
                if not self._group.lease.holds(self._group.now_s()):
                    unanswered_s = None  # of ZooKeeper: the whole group waits for it, for as long as it takes
                    self._rounds.drop(LEASE_ENDED)
                unanswered_s = unanswered_s or time.monotonic()
                if time.monotonic() - unanswered_s > UNAVAILABLE_S:
                    raise
                if error.message != self._unanswered:
                    LOG.warning("%s", error.message)
                self._unanswered = error.message
                self._stopping.wait(1.0)
            except FencedError as error:
                LOG.warning("%s", error.message)
                self._rounds.say_who_leads(error.message if self._is_first else "")
                self._lead_no_more()
            self._say_what_it_waits_for()
            self._rounds.publish_end()
            coordinator, rounds = self._coordinator, self._rounds
            leads = coordinator is not None and self._group.lease.holds(self._group.now_s())
            if rounds.has_seen_model:
                self._presence.show(leads=leads, waiting_for=rounds.waits_for, now_us=self._pace.clock_us())
            due_in_s = None if coordinator is None else coordinator.due_in_s(time.monotonic())
            if rounds.is_coming_to_rest:
                due_in_s = 0.0  # a leader waits for it, and rounds do
            works = rounds.generation is not None
            self._group_changed(look_in_s(leads=leads, works=works, due_in_s=due_in_s))

    def _say_what_it_waits_for(self) -> None:
        """Once; and when it works again."""
        waits_for = self._rounds.waiting_for
        if waits_for != self._told:
            self._say(f"this processor waits for {waits_for}" if waits_for else "this processor works")
        self._told = waits_for

    def _group_changed(self, within_s: float) -> None:
        """Wait until there is something to look at."""
        until_s = time.monotonic() + within_s
        while not self._stopping.is_set() and (left_s := until_s - time.monotonic()) > 0:
            if self._group.wait_for_change(min(0.2, left_s)) or self._rounds.has_news:
                return

    def _guard(self) -> None:
        """A processor whose lease has ended works no more, whatever its other threads are in."""
        while not self._stopping.wait(GUARD_S):
            if not self._group.lease.holds(self._group.now_s()):
                self._rounds.drop(LEASE_ENDED)

    def _register(self) -> None:
        sequence = self._group.register(self._launched.registration)
        self._registered_s, self._followed_s = self._group.now_s(), 0.0
        id_ = self._launched.registration.processor_id
        self._say(f"processor {id_} has joined the group {self._group.paths.root}, under registration {sequence}")

    # --- one look ---------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._group.sequence is None or not self._group.confirm():
            self._lead_no_more()
            self._rounds.drop("its registration was removed")
            self._register()
        state = self._group.state()
        sequence = self._group.sequence
        if sequence is None or not self._takes_part(state, sequence):
            return
        leader = leader_of(state.members)
        self._is_first = is_leader = leader is not None and leader.sequence == sequence
        if is_leader and must_step_back(state.members, sequence, self._code_in_force(state)):
            self._lead_no_more()
            self._register()
            return
        if leader is not None and (joined := run_as_member(state.run, leader.sequence, self._is_bounded)) is not None:
            self._check_state_place(joined.id)
            self._run_id = self._rounds.run_id = joined.id
            self._rounds.ends = {SSP.parse(one): end for one, end in joined.targets.items()} if joined.bounded else None
        if state.run is not None and state.run.has_ended and state.run.id == self._run_id:
            self._stopping.set()
            return
        if is_leader:
            self._lead(state, sequence)
        else:
            self._followed_s = self._group.now_s() - self._registered_s
            self._rounds.say_who_leads()
            self._lead_no_more()
        if self._is_bounded and self._rounds.ends is None:
            return  # the leader has yet to say where the run ends
        mine = GroupMember(sequence, self._launched.registration)
        self._rounds.follow(state, incarnation_of(mine), is_leader=is_leader)

    def _code_in_force(self, state: GroupState) -> str | None:
        """Of the plan in force, as it is stored with it: ZooKeeper may have come back empty, or show the plan before."""
        origin = self._launched.plans.origin() or state.origin
        return None if origin is None else origin.code

    def _takes_part(self, state: GroupState, sequence: int) -> bool:
        """False while another processor has this one's id; `JobHeldError` where it keeps it."""
        mine = GroupMember(sequence, self._launched.registration)
        other = duplicate_of(state.members, mine)
        if other is None:
            self._duplicate_since_s = None
            return True
        self._duplicate_since_s = self._duplicate_since_s or time.monotonic()
        found = other.registration
        is_dead = found is not None and self._launched.is_known_dead(found)
        waited_s = time.monotonic() - self._duplicate_since_s
        match duplicate_action(is_dead, waited_s, self._group.lease.timeout_s):
            case DuplicateAction.REMOVE:
                LOG.info("%s has ended: its registration is removed", duplicate_text(other))
                self._group.remove_duplicate(other)
            case DuplicateAction.WAIT:
                self._rounds.waiting_for = f"the end of the other one: {duplicate_text(other)}"
            case _:
                raise duplicate_error(other)
        return False

    def _lead(self, state: GroupState, sequence: int) -> None:
        coordinator = self._coordinator
        if coordinator is not None and coordinator.sequence != sequence:
            self._lead_no_more()
            coordinator = None
        if coordinator is None:
            run = run_as_leader(state.run, self._run_id, self._is_bounded, self._launched.new_run_id(), sequence)
            parts, pace = self._launched, self._pace
            coordinator = GroupCoordinator(parts.leading, parts.preparer.files, self._group, parts.settings, pace, run)
            if not self._is_begun(coordinator, run.id):
                return
            self._coordinator, self._run_id = coordinator, run.id
            self._rounds.run_id = run.id
        if self._rounds.has_caught_up and not coordinator.is_changing:
            coordinator.end_run()
            return
        try:
            coordinator.look(state, self._rounds.runners, time.monotonic())
        except (FencedError, UnavailableError):
            raise
        except Exception:
            coordinator.check()  # one that was replaced may have read another's plan: then that is what there is to say
            raise
        self._rounds.say_who_leads()
        self._rounds.show_waiting(coordinator.waiting_scales)
        if time.monotonic() - self._tidied_s >= TIDY_S:
            self._tidied_s = time.monotonic()
            coordinator.tidy()

    def _check_state_place(self, run_id: str) -> None:
        """`StateError` where this processor keeps state elsewhere than those that it joins."""
        if run_id != self._signed_run:
            self._launched.state_place.check(run_id)
            self._signed_run = run_id

    def _sign_state_place(self, run_id: str, state_id: str) -> None:
        """Of a run that this processor begins; of one that it leads on it has found the sign."""
        if run_id != self._signed_run:
            self._launched.state_place.sign(run_id, state_id)
            self._signed_run = run_id

    def _is_begun(self, coordinator: GroupCoordinator, run_id: str) -> bool:
        """False while another has the application, as one of a group that was killed seems to for some seconds."""
        try:
            sign, followed_s = partial(self._sign_state_place, run_id), self._followed_s
            coordinator.begin(self._launched.lease(run_id), sign, followed_s=followed_s)
        except JobHeldError as error:
            self._held_since_s = self._held_since_s or time.monotonic()
            if time.monotonic() - self._held_since_s > HELD_S:
                raise
            LOG.info("%s", error.message)
            self._rounds.say_who_leads(error.message)
            return False
        except StateError:  # of the sign, once it has the application
            coordinator.end(is_last=self._is_alone())
            raise
        except BaseException:
            coordinator.end(is_last=False)  # what it has taken by then it may take again
            raise
        self._held_since_s = None
        return True

    def _lead_no_more(self, *, is_last: bool = False) -> None:
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            self._say("this processor leads the group no more")
            coordinator.end(is_last=is_last)

    # --- its end ----------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Stop in order: the group waits for this processor for a while, before its tasks go to others."""
        self._leaves = True
        self._rounds.close(LEFT if self._rounds.has_tasks and not self._unanswered else "")
        if not self._unanswered:
            self._presence.leave()
        try:
            self._lead_no_more(is_last=self._is_alone())
            self._group.leave()
            self._group.close()
        except UnavailableError as error:
            LOG.warning("%s: the others learn of it when the session ends", error.message)
            self._give_up()

    def _is_alone(self) -> bool:
        return all(one.sequence == self._group.sequence for one in self._group.state().members)

    def _give_up(self, why: str = "") -> None:
        """End as if killed: its session ends, and the others take its tasks at once."""
        if why:  # Kafka answers
            self._presence.leave()
        for end in (partial(self._rounds.close, why), self._lead_no_more, self._group.close):
            try:
                end()
            except HeadraceError as error:
                LOG.warning("while the processor ends: %s", error.message)

    # --- what people see --------------------------------------------------------------------------------------------

    def status(self) -> ProcessorStatus:
        """The status of this processor's share of the job."""
        generation, launched = self._rounds.generation, self._launched
        return {
            "application": launched.preparer.planner.topology.application,
            "running": self.is_running,
            "processor_id": launched.registration.processor_id,
            "is_leader": self._coordinator is not None,
            "waiting_for": self._rounds.waits_for,
            "has_tasks": self._rounds.has_tasks,
            "epoch": 0 if generation is None else generation.plan.epoch,
            "job_model": 0 if generation is None else generation.plan.model.version,
            "metrics": shown_job_metrics(launched.preparer.planner.backend.metrics),
            "rejected_executors": {},
            "sub_topologies": self._rounds.status(),
        }
