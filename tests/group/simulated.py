"""Processors of a group as tiny state machines, on ZooKeeper in memory with a virtual clock: as little of a coordinator and a
member as the decisions of `core.group` need. What a step decides is checked here after each step of anybody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

from headrace.core.group.membership import candidates_of, leader_of, must_step_back
from headrace.core.group.proposals import (
    AwaitedRelease,
    BarrierOutcome,
    GroupStep,
    barrier_outcome,
    decision_of,
    is_left_over,
    may_work,
    next_version,
)
from headrace.core.group.runs import run_as_leader, run_as_member
from headrace.core.group.settling import Settling
from headrace.core.group.state import BarrierState, GroupState, ModelOrigin, Registration
from headrace.errors import FencedError, UnavailableError
from headrace.group.layout import GroupName
from headrace.group.processor_group import ProcessorGroup
from support.memory_zookeeper import MemoryTree, MemoryZooKeeper

TIMEOUT_S, STEP_S = 9.0, 0.5
Plan = Mapping[str, tuple[int, ...]]  # id to the tasks it has


@dataclass
class Kafka:
    """The commit point: one plan, and who took the application last."""

    holder: tuple[str, int] | None = None
    version: int = 0
    plan: Plan = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    history: list[tuple[int, Plan]] = field(default_factory=list)

    def commit(self, holder: tuple[str, int], version: int, plan: Plan) -> None:
        if holder != self.holder:
            raise FencedError("another leader has the application")
        assert version > self.version, "a version is used twice"
        self.version, self.plan = version, plan
        self.history.append((version, plan))


class World:
    """The server, the plan, the processors, and what must hold whenever anybody has done anything."""

    def __init__(self, tasks: int = 8) -> None:
        self.server = MemoryZooKeeper()
        self.kafka, self.tasks = Kafka(), tasks
        self.processors: list[Processor] = []
        self.lives = 0  # how often ZooKeeper has come back empty
        self.proposed: dict[int, Plan] = {}
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
            for one in list(self.processors):
                one.step()
                self.check()
                self.server.clock.pass_s(STEP_S / max(1, len(self.processors)))
                self.check()
            if not self.processors:
                self.server.clock.pass_s(STEP_S)
            every()

    def check(self) -> None:
        """No two work on one task."""
        owners: dict[int, str] = {}
        for one in self.running():
            for task in one.works_on():
                assert task not in owners, f"{owners[task]} and {one.name} work on task {task}\n" + self.story()
                owners[task] = one.name

    def check_converged(self) -> None:
        """All are there, all tasks are worked on as the committed plan has it, in equal shares."""
        living = [one for one in self.running() if not one.is_refused]
        working = {one.name: one.works_on() for one in living}
        worked = sorted(task for tasks in working.values() for task in tasks)
        assert worked == list(range(self.tasks)), f"{working}\n" + self.story()
        shares = [len(tasks) for tasks in working.values()]
        assert max(shares) - min(shares) <= 1, f"{working}\n" + self.story()
        assert {one.id: tuple(sorted(one.works_on())) for one in living if one.works_on()} == self.kafka.plan
        state = living[0].group.state()
        assert state.versions.active == self.kafka.version and len(state.members) == len(living)
        assert len({one.run for one in living}) == 1 and None not in {one.run for one in living}

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
        self.is_alive, self.is_paused, self.is_refused = True, False, False
        self.run: str | None = None
        self.name = f"{id_}/{len(world.processors)}"
        self._working: frozenset[int] = frozenset()
        self._plans: dict[int, Plan] = {}
        self.forget_leading()

    def forget_leading(self) -> None:
        self.led_by: int | None = None
        self.settling = Settling()
        self.awaited: AwaitedRelease | None = None
        self.committing = 0
        self.late: Callable[[], object] | None = None
        """What it has decided to do next, and does before it looks again: by then it may be outdated."""

    # --- what happens to it -------------------------------------------------------------------------------------------

    def die(self) -> None:
        self.world.say(f"{self.name} dies")
        self.is_alive, self.tree.is_cut = False, True

    def stop(self) -> None:
        self.world.say(f"{self.name} stops in order")
        self._working = frozenset()
        try:
            self.group.leave()
            self.group.close()
        except UnavailableError:
            self.tree.is_cut = True
        self.is_alive = False

    def works_on(self) -> frozenset[int]:
        """What it works on at this moment: the lease is looked at all the time, the rest at each step."""
        is_at_work = self.is_alive and not self.is_paused and self.group.lease.holds(self.world.now_s)
        return self._working if is_at_work else frozenset()

    # --- what it does -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        if not self.is_alive or self.is_paused:
            return
        try:
            if self.late is not None:
                late, self.late = self.late, None
                late()
                return
            if not self.group.confirm():
                self._working = frozenset()
                self.forget_leading()
                self._plans.clear()  # ZooKeeper may have come back empty
                self.group.register(Registration(self.id, "host", 1, self.code, "host", 1, "1@1", "boot"))
                self.world.say(f"{self.name} is registered as {self.group.sequence}")
            state = self.group.state()
            self.act_as_member(state)
            leader = leader_of(state.members)
            if leader is not None and leader.sequence == self.group.sequence:
                self.act_as_leader(state, leader.sequence)
            else:
                self.forget_leading()
        except UnavailableError:
            pass  # it works by what it knows, while its lease holds
        except FencedError as error:
            self.world.say(f"{self.name} is fenced: {error.message[-60:]}")
            self.forget_leading()

    def act_as_member(self, state: GroupState) -> None:
        leader = leader_of(state.members)
        if leader is not None and (joined := run_as_member(state.run, leader.sequence, bounded=False)) is not None:
            self.run = joined.id
        versions = state.versions
        active, proposed = self.plan_of(versions.active), self.plan_of(versions.proposed)
        holds = self.group.lease.holds(self.world.now_s)
        mine = active.get(self.id)
        works = may_work(versions, state.barrier, mine, proposed.get(self.id), holds)
        self._working = frozenset(mine or ()) if works else frozenset()
        if versions.proposed > versions.active and state.barrier is not None and state.barrier.state is BarrierState.NEW:
            self.group.join_barrier(versions.proposed)

    def plan_of(self, version: int) -> Plan:
        """Of the models on the tree, each read once; numbers are never used twice."""
        if version and version not in self._plans:
            self._plans[version] = {id_: tuple(tasks) for id_, tasks in json.loads(self.group.job_model(version)).items()}
        return self._plans.get(version, {})

    def act_as_leader(self, state: GroupState, sequence: int) -> None:
        if must_step_back(state.members, sequence, state.origin.code if state.origin else None):
            self.world.say(f"{self.name} steps back")
            self.group.register(Registration(self.id, "host", 1, self.code, "host", 1, "1@1", "boot"))
            return
        leading, kafka = self.group.leading(sequence), self.world.kafka
        if self.led_by != sequence:
            kafka.holder, self.led_by = (self.id, sequence), sequence
            self.world.say(f"{self.name} leads")
        run = run_as_leader(state.run, self.run, False, f"run of {self.name}", sequence)
        self.run = run.id
        leading.write_run(run)
        if kafka.version > state.versions.active:
            if not leading.publish(kafka.version):
                leading.restore(kafka.version, json.dumps(kafka.plan).encode(), ModelOrigin(self.code, run.id))
            self._plans.pop(kafka.version, None)
        elif is_left_over(state, self.awaited.version if self.awaited else None):
            self.world.say(f"{self.name} abandons {state.versions.proposed}, of a leader before")
            leading.abandon(state.versions.proposed)
        elif self.awaited is not None:
            self.end_barrier(state, sequence)
        else:
            self.decide(state, sequence)

    def end_barrier(self, state: GroupState, sequence: int) -> None:
        awaited, kafka, leading = self.awaited, self.world.kafka, self.group.leading(sequence)
        assert awaited is not None
        present = [one.sequence for one in state.members]
        outcome, _ = barrier_outcome(awaited, state.barrier, present, self.world.now_s)
        if outcome is BarrierOutcome.TIMED_OUT:
            self.world.say(f"{self.name} abandons {awaited.version}")
            leading.abandon(awaited.version)
            self.awaited, self.settling = None, self.settling.again(self.world.now_s)
        elif outcome is not BarrierOutcome.WAITING:
            plan, registrations = self.plan_of(awaited.version), self.settling.present

            def commit() -> None:
                kafka.commit((self.id, sequence), awaited.version, plan)
                kafka.granted = dict(registrations)
                self.world.say(f"{self.name} commits {awaited.version}")
                self.awaited = None
                self.late = lambda: leading.publish(awaited.version)

            self.late = commit

    def decide(self, state: GroupState, sequence: int) -> None:
        kafka, leading, now_s = self.world.kafka, self.group.leading(sequence), self.world.now_s
        self.settling = self.settling.with_look(state.members, state.stopped, kafka.plan, now_s)
        leading.forget_stopped(self.settling.given_up)
        if not self.settling.is_due(now_s):
            return
        code = state.origin.code if state.origin else None
        candidates = candidates_of(state.members, code, self.world.tasks, kafka.plan)
        there = {one.processor_id: one.sequence for one in candidates.chosen if one.processor_id is not None}
        away = self.settling.counted - self.settling.present.keys()
        wanted = shared_out(self.world.tasks, sorted({*there, *away}), kafka.plan)
        decision = decision_of(kafka.plan, wanted, self.settling.present, kafka.granted)
        self.settling = self.settling.decided()
        if decision.step is GroupStep.GRANT:
            kafka.granted |= {id_: self.settling.present[id_] for id_ in decision.processors}
        if decision.step is not GroupStep.PROPOSE:
            return
        version = next_version(state, kafka.version)
        self.world.say(f"{self.name} proposes {version}: {wanted}")
        use = (self.world.lives, version)
        assert use not in self.world.used, f"version {version} is used twice\n" + self.world.story()
        assert version not in self._plans, f"version {version} was seen before\n" + self.world.story()
        self.world.used.add(use)
        if not leading.propose(version, json.dumps(wanted).encode(), ModelOrigin(self.code, self.run or "")):
            self.settling = self.settling.again(now_s)
            return
        self.world.proposed[version] = wanted
        releasing = frozenset(there[id_] for id_ in decision.processors if id_ in there)
        self.awaited = AwaitedRelease(version, releasing, frozenset(there[id_] for id_ in wanted if id_ in there), now_s)


def shared_out(tasks: int, ids: list[str], before: Plan) -> Plan:
    """Equal shares, where each keeps what it had as far as these allow."""
    if not ids:
        return {}
    most = ceil(tasks / len(ids))
    shares = {id_: [task for task in before.get(id_, ()) if task < tasks][:most] for id_ in ids}
    larger = tasks - (most - 1) * len(ids)
    for id_ in sorted(ids, key=lambda id_: -len(shares[id_])):
        room = most if larger > 0 else most - 1
        larger -= len(shares[id_]) >= most and larger > 0
        shares[id_] = shares[id_][:room]
    free = iter([task for task in range(tasks) if not any(task in share for share in shares.values())])
    for task in free:
        shares[min(shares, key=lambda id_: (len(shares[id_]), id_))].append(task)
    return {id_: tuple(sorted(share)) for id_, share in shares.items() if share}
