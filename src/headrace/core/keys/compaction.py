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
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.checkpoint import Head, StateFile

FOLD_FILES_MIN = 4  # folding fewer would write a small file twice in most rounds
SNAPSHOT_BYTES_MIN = 256 * 1024  # deltas below this are not worth a snapshot for their size alone
SNAPSHOT_BYTES_MAX = 4 * 1024 * 1024  # of other tasks' files: up to here they are replaced as soon as it is the task's turn
BORROWED_FILES_MAX = 512  # a head with more of them is long to read and to store, however large they are


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
