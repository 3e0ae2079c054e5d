"""Folding state files into one: by the round that appends to them, or in the background (`core.keys.compaction`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from headrace.errors import StateError
from headrace.model.checkpoint import Slots, StateFile, StateFileKind
from headrace.state_files.batches import merged
from headrace.state_files.files import FilePlace, StateFiles


def fold_of(
    files: StateFiles,
    place: FilePlace,
    folded: Sequence[StateFile],
    reaches: str,
    covers: Slots | None,
    *,
    is_snapshot: bool,
    is_wanted: Callable[[], bool] = lambda: True,
) -> StateFile:
    """Write one file with what `folded`, oldest first, make of the state; `reaches` is its identity after the last of them,
    `covers` the slots of the task. A snapshot, of all files of a head, has no deletions. Memory: a batch of each file, and of
    files up to 32 MB all. `is_wanted` is asked at each batch: `StateError`, and no file is left, where it is not; other errors
    as those of `StateFiles`."""
    kind = StateFileKind.SNAPSHOT if is_snapshot else StateFileKind.DELTA
    batches = merged([files.batches(file) for file in folded])
    wanted = _while_wanted(_without_deletions(batches) if is_snapshot else batches, is_wanted)
    return files.write_batches(place, kind, folded[-1].version, wanted, reaches, covers)


def _without_deletions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = batch.column(2)
        left = batch.filter(values.is_valid()) if values.null_count else batch
        if left.num_rows:
            yield left


def _while_wanted(batches: Iterator[pa.RecordBatch], is_wanted: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not is_wanted():
            raise StateError(
                "this fold is not wanted any more: its worker has ended",
                "nothing is to be done: the worker that takes over folds again",
            )
        yield batch
