"""The model of a group's grants (protocol.md 6 to 8, 12): leaders that take grants back and give them, and processors whose
attempts commit under them.

Task A is on lane 0 with processor 0, and goes to processor 2, on the same lane or on another one; or processor 2 is
processor 0 after a restart, and no job model is made; or it goes to processor 1, which gains it. Task B stays on lane 1 with
processor 1, which works on through it all.
How the labels of steps map to the numbered steps of protocol.md, "Steps":

| protocol | step of the model |
|---|---|
| start 2 to 4 | a leader inits the coordinator's id, reads the grants in force, writes its epoch with them: one step |
| rebalance: take back | it writes the grants without the one of task A's processor |
| rebalance: read back | it has read that list back: nothing of it is in doubt any more |
| start 5 | it fences the lane that task A is on, and the one that it is to be on |
| start 6 | it reads the checkpoints |
| rebalance: no answer | it inits the coordinator's id again, reads the grants, and looks whether that has committed: one step |
| start 9 | the plan's transaction: task A's checkpoint under a new stamp, the new grant |
| start 12, kafka 1 to 9 | a processor plans a round; its attempt inits the lane, looks at the grants, at positions, commits |
| recover | a processor gives a round up: it fences its own lane, looks at the grants, reads: one step |
| rebalance 9 | one that gains a task begins under its new grant, whatever its attempts do: the same, for all its tasks |

**No barrier and no lease**: a leader never waits for anybody, the worst case; and a processor that has lost its grant learns
of it by looking only. **Pauses and crashes need no steps**: a process that is never scheduled again is a crashed one. **Steps
that are one here**: from the init of the coordinator's id on no other leader writes, so what a leader reads right after it
stays true until its own next write. A fenced attempt is dropped at once: all it sends is refused. `kafka_model` has those
steps, and what a container does in its transaction, one by one; positions that are lost and seeded are there, too.

**What must hold.** Outputs are those of the records below the committed positions, per task. Each grant in force is one of the
plan, or the former one of a processor that gains. The grant by which a processor works that keeps its containers, or gains, is
in force all the time. Where no leader is at work any more the owner of task
A has the grant of the plan. No two processors have rounds of one id.

**Redundant at this size.** `read_back`: readers wait for markers (`stable_reads`); without both a counterexample is there.
`new_grant_with_plan` and `start_after_plan` cover for each other: an owner that begins early finds its grant not in force, and
a grant that is in force early has nobody who uses it. `stamp`: who works under an older plan has no grant; where one that was
taken back is in force again (`list_after_take` out) the stamp refuses what was planned before the plan. `fence_to_begin`: what
an attempt under the former grant commits late is another base for the new one (`base_check`).

**What was searched** (`test_group.py`; states, depth). One leader, task A on the same lane or another: 1,800, 17; two leaders:
27,000, 22; a restart: 25,000, 21; late markers: 4,400, 19. `make soak`: two leaders, three attempts, late markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

Steps = Iterator[tuple[str, "GroupState"]]
RoundKey = tuple[int, int]  # (grant, number under the grant)

A, B = 0, 1  # the tasks
OLD_GRANT, B_GRANT = 10, 11
STAYS, MOVES_TO = 1, 2  # the processors


@dataclass(frozen=True, slots=True)
class GroupSafeguards:
    """What keeps a schedule harmless; False takes it out of the model."""

    take_back_first: bool = True  # 6, 7: a grant is taken back before its lanes are fenced; out: with the plan
    read_back: bool = True  # 7: and that is read back; out: the commit's answer is enough
    stable_reads: bool = True  # 10: an attempt waits for what is in doubt; out: it takes what was before
    fence: bool = True  # 7: the lanes of what changes are fenced; out: none
    fence_before_read: bool = True  # 7: and then the checkpoints are read; out: before the fence
    changed_only: bool = True  # 12: a plan writes the checkpoints of what it changes; out: of all tasks, as read
    stamp: bool = True  # 12: with the version since which the container is as it is; out: as they were
    grant_check: bool = True  # 8: an attempt looks whether its grant is in force; out: it does not
    base_check: bool = True  # 8: and whether positions are its base; out: it does not
    init_before_check: bool = True  # 8: it takes the lane, then looks; out: it looks, then takes it
    leader_fenced: bool = True  # 6: only who inited the coordinator's id last writes; out: any leader
    list_after_take: bool = True  # 6: a leader reads the grants after that init; out: before it
    list_with_epoch: bool = True  # 7: each write of the coordinator has the list; out: an epoch alone
    fresh_grant: bool = True  # 7: a new grant is a new number; out: the processor's number serves again
    new_grant_with_plan: bool = True  # 7: a new grant is in force with the plan; out: as soon as the old one is taken back
    start_after_plan: bool = True  # a new owner begins with the plan; out: as soon as the old grant is taken back
    former_kept: bool = True  # 7: the grant that one has which gains stays in force beside the new one; out: it goes
    fence_to_begin: bool = True  # 7: one that gains fences its lane before it begins with all; out: it does not
    written_once: bool = True  # 7: what has committed without an answer is not written again; out: it is
    list_read_again: bool = True  # 7: after no answer the grants are those that are stored; out: those in memory

    def without(self, *names: str) -> GroupSafeguards:
        return replace(self, **dict.fromkeys(names, False))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


@dataclass(frozen=True, slots=True)
class GroupBounds:
    """How large the world is and what may go wrong in it. `lane_to`: of task A under the new plan. `restarts`: its processor is
    restarted, nothing moves, and no plan is stored but the grant; `gains`: processor 1 gets task A, onto its lane. `attempts`:
    all together; `delays`: transactions of the coordinator that are answered before they can be read; `unanswered`: those that
    are not answered at all, whether they commit or not."""

    records: int = 1
    attempts: int = 2
    leaders: int = 1
    lane_to: int = 0
    restarts: bool = False
    gains: bool = False
    delays: int = 0
    unanswered: int = 0


class Checkpoint(NamedTuple):
    """A task's checkpoint: position, the round that made it, the version since which its container is as it is."""

    position: int
    round_key: RoundKey
    stamp: int


class Attempt(NamedTuple):
    """An attempt of a container. `at` is its next step; `owns`: its init of the lane was the last."""

    processor: int
    tasks: tuple[int, ...]
    lane: int
    bases: tuple[Checkpoint, ...]
    key: RoundKey
    at: str
    owns: bool = False


class Leader(NamedTuple):
    """A leader. `at` is its next step, `unsure` that it has had no answer and may have been done; `grants` the list that it
    writes, `gives` the new grant, `read` what it has read."""

    at: str
    grants: frozenset[int] = frozenset()
    gives: int = 0
    read: tuple[Checkpoint, ...] = ()
    unsure: bool = False


class Processor(NamedTuple):
    """What a processor believes: its tasks, lane and grant, what the next round builds on, how many it has planned."""

    grant: int
    tasks: tuple[int, ...]
    lane: int
    bases: tuple[Checkpoint, ...]
    rounds: int = 0
    waits: bool = False


class Pending(NamedTuple):
    """A transaction of the coordinator whose markers are not written: what a reader that does not wait reads."""

    grants: frozenset[int]
    of_a: Checkpoint


class GroupState(NamedTuple):
    """The whole world at one moment. `of_a`: lane and grant of task A in the plan; `outputs`: per task how often
    each record was written."""

    coordinator: int  # the leader whose init of its id was the last, -1 none
    counter: int
    grants: frozenset[int]
    of_a: tuple[int, int]
    checkpoints: tuple[Checkpoint, Checkpoint]
    outputs: tuple[tuple[int, ...], ...]
    leaders: tuple[Leader, ...]
    processors: tuple[Processor | None, ...]
    attempts: tuple[Attempt, ...]  # sorted: their order means nothing
    attempts_left: int
    delays: int
    unanswered: int
    pending: Pending | None = None

    def with_leader(self, index: int, leader: Leader) -> GroupState:
        return self._replace(leaders=(*self.leaders[:index], leader, *self.leaders[index + 1 :]))

    def with_processor(self, index: int, processor: Processor | None) -> GroupState:
        return self._replace(processors=(*self.processors[:index], processor, *self.processors[index + 1 :]))

    def with_attempt(self, attempt: Attempt | None, instead_of: Attempt | None = None) -> GroupState:
        left = list(self.attempts)
        if instead_of is not None:
            left.remove(instead_of)
        return self._replace(attempts=tuple(sorted([*left, attempt] if attempt is not None else left)))

    def with_lane_taken(self, *lanes: int) -> GroupState:
        """After an init of these lanes: who owned one is fenced, and at its end."""
        return self._replace(attempts=tuple(one for one in self.attempts if not (one.owns and one.lane in lanes)))


OVER = Leader("over")


class GroupModel:
    """A group with `safeguards`, in a world of `bounds`; a `Model` for `explore`.

    `outputs_only`: look at nothing but what readers of the outputs see, past whatever else is broken by then.
    """

    def __init__(
        self, bounds: GroupBounds, safeguards: GroupSafeguards | None = None, *, outputs_only: bool = False
    ) -> None:
        self.bounds = bounds
        self.outputs_only = outputs_only
        self.safeguards = safeguards or GroupSafeguards()
        self._order = self._leader_order()

    def _leader_order(self) -> list[str]:
        safeguards = self.safeguards
        order = ["take", "take back", "read back", "fence", "read", "plan"]
        if not safeguards.list_after_take:
            order.insert(0, "list")
        if not safeguards.take_back_first:
            order.remove("take back")
        if not (safeguards.read_back and safeguards.take_back_first and self.bounds.delays):  # else nothing is in doubt there
            order.remove("read back")
        if not safeguards.fence_before_read:
            order.remove("fence")
            order.insert(order.index("plan"), "fence")
        if not safeguards.fence:
            order.remove("fence")
        return order

    def initial(self) -> list[GroupState]:
        bounds, start = self.bounds, Checkpoint(0, (0, 0), 1)
        return [
            GroupState(
                coordinator=-1,
                counter=B_GRANT,
                grants=frozenset({OLD_GRANT, B_GRANT}),
                of_a=(0, OLD_GRANT),
                checkpoints=(start, start),
                outputs=((0,) * bounds.records,) * 2,
                leaders=(Leader(self._order[0]),) * bounds.leaders,
                processors=(Processor(OLD_GRANT, (A,), 0, (start,)), Processor(B_GRANT, (B,), 1, (start,)), None),
                attempts=(),
                attempts_left=bounds.attempts,
                delays=bounds.delays,
                unanswered=bounds.unanswered,
            )
        ]

    def steps(self, state: GroupState) -> Steps:
        for index, leader in enumerate(state.leaders):
            yield from self._leader_steps(state, index, leader)
        for number, processor in enumerate(state.processors):
            if processor is not None:
                yield from self._processor_steps(state, number, processor)
        for number, attempt in enumerate(state.attempts):
            if attempt not in state.attempts[:number]:
                yield from self._attempt_steps(state, attempt)
        if state.pending is not None:
            yield "the coordinator's markers are written", state._replace(pending=None)

    def broken(self, state: GroupState) -> str | None:
        return self._wrong_outputs(state) or (None if self.outputs_only else self._wrong_grants(state))

    def _wrong_outputs(self, state: GroupState) -> str | None:
        for task, (checkpoint, written) in enumerate(zip(state.checkpoints, state.outputs, strict=True)):
            position = checkpoint.position
            if written != tuple(int(record < position) for record in range(self.bounds.records)):
                what = "twice" if max(written) > 1 else "lost" if sum(written) < position else "to be processed again"
                return f"task {'AB'[task]}: a record is {what}; position {position}, records were written {written} times"
        return None

    def _wrong_grants(self, state: GroupState) -> str | None:
        stays, given = state.processors[STAYS], state.of_a[1]
        if stays is None or stays.grant not in state.grants:
            return f"processor 1 keeps its containers, and its grant {B_GRANT} is not in force"
        strange = state.grants - {given, B_GRANT}
        if strange and self.safeguards.new_grant_with_plan:
            return f"grants {sorted(strange)} are in force, the plan has {given} and {B_GRANT}"
        if given not in state.grants and all(leader == OVER for leader in state.leaders):
            return f"grant {given} of the plan is not in force, and no leader is at work"
        owners = {(one.key, one.processor) for one in state.attempts}
        if len({key for key, _ in owners}) < len(owners):
            return f"rounds of two processors have one id: {sorted(owners)}"
        return None

    def finished(self, state: GroupState) -> bool:
        is_done = all(checkpoint.position == self.bounds.records for checkpoint in state.checkpoints)
        stays = state.processors[STAYS]
        has_begun = stays is not None and A in stays.tasks if self.bounds.gains else state.processors[MOVES_TO] is not None
        return is_done and has_begun

    # --- leaders ----------------------------------------------------------------------------------------------------

    def _leader_steps(self, state: GroupState, index: int, leader: Leader) -> Steps:
        who = f"leader {index + 1}"
        if leader == OVER:
            return
        place = self._order.index(leader.at)
        then = leader._replace(at=self._order[place + 1]) if leader.at != "plan" else OVER
        if leader.unsure:
            yield self._settled(state, index, then, who)
            return
        if self.bounds.unanswered and state.coordinator == index and leader.grants != state.grants:
            yield f"{who} beats, with grants {sorted(leader.grants)}", state._replace(grants=leader.grants)
        match leader.at:
            case "list":
                yield f"{who} reads the grants BEFORE it is the coordinator", state.with_leader(
                    index, then._replace(grants=state.grants)
                )
            case "take" if state.pending is None:  # the init waits for markers
                yield self._taken(state, index, then, who)
            case "take back" | "plan" if state.pending is None:
                if self.bounds.gains and state.of_a[0] == STAYS:
                    yield f"{who} finds the plan as it is to be", state.with_leader(index, OVER)
                    return
                if self.safeguards.leader_fenced and state.coordinator != index:
                    yield f"{who} is fenced and ends", state.with_leader(index, OVER)
                    return
                label, after = (self._taken_back if leader.at == "take back" else self._planned)(state, index, then, who)
                yield label, after
                if state.delays:
                    before = Pending(state.grants, state.checkpoints[A])
                    yield f"{label}, to be read later", after._replace(pending=before, delays=state.delays - 1)
                if state.unanswered:
                    unsure = leader._replace(unsure=True)
                    for outcome, then_is in (("committed", after), ("aborted", state)):
                        found = then_is._replace(unanswered=state.unanswered - 1).with_leader(index, unsure)
                        yield f"{label}, without an answer, {outcome}", found
            case "read back" if state.pending is None:
                yield f"{who} reads the grants back", state.with_leader(index, then)
            case "fence":
                lanes = [state.of_a[0]] if self.bounds.gains else sorted({state.of_a[0], self.bounds.lane_to})
                yield f"[start 5] {who} fences lanes {lanes}", state.with_lane_taken(*lanes).with_leader(index, then)
            case "read":
                positions = [one.position for one in state.checkpoints]
                yield f"[start 6] {who} reads positions {positions}", state.with_leader(
                    index, then._replace(read=state.checkpoints)
                )

    def _taken(self, state: GroupState, index: int, then: Leader, who: str) -> tuple[str, GroupState]:
        epoch = state.counter + 1
        grants = state.grants if self.safeguards.list_after_take else then.grants
        leader = then._replace(grants=grants, gives=epoch if self.safeguards.fresh_grant else OLD_GRANT)
        written = grants if self.safeguards.list_with_epoch else frozenset()
        after = state._replace(coordinator=index, counter=epoch, grants=written).with_leader(index, leader)
        return f"[start 2-4] {who} inits the coordinator's id, writes epoch {epoch} with grants {sorted(written)}", after

    def _settled(self, state: GroupState, index: int, then: Leader, who: str) -> tuple[str, GroupState]:
        """Behind a step without an answer: its init of the coordinator's id again has decided the outcome."""
        leader, safeguards = state.leaders[index]._replace(unsure=False), self.safeguards
        if safeguards.leader_fenced and state.coordinator != index:
            return f"{who} is fenced and ends", state.with_leader(index, OVER)
        grants = state.grants if safeguards.list_read_again else leader.grants
        is_done = state.of_a[1] == leader.gives if leader.at == "plan" else state.of_a[1] not in state.grants
        if is_done and safeguards.written_once:
            after = then if then == OVER else then._replace(grants=grants, unsure=False)
            return f"{who} finds that it has committed", state.with_leader(index, after)
        return f"{who} tries it again", state.with_leader(index, leader._replace(grants=grants))

    def _taken_back(self, state: GroupState, index: int, then: Leader, who: str) -> tuple[str, GroupState]:
        grants = then.grants - {state.of_a[1]}
        early = frozenset() if self.safeguards.new_grant_with_plan else {then.gives}
        after = state._replace(grants=grants | early).with_leader(index, then._replace(grants=grants))
        if not self.safeguards.start_after_plan:
            begun = Processor(then.gives, (A,), self.bounds.lane_to, (state.checkpoints[A],))
            after = after.with_processor(MOVES_TO, begun)
        return f"{who} takes grant {state.of_a[1]} back", after

    def _planned(self, state: GroupState, index: int, then: Leader, who: str) -> tuple[str, GroupState]:
        leader, restarts, gains = state.leaders[index], self.bounds.restarts, self.bounds.gains
        lane, gone = STAYS if gains else self.bounds.lane_to, {state.of_a[1]}
        if gains and not self.safeguards.former_kept:
            gone.add(B_GRANT)
        of_a = state.checkpoints[A] if restarts else leader.read[A]
        if self.safeguards.stamp and not (restarts or gains):  # it has that of the container that it comes to
            of_a = of_a._replace(stamp=of_a.stamp + 1)
        of_b = state.checkpoints[B] if self.safeguards.changed_only else leader.read[B]
        after = state._replace(
            grants=leader.grants - gone | {leader.gives}, of_a=(lane, leader.gives), checkpoints=(of_a, of_b)
        ).with_leader(index, then)
        if not gains and (self.safeguards.start_after_plan or state.processors[MOVES_TO] is None):
            after = after.with_processor(MOVES_TO, Processor(leader.gives, (A,), lane, (of_a,)))
        what = "restores the plan" if restarts else "plans"
        return f"[start 9] {who} {what}: task A on lane {lane} at {of_a.position}, grant {leader.gives}", after

    # --- processors -------------------------------------------------------------------------------------------------

    def _processor_steps(self, state: GroupState, number: int, processor: Processor) -> Steps:
        who, bases = f"processor {number}", processor.bases
        if self.bounds.gains and number == STAYS and state.of_a[0] == STAYS and A not in processor.tasks:
            yield self._begun(state, who)
        if processor.waits:
            yield self._recovered(state, number, processor, who)
        elif any(base.position < self.bounds.records for base in bases) and state.attempts_left:
            key = processor.grant, processor.rounds + 1
            first = "init" if self.safeguards.init_before_check else "grants"
            attempt = Attempt(number, processor.tasks, processor.lane, bases, key, first)
            waiting = processor._replace(rounds=processor.rounds + 1, waits=True)
            after = state.with_processor(number, waiting).with_attempt(attempt)
            tasks = "".join("AB"[task] for task in processor.tasks)
            text = f"[start 12] {who} plans round {_text(key)} of task {tasks} from {_positions(bases)}"
            yield text, after._replace(attempts_left=state.attempts_left - 1)

    def _begun(self, state: GroupState, who: str) -> tuple[str, GroupState]:
        grant, tasks = state.of_a[1], (A, B)
        fenced = state.with_lane_taken(STAYS) if self.safeguards.fence_to_begin else state
        begun = Processor(grant, tasks, STAYS, tuple(state.checkpoints[task] for task in tasks))
        return f"[group 9] {who} begins with both tasks, under grant {grant}", fenced.with_processor(STAYS, begun)

    def _recovered(self, state: GroupState, number: int, processor: Processor, who: str) -> tuple[str, GroupState]:
        fenced = state.with_lane_taken(processor.lane)
        if self.safeguards.grant_check and processor.grant not in state.grants:
            return f"{who} gives its round up, fences its lane, finds its grant gone", fenced.with_processor(number, None)
        found = tuple(state.checkpoints[task] for task in processor.tasks)
        text = f"{who} gives its round up, fences its lane, reads position {_positions(found)}"
        return text, fenced.with_processor(number, processor._replace(bases=found, waits=False))

    # --- attempts ---------------------------------------------------------------------------------------------------

    def _attempt_steps(self, state: GroupState, attempt: Attempt) -> Steps:
        safeguards, grant = self.safeguards, attempt.key[0]
        who = f"an attempt of round {_text(attempt.key)} of processor {attempt.processor}, onto {_positions(attempt.bases)}"
        looks = ["grants", "positions"]
        order = ["init", *looks, "commit"] if safeguards.init_before_check else [*looks, "init", "commit"]
        then = attempt._replace(at=order[order.index(attempt.at) + 1]) if attempt.at != "commit" else attempt
        pending = state.pending
        if pending is not None and safeguards.stable_reads and attempt.at in ("grants", "positions"):
            return  # it waits
        match attempt.at:
            case "init":
                after = state.with_lane_taken(attempt.lane).with_attempt(then._replace(owns=True), instead_of=attempt)
                yield f"[kafka 1] {who} inits lane {attempt.lane}", after
            case "grants":
                in_force = state.grants if pending is None else pending.grants
                if safeguards.grant_check and grant not in in_force:
                    yield f"[kafka 2] {who} finds its grant gone and stops", state.with_attempt(None, instead_of=attempt)
                else:
                    yield f"[kafka 2] {who} finds its grant in force", state.with_attempt(then, instead_of=attempt)
            case "positions":
                of_a = state.checkpoints[A] if pending is None else pending.of_a
                found = tuple(of_a if task == A else state.checkpoints[B] for task in attempt.tasks)
                if safeguards.base_check and found != attempt.bases:
                    yield f"[kafka 2] {who} finds another base and stops", state.with_attempt(None, instead_of=attempt)
                else:
                    yield f"[kafka 2] {who} finds its base", state.with_attempt(then, instead_of=attempt)
            case "commit":
                yield f"[kafka 8, 9] {who} commits", self._committed(state, attempt)

    def _committed(self, state: GroupState, attempt: Attempt) -> GroupState:
        """One record of each of its tasks that has one left."""
        checkpoints, outputs, most = list(state.checkpoints), list(state.outputs), self.bounds.records
        for task, base in zip(attempt.tasks, attempt.bases, strict=True):
            checkpoints[task] = Checkpoint(min(most, base.position + 1), attempt.key, base.stamp)
            outputs[task] = tuple(count + (record == base.position) for record, count in enumerate(outputs[task]))
        after = state.with_attempt(None, instead_of=attempt)._replace(
            checkpoints=(checkpoints[A], checkpoints[B]), outputs=tuple(outputs)
        )
        processor = state.processors[attempt.processor]
        if processor is None or not processor.waits or (processor.grant, processor.rounds) != attempt.key:
            return after
        made = tuple(checkpoints[task] for task in attempt.tasks)
        return after.with_processor(attempt.processor, processor._replace(bases=made, waits=False))


def _positions(bases: tuple[Checkpoint, ...]) -> str:
    return " and ".join(str(base.position) for base in bases)


def _text(key: RoundKey) -> str:
    return f"{key[0]}:{key[1]}"
