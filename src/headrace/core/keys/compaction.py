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
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.checkpoint import StateFile

FOLD_FILES_MIN = 4  # folding fewer would write a small file twice in most rounds
SNAPSHOT_BYTES_MIN = 256 * 1024  # deltas below this are not worth a snapshot for their size alone


def fold_start(files: Sequence[StateFile]) -> int | None:
    """Where to begin folding `files`, oldest first, before another delta is appended to them.

    `i`: `files[i:]` become ONE delta, which keeps its deletions. 0: all become a snapshot, which needs none. None: just
    append. The answer after a fold is None: folding once is enough.
    """
    if len(files) < 2:
        return None
    start = len(files) - 1
    after = 0  # bytes of the files behind the one looked at
    for index in range(len(files) - 1, -1, -1):
        if files[index].bytes <= after:
            start = index
        if index:
            after += files[index].bytes
    if after >= max(files[0].bytes, SNAPSHOT_BYTES_MIN):
        return 0
    return start if len(files) - start >= FOLD_FILES_MIN else None
