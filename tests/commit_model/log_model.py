"""The model of the embedded log's commit (protocol.md 15 to 18): its initial state, all steps, the invariants.

How the labels of steps map to the numbered steps of protocol.md, "Steps", Log:

| protocol | step of the model |
|---|---|
| start 3, 6, 8, 9 | a driver acquires an epoch, reads the checkpoint, (translates and) commits a new job model |
| 1 plan | a driver plans a round: an exact range from its base; the first attempt starts |
| 2 read | part of 4: an attempt reads exactly its range, and ranges do not change |
| 3 apply the last delta | open the store, then one step per segment, or a rebuild (swapped in whole: one step) |
| 4 work | reads the store in one snapshot and computes; one step, as the rest of it touches nothing shared |
| 5, 6, 7 | write the segment; write the output file; a file exists once it is durable, under its name, whole |
| 8 summary to the driver | an attempt reports; the driver takes it only for the round that it waits for |
| 9, 10 | begin the transaction and check epoch, bases and files, one step: no other writer gets in |
| 11, 12 | write and commit, one step: SQLite's own promise. A kill between 10 and 11 is a step of its own |
| 13 publish status | left out: nothing depends on it |

**Pauses and crashes need no steps.** A process that is never scheduled again is a crashed one, one that is scheduled
late a paused one; every invariant is checked in every state. Only a kill inside a transaction is a step, as it gives
the lock back. The worst is assumed wherever that costs nothing: all attempts share one store folder (`flock`, clause
18, is not relied on), any driver may acquire at any time (nor are heartbeats), a zombie may even rebuild the store.

**Which safeguards cover for each other.** With neither a new job model nor a lost answer to a commit, the base check
makes the epoch check, and the order of acquiring and reading, redundant for the data. A new job model (whose task has
another name, so another base) needs the epoch; a commit that is sent twice needs the base. The rule of what may be
collected protects progress: the stat of files (15) alone would keep the data whole. `tests/commit_model/test_log.py`
holds a world for each.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.log_attempt import attempt_steps
from commit_model.log_driver import driver_steps
from commit_model.log_values import (
    EMPTY,
    FORMER,
    FRESH,
    SEED_ROUND,
    Bounds,
    Catalog,
    Checkpoint,
    Counts,
    Driver,
    File,
    Head,
    Output,
    Safeguards,
    State,
    Store,
    applied,
    named_files,
    worked_off,
)


class LogModel:
    """The embedded log's commit with `safeguards`, in a world of `bounds`; a `Model` for `explore`."""

    def __init__(self, bounds: Bounds, safeguards: Safeguards | None = None) -> None:
        self.bounds = bounds
        self.safeguards = safeguards or Safeguards()
        self._verdicts: dict[object, str | None] = {}

    def initial(self) -> list[State]:
        checkpoint, files, chunks = FRESH, [], []
        counts: Counts = EMPTY
        for record in range(self.bounds.committed_before):
            counts, delta, outputs = worked_off(counts, record, record + 1)
            segment, output = f"s0.{record + 1}", f"o0.{record + 1}"
            files += [(segment, File(SEED_ROUND, checkpoint.head, delta, ()))]
            files += [(output, File(SEED_ROUND, (), (), outputs))]
            chunks.append(output)
            checkpoint = Checkpoint(record + 1, (*checkpoint.head, segment), SEED_ROUND)
        return [
            State(
                catalog=Catalog(0, 0, (checkpoint, None), tuple(chunks), None),
                files=tuple(sorted(files)),
                store=Store(FORMER, (7, 7)) if self.bounds.former_store else Store((), EMPTY),
                drivers=(Driver(),) * self.bounds.drivers,
                attempts=(),
                store_losses=self.bounds.store_losses,
                file_losses=self.bounds.file_losses,
                answers_lost=self.bounds.answers_lost,
            )
        ]

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for index in range(len(state.drivers)):
            yield from driver_steps(state, self.safeguards, self.bounds, index)
        for index, attempt in enumerate(state.attempts):
            if attempt is not None:
                yield from attempt_steps(state, self.safeguards, index, attempt)
        if state.store_losses and state.store.head:
            lost = state._replace(store=Store((), EMPTY), store_losses=state.store_losses - 1)
            yield "the local store is lost", lost

    def broken(self, state: State) -> str | None:
        # Drivers and attempts have no part in the invariants, and most states share the rest.
        shared = (state.catalog.rows, state.catalog.model, state.catalog.chunks, state.files, state.store)
        if shared not in self._verdicts:
            self._verdicts[shared] = _violation(state)
        return self._verdicts[shared] or (None if self.bounds.file_losses else _lost_work(state))

    def finished(self, state: State) -> bool:
        row = state.catalog.rows[state.catalog.model]
        return row is not None and row.position == self.bounds.records


def _violation(state: State) -> str | None:
    catalog = state.catalog
    if missing := sorted(name for name in named_files(catalog) if state.file(name) is None):
        return f"files that checkpoints or the output log name are missing: {', '.join(missing)}"
    current = catalog.rows[catalog.model]
    assert current is not None
    return (
        _wrong_outputs(state, current.position)
        or next((wrong for row in catalog.rows if row is not None and (wrong := _wrong_chain(state, row))), None)
        or _wrong_store(state)
    )


def _wrong_outputs(state: State, position: int) -> str | None:
    _, _, expected = worked_off(EMPTY, 0, position)
    found: list[Output] = []
    for name in state.catalog.chunks:
        file = state.file(name)
        assert file is not None
        found += file.outputs
    if tuple(found) == expected:
        return None
    duplicates = sorted({record for record, _ in found if sum(other == record for other, _ in found) > 1})
    what = f"records {duplicates} are there twice" if duplicates else "they differ"
    return f"the output log is not that of records [0, {position}): {what}; found {found}, expected {list(expected)}"


def _wrong_chain(state: State, row: Checkpoint) -> str | None:
    for version, name in enumerate(row.head):
        segment = state.file(name)
        assert segment is not None
        if segment.base != row.head[:version]:
            return f"no chain: segment {name} builds on {segment.base}, follows {row.head[:version]}"
    expected, _, _ = worked_off(EMPTY, 0, row.position)
    found = _folded(state, row.head)
    if found != expected:
        return f"the state at position {row.position} is {found}, expected {expected}"
    return None


def _wrong_store(state: State) -> str | None:
    head, counts = state.store
    if head == FORMER:
        return None  # of a former life: to be noticed by its reader
    if not any(row is not None and row.head[: len(head)] == head for row in state.catalog.rows):
        return f"the store is at head {head}, which no checkpoint builds on"
    if counts != _folded(state, head):
        return f"the store at head {head} holds {counts}, expected {_folded(state, head)}"
    return None


def _lost_work(state: State) -> str | None:
    """What the holder of the epoch is about to commit must not be collected: the data bears it, progress does not."""
    for driver in state.drivers:
        if driver.round is not None and driver.epoch == state.catalog.epoch:
            named = (name for summary in driver.summaries for name in (summary.segment, summary.output))
            if missing := [name for name in named if state.file(name) is None]:
                return f"files of the round in flight are missing: {', '.join(missing)}"
    return None


def _folded(state: State, head: Head) -> Counts:
    counts: Counts = EMPTY
    for name in head:
        segment = state.file(name)
        assert segment is not None
        counts = applied(counts, segment.delta)
    return counts
