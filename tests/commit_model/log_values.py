"""What a state of the embedded log's model consists of, and the knobs: safeguards that can be taken out, bounds.

One task reads one partition of `Bounds.records` records; record i has key i % 2, and the state counts records per key.
A record's output names the record and the WHOLE state after it, so that work on a wrong state shows in the output log.
Everything is a tuple: hashing states is what the search does all day.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

Counts = tuple[int, int]  # state: count per key
Output = tuple[int, Counts]  # (record, state after it)
Head = tuple[str, ...]  # the chain of segment names, oldest first; its length is the version
RoundKey = tuple[int, int]  # (epoch, number within the epoch)

EMPTY: Counts = (0, 0)
FORMER: Head = ("former",)  # version 1, as the chain of a job whose catalog was deleted while its local store stayed
SEED_ROUND: RoundKey = (0, 0)


@dataclass(frozen=True, slots=True)
class Safeguards:
    """Each clause of the protocol that keeps a schedule harmless; False takes it out of the model."""

    epoch_check: bool = True  # 15: a commit checks the epoch; out: every driver commits
    base_check: bool = True  # Words: a commit checks each task's base; out: only the epoch counts
    compare_and_set: bool = True  # 17: a delta goes onto the head it names; out: onto any head
    unique_names: bool = True  # Words: a segment has a name of its own; out: it is called after its version
    head_identity: bool = True  # Words: heads are compared by identity; out: by version number
    stat_files: bool = True  # 15: a commit stats the files that it names; out: it trusts the summary
    collect_finished_only: bool = True  # 16: of a finished round or a dead epoch; out: all that is unreferenced
    collect_unreferenced_only: bool = True  # 16: nothing that a checkpoint names; out: by age alone
    read_after_acquire: bool = True  # 7: epoch first, then checkpoints; out: the other way round
    apply_committed_only: bool = True  # 15: a delta is applied in the next round; out: when it is written
    head_check_at_read: bool = True  # 17: the read transaction's head equals the base; out: whatever the store holds
    one_snapshot: bool = True  # 17: one read transaction; out: key after key, the head looked at before the first
    one_summary: bool = True  # 8: one attempt per container; out: the outputs of all that reported
    one_transaction: bool = True  # 15: outputs, positions and heads; out: outputs first, then the rest

    def without(self, *names: str) -> Safeguards:
        return replace(self, **dict.fromkeys(names, False))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the world is and what may go wrong in it. A pause or a crash needs no bound: see `log_model`.

    `committed_before`: records that an earlier epoch processed, one a round; the local store is empty all the same.
    """

    records: int = 2
    records_per_round_max: int = 2
    drivers: int = 2
    epochs: int = 2  # how often drivers acquire, all together
    attempts: int = 2  # Spark task attempts, all together
    attempts_per_round: int = 2
    committed_before: int = 0
    new_job_model: bool = False  # the second driver brings one: its task is called otherwise
    former_store: bool = False  # the local store is one of a former life of the job
    store_losses: int = 0
    file_losses: int = 0  # a segment that its writer reports is not where the driver looks
    answers_lost: int = 0  # a commit that landed, and whose driver does not know
    collects: bool = False


class Checkpoint(NamedTuple):
    """A task's checkpoint: position, head, and the round that made it."""

    position: int
    head: Head
    round_key: RoundKey


FRESH = Checkpoint(0, (), SEED_ROUND)


class Round(NamedTuple):
    """What a driver planned: records [base.position, end) of the task of job model `model`, onto `base`."""

    driver: int
    key: RoundKey
    model: int
    base: Checkpoint
    end: int


class File(NamedTuple):
    """A segment (`delta`: absolute values per key, onto head `base`) or an output file (`outputs`)."""

    round_key: RoundKey
    base: Head
    delta: tuple[tuple[int, int], ...]
    outputs: tuple[Output, ...]


class Summary(NamedTuple):
    """What an attempt reports: what it reached and the names of its files."""

    position: int
    segment: str
    output: str


class Store(NamedTuple):
    """The local store of the task: one folder, open to every attempt that thinks it owns it (the worst case of 18)."""

    head: Head
    counts: Counts


class Attempt(NamedTuple):
    """A Spark task attempt. `at` is its next step; `waiting` the segments it means to apply; `counts` what it read."""

    number: int
    round: Round
    at: str = "open"
    waiting: Head = ()
    counts: tuple[int, ...] = ()
    position: int = 0
    delta: tuple[tuple[int, int], ...] = ()
    outputs: tuple[Output, ...] = ()


class Driver(NamedTuple):
    """A driver process. `at` is its state; `base` what it believes its task's checkpoint to be."""

    at: str = "off"
    epoch: int = 0
    model: int = 0
    base: Checkpoint = FRESH
    rounds: int = 0
    round: Round | None = None
    attempts: int = 0  # Spark task attempts of this round
    summaries: tuple[Summary, ...] = ()


class Catalog(NamedTuple):
    """The SQLite catalog. `rows[m]`: the checkpoint of job model m's task; `writer`: who is inside a transaction."""

    epoch: int
    model: int
    rows: tuple[Checkpoint | None, Checkpoint | None]
    chunks: tuple[str, ...]  # the output log: names of committed output files
    writer: int | None


class State(NamedTuple):
    """The whole world at one moment."""

    catalog: Catalog
    files: tuple[tuple[str, File], ...]  # sorted by name
    store: Store
    drivers: tuple[Driver, ...]
    attempts: tuple[Attempt | None, ...]  # None: it ended
    store_losses: int
    file_losses: int
    answers_lost: int

    def file(self, name: str) -> File | None:
        return next((file for known, file in self.files if known == name), None)

    def with_file(self, name: str, file: File) -> State:
        others = [pair for pair in self.files if pair[0] != name]
        return self._replace(files=tuple(sorted([*others, (name, file)])))

    def without_files(self, names: set[str]) -> State:
        return self._replace(files=tuple(pair for pair in self.files if pair[0] not in names))

    def with_driver(self, index: int, driver: Driver) -> State:
        return self._replace(drivers=(*self.drivers[:index], driver, *self.drivers[index + 1 :]))

    def with_attempt(self, index: int, attempt: Attempt | None) -> State:
        return self._replace(attempts=(*self.attempts[:index], attempt, *self.attempts[index + 1 :]))


def named_files(catalog: Catalog) -> set[str]:
    """The files that current checkpoints, those kept of the job model before, and the output log name."""
    return {name for row in catalog.rows if row is not None for name in row.head} | set(catalog.chunks)


def worked_off(counts: Counts, start: int, end: int) -> tuple[Counts, tuple[tuple[int, int], ...], tuple[Output, ...]]:
    """The state, delta and outputs that records [start, end) make of `counts`: the one deterministic function.

    >>> worked_off((1, 0), 1, 3)
    ((2, 1), ((0, 2), (1, 1)), ((1, (1, 1)), (2, (2, 1))))
    """
    now = list(counts)
    outputs: list[Output] = []
    for record in range(start, end):
        now[record % 2] += 1
        outputs.append((record, (now[0], now[1])))
    changed = sorted({record % 2 for record in range(start, end)})
    return (now[0], now[1]), tuple((key, now[key]) for key in changed), tuple(outputs)


def applied(counts: Counts, delta: tuple[tuple[int, int], ...]) -> Counts:
    """`counts` with the absolute values of `delta` put in."""
    now = list(counts)
    for key, value in delta:
        now[key] = value
    return now[0], now[1]
