"""A process that folds large state files of one task, once, at low priority. It ends, and leaves no file, when the worker that
has started it does. It holds the lock that it was handed as long as it lives."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from headrace.exchange.fold import FoldToMake, decoded_fold_record, decoded_fold_to_make, encoded_fold
from headrace.exchange.texts import message_of
from headrace.state_files.files import FilePlace, StateFiles
from headrace.state_files.folds import fold_of

NICENESS = 10  # the rounds come first
IN_MEMORY_BYTES_MAX = 1024 * 1024  # of each file: there may be hundreds


def fold_what_is_read(source: BinaryIO) -> None:
    """Make the fold of the first line of `source`; give up when `source` ends."""
    os.nice(NICENESS)
    line, unwanted = source.readline(), threading.Event()
    threading.Thread(target=_wait_for_end, args=(source, unwanted), daemon=True).start()
    if line.endswith(b"\n"):  # else the worker has ended already
        make_fold(decoded_fold_to_make(line), lambda: not unwanted.is_set())
    os._exit(0)  # not by the interpreter's own end: the thread that waits has the lock of the standard input


def make_fold(asked: FoldToMake, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Make a fold, and name it, or what went wrong, in its record; no record is left of one that is not wanted any more."""
    place = Path(asked.place)
    try:
        record = decoded_fold_record(place.read_bytes())
    except FileNotFoundError:  # the store was removed
        return
    try:
        made = fold_of(
            StateFiles(asked.state_uri, IN_MEMORY_BYTES_MAX),
            FilePlace(asked.task_folder, asked.epoch),
            record.folded,
            asked.reaches,
            asked.covers,
            is_snapshot=asked.is_snapshot,
            is_wanted=is_wanted,
        )
        record = replace(record, made=made)
    except Exception as error:  # no space left, say, or files that are folded were deleted, as a new plan took the state back
        if not is_wanted():
            place.unlink(missing_ok=True)
            return
        record = replace(record, error=getattr(error, "message", "") or message_of(error))
    with suppress(FileNotFoundError):  # the store was removed
        write_record(place, encoded_fold(record))


def write_record(place: Path, data: bytes) -> None:
    """At once, so that it is never read half; the writer holds the lock."""
    new = place.with_suffix(".new")
    new.write_bytes(data)
    new.replace(place)


def _wait_for_end(source: BinaryIO, unwanted: threading.Event) -> None:
    source.read()
    unwanted.set()


if __name__ == "__main__":
    fold_what_is_read(sys.stdin.buffer)
