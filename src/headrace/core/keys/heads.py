"""The heads of tasks whose slots change: made of the files that others have written, which stay as they are.

A task of slots 0 to 1,024 is split into two, of 0 to 512 and of 512 to 1,024:

    1 snapshot, 2 delta        ->  1 snapshot | 0-512, 2 delta | 0-512         and the same with | 512-1024

The first of them writes a delta of its own, and the two are merged. What both have is there once, with the slots of both:

    1 snapshot | 0-512, 2 delta | 0-512, 3 delta (covers 0-512)
    1 snapshot | 512-1024, 2 delta | 512-1024      ->  1 snapshot, 2 delta, 3 delta (covers 0-512)

A head says of each slot which files count there, and in what order. That alone decides its form here: so split and merged back
it is the same value as before, and cut several times it is what it would have become at once. The order of the files is that of
their versions: each file of a slot has a higher one than those before it, as a task's versions rise, and those of a head begin
above the versions of all its files.

Stores that are whole in every task (`whole`, of what is broadcast) change alike in all virtual tasks of one. So of such a
store a head may have what several of them have written, when these were at one position: each sequence of files comes to the
same entries, and the last file that mentions a key has what all came to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b

from headrace.model.checkpoint import ALL_SLOTS, EMPTY, Head, Slots, StateFile, StateFileKind

FILES_MAX = 2_000  # a file takes up to 400 bytes of a checkpoint, and brokers take records of 1 MB


def head_of(parents: Sequence[Head | None], slots: Slots | None, whole: Collection[str] = ()) -> Head | None:
    """The head of a task with `slots` (None: all), made from those of the tasks of the same whole task that had them before,
    at one position if there are several. `whole`: the databases of stores that are whole in every task. None: no state."""
    found: dict[str, list[tuple[Slots, StateFile]]] = {}  # by the file's name what counts of it in each parent
    for parent in parents:
        for file in () if parent is None else parent.files:
            part = file.counted.within(slots or ALL_SLOTS)
            if part is not None:
                found.setdefault(file.name, []).append((part, file))
    files = [one for parts in found.values() for one in _parts_of(parts, whole)]
    if not files:
        return None
    files.sort(key=lambda file: (file.version, file.counted, file.name))
    return Head(files[-1].version, tuple(files), None if slots == ALL_SLOTS else slots)


def added_files(held: Head, wanted: Head) -> tuple[StateFile, ...] | None:
    """The files that make the state of `held` that of `wanted`, in order. None: it is not what `held` was before: something of
    that was folded or taken back since, or is not of the same slots.

    Of each slot the files of `held` must be the first of those of `wanted`. Between tasks the order of files does not matter,
    so those of a merged task may lie anywhere among each other.
    """
    there, reached = set(held.files), 0  # the second: one bit for each slot of which a file was added
    added = []
    for file in wanted.files:
        slots = ((1 << file.counted.count) - 1) << file.counted.low
        if file not in there:
            added.append(file)
            reached |= slots
        elif reached & slots:
            return None
        there.discard(file)
    # A snapshot has no deletions: what it no longer holds would stay.
    if there or held.slots != wanted.slots or any(file.kind is StateFileKind.SNAPSHOT for file in added):
        return None
    return tuple(added)


def files_to_read(head: Head | None, held: str | None, prepared: Head | None = None) -> tuple[StateFile, ...]:
    """What an opening at `head` reads of it, with a store that holds the state `held`; None: without a store that can be used.
    `prepared`: the head at whose state it is, if it was made before its task was there."""
    if head is None:
        return ()
    states = (EMPTY, *head.identities)
    if held not in states:
        added = None if prepared is None or prepared.identity != held else added_files(prepared, head)
        return head.files if added is None else added
    missing = head.files[states.index(held) :]
    # A snapshot holds no deletions: it needs an empty store, and so do the files before it.
    return head.files if any(file.kind is StateFileKind.SNAPSHOT for file in missing) else missing


def lacks_last_delta(head: Head, held: str | None) -> bool:
    """Whether a store that holds the state `held` is where the task's last round began, with the changes of that before it."""
    return held == (EMPTY, *head.identities)[-2] and head.files[-1].kind is StateFileKind.DELTA


def in_order_of_loading(head: Head | None) -> tuple[StateFile, ...]:
    """The files of a head as an empty store takes them: by slot each comes behind the one before it, so that LMDB appends."""
    files = () if head is None else head.files
    first = apart_at_first(files)
    return (*first, *files[len(first) :])


def chain_of(files: Sequence[StateFile]) -> tuple[str, ...]:
    """A name for each beginning of a sequence of files: that at `i` is of the first `i` of them and of no others."""
    found = [""]
    for file in files:
        parts = (found[-1], file.identity, file.name, str(file.counted.low), str(file.counted.high), *file.whole)
        found.append(blake2b(chr(0).join(parts).encode(), digest_size=16).hexdigest())
    return tuple(found)


def is_too_long(head: Head | None) -> bool:
    """Whether a checkpoint with this head may be larger than the systems' records."""
    return head is not None and len(head.files) > FILES_MAX


def apart_at_first(files: Sequence[StateFile]) -> tuple[StateFile, ...]:
    """The first of `files` that have no slot in common, by slot: none of their keys lies between those of another one."""
    found: list[StateFile] = []
    reached = 0
    for file in files:
        slots = ((1 << file.counted.count) - 1) << file.counted.low
        if reached & slots or file.whole:
            break
        reached |= slots
        found.append(file)
    return tuple(sorted(found, key=lambda file: file.counted))


def _parts_of(parts: Sequence[tuple[Slots, StateFile]], whole: Collection[str]) -> Iterator[StateFile]:
    """One file with all the slots of `parts`: one for each range without a gap; as it was written where that is all of it."""
    databases = tuple(sorted({*whole, *(name for _, part in parts for name in part.whole)}))
    file = parts[0][1]
    all_ = file.covers or ALL_SLOTS
    for slots in _joined(slots for slots, _ in parts) if len(parts) > 1 else (parts[0][0],):
        yield file.part(slots, databases) if slots != all_ else file.part(None)


def _joined(ranges: Iterable[Slots]) -> list[Slots]:
    """Neighbours made one.

    >>> _joined([Slots(512, 768), Slots(0, 256), Slots(256, 512), Slots(800, 900)])
    [Slots(low=0, high=768), Slots(low=800, high=900)]
    """
    found: list[Slots] = []
    for slots in sorted(ranges):
        if found and found[-1].high >= slots.low:
            slots = Slots(found.pop().low, slots.high)
        found.append(slots)
    return found
