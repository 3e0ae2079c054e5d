"""The values of Kafka's model: what is on the broker, in the store, in drivers and attempts; safeguards and bounds.

States are named tuples for the reason that the embedded log's are: comparing and hashing them is what the search does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from commit_model.log_values import (
    EMPTY,
    SEED_ROUND,
    Counts,
    Output,
    RoundKey,
    Store,
    applied,
)

Segment = tuple[str, tuple[str, ...], tuple[tuple[int, int], ...]]  # name, names of the chain it builds on, values per key
Note = tuple[int, RoundKey, int]  # a group's position: (offset, round that committed it, version of the job model)

NOBODY = 0  # owner of a transactional id: a fence, which never transacts


@dataclass(frozen=True, slots=True)
class KafkaSafeguards:
    """Each clause of the protocol that keeps a schedule harmless; False takes it out of the model."""

    init_before_check: bool = True  # 8: take the lane, then look; out: look, then take the lane
    epoch_check: bool = True  # 8: another epoch stops an attempt; out: only positions count
    base_check: bool = True  # 8: positions are those of the base; out: only the epoch counts
    version_stamp: bool = True  # 12: a position of another job model is none; out: offset and round are enough
    done_answers: bool = True  # 8: a round that has committed answers with its result; out: it fails
    fenced_never_inits: bool = True  # 8: a fenced attempt ends; out: it takes the lane again and sends the same again
    reuse_by_last_committer: bool = True  # 8: only the maker of the lane's last commit; out: any that kept a producer
    stable_positions: bool = True  # 10: positions in doubt are waited for; out: the ones before are taken
    committed_checkpoints: bool = True  # 9: the topic is read committed; out: aborted records count
    end_at_stable_offset: bool = True  # 2: a range ends there; out: at the high watermark
    one_transaction: bool = True  # 9: outputs, positions and checkpoint; out: outputs first
    compare_and_set: bool = True  # 17: a delta goes onto the head that it names; out: onto any head
    read_back_epoch: bool = True  # 7: the epoch can be read before lanes are fenced; out: the commit's answer is enough
    epoch_before_fence: bool = True  # 7; out: fence, then write the epoch
    fence_before_read: bool = True  # 7; out: read the checkpoints, then fence
    lanes_recorded: bool = True  # 7: all lanes ever used are fenced; out: those of the driver's own plan
    fence_to_recover: bool = True  # 9: who recovers fences its lane before it reads; out: it does not
    seed_by_lane: bool = True  # 9: a lost position is set under its lane's id, taken before the last read; out: it is not taken
    look_before_seed: bool = True  # 9: and the epoch was looked at after that init; out: it was not
    ask_before_retaking: bool = True  # 6: a driver that lost its producer looks at the epoch before it takes the id again
    ask_after_retaking: bool = True  # 6: and once more after; out: what was true before the init is believed

    def without(self, *names: str) -> KafkaSafeguards:
        return replace(self, **dict.fromkeys(names, False))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


@dataclass(frozen=True, slots=True)
class KafkaBounds:
    """How large the world is and what may go wrong in it. A pause or a crash needs no bound: see `kafka_model`."""

    records: int = 2
    records_per_round_max: int = 2
    drivers: int = 2
    attempts: int = 2  # Spark task attempts, all together
    attempts_per_round: int = 2
    moves_lane: bool = False  # each driver brings a job model of its own, with the task on the lane of its own number
    reuses: bool = False  # attempts run in either of two worker processes, which keep producers
    answers_lost: int = 0  # a container's commit that succeeded, and whose sender does not know
    heartbeats_lost: int = 0  # the same of the coordinator: it must give its producer up
    delays: int = 0  # a commit is answered before what it wrote can be read
    expiries: int = 0  # positions of the group expire
    input_open: bool = False  # an open transaction of somebody else holds the input's last record


class Checkpoint(NamedTuple):
    """A task's checkpoint: position, head (its segments, oldest first), the round that made it, the job model's version."""

    position: int
    head: tuple[Segment, ...]
    round_key: RoundKey
    version: int

    @property
    def note(self) -> Note:
        return (self.position, self.round_key, self.version)


FRESH = Checkpoint(0, (), SEED_ROUND, 0)


class Round(NamedTuple):
    """What a driver planned: records [base.position, end), onto `base`, on `lane`. `producer_of`: see `lanes.Lane`."""

    driver: int
    key: RoundKey
    lane: int
    base: Checkpoint
    end: int
    producer_of: int | None


class Attempt(NamedTuple):
    """A Spark task attempt. `at` is its next step; `producer` whose init its producer had (0: it has none yet);
    `made` and `outputs` what it sent into its transaction."""

    round: Round
    process: int | None  # the worker process it runs in; None where none keeps a producer
    at: str
    producer: int = NOBODY
    made: Checkpoint | None = None
    outputs: tuple[Output, ...] = ()


class Lane(NamedTuple):
    """A lane's transactional id: the number of the attempt that inited it last (a producer epoch in short: one that is
    another one is fenced), and whether a transaction of it is open."""

    owner: int = NOBODY
    is_open: bool = False


class Pending(NamedTuple):
    """A transaction that is committed, and whose markers are not written: a reader that does not wait reads what was before."""

    lane: int | None  # None: the coordinator's
    epoch: int
    group: Note | None
    touches_group: bool


class Broker(NamedTuple):
    """All that is on the broker. `coordinator`: the driver whose init of the coordinator's id was the last, -1 none."""

    coordinator: int
    epoch: int  # in the metadata topic
    group_epoch: int  # as position of the coordinator's group: what workers read
    model: tuple[int, int]  # version of the job model, and the lane of the task in it
    recorded: tuple[int, ...]  # lanes on record as used
    lanes: tuple[Lane, Lane]
    topic: Checkpoint  # the newest committed one
    dirty: Checkpoint | None  # a newer one, of a transaction that is open or was aborted
    group: Note | None  # None: expired
    outputs: tuple[Output, ...]
    pending: Pending | None
    input_open: bool


class Driver(NamedTuple):
    """A driver process. `at` is its next step; `producer` is "live", or its progress in taking the id once more."""

    at: str = "take"
    epoch: int = 0
    base: Checkpoint = FRESH
    round: Round | None = None
    attempts: int = 0
    rounds: int = 0
    lost: bool = False
    producer: str = "live"
    producer_of: int | None = None


class State(NamedTuple):
    """The whole world at one moment. `foul` names what a fenced driver has written."""

    broker: Broker
    store: Store
    drivers: tuple[Driver, ...]
    attempts: tuple[Attempt | None, ...]  # None: it ended
    kept: tuple[int, int]  # per worker process whose producer it keeps (one lane has one task)
    answers_lost: int
    heartbeats_lost: int
    delays: int
    expiries: int
    foul: str = ""

    @property
    def is_topic_in_doubt(self) -> bool:
        """Whether something of the task is written to the checkpoint topic and has not ended: readers wait."""
        return self.is_pending_in_group or any(lane.is_open for lane in self.broker.lanes)

    @property
    def is_pending_in_group(self) -> bool:
        pending = self.broker.pending
        return pending is not None and pending.touches_group

    def with_broker(self, **changes: object) -> State:
        return self._replace(broker=self.broker._replace(**changes))  # type: ignore[arg-type]

    def with_driver(self, index: int, driver: Driver) -> State:
        return self._replace(drivers=(*self.drivers[:index], driver, *self.drivers[index + 1 :]))

    def with_attempt(self, index: int, attempt: Attempt | None) -> State:
        return self._replace(attempts=(*self.attempts[:index], attempt, *self.attempts[index + 1 :]))

    def with_delay(self, lane: int | None, before: Broker, *, touches_group: bool) -> State:
        """The same with what was just committed to be read later: until then `before` is what is there."""
        pending = Pending(lane, before.group_epoch, before.group, touches_group)
        return self._replace(delays=self.delays - 1).with_broker(pending=pending)

    def with_lane(self, number: int, lane: Lane) -> State:
        lanes = self.broker.lanes
        return self.with_broker(lanes=(lane, lanes[1]) if number == 0 else (lanes[0], lane))


def names_of(head: tuple[Segment, ...]) -> tuple[str, ...]:
    return tuple(name for name, _, _ in head)


def folded(head: tuple[Segment, ...]) -> Counts:
    """The state that the segments of `head` make, one after the other."""
    counts: Counts = EMPTY
    for _, _, delta in head:
        counts = applied(counts, delta)
    return counts


def taken(state: State, safeguards: KafkaSafeguards, number: int, owner: int) -> State:
    """`state` after an init of lane `number`: what is open is aborted, and the previous owner of the lane is fenced.

    A fenced attempt that has looked is at its end: all it sends is refused. One that has not may yet find its round done.
    """
    after = state.with_lane(number, Lane(owner))
    if not safeguards.fenced_never_inits:
        return after
    attempts = tuple(
        None
        if attempt is not None
        and attempt.round.lane == number
        and attempt.producer not in (NOBODY, owner)
        and attempt.at in ("send", "commit")
        else attempt
        for attempt in state.attempts
    )
    return after._replace(attempts=attempts)
