"""The model of virtual tasks at work (protocol.md 3, 8, 9, 15, 23): siblings at positions of their own, and their watermark.

One SSP, two virtual tasks: bucket 0 and bucket 1. A record has a bucket and an event time. A round reads one range for both,
from the LOWEST of their positions; each skips what it has, is cut at a row of its own, and commits the position that it has
reached. They are in one container, or in one container each; where on Kafka each container commits alone, half a round may be
committed. How the labels of steps map to the numbered steps of protocol.md, "Steps":

| protocol | step of the model |
|---|---|
| start 2 to 10 | a driver takes an epoch, fences all lanes and reads the checkpoints, in one step; its generation begins |
| start 12, log 1 | a driver plans a round: range, watermark, base; on Kafka an attempt per lane starts |
| kafka 1 | an attempt inits its lane: who had it before is fenced |
| kafka 2 to 7 | it looks at epoch and positions, then processes up to a cut of each task: one step, its lane is its own |
| kafka 8 to 11 | it commits and answers, one step: an answer that is lost is a driver that gives up before |
| log 2 to 8 | part of the next: files and summaries of a round that is not committed have no effect |
| log 9 to 12 | the driver checks, then commits what all have reached, each task cut at any row: one transaction |
| recover | fence, and read again, under the same epoch: the generation, and its watermark, stay |

**Pauses and crashes need no steps**: a process that is never scheduled again is a crashed one. Any driver may start at any
time, also one that has an epoch (it was restarted). **Steps that are one here**: between the write of an epoch, the fence and
the read nothing new can happen to the data: an attempt that commits in between might as well have before, and one that inits
in between sees the epoch or is fenced. `kafka_model` has them one by one, and shows that their order matters. What an attempt
that was fenced still sends is refused; it is dropped at once.

**What must hold.** Each record is processed once, as the position of its own task says. The watermark W of a round is not
above what ALL have read (the highest time below the lowest position), is exactly that where the siblings are together, and
does not go back within a generation. No record is late that has no earlier record with a higher time: it is late with a
factor of 1 under no cuts whatever. Where `sets_back`, a start sets task 0 back to the beginning, as a startpoint for one
virtual task does: its report is dropped, and what it has processed is due again.

**Which cover for each other.** As in the other models the base check makes the epoch check redundant for the data, as long as
no plan changes the tasks: `elasticity_model` has plans that do. A lane's fence is needed although positions are compared: two
attempts that have both looked would both commit.

**What was searched** (`test_siblings.py`; states, depth): one transaction per round, two drivers, three epochs, records out of
order: 45,825, 16. On Kafka a container each, two drivers: 33,629, 28; two attempts per lane: 60,494, 31; with one virtual task
set back: 137,201, 44. Both siblings in one container, two attempts and a round that is given up: 12,729, 23.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import NamedTuple

Steps = Iterator[tuple[str, "SiblingState"]]
RoundKey = tuple[int, int]  # (epoch, number within the epoch)

TASKS = (0, 1)
NOT_YET, ON_TIME, LATE = 0, 1, 2  # what became of a record
UNKNOWN = 0  # a watermark, where nothing was read; times begin at 1


@dataclass(frozen=True, slots=True)
class SiblingSafeguards:
    """What keeps a schedule harmless; False takes it out of the model."""

    join_at_lowest: bool = True  # 23: of the reports at the lowest position; out: the highest of all reports
    own_generation: bool = True  # 23: "W before" is of this generation; out: a driver's own last one stays
    never_back: bool = True  # 23: within a generation W does not go back; out: what is joined now, and no more
    lowest_start: bool = True  # a range begins at the lowest position; out: at the highest
    skip_by_own_position: bool = True  # a task skips what it has; out: it processes the whole range
    cut_per_task: bool = True  # 3: each task commits what it has reached; out: one reached offset for all that commit together
    lane_fencing: bool = True  # 8: an init fences who had the lane; out: both may commit
    epoch_check: bool = True  # 8, 15: another epoch stops an attempt, and a driver's commit; out: only positions count
    base_check: bool = True  # 8, 15: the committed positions are those of the base; out: only the epoch counts

    def without(self, *names: str) -> SiblingSafeguards:
        return replace(self, **dict.fromkeys(names, False))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


@dataclass(frozen=True, slots=True)
class SiblingBounds:
    """How large the world is and what may go wrong in it. `records`: (bucket, event time) of each, by offset.

    `is_log`: one transaction of the driver commits a round; else each container's own does. `apart`: a container per sibling.
    """

    records: tuple[tuple[int, int], ...] = ((0, 1), (1, 2), (0, 3), (1, 4))
    records_per_round_max: int = 4
    is_log: bool = False
    apart: bool = True
    drivers: int = 1
    epochs: int = 1
    attempts_per_lane: int = 1  # of one round
    rounds_given_up: int = 0  # all together
    sets_back: bool = False

    @property
    def lanes(self) -> tuple[tuple[int, ...], ...]:
        return ((0,), (1,)) if self.apart else ((0, 1),)


class Checkpoint(NamedTuple):
    """A task's checkpoint. `report`: the highest time of its own records below `position`."""

    position: int = 0
    report: int = UNKNOWN
    round_key: RoundKey = (0, 0)


Checkpoints = tuple[Checkpoint, ...]  # by task


class Round(NamedTuple):
    """What a driver planned: records [start, end) for both tasks, who judge by `watermark`."""

    driver: int
    key: RoundKey
    start: int
    end: int
    watermark: int
    base: Checkpoints


class Attempt(NamedTuple):
    """A Spark task attempt of a container. `reached`: per task of the lane, once it has processed; before that empty."""

    round: Round
    lane: int
    owns: bool = False
    reached: tuple[int, ...] = ()


class Driver(NamedTuple):
    """A driver process. `heard`: the lanes that have answered; `watermark`: W of its generation so far."""

    at: str = "off"
    epoch: int = 0
    base: Checkpoints = ()
    watermark: int = UNKNOWN
    rounds: int = 0
    round: Round | None = None
    attempts: tuple[int, ...] = ()  # started of this round, by lane
    heard: tuple[int, ...] = ()


class SiblingState(NamedTuple):
    """The whole world at one moment. `became`: of each record; `wrong`: what a step did that must not be."""

    epoch: int
    checkpoints: Checkpoints
    became: tuple[int, ...]
    drivers: tuple[Driver, ...]
    attempts: tuple[Attempt, ...]  # sorted: their order means nothing
    rounds_given_up: int
    sets_back: bool
    wrong: str = ""

    def with_driver(self, index: int, driver: Driver) -> SiblingState:
        return self._replace(drivers=(*self.drivers[:index], driver, *self.drivers[index + 1 :]))

    def with_attempts(self, *attempts: Attempt, instead_of: Attempt | None = None) -> SiblingState:
        left = list(self.attempts)
        if instead_of is not None:
            left.remove(instead_of)
        return self._replace(attempts=tuple(sorted([*left, *attempts])))


class SiblingModel:
    """Virtual tasks of one SSP with `safeguards`, in a world of `bounds`; a `Model` for `explore`.

    `records_only`: look at nothing but what became of the records, past a watermark that is wrong by then.
    """

    def __init__(
        self, bounds: SiblingBounds, safeguards: SiblingSafeguards | None = None, *, records_only: bool = False
    ) -> None:
        self.bounds = bounds
        self.safeguards = safeguards or SiblingSafeguards()
        self._records_only = records_only
        self._times = tuple(time for _, time in bounds.records)

    def initial(self) -> list[SiblingState]:
        bounds = self.bounds
        return [
            SiblingState(
                epoch=0,
                checkpoints=(Checkpoint(),) * len(TASKS),
                became=(NOT_YET,) * len(bounds.records),
                drivers=(Driver(),) * bounds.drivers,
                attempts=(),
                rounds_given_up=bounds.rounds_given_up,
                sets_back=bounds.sets_back,
            )
        ]

    def steps(self, state: SiblingState) -> Steps:
        for index, driver in enumerate(state.drivers):
            yield from self._driver_steps(state, index, driver, f"driver {index + 1}")
        for number, attempt in enumerate(state.attempts):
            if attempt not in state.attempts[:number]:
                yield from self._attempt_steps(state, attempt)

    def broken(self, state: SiblingState) -> str | None:
        if state.wrong:
            return state.wrong
        for offset, (bucket, time) in enumerate(self.bounds.records):
            position, became = state.checkpoints[bucket].position, state.became[offset]
            if became == NOT_YET and offset < position:
                return f"record {offset} is lost: its task is at {position}, and has not processed it"
            if became != NOT_YET and offset >= position:
                return f"record {offset} will be processed again: its task is at {position}"
            if became == LATE and self._highest_below(offset) <= time:
                return f"record {offset} of time {time} was late, and no record before it is newer"
        return None

    def finished(self, state: SiblingState) -> bool:
        return all(checkpoint.position == len(self.bounds.records) for checkpoint in state.checkpoints)

    def _highest_below(self, offset: int) -> int:
        return max(self._times[:offset], default=UNKNOWN)

    # --- drivers ----------------------------------------------------------------------------------------------------

    def _driver_steps(self, state: SiblingState, index: int, driver: Driver, who: str) -> Steps:
        if state.epoch < self.bounds.epochs:
            yield self._started(state, index, who)
            if state.sets_back:
                back = state._replace(
                    checkpoints=(Checkpoint(0, UNKNOWN, (state.epoch + 1, 0)), state.checkpoints[1]),
                    became=tuple(
                        NOT_YET if bucket == 0 else became
                        for (bucket, _), became in zip(self.bounds.records, state.became, strict=True)
                    ),
                    sets_back=False,
                )
                label, after = self._started(back, index, who)
                yield f"{label}, and sets task 0 back", after
        match driver.at:
            case "ready":
                if min(one.position for one in driver.base) < len(self.bounds.records):
                    yield self._planned(state, index, driver, who)
            case "waiting":
                yield from self._waited(state, index, driver, who)
            case "given up" if driver.epoch == state.epoch:
                again = self._fenced(state).with_driver(index, driver._replace(at="ready", base=state.checkpoints))
                yield f"{who} fences all lanes and reads positions {_text(state.checkpoints)} again", again

    def _started(self, state: SiblingState, index: int, who: str) -> tuple[str, SiblingState]:
        epoch, found = state.epoch + 1, state.checkpoints
        watermark = UNKNOWN if self.safeguards.own_generation else state.drivers[index].watermark
        after = self._fenced(state)._replace(epoch=epoch)
        return (
            f"[start 2-10] {who} takes epoch {epoch}, fences all lanes, reads positions {_text(found)}",
            after.with_driver(index, Driver("ready", epoch, found, watermark)),
        )

    def _fenced(self, state: SiblingState) -> SiblingState:
        if not self.safeguards.lane_fencing:
            return state
        return state._replace(attempts=tuple(attempt for attempt in state.attempts if not attempt.owns))

    def _joined(self, base: Checkpoints) -> int:
        lowest = min(one.position for one in base)
        return max(one.report for one in base if one.position == lowest or not self.safeguards.join_at_lowest)

    def _planned(self, state: SiblingState, index: int, driver: Driver, who: str) -> tuple[str, SiblingState]:
        positions = [one.position for one in driver.base]
        start = min(positions) if self.safeguards.lowest_start else max(positions)
        end = min(start + self.bounds.records_per_round_max, len(self.bounds.records))
        watermark = self._joined(driver.base)
        if self.safeguards.never_back:
            watermark = max(watermark, driver.watermark)
        number = driver.rounds + 1
        round_ = Round(index, (driver.epoch, number), start, end, watermark, driver.base)
        lanes = range(len(self.bounds.lanes))
        waiting = driver._replace(
            at="waiting", watermark=watermark, rounds=number, round=round_, attempts=(1,) * len(lanes), heard=()
        )
        after = state.with_driver(index, waiting)._replace(wrong=self._wrong_watermark(driver, round_))
        if not self.bounds.is_log:
            after = after.with_attempts(*(Attempt(round_, lane) for lane in lanes))
        return f"[start 12, log 1] {who} plans round {_key(round_)}: [{start}, {end}), W {watermark}", after

    def _wrong_watermark(self, driver: Driver, round_: Round) -> str:
        if self._records_only:
            return ""
        positions = [one.position for one in round_.base]
        read_by_all = self._highest_below(min(positions))
        if round_.watermark > read_by_all:
            return f"W of round {_key(round_)} is {round_.watermark}, all have read up to {read_by_all}"
        if min(positions) == max(positions) and round_.watermark != read_by_all:
            return f"W of round {_key(round_)} is {round_.watermark}, and all have read up to {read_by_all}, together"
        if round_.watermark < driver.watermark:
            return f"W goes back to {round_.watermark} in round {_key(round_)}, it was {driver.watermark}"
        return ""

    def _waited(self, state: SiblingState, index: int, driver: Driver, who: str) -> Steps:
        round_ = driver.round
        assert round_ is not None
        if state.rounds_given_up:
            given_up = driver._replace(at="given up", round=None, attempts=(), heard=())
            less = state._replace(rounds_given_up=state.rounds_given_up - 1)
            yield f"{who} gives round {_key(round_)} up", less.with_driver(index, given_up)
        if self.bounds.is_log:
            yield from self._round_committed(state, index, driver, who)
            return
        for lane, started in enumerate(driver.attempts):
            if started < self.bounds.attempts_per_lane and lane not in driver.heard:
                more = tuple(count + (one == lane) for one, count in enumerate(driver.attempts))
                after = state.with_driver(index, driver._replace(attempts=more)).with_attempts(Attempt(round_, lane))
                yield f"Spark starts another attempt of lane {lane} of round {_key(round_)}", after

    def _round_committed(self, state: SiblingState, index: int, driver: Driver, who: str) -> Steps:
        """The embedded log: the driver's transaction, of what the attempts of all containers have reached."""
        round_ = driver.round
        assert round_ is not None
        if self.safeguards.epoch_check and driver.epoch != state.epoch:
            yield f"[log 9, 10] {who} finds epoch {state.epoch} and stops", state.with_driver(index, Driver("dead"))
        elif self.safeguards.base_check and state.checkpoints != round_.base:
            yield f"[log 9, 10] {who} finds another base and stops", state.with_driver(index, Driver("dead"))
        else:
            for reached in product(*(self._reachable(round_, task) for task in TASKS)):
                after = self._moved(state, round_, TASKS, reached)
                ready = driver._replace(at="ready", base=after.checkpoints, round=None, attempts=(), heard=())
                yield f"[log 9-12] {who} commits round {_key(round_)}: {reached}", after.with_driver(index, ready)

    # --- attempts of containers on Kafka ----------------------------------------------------------------------------

    def _attempt_steps(self, state: SiblingState, attempt: Attempt) -> Steps:
        tasks, round_ = self.bounds.lanes[attempt.lane], attempt.round
        who = f"an attempt of lane {attempt.lane} of round {_key(round_)}"
        if not attempt.owns:
            yield f"[kafka 1] {who} inits its lane", self._inited(state, attempt)
        elif not attempt.reached:
            found = tuple(state.checkpoints[task] for task in tasks)
            if self.safeguards.epoch_check and state.epoch != round_.key[0]:
                yield f"[kafka 2] {who} finds epoch {state.epoch} and stops", state.with_attempts(instead_of=attempt)
            elif self.safeguards.base_check and all(one.round_key == round_.key for one in found):
                done = self._heard(state.with_attempts(instead_of=attempt), attempt, found)
                yield f"[kafka 2] {who} finds that its round has committed", done
            elif self.safeguards.base_check and found != tuple(round_.base[task] for task in tasks):
                yield f"[kafka 2] {who} finds another base and fails", state.with_attempts(instead_of=attempt)
            else:
                for reached in product(*(self._reachable(round_, task) for task in tasks)):
                    worked = state.with_attempts(attempt._replace(reached=reached), instead_of=attempt)
                    yield f"[kafka 2-7] {who} finds its base, processes up to {reached}", worked
        else:
            after = self._moved(state, round_, tasks, attempt.reached).with_attempts(instead_of=attempt)
            made = tuple(after.checkpoints[task] for task in tasks)
            yield f"[kafka 8-11] {who} commits {attempt.reached} and answers", self._heard(after, attempt, made)

    def _inited(self, state: SiblingState, attempt: Attempt) -> SiblingState:
        after = state.with_attempts(attempt._replace(owns=True), instead_of=attempt)
        if not self.safeguards.lane_fencing:
            return after
        mine = attempt._replace(owns=True)
        others = [one for one in state.attempts if one != attempt and not (one.owns and one.lane == attempt.lane)]
        same = [one for one in state.attempts if one == attempt][1:]
        return after._replace(attempts=tuple(sorted([*others, *same, mine])))

    def _heard(self, state: SiblingState, attempt: Attempt, made: Checkpoints) -> SiblingState:
        """The driver takes the answer if it waits for it; once all lanes have answered its base is what they made."""
        index = attempt.round.driver
        driver = state.drivers[index]
        if driver.at != "waiting" or driver.round != attempt.round or attempt.lane in driver.heard:
            return state
        base = list(driver.base)
        for task, checkpoint in zip(self.bounds.lanes[attempt.lane], made, strict=True):
            base[task] = checkpoint
        heard = tuple(sorted((*driver.heard, attempt.lane)))
        after = driver._replace(base=tuple(base), heard=heard)
        if len(heard) == len(self.bounds.lanes):
            after = after._replace(at="ready", round=None, attempts=(), heard=())
        return state.with_driver(index, after)

    # --- the work of a task -----------------------------------------------------------------------------------------

    def _reachable(self, round_: Round, task: int) -> range | tuple[int]:
        """Where a task may be cut: behind the first row that it may take, or at any later one, up to the end of the range."""
        position = round_.base[task].position
        begin = max(position, round_.start) if self.safeguards.skip_by_own_position else round_.start
        return range(begin + 1, round_.end + 1) if begin < round_.end else (position,)

    def _moved(self, state: SiblingState, round_: Round, tasks: tuple[int, ...], reached: tuple[int, ...]) -> SiblingState:
        """A container's commit: what its tasks processed, and where they are then."""
        became, wrong = list(state.became), state.wrong
        checkpoints = list(state.checkpoints)
        for task, until in zip(tasks, reached, strict=True):
            base = round_.base[task]
            begin = max(base.position, round_.start) if self.safeguards.skip_by_own_position else round_.start
            report = base.report
            for offset in range(begin, until):
                bucket, time = self.bounds.records[offset]
                if bucket == task:
                    if became[offset] != NOT_YET:
                        wrong = f"record {offset} is processed twice"
                    became[offset] = LATE if time < round_.watermark else ON_TIME
                    report = max(report, time)
            at = until if self.safeguards.cut_per_task else max(reached)
            checkpoints[task] = Checkpoint(max(at, base.position), report, round_.key)
        return state._replace(checkpoints=tuple(checkpoints), became=tuple(became), wrong=wrong)


def _text(checkpoints: Checkpoints) -> str:
    return " and ".join(str(one.position) for one in checkpoints)


def _key(round_: Round) -> str:
    return f"{round_.key[0]}:{round_.key[1]}"
