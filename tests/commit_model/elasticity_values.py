"""The values of the model of a change of factor: safeguards, bounds, what is stored, drivers, attempts; and how it is re-cut.

One SSP; record i has key i % 2. Bucket b of factor f has the keys k with k % f == b: with a factor of 1 one task has both keys,
with a factor of 2 each task has one. A state file holds absolute counts per key; a head names files, each with the keys that
count of what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

KEYS = (0, 1)
RoundKey = tuple[int, int]  # (epoch, number within the epoch); number 0: a plan's transaction
FileRef = tuple[str, tuple[int, ...]]  # name of a state file, and the range of keys that counts of what it holds
Head = tuple[FileRef, ...]  # oldest first
Values = tuple[tuple[int, int], ...]  # (key, count), absolute
Output = tuple[int, int]  # (record, count of its key with it)


@dataclass(frozen=True, slots=True)
class ElasticitySafeguards:
    """What keeps a schedule harmless; False takes it out of the model."""

    aligned_first: bool = True  # closing rounds bring siblings to one position before the generation ends; out: it ends at once
    judged_after_fence: bool = True  # and that is judged again after the fence; out: what was judged before it counts
    target_follows: bool = (
        True  # closing rounds end where the sibling that is ahead is; out: where it was as they were asked for
    )
    one_transaction: bool = True  # 12: job model, checkpoints, kept versions, ids; out: the job model before the rest
    ids_on_record: bool = True  # a request whose id is on record is not applied again; out: every request that is there is
    removed_after: bool = True  # a request is removed after that transaction; out: before it
    epoch_check: bool = True  # 8, 15: of a container on Kafka, of a driver on the log; out: only positions and version count
    version_stamp: bool = True  # 12: a commit is of the job model in force; out: epoch and base are enough
    round_stamp: bool = True  # a re-cut checkpoint has a round id of the new epoch; out: its parent's
    base_check: bool = True  # 8, 15: committed positions are those of the base; out: epoch and version are enough
    fence_before_read: bool = True  # 7; out: read the checkpoints, then fence
    all_lanes_fenced: bool = True  # 7: all lanes ever used; out: those of the tasks that will be
    lowest_start: bool = True  # a range begins at the lowest position of the siblings; out: at the highest
    own_skip: bool = True  # and each skips what it has; out: it processes the whole range
    cut_by_keys: bool = True  # of a file that a child shares only its own keys count; out: all that it holds
    live_union: bool = True  # 20: live is what ANY checkpoint names; out: a task's old files go when its own head has changed
    kept_is_live: bool = True  # 20: and what a kept version names; out: only what current checkpoints name
    asked_after_listing: bool = True  # orphans are deleted by who holds the epoch after they were listed; out: by anybody

    def without(self, *names: str) -> ElasticitySafeguards:
        return replace(self, **dict.fromkeys(names, False))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


@dataclass(frozen=True, slots=True)
class ElasticityBounds:
    """How large the world is and what may go wrong in it.

    `begins_at`: the positions of the tasks there are at the beginning, so their number is the factor. `asked`: the factors that
    users will ask for, in this order, each at any time. `takeovers`: of a driver that did not end by itself, all together.
    """

    begins_at: tuple[int, ...] = (0,)
    asked: tuple[int, ...] = (2,)
    records: int = 4
    records_per_round_max: int = 4
    is_log: bool = False
    drivers: int = 2
    takeovers: int = 1
    attempts_per_lane: int = 1  # of one round
    rounds_given_up: int = 0  # that might have come to an end, all together
    has_state: bool = False
    folds: int = 0  # snapshots in place of deltas, all together
    keeps: int = 0  # kept versions, all together


class Checkpoint(NamedTuple):
    """A task's checkpoint: position, head, the round that made it."""

    position: int
    head: Head
    round_key: RoundKey

    @property
    def note(self) -> tuple[int, RoundKey]:
        """What a group's position says of it."""
        return self.position, self.round_key


Checkpoints = tuple[Checkpoint, ...]  # by bucket: their number is the factor
Note = tuple[int, tuple[int, RoundKey]]  # a lane's group: version of the job model, position and round


class Made(NamedTuple):
    """What a task made in a round: its checkpoint, and its outputs."""

    bucket: int
    checkpoint: Checkpoint
    outputs: tuple[Output, ...]


class Round(NamedTuple):
    """What a driver planned: records [start, end) for the tasks of job model `version`, onto `base`."""

    driver: int
    key: RoundKey
    version: int
    start: int
    end: int
    base: Checkpoints


class Attempt(NamedTuple):
    """A Spark task attempt of a container. `made`: what it has sent into its transaction, on the lane that it inited; before
    that None."""

    round: Round
    lane: int
    made: Made | None = None


class Request(NamedTuple):
    """A user's request: the factor that is to be."""

    id: int  # in the order in which they were asked for
    factor: int


class Driver(NamedTuple):
    """A driver process. `at` is its next step.

    `seen`: the requests that it has read; `removes`: those that it is about to remove; `target`: where closing rounds end, -1
    where there are none; `judged`: it ended its generation as one whose siblings were together; `garbage`: files that it is
    about to delete.
    """

    at: str = "off"
    epoch: int = 0
    version: int = 0
    base: Checkpoints = ()
    seen: tuple[Request, ...] = ()
    done: tuple[int, ...] = ()
    removes: tuple[int, ...] = ()
    target: int = -1
    judged: bool = False
    rounds: int = 0
    round: Round | None = None
    attempts: tuple[int, ...] = ()  # started of this round, by lane
    heard: tuple[Made, ...] = ()
    garbage: tuple[str, ...] = ()

    @property
    def factor(self) -> int:
        return len(self.base)

    @property
    def pending(self) -> tuple[Request, ...]:
        """The requests that it knows and has not found on record."""
        return tuple(request for request in self.seen if request.id not in self.done)


class Stored(NamedTuple):
    """What is stored: on Kafka in topics and groups, on the embedded log in the catalog, and the state files."""

    epoch: int
    version: int
    factor: int
    checkpoints: Checkpoints
    notes: tuple[Note | None, Note | None]  # per lane, on Kafka: those of a lane that no task is on stay
    kept: Checkpoints  # a kept version of all tasks, or none
    requests: tuple[Request, ...]
    done: tuple[int, ...]  # the ids of requests on record
    files: tuple[tuple[str, Values], ...]  # sorted by name
    outputs: tuple[tuple[Output, ...], ...]  # per key

    def values(self, name: str) -> Values | None:
        return next((values for known, values in self.files if known == name), None)


class ElasticityState(NamedTuple):
    """The whole world at one moment. `decided`: in truth, which requests a plan has answered; `wrong`: what must not be."""

    stored: Stored
    drivers: tuple[Driver, ...]
    attempts: tuple[Attempt, ...]  # sorted: their order means nothing
    unasked: tuple[Request, ...]
    decided: tuple[Request, ...]
    takeovers: int
    rounds_given_up: int
    folds: int
    keeps: int
    wrong: str = ""

    def with_stored(self, **changes: object) -> ElasticityState:
        return self._replace(stored=self.stored._replace(**changes))  # type: ignore[arg-type]

    def with_driver(self, index: int, driver: Driver) -> ElasticityState:
        return self._replace(drivers=(*self.drivers[:index], driver, *self.drivers[index + 1 :]))

    def with_attempts(self, *attempts: Attempt, instead_of: Attempt | None = None) -> ElasticityState:
        left = list(self.attempts)
        if instead_of is not None:
            left.remove(instead_of)
        order = sorted([*left, *attempts], key=lambda one: (one.round.key, one.lane, one.made or ()))
        return self._replace(attempts=tuple(order))

    def with_file(self, name: str, values: Values) -> ElasticityState:
        return self.with_stored(files=tuple(sorted([*self.stored.files, (name, values)])))

    def without_files(self, names: Iterable[str]) -> ElasticityState:
        gone = set(names)
        return self.with_stored(files=tuple(pair for pair in self.stored.files if pair[0] not in gone))


def keys_of(bucket: int, factor: int) -> tuple[int, ...]:
    """The keys of a virtual task.

    >>> keys_of(0, 1), keys_of(0, 2), keys_of(1, 2)
    ((0, 1), (0,), (1,))
    """
    return tuple(key for key in KEYS if key % factor == bucket)


def files_of(checkpoints: Iterable[Checkpoint]) -> set[str]:
    """The state files that the heads of `checkpoints` name."""
    return {name for checkpoint in checkpoints for name, _ in checkpoint.head}


def is_aligned(checkpoints: Checkpoints) -> bool:
    """Whether all siblings are at one position."""
    return len({checkpoint.position for checkpoint in checkpoints}) == 1


def note_of(checkpoint: Checkpoint, version: int) -> Note:
    """What the group of a task's lane has for its checkpoint, under this version of the job model."""
    return version, checkpoint.note


def recut(checkpoints: Checkpoints, factor: int, epoch: int, safeguards: ElasticitySafeguards) -> Checkpoints:
    """The checkpoints of the tasks of `factor`, where those of another factor are `checkpoints`.

    A child has its parent's position and the parent's files, of which its own keys count. A merged task has the siblings'
    position, which must be one (else the lowest, which `broken` will find), and their files one after the other.
    """
    made: list[Checkpoint] = []
    for bucket in range(factor):
        keys = keys_of(bucket, factor)
        parents = [one for number, one in enumerate(checkpoints) if set(keys) & set(keys_of(number, len(checkpoints)))]
        lowest = min(parents)
        round_key = (epoch, 0) if safeguards.round_stamp else lowest.round_key
        head = parents[0].head if len(parents) == 1 else _merged([parent.head for parent in parents])
        made.append(Checkpoint(lowest.position, _restricted(head, keys) if safeguards.cut_by_keys else head, round_key))
    return tuple(made)


def _restricted(head: Head, keys: tuple[int, ...]) -> Head:
    """
    >>> _restricted((("a", (0, 1)), ("b", (1,))), (0,))
    (('a', (0,)),)
    """
    mine = ((name, tuple(key for key in counting if key in keys)) for name, counting in head)
    return tuple((name, counting) for name, counting in mine if counting)


def _merged(heads: list[Head]) -> Head:
    """The siblings' files: those with which all begin come once, with the keys of all; so a split that is undone is undone.

    >>> _merged([(("a", (0,)), ("b", (0,))), (("a", (1,)),)])
    (('a', (0, 1)), ('b', (0,)))
    """
    shared = 0
    while all(len(head) > shared and head[shared][0] == heads[0][shared][0] for head in heads):
        shared += 1
    common = tuple((heads[0][at][0], tuple(sorted({key for head in heads for key in head[at][1]}))) for at in range(shared))
    return (*common, *(ref for head in heads for ref in head[shared:]))


def counts_of(stored: Stored, head: Head) -> dict[int, int] | None:
    """The count per key that the files of a head make; None where one of them is missing."""
    counts: dict[int, int] = {}
    for name, counting in head:
        values = stored.values(name)
        if values is None:
            return None
        counts.update((key, count) for key, count in values if key in counting)
    return counts


def outputs_below(key: int, position: int, *, has_state: bool) -> tuple[Output, ...]:
    """What must be there of a key whose task is at `position`, in this order.

    >>> outputs_below(1, 4, has_state=True), outputs_below(1, 4, has_state=False)
    (((1, 1), (3, 2)), ((1, 0), (3, 0)))
    """
    mine = [record for record in range(position) if record % len(KEYS) == key]
    return tuple((record, number if has_state else 0) for number, record in enumerate(mine, 1))
