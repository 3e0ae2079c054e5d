"""What the leader of a standalone group does: it alone has the epoch, makes job models, and gives grants. Seed: SEP-11.

Kafka is the truth. ZooKeeper says who is there and who leads, and tells processors what is coming: nothing that it loses or
delays lets a processor commit what the grants do not allow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headrace.codec.documents import encode
from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.elasticity.recut import Recut
from headrace.core.elasticity.scales import Waiting
from headrace.core.group.drafts import GroupDraft, GroupStep, wanted_plan
from headrace.core.group.grants import holders_of
from headrace.core.group.leader_steps import LeaderStep, LeaderView, leader_step
from headrace.core.group.membership import unique_members
from headrace.core.group.pauses import pause_of
from headrace.core.group.proposals import AwaitedRelease, BarrierOutcome, awaited_release, barrier_outcome, next_version
from headrace.core.group.returns import are_to_return, left_behind, to_await
from headrace.core.group.runs import forgets_affinity
from headrace.core.group.settling import Settling
from headrace.core.group.state import GroupRun, GroupState, ModelOrigin, incarnation_of
from headrace.driver.change_requests import ChangeRequests
from headrace.driver.group.group_maintenance import GroupMaintenance
from headrace.driver.group.group_pauses import GroupPauses
from headrace.driver.group.group_planner import GroupPlanner, PlanOrder
from headrace.driver.group.heartbeat import Heartbeat
from headrace.driver.group.shown_model import check_shown, show_again
from headrace.driver.planning.job_plan import JobPlan, Pace
from headrace.driver.rounds.sub_topology_runner import SubTopologyRunner
from headrace.errors import HeadraceError, StreamNotFoundError, UnavailableError
from headrace.exchange.fault_injection import reached
from headrace.group.leading import Leading
from headrace.group.processor_group import ProcessorGroup
from headrace.model.change import ChangeKind, ChangeRequest
from headrace.model.commits import DriverLease
from headrace.model.job_model import JobModel
from headrace.state_files.files import StateFiles

LOG = logging.getLogger("headrace.group")


@dataclass(frozen=True, slots=True, eq=False)
class GroupSettings:
    """What a group is run by. `code`: the fingerprint of the application and of the settings that shape plans; times in s."""

    code: str
    release_wait_s: float
    return_wait_s: float


class GroupCoordinator:
    """One leadership: from `begin` until it is fenced, or ends. One thread calls it; heartbeats are sent by another.

    Any call raises `FencedError` where this processor leads no more, and `UnavailableError` where Kafka or ZooKeeper does not
    answer: what was decided is decided again, at a later look. So nothing that is still to be done is forgotten before it is.
    """

    def __init__(
        self, plans: GroupPlanner, files: StateFiles, group: ProcessorGroup, settings: GroupSettings, pace: Pace, run: GroupRun
    ) -> None:
        self._plans, self._group, self._settings, self._pace = plans, group, settings, pace
        self._store, self._say = plans.planner.backend.store, plans.planner.log
        self.run, self.sequence = run, run.leader
        self._leading: Leading = group.leading(run.leader)
        self._requests = ChangeRequests(plans.planner.backend, pace)
        self._pauses = GroupPauses(group, self._leading, run.leader, self._store.checkpoints)
        self._merging: tuple[tuple[ChangeRequest, ...], Mapping[str, Recut]] | None = None  # what waits for a pause
        self._plan: JobPlan | None = None  # the one in force; None until this leader has made or read it
        self._made: GroupDraft | None = None  # the last one that it has made, where that has left it as it is
        self._has_planned = self._has_looked = False
        self._settling = Settling(settings.return_wait_s)
        self._followed_s: float | None = None  # see `to_await`; None: that is decided
        self._origin: ModelOrigin | None = None  # of the plan in force
        self._awaited: AwaitedRelease | None = None
        self._order: PlanOrder | None = None  # what the proposal was made for
        self._changed: frozenset[str] = frozenset()
        self._due: tuple[ChangeRequest, ...] = ()  # requests that ask for another plan
        self._epoch = 0
        self._owes_fence = True  # the leader before may have taken grants back, and fenced none
        self._heartbeat = Heartbeat(self._store, group, pace.clock_us)
        self._holding = self._heartbeat.holding
        self._maintenance = GroupMaintenance(plans, files, group.locality, run.leader, self._holding)

    # --- its life ---------------------------------------------------------------------------------------------------

    def begin(self, lease: DriverLease, sign: Callable[[str], None], *, followed_s: float) -> None:
        """Take the application, with the grants that are in force. `sign`: has the folder of the state with this
        id say that it is of this run, before others hear of the run. Where the plan in force was not made, or found to fit, in
        this run by one with the code of this leader, its first plan is as that of a start. `followed_s`: for how long it was
        registered while another led."""
        self._followed_s = followed_s
        self._epoch = self._store.acquire(lease, self._pace.clock_us(), for_group=True)
        self._maintenance.sign(self._epoch, sign)
        self._has_planned = self._plans.origin() == self._own_origin and self._store.job_model() is not None
        self._say(f"this processor leads the group, under epoch {self._epoch}")
        self._maintenance.leave_note(self._epoch)
        if not self._has_planned:
            self._maintenance.begin(self._epoch)
        if self.run.bounded and not self.run.targets:
            self.run = replace(self.run, targets=self._plans.ends_of_inputs())
        self._leading.write_run(self.run)
        self._heartbeat.begin(self._epoch)

    def end_run(self) -> None:
        """All of a bounded run is done: every processor may end."""
        LOG.info("all inputs are read to where they ended when the run began")
        self.run = replace(self.run, state="ended")
        self._leading.write_run(self.run)

    def end(self, *, is_last: bool) -> None:
        """Lead no more; this processor may lead again later. `is_last`: no other processor is there. Then, and where the run
        has ended for all, the application is given back."""
        self._heartbeat.end()
        with self._holding:
            self._requests.end_preparation()
            try:
                if is_last or self.run.has_ended:
                    self._store.release(self._epoch)
            except HeadraceError as error:
                LOG.warning("could not give the application back: %s", error.message)
            finally:
                self._store.step_down(self._epoch)

    def check(self) -> None:
        """`FencedError` where another processor has taken the application."""
        with self._holding:
            self._store.check_epoch(self._epoch)

    @property
    def _own_origin(self) -> ModelOrigin:
        """Of plans that this leader makes."""
        return ModelOrigin(self._settings.code, self.run.id)

    @property
    def waiting_scales(self) -> Mapping[str, Waiting]:
        """By the titles of sub-topologies, those whose change waits for tasks to come together."""
        return {} if self._plan is None else self._requests.waiting

    @property
    def is_changing(self) -> bool:
        """Whether a proposal waits."""
        return self._awaited is not None

    def due_in_s(self, now_s: float) -> float | None:
        """In how many seconds a plan is to be decided; None where none is, or a proposal waits."""
        due_s = self._settling.due_s
        return None if self.is_changing or due_s is None else due_s - now_s

    # --- what is to be done now -------------------------------------------------------------------------------------

    def look(self, state: GroupState, runners: Collection[SubTopologyRunner], now_s: float) -> None:
        """Do what `state` asks for. `runners`: those of this process, which know what all processors have committed."""
        self._heartbeat.check()
        model, committed = self._store.job_model(), self._plans.origin()
        self._origin = committed or state.origin
        # its first plan may be committed, and the answer lost: what follows is no start any more
        self._has_planned = self._has_planned or (model is not None and committed == self._own_origin)
        holders = frozenset[str]() if model is None else holders_of(model)
        state = self._with_awaited(state, holders)
        self._fence_those_that_left(state)
        if self._has_planned and self._plan is None:  # what has left may hold it back until it is fenced
            self._load(now_s)
        self._settling = self._settling.with_look(state.members, state.awaited, holders, now_s)
        self._leading.forget_awaited(self._settling.given_up)
        self._pauses.withdraw_left_over(state)
        self._look_for_requests(runners, now_s)
        wants_pause = self._pauses.is_active or self._wants_pause(now_s)
        if not self._has_looked and model is not None:
            check_shown(self._group, self._leading, state, model)
        self._has_looked = True
        view = LeaderView(
            None if model is None else model.version,
            is_proposing=self._awaited is not None,
            has_planned=self._has_planned,
            is_settled=self._settling.is_due(now_s),
            has_requests=bool(self._due) and not (self._goes_back and wants_pause and not self._pauses.is_merging),
            wants_pause=wants_pause,
        )
        match leader_step(state, view):
            case LeaderStep.END_BARRIER:
                self._end_barrier(state, now_s)
            case LeaderStep.END_LEFT_OVER:
                self._end_left_over(state, model, now_s)
            case LeaderStep.PUBLISH:
                assert model is not None
                show_again(self._leading, state, model, self._origin or self._own_origin)
            case LeaderStep.DECIDE:
                if self._due:
                    self._maintenance.hear()
                self._decide(state, model, now_s)
            case LeaderStep.PAUSE:
                assert model is not None
                self._pause(state, model, now_s)

    def _with_awaited(self, state: GroupState, holders: Collection[str]) -> GroupState:
        """At its first look a leader marks those that the group waits for."""
        if self._followed_s is None:
            return state
        grants, timeout_s, forgets = self._store.grants() or {}, self._group.lease.timeout_s, self._forgets
        awaited = to_await(state, holders, grants, followed_s=self._followed_s, timeout_s=timeout_s, forgets=forgets)
        marked = awaited - state.awaited
        self._leading.await_return(marked)
        self._leading.forget_awaited(state.awaited - awaited)
        self._followed_s = None
        return replace(state, awaited=awaited, marked=state.marked | marked)

    @property
    def _forgets(self) -> bool:
        return forgets_affinity(self.run, self._origin, self._has_planned)

    def _fence_those_that_left(self, state: GroupState) -> None:
        """Of incarnations that are not there any more the grants are taken back at once: what they have open would hold back
        all that read behind it. The same where that was begun before, and the lanes were not fenced."""
        gone = left_behind(self._store.grants() or {}, state.members)
        if gone:
            away = gone - {one.processor_id for one in unique_members(state.members)}
            awaited, lost = sorted(away & state.awaited), sorted(away - state.awaited)
            if awaited:
                wait_s = self._settings.return_wait_s
                self._say(f"processors away: {', '.join(awaited)}; their tasks wait for {wait_s:g} s, then go to others")
            if lost:
                self._say(f"processors lost, as their sessions have ended: {', '.join(lost)}; their tasks go to others")
            with self._taking_back():
                self._plans.take_back(self._epoch, gone)
        elif self._owes_fence:
            with self._taking_back():
                self._plans.fence_others(self._epoch)

    @contextmanager
    def _taking_back(self) -> Iterator[None]:
        """While grants are taken back, and lanes fenced then. What ends in between leaves a fence that is owed: no grant says
        any more whose lanes these are."""
        self._owes_fence = True
        with self._holding:
            yield
        self._owes_fence = False

    def _look_for_requests(self, runners: Collection[SubTopologyRunner], now_s: float) -> None:
        plan = self._plan
        if plan is None:
            return
        known = {task: one for runner in runners for task, one in list(runner.checkpoints.items())}
        is_current = known.keys() == {task.name for task in plan.model.tasks}  # else they are of another plan
        if is_current:
            plan.startpoints.committed(known.values())
        self._requests.settle(self._pace.clock_us())
        found = self._requests.found(now_s, with_streams=not self.run.bounded)
        can_scale = is_current and not (self._due or self._merging or self._pauses.is_active)
        scales, merging = self._requests.scales(now_s, runners) if can_scale else ((), {})
        if merging:
            self._merging = scales, merging
            scales = ()
        self._due = tuple(dict.fromkeys((*self._due, *found, *scales)))

    # --- pauses -----------------------------------------------------------------------------------------------------

    def _wants_pause(self, now_s: float) -> bool:
        return self._merging is not None or (self._pauses.may_cut(now_s) and bool(self._maintenance.due_cuts()))

    def _pause(self, state: GroupState, model: JobModel, now_s: float) -> None:
        """Request a pause, or continue the one that is requested."""
        pauses, maintenance, grants = self._pauses, self._maintenance, self._store.grants() or {}
        if pauses.is_active:
            self._due = (*self._due, *pauses.look(state, now_s))
        elif self._merging is not None:
            (scales, merging), self._merging = self._merging, None
            pauses.bring_together(state, pause_of(merging, model, state.members, grants), merging, scales, now_s)
        else:
            due = {name or "source": name for name in maintenance.due_cuts()}
            of = pause_of(due, model, state.members, grants)
            pauses.cut(state, of, lambda: maintenance.hear(due.values()), now_s)

    def tidy(self) -> None:
        """What is done in the background, see `GroupMaintenance`."""
        self._maintenance.tidy()

    @property
    def _goes_back(self) -> bool:
        """Whether a startpoint is requested: what the tasks have come to is kept before, where that is due."""
        return any(one.kind is ChangeKind.STARTPOINT for one in self._due)

    def _decide(self, state: GroupState, model: JobModel | None, now_s: float) -> None:
        order = self._order_of(state, model, next_version(state, 0 if model is None else model.version))
        is_done = order is None or self._is_carried_out(order, self._plans.draft(order), state, now_s)
        self._settling = self._settling.decided()
        if not is_done:
            self._settling = self._settling.again(now_s)

    def _is_carried_out(self, order: PlanOrder, made: GroupDraft, state: GroupState, now_s: float) -> bool:
        """Give grants, or propose the plan that was made; False where the tree is not what it was made by."""
        if made.step is not GroupStep.PROPOSE:
            self._pauses.end()
            if made.step is GroupStep.GRANT:
                LOG.info("processors %s get new grants", ", ".join(sorted(made.ungranted)))
                with self._taking_back():
                    self._plans.grant(order, made.ungranted)
            self._due, self._has_planned, self._plan, self._made = (), True, None, made
            return True
        number = order.wanted.shape.version
        origin = replace(order.origin, changed=tuple(sorted(made.changed)))
        reached("group", 4)
        if not self._leading.propose(number, encode(made.draft.job_model), origin):
            self._pauses.end()
            return False
        changed, gains = (", ".join(sorted(ids)) or "no processor" for ids in (made.changed, made.gains))
        LOG.info("job model %d is proposed: it changes %s, and gives tasks to %s, without a stop", number, changed, gains)
        members = {incarnation_of(one): one.sequence for one in state.members}
        present = {id_: members[incarnation] for id_, incarnation in order.wanted.present.items() if incarnation in members}
        self._awaited = awaited_release(number, made.changed, made.portions, present, now_s)
        self._order, self._changed = order, made.to_fence
        return True

    def _order_of(self, state: GroupState, model: JobModel | None, number: int) -> PlanOrder | None:
        """What to plan for; None where there is no processor that could."""
        forgets, waited_for = self._forgets, self._settling.waited_for
        wanted = wanted_plan(replace(state, origin=self._origin), model, self._settling, number, forgets=forgets)
        if wanted is None:
            return None
        if wanted.of_other_code and are_to_return(self._origin, self.run.id, state.marked, waited_for):
            LOG.info("no job model is made for other code yet: processors %s may return", ", ".join(sorted(waited_for)))
            return None
        locality = LocalityInfo() if forgets else self._group.locality.read_processor_locality()
        now_us, origin = self._pace.clock_us(), self._own_origin
        return PlanOrder(self._epoch, now_us, wanted, self._has_planned, origin, self._due, locality)

    # --- proposals --------------------------------------------------------------------------------------------------

    def _end_barrier(self, state: GroupState, now_s: float) -> None:
        awaited, order = self._awaited, self._order
        assert awaited is not None and order is not None
        present = [one.sequence for one in state.members]
        outcome, late = barrier_outcome(awaited, state.barrier, present, now_s, self._settings.release_wait_s)
        if outcome is BarrierOutcome.WAITING:
            return
        if outcome is BarrierOutcome.TIMED_OUT:
            LOG.info("job model %d is abandoned: the group has changed meanwhile", awaited.version)
            self._abandon(awaited.version, now_s)
            return
        if late:
            LOG.warning("registrations %s have not released their tasks in time: they are fenced", sorted(late))
        reached("group", 5)
        began_s, self._made = time.monotonic(), None
        try:
            with self._taking_back():
                plan, changed = self._plans.commit(replace(order, requests=self._due), self._changed)
        except UnavailableError:
            self._plan = None  # it may be committed: which one is in force is read
            self._abandon(awaited.version, now_s)
            raise
        reached("group", 6)
        self._awaited, self._due, self._plan = None, (), None
        self._pauses.end()  # whatever comes of the rest: the tasks that it is for may be there no more
        self._planned(plan)
        seconds = time.monotonic() - began_s
        who = ", ".join(sorted(changed)) or "none"
        self._say(f"job model {plan.model.version} is in force after {seconds:.2f} s; processors that it changes: {who}")
        self._leading.publish(awaited.version)
        self._leading.delete_old()

    def _abandon(self, version: int, now_s: float) -> None:
        """The own proposal came to nothing. Where the tree does not answer it is one that is left over."""
        self._awaited, self._settling = None, self._settling.again(now_s)
        self._pauses.end()
        self._leading.abandon(version)

    def _end_left_over(self, state: GroupState, model: JobModel | None, now_s: float) -> None:
        """A leader before has proposed something: either it has committed that plan, or it came to nothing."""
        proposed = state.versions.proposed
        if model is not None and model.version == proposed:
            LOG.info("job model %d was committed by the leader before: it is published", proposed)
            self._leading.publish(proposed)
            return
        LOG.info("job model %d, of the leader before, is abandoned", proposed)
        self._settling = self._settling.again(now_s)
        self._leading.abandon(proposed)

    def _planned(self, plan: JobPlan) -> None:
        """This plan is in force. Where it cannot be begun it is loaded at the next look."""
        self._has_planned, self._plan, self._merging = True, None, None
        self._pauses.planned(time.monotonic())
        self._maintenance.planned(plan, self._pace.clock_us, self._pauses.pause_of)
        self._requests.begin(plan, time.monotonic())
        self._plan = plan

    def _load(self, now_s: float) -> None:
        """Begin with the plan in force. Where a stream that it needs is missing another is made, which creates it."""
        try:
            self._planned(self._plans.to_lead(self._epoch, self._made))
        except StreamNotFoundError as error:
            LOG.warning("job model in force: %s", error.message)
            self._settling = self._settling.again(now_s)
