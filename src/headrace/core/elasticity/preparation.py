"""Which local stores are made before another elasticity factor comes into force: its pause is not to grow with the state.

While rounds run, the store of each task that there shall be is made of the state files that its parents have by now. What
these write meanwhile is added at the first opening, or before, where it is much: each turn has less to add than the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.core.elasticity.recut import Recut
from headrace.core.keys.heads import added_files, head_of
from headrace.core.keys.key_layout import slots_of
from headrace.model.checkpoint import Checkpoint, Head, StateFile
from headrace.model.tasks import TaskName

PREPARED_BYTES_MIN = 8 * 1024 * 1024  # of state files; up to here stores are made within some 0.2 s
LEFT_BYTES_MAX = 1024 * 1024  # so much is added within a round
ROOM_TIMES = 4  # a store takes up to 3 times the bytes of the state files that it is made of, and the rounds need room too
TURNS_MAX = 8  # under a load that changes more than is added meanwhile it is never near

Heads = Mapping[TaskName, Head]


def heads_ahead(recut: Recut, checkpoints: Mapping[TaskName, Checkpoint]) -> dict[TaskName, Head]:
    """The heads that the tasks there shall be would have now, of those with state. Parents may be at different positions: what
    they have is theirs alone, but for databases that are whole in each, where the last of them to write makes all alike."""
    found = {}
    for name, parents in recut.parents.items():
        head = head_of([checkpoints[one].head for one in parents], slots_of(name.bucket), recut.whole)
        if head is not None and (name,) != parents:
            found[name] = head
    return found


def bytes_to_read(heads: Heads) -> int:
    """About how many bytes of state files their stores are made of."""
    return _bytes_of(file for head in heads.values() for file in head.files)


def bytes_left(prepared: Heads, now: Heads) -> int:
    """How many bytes of state files have come since; of a store that cannot be brought on, all."""
    left = 0
    for name, head in now.items():
        added = added_files(prepared[name], head) if name in prepared else None
        left += _bytes_of(head.files if added is None else added)
    return left


def room_needed(heads: Heads) -> int:
    """How many bytes must be free on the disk for their stores to be made beside those that are in use."""
    return ROOM_TIMES * bytes_to_read(heads)


def is_worth_it(heads: Heads) -> bool:
    """Whether the pause would be felt without."""
    return bytes_to_read(heads) >= PREPARED_BYTES_MIN


def is_near(prepared: Heads, now: Heads, turns: int) -> bool:
    """Whether what is left is added within the first round; `turns`: how often stores were brought on."""
    return turns >= TURNS_MAX or bytes_left(prepared, now) <= LEFT_BYTES_MAX


def _bytes_of(files: Iterable[StateFile]) -> int:
    return sum(file.counted_bytes for file in files)
