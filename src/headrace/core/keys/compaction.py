"""When the files of a task's state are folded, so that the chain stays short and a restore cheap.

The state of a task is a chain of files: one base, then deltas. Each round would append one more. Before it does, the
newest files may be folded into one:

    sizes in KiB, base 1000, each delta 1, and nothing in them twice

    1000 | 1 1 1        three deltas: too few to bother
    1000 | 1 1 1 1      four, and the oldest of them is not larger than the rest together: fold them    -> 1000 | 4
    1000 | 4 1 1 1 1    from 4 on, for 4 <= 1+1+1+1                                                     -> 1000 | 8
    1000 | 8 4 1 1 ...
    1000 | (1000 in all)  the deltas are as large as the base: fold everything                          -> 2000

So before a fold each file is larger than all that follow it, but for the last few: the chain's length is logarithmic. A
byte that is folded ends up in a file at least twice as large, but for its first fold: so it is written a logarithmic
number of times. And the deltas are never larger than the base, but for 256 KiB that are not worth a snapshot: a restore
reads at most twice the state. (Of a state that shrinks by deletions it reads what the last snapshot held.)

After a change of the elasticity factor a head begins with files of other tasks, of which this one has a part
(`core.keys.heads`). They count as the base, with the bytes of that part, and are not folded one by one: they hold keys of
others. A snapshot of the task's own takes their place, soon where that is up to `SNAPSHOT_BYTES_MAX`, else when the deltas are
as large as the base.

A round folds up to `ROUND_BYTES_MAX`: records wait for it. More than that is folded in the background. Rounds
continue to append meanwhile, and to fold small files behind it, and then put the fold in the place of the files it was made of:

    1000 | 980 10 10        the deltas are as large as the base: all is folded, in the background
    1000 | 980 10 10 1 1    meanwhile
    2000 | 1 1              a round has taken it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model.checkpoint import Head, StateFile, StateFileKind

FOLD_FILES_MIN = 4  # folding fewer would write a small file twice in most rounds
SNAPSHOT_BYTES_MIN = 256 * 1024  # deltas below this are not worth a snapshot for their size alone
SNAPSHOT_BYTES_MAX = 4 * 1024 * 1024  # of other tasks' files: up to here they are replaced as soon as it is the task's turn
BORROWED_FILES_MAX = 512  # a head with more of them is long to read and to store, however large they are
ROUND_BYTES_MAX = 2 * 1024 * 1024  # so many are folded while records wait


def borrowed(head: Head) -> Sequence[StateFile]:
    """The files of `head` up to the last one that the task has not written itself."""
    count = len(head.files)
    while count and head.is_own(head.files[count - 1]):
        count -= 1
    return head.files[:count]


def is_snapshot_due(head: Head | None) -> bool:
    """Whether a task is to write a snapshot in place of files of others. One task of a container and round does."""
    files = () if head is None else borrowed(head)
    return bool(files) and (_bytes_of(files) <= SNAPSHOT_BYTES_MAX or len(files) > BORROWED_FILES_MAX)


def fold_start(head: Head, held: int = 0) -> int | None:
    """Where to begin folding the files of `head`, oldest first, before another delta is appended to them.

    `i`: `files[i:]` become ONE delta, which keeps its deletions. 0: all become a snapshot, which needs none. None: just
    append. The answer after a fold is None: folding once is enough. `held`: so many files, the first ones, stay as they are.
    """
    base = max(held, len(borrowed(head)), 1)
    sizes = [_bytes_of(head.files[:base]), *(file.bytes for file in head.files[base:])]
    start = _fold_start(sizes, may_be_all=not held)
    return start if not start else start + base - 1


@dataclass(frozen=True, slots=True)
class DueFolds:
    """What is to be folded before another delta is appended: the files from `now` on by the round, those from `background` on
    in the background. None: nothing."""

    now: int | None
    background: int | None


def due_folds(head: Head, held: int = 0, *, all_: bool = False) -> DueFolds:
    """`fold_start`, or a fold of all files if `all_`, if a round may do that; else for another time, and for now a fold of the
    newest files that a round may do."""
    start = 0 if all_ else fold_start(head, held)
    if start is None or _bytes_of(head.files[start:]) <= ROUND_BYTES_MAX:
        return DueFolds(start, None)
    large, bytes_ = len(head.files), 0  # up to where they are not for a round
    while (bytes_ := bytes_ + head.files[large - 1].counted_bytes) <= ROUND_BYTES_MAX:
        large -= 1
    return DueFolds(fold_start(head, max(held, large)), start)


def is_large(head: Head) -> bool:
    """Whether some of its files may be folded in the background."""
    return _bytes_of(head.files) > ROUND_BYTES_MAX


def with_fold(head: Head, replaced: Sequence[StateFile], fold: StateFile, held: int = 0) -> Head | None:
    """`head` with `fold` in place of the files that it was made of; None where they are not in it one after the other, and
    where some of them are among the `held` first ones."""
    start = _place_of(replaced, head)
    if start is None or start < held or (start and fold.kind is StateFileKind.SNAPSHOT):
        return None
    return Head(head.version, (*head.files[:start], fold, *head.files[start + len(replaced) :]), head.slots)


def files_until(head: Head, files: Sequence[StateFile]) -> int:
    """How many files of `head` there are up to the last of `files`; 0 where these are not in it one after the other."""
    start = _place_of(files, head)
    return 0 if start is None else start + len(files)


def _place_of(files: Sequence[StateFile], head: Head) -> int | None:
    if not files or files[0] not in head.files:
        return None
    start = head.files.index(files[0])
    return start if head.files[start : start + len(files)] == tuple(files) else None


def _bytes_of(files: Sequence[StateFile]) -> int:
    return sum(file.counted_bytes for file in files)


def _fold_start(sizes: Sequence[int], *, may_be_all: bool = True) -> int | None:
    """As `fold_start`, for the base's bytes and those of each delta. `may_be_all`: the base, too."""
    if len(sizes) < 2:
        return None
    start = len(sizes) - 1
    after = 0  # bytes of the files behind the one looked at
    for index in range(len(sizes) - 1, -1, -1):
        if sizes[index] <= after and (index or may_be_all):
            start = index
        if index:
            after += sizes[index]
    if may_be_all and after >= max(sizes[0], SNAPSHOT_BYTES_MIN):
        return 0
    return start if len(sizes) - start >= FOLD_FILES_MIN else None
