"""Processors of a group as tiny state machines, on ZooKeeper in memory with a virtual clock: each does in order what
`driver.group` does, with the same decisions of `core.group`. What must hold is checked after each step of anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from group.stored import Kafka
from headrace.core.affinity.groupers import LocalityInfo
from headrace.core.affinity.locations import LocationId
from headrace.core.group.drafts import GroupStep, WantedPlan, wanted_plan
from headrace.core.group.grants import Grant, holders_of, numbers_in_force
from headrace.core.group.leader_steps import LeaderStep, LeaderView, leader_step
from headrace.core.group.membership import duplicate_of, leader_of, must_step_back
from headrace.core.group.processor_steps import ProcessorView, Work, processor_step
from headrace.core.group.proposals import AwaitedRelease, BarrierOutcome, awaited_release, barrier_outcome, next_version
from headrace.core.group.returns import are_to_return, left_behind, to_await
from headrace.core.group.runs import forgets_affinity, run_as_leader, run_as_member
from headrace.core.group.settling import Settling
from headrace.core.group.state import BarrierState, GroupMember, GroupState, ModelOrigin, Registration, incarnation_of
from headrace.errors import FencedError, UnavailableError
from headrace.group.layout import GroupName
from headrace.group.leading import Leading
from headrace.group.processor_group import ProcessorGroup
from headrace.model.tasks import TaskName
from support.memory_zookeeper import MemoryTree, MemoryZooKeeper

TIMEOUT_S, STEP_S, RETURN_S = 9.0, 0.5, 30.0


class World:
    """The server, the plan, the processors, and what must hold whenever anybody has done anything."""

    def __init__(self, tasks: int = 8, bounded: bool = False) -> None:
        self.server = MemoryZooKeeper()
        self.kafka, self.bounded = Kafka(tasks), bounded
        self.processors: list[Processor] = []
        self.code = ""  # of the leader that has made the plan in force
        self.lives = 0  # how often ZooKeeper has come back empty
        self.proposed: list[int] = []
        self.used: set[tuple[int, int]] = set()
        self.log: list[str] = []

    @property
    def now_s(self) -> float:
        return self.server.clock.now_s

    def add(self, id_: str, code: str = "code") -> Processor:
        made = Processor(self, id_, code)
        self.processors.append(made)
        self.say(f"{id_} starts")
        return made

    def running(self) -> list[Processor]:
        return [one for one in self.processors if one.is_alive]

    def pass_s(self, seconds: float, every: Callable[[], None] = lambda: None) -> None:
        """Time goes, and each one acts in turn."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.processors = [one for one in self.processors if one.is_alive or one.late is not None]
            for one in list(self.processors):
                one.step()
                self.check()
                self.server.clock.pass_s(STEP_S / max(1, len(self.processors)))
                self.check()
            if not self.processors:
                self.server.clock.pass_s(STEP_S)
            every()

    def check(self) -> None:
        """No two work on one task, and who may commit works on tasks that are its own."""
        owners: dict[str, str] = {}
        for one in self.running():
            assert one.may_work_on() >= one.works_on(), f"{one.name} works on {one.works_on()}\n" + self.story()
            for task in one.works_on():
                assert task not in owners, f"{owners[task]} and {one.name} work on task {task}\n" + self.story()
                owners[task] = one.name

    def check_converged(self) -> None:
        """All are there, all tasks are worked on as the committed plan has it, in equal shares: of each sub-topology, and of
        both together. Those with other code have none."""
        living, model = [one for one in self.running() if one.code == self.code], self.kafka.model
        assert model is not None and living, self.story()
        working = {one.name: one.works_on() for one in living}
        worked = sorted(task for tasks in working.values() for task in tasks)
        every = sorted(str(task.name) for task in model.tasks)
        assert worked == every, f"tasks are not worked on: {working}\n" + self.story()
        shares = [len(tasks) for tasks in working.values()]
        assert max(shares) - min(shares) <= 1, f"shares are not equal: {working}\n" + self.story()
        for sub in model.sub_topologies:
            mine = Counter(str(one.processor_id) for one in sub.containers for _ in one.tasks)
            counts = [mine[one.id] for one in living]
            assert max(counts) - min(counts) <= 1, f"shares of {sub.title} are not equal: {mine}\n" + self.story()
        everybody = self.running()
        assert {one.id: one.works_on() for one in everybody if one.works_on()} == self.kafka.plan
        state = living[0].group.state()
        assert state.versions.active == self.kafka.version and len(state.members) == len(everybody)
        assert len({one.run for one in everybody}) == 1 and None not in {one.run for one in everybody}

    def empty(self) -> None:
        """ZooKeeper comes back empty."""
        self.say("ZooKeeper comes back empty")
        self.lives += 1
        self.server.forget_all()
        self.server.restart()

    def say(self, text: str) -> None:
        self.log.append(f"{self.now_s - 1000:7.2f} {text}")

    def story(self) -> str:
        return "\n".join(self.log[-60:])


class Processor:
    """A process: leader and member in one, as any is."""

    def __init__(self, world: World, id_: str, code: str) -> None:
        self.world, self.id, self.code = world, id_, code
        self.tree: MemoryTree = (
            world.server.tree(TIMEOUT_S) if not world.server.is_down else MemoryTree(world.server, TIMEOUT_S)
        )
        world.server.trees.append(self.tree)
        self.group = ProcessorGroup(self.tree, "/headrace", GroupName("delays"), world.server.clock)
        self.is_alive, self.is_paused = True, False
        self.is_slow = self.is_stuck = False  # its rounds do not end when they are to: it keeps its lease, and does no more
        self.run: str | None = None
        self.name = f"{id_}/{len(world.log)}"
        self.registration = Registration(id_, f"at-{id_}", 1, code, f"at-{id_}", len(world.log), "1@1", "boot")
        self.registered_s = self.followed_s = 0.0
        self._grant: Grant | None = None
        self._working = frozenset[str]()
        self.unanswered_in: int | None = None  # so many of its writes as a leader later one is not answered, once
        self._lead_no_more()

    def _lead_no_more(self) -> None:
        self.led_by: int | None = None
        self.first_look = self.has_planned = self.has_loaded = False
        self.owes_fence = True
        self.settling = Settling(RETURN_S)
        self.awaited: AwaitedRelease | None = None
        self.wanted: WantedPlan | None = None
        self.changed = frozenset[str]()
        self.late: Callable[[], object] | None = None
        """What it has decided to do next, and does before it looks again: by then it may be outdated."""

    # --- what happens to it -------------------------------------------------------------------------------------------

    def die(self) -> None:
        self.world.say(f"{self.name} dies")
        self._open()
        self.is_alive, self.tree.is_cut, self.late = False, True, None

    def pause(self) -> None:
        """It is stopped, or wakes."""
        self.is_paused = not self.is_paused
        if self.is_paused:
            self._open()
        elif self._grant is not None:
            self.world.kafka.open.discard(self._grant.number)

    def _open(self) -> None:
        """In the midst of a transaction."""
        if self._grant is not None and self._grant.number in numbers_in_force(self.world.kafka.grants):
            self.world.kafka.open.add(self._grant.number)

    def stop(self) -> None:
        self.world.say(f"{self.name} stops in order")
        self._end_rounds()
        try:
            self.group.leave()
            self.group.close()
        except UnavailableError:
            self.tree.is_cut = True
        self.is_alive, self.late = False, None

    def works_on(self) -> frozenset[str]:
        """What it works on at this moment: the lease is looked at all the time, the rest at each step."""
        is_at_work = self.is_alive and not self.is_paused and self.group.lease.holds(self.world.now_s)
        return self._working if is_at_work else frozenset()

    def may_work_on(self) -> frozenset[str]:
        """What it could commit at this moment without harm; of one without a grant nothing is committed."""
        kafka, grant = self.world.kafka, self._grant
        in_force = grant is not None and grant.number in numbers_in_force(kafka.grants)
        return kafka.plan.get(self.id, frozenset()) if in_force else self._working

    # --- what it does, as `GroupJob` ------------------------------------------------------------------------------------

    def step(self) -> None:
        if not self.is_alive or self.is_paused:
            return
        try:
            if self.is_stuck:
                self.group.confirm()
                return
            if self.late is not None:
                late, self.late = self.late, None
                with self._some_unanswered():
                    late()
                return
            if not self.group.confirm():
                self._lead_no_more()
                self._end_rounds()
                self._register()
            self._look(self.group.state())
        except UnavailableError:
            if not self.group.lease.holds(self.world.now_s):
                self._end_rounds()
        except FencedError as error:
            self.world.say(f"{self.name} is fenced: {error.message[-60:]}")
            self._lead_no_more()

    def _register(self) -> None:
        sequence = self.group.register(self.registration)
        self.registered_s, self.followed_s = self.world.now_s, 0.0
        self.world.say(f"{self.name} is registered as {sequence}")

    def _look(self, state: GroupState) -> None:
        sequence = self.group.sequence
        assert sequence is not None
        mine = GroupMember(sequence, self.registration)
        if duplicate_of(state.members, mine) is not None:
            return
        leader = leader_of(state.members)
        is_leader = leader is not None and leader.sequence == sequence
        stored = self.world.kafka.origin
        if is_leader and must_step_back(state.members, sequence, None if stored is None else stored.code):
            self.world.say(f"{self.name} steps back")
            self._lead_no_more()
            self._register()
            return
        if leader is not None and (joined := run_as_member(state.run, leader.sequence, self.world.bounded)) is not None:
            self.run = joined.id
        if is_leader:
            with self._some_unanswered():
                self._lead(state, sequence)
        else:
            self.followed_s = self.world.now_s - self.registered_s
            self._lead_no_more()
        self._follow(state, incarnation_of(mine), is_leader)

    # --- as `ProcessorRounds` -------------------------------------------------------------------------------------------

    def _follow(self, state: GroupState, incarnation: str, is_leader: bool) -> None:
        view = ProcessorView(self.id, incarnation, self.group.lease.holds(self.world.now_s), is_leader)
        step = processor_step(state, view, self.world.kafka.grants)
        if step.releases:
            self._end_rounds()
            self.is_stuck = self.is_slow
            if self.is_stuck:
                self.world.say(f"{self.name} does not come to an end of its rounds")
                return
        if step.joins is not None:
            self.group.join_barrier(step.joins)
        if step.work is not Work.ROUNDS:
            self._end_rounds()
        elif self._grant != step.grant:
            assert self.code == self.world.code, f"{self.name} works by a plan of other code\n" + self.world.story()
            self._grant, self._working = step.grant, self.world.kafka.plan.get(self.id, frozenset())
            place = LocationId(self.registration.location_id)
            self.group.locality.write_processor_locality(LocalityInfo({TaskName.parse(one): place for one in self._working}))
        if self._grant is not None:
            self.world.kafka.commit_round(self._grant, self._working)

    def _end_rounds(self) -> None:
        self._grant, self._working = None, frozenset()

    @contextmanager
    def _some_unanswered(self) -> Iterator[None]:
        """Only what it writes as a leader."""
        self.tree.unanswered_in = self.unanswered_in
        try:
            yield
        finally:
            self.unanswered_in, self.tree.unanswered_in = self.tree.unanswered_in, None

    # --- as `GroupCoordinator` ------------------------------------------------------------------------------------------

    def _lead(self, state: GroupState, sequence: int) -> None:
        kafka = self.world.kafka
        self.leading: Leading = self.group.leading(sequence)
        self.holder = (self.name, sequence)
        if self.led_by != sequence:
            self._lead_no_more()
            new_id = f"run {self.world.now_s} of {self.name}"
            self.group_run = run_as_leader(state.run, self.run, self.world.bounded, new_id, sequence)
            kafka.take(self.holder)
            self.led_by, self.first_look, self.run = sequence, True, self.group_run.id
            self.origin = ModelOrigin(self.code, self.group_run.id)
            self.has_planned = kafka.origin == self.origin
            self.world.say(f"{self.name} leads")
            self.leading.write_run(self.group_run)
        self._look_as_leader(state)

    def _look_as_leader(self, state: GroupState) -> None:
        kafka, now_s = self.world.kafka, self.world.now_s
        holders = frozenset() if kafka.model is None else holders_of(kafka.model)
        if self.first_look:
            forgets = forgets_affinity(self.group_run, kafka.origin, self.has_planned)
            followed_s, grants = self.followed_s, kafka.grants
            awaited = to_await(state, holders, grants, followed_s=followed_s, timeout_s=TIMEOUT_S, forgets=forgets)
            marked = awaited - state.awaited
            self.leading.await_return(marked)
            self.leading.forget_awaited(state.awaited - awaited)
            self.first_look, state = False, replace(state, awaited=awaited, marked=state.marked | marked)
        if left := left_behind(kafka.grants, state.members):
            with self._taking_back():
                kafka.take_back(self.holder, left)
        elif self.owes_fence:
            with self._taking_back():
                kafka.fence_others(self.holder)
        if self.has_planned and not self.has_loaded:
            kafka.read()
            self.has_loaded = True
        self.settling = self.settling.with_look(state.members, state.awaited, holders, now_s)
        self.leading.forget_awaited(self.settling.given_up)
        view = LeaderView(
            kafka.version or None,
            is_proposing=self.awaited is not None,
            has_planned=self.has_planned,
            is_settled=self.settling.is_due(now_s),
            has_requests=False,
            wants_pause=False,
        )
        match leader_step(state, view):
            case LeaderStep.END_BARRIER:
                self._end_barrier(state)
            case LeaderStep.END_LEFT_OVER:
                self._end_left_over(state)
            case LeaderStep.PUBLISH:
                self._publish_again(state)
            case LeaderStep.DECIDE:
                self._decide(state)

    @contextmanager
    def _taking_back(self) -> Iterator[None]:
        self.owes_fence = True
        yield
        self.owes_fence = False

    def _decide(self, state: GroupState) -> None:
        kafka, version = self.world.kafka, next_version(state, self.world.kafka.version)
        forgets, run_id = forgets_affinity(self.group_run, kafka.origin, self.has_planned), self.group_run.id
        wanted = wanted_plan(replace(state, origin=kafka.origin), kafka.model, self.settling, version, forgets=forgets)
        waits = are_to_return(kafka.origin, run_id, state.marked, self.settling.waited_for)
        if wanted is not None and wanted.of_other_code and waits:
            self.world.say(f"{self.name} waits for those with the code of the plan")
            wanted = None
        is_done = wanted is None or self._is_carried_out(wanted, version, state)
        self.settling = self.settling.decided()
        if not is_done:
            self.settling = self.settling.again(self.world.now_s)

    def _is_carried_out(self, wanted: WantedPlan, version: int, state: GroupState) -> bool:
        kafka, now_s = self.world.kafka, self.world.now_s
        made = kafka.draft(wanted, self.has_planned, self._locality(wanted))
        if made.step is not GroupStep.PROPOSE:
            if made.step is GroupStep.GRANT:
                with self._taking_back():
                    kafka.grant(self.holder, wanted, made.ungranted, self.origin)
            self.has_planned, self.has_loaded = True, False
            return True
        changed, gains = sorted(made.changed), sorted(made.gains)
        self.world.say(f"{self.name} proposes {version}, which changes {changed}, and gives to {gains}")
        with self._used(version):
            origin = ModelOrigin(self.code, self.group_run.id, tuple(sorted(made.changed)))
            if not self.leading.propose(version, b"{}", origin):
                return False
        self.world.proposed.append(version)
        members = {incarnation_of(one): one.sequence for one in state.members}
        present = {id_: members[incarnation] for id_, incarnation in wanted.present.items() if incarnation in members}
        self.awaited = awaited_release(version, made.changed, made.portions, present, now_s)
        self.wanted, self.changed = wanted, made.to_fence
        return True

    def _locality(self, wanted: WantedPlan) -> LocalityInfo:
        return LocalityInfo() if wanted.shape.forgets else self.group.locality.read_processor_locality()

    @contextmanager
    def _used(self, version: int) -> Iterator[None]:
        """Also where that is not answered; not where nothing of it was done."""
        use = (self.world.lives, version)
        assert use not in self.world.used, f"version {version} is used twice\n" + self.world.story()
        try:
            yield
        finally:
            if self.group.paths.job_model(version) in self.world.server.nodes:
                self.world.used.add(use)

    def _end_barrier(self, state: GroupState) -> None:
        awaited, wanted, changed, kafka = self.awaited, self.wanted, self.changed, self.world.kafka
        assert awaited is not None and wanted is not None
        present = [one.sequence for one in state.members]
        outcome, _ = barrier_outcome(awaited, state.barrier, present, self.world.now_s)
        if outcome is BarrierOutcome.WAITING:
            return
        if outcome is BarrierOutcome.TIMED_OUT:
            self._abandon(awaited.version)
            return
        is_replan, leading, holder, origin = self.has_planned, self.leading, self.holder, self.origin

        def commit() -> None:
            try:
                with self._taking_back():
                    kafka.commit(holder, wanted, is_replan, self._locality(wanted), changed, origin)
            except UnavailableError:
                self.has_loaded = False
                self._abandon(awaited.version)
                raise
            finally:
                self.world.code = self.code if kafka.version == awaited.version else self.world.code
            self.awaited, self.has_planned, self.has_loaded = None, True, True
            self.world.say(f"{self.name} commits {awaited.version}: {({id_: sorted(one) for id_, one in kafka.plan.items()})}")
            self.late = lambda: leading.publish(awaited.version)

        self.late = commit

    def _abandon(self, version: int) -> None:
        self.world.say(f"{self.name} abandons {version}")
        self.awaited, self.settling = None, self.settling.again(self.world.now_s)
        self.leading.abandon(version)

    def _end_left_over(self, state: GroupState) -> None:
        proposed = state.versions.proposed
        if self.world.kafka.version == proposed:
            self.leading.publish(proposed)
            return
        self.world.say(f"{self.name} abandons {proposed}, of a leader before")
        self.settling = self.settling.again(self.world.now_s)
        self.leading.abandon(proposed)

    def _publish_again(self, state: GroupState) -> None:
        kafka, barrier = self.world.kafka, state.barrier
        version = kafka.version
        is_waiting = barrier is not None and barrier.state is BarrierState.NEW
        if state.versions.proposed == version and is_waiting and self.leading.publish(version):
            return
        self.leading.restore(version, b"{}", kafka.origin or self.origin)
