"""Heads after splits and merges, by the rules that they are to keep; what is in the files is not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.keys.compaction import borrowed, fold_start, is_snapshot_due
from headrace.core.keys.heads import FILES_MAX, added_files, apart_at_first, head_of, is_too_long
from headrace.core.keys.key_layout import slots_of
from headrace.model.checkpoint import Head, Slots, StateFile, StateFileKind
from headrace.model.tasks import KeyBucket

FACTORS = st.sampled_from([1, 2, 4, 8])
GLOBAL = ("rates",)
Heads = list[Head | None]  # by bucket


def buckets(factor: int) -> list[Slots | None]:
    return [slots_of(KeyBucket(index, factor)) if factor > 1 else None for index in range(factor)]


def recut(heads: Sequence[Head | None], factor: int) -> Heads:
    """Each new task from the old ones with a common bucket: one of a factor is in those of a lower one with its low bits."""
    common = min(len(heads), factor)
    return [
        head_of([head for old, head in enumerate(heads) if old % common == new % common], slots, GLOBAL)
        for new, slots in enumerate(buckets(factor))
    ]


def covered(head: Head) -> list[tuple[str, int]]:
    """Each file of the head with each slot of which it counts."""
    return [(file.name, slot) for file in head.files for slot in range(file.counted.low, file.counted.high)]


class Writer:
    """Names files, and keeps for each slot what was written there since: the dumb second account."""

    def __init__(self) -> None:
        self.count = 0
        self.of_slot: list[list[str]] = [[] for _ in range(1024)]

    def file(self, kind: StateFileKind, version: int, slots: Slots | None, reaches: str = "") -> StateFile:
        self.count += 1
        return StateFile(f"app/t/{self.count}", kind, 1000, 1, f"c{self.count}", version, reaches, slots)

    def delta(self, head: Head | None, slots: Slots | None) -> Head:
        version = 1 + (head.version if head else 0)
        file = self.file(StateFileKind.DELTA, version, slots)
        for slot in range(1024) if slots is None else range(slots.low, slots.high):
            self.of_slot[slot].append(file.name)
        return Head(version, (*(head.files if head else ()), file), slots)

    def snapshot(self, head: Head, slots: Slots | None) -> Head:
        file = self.file(StateFileKind.SNAPSHOT, head.version, slots, head.identity)
        for slot in range(1024) if slots is None else range(slots.low, slots.high):
            self.of_slot[slot] = [file.name]
        return Head(head.version, (file,), slots)


steps = st.one_of(
    st.tuples(st.just("delta"), st.integers(0, 7)),
    st.tuples(st.just("snapshot"), st.integers(0, 7)),
    st.tuples(st.just("change"), FACTORS),
)
histories = st.lists(steps, max_size=14)


def after(history: list[tuple[str, int]]) -> tuple[Heads, Writer]:
    heads: Heads = [None]
    writer = Writer()
    for step, number in history:
        if step == "change":
            heads = recut(heads, number)
            continue
        at = number % len(heads)
        head, slots = heads[at], buckets(len(heads))[at]
        if step == "delta":
            heads[at] = writer.delta(head, slots)
        elif head is not None:
            heads[at] = writer.snapshot(head, slots)
    return heads, writer


@given(histories)
def test_each_slot_has_the_files_that_were_written_there_in_their_order(history: list[tuple[str, int]]) -> None:
    heads, writer = after(history)
    found: list[list[str]] = [[] for _ in range(1024)]
    for head, slots in zip(heads, buckets(len(heads)), strict=True):
        if head is not None:
            assert head.slots == slots
            for name, slot in covered(head):
                assert slots is None or slots.low <= slot < slots.high
                found[slot].append(name)
    assert found == writer.of_slot


@given(histories, FACTORS, FACTORS)
def test_cut_and_cut_back_is_the_same_value(history: list[tuple[str, int]], through: int, to: int) -> None:
    heads, _ = after(history)
    assert recut(heads, len(heads)) == heads
    assert recut(recut(heads, through), len(heads)) == heads
    assert recut(recut(heads, max(through, to)), to) == recut(heads, to)


@given(histories, FACTORS, FACTORS)
def test_cut_several_times_is_as_cut_once(history: list[tuple[str, int]], through: int, to: int) -> None:
    heads, _ = after(history)
    assert recut(recut(heads, through), to) == recut(heads, to)


@given(histories, FACTORS)
def test_different_states_have_different_identities(history: list[tuple[str, int]], factor: int) -> None:
    """A state is what its files make it, in which parts and which order."""
    heads, _ = after(history)
    seen: dict[str, tuple[StateFile, ...]] = {}
    for head in [*heads, *recut(heads, factor), *recut(heads, 8)]:
        if head is not None:
            assert head.identity == head.identities[-1]
            assert len(set(head.identities)) == len(head.files)
            assert seen.setdefault(head.identity, head.files) == head.files


@given(histories)
def test_a_state_that_a_task_went_through_keeps_its_identity(history: list[tuple[str, int]]) -> None:
    """A store that holds it catches up."""
    heads, writer = after(history)
    for at, slots in enumerate(buckets(len(heads))):
        before = heads[at]
        later = writer.delta(before, slots)
        assert before is None or before.identity in later.identities
        folded = writer.snapshot(later, slots)
        assert folded.identity == later.identity
        assert later.identity in writer.delta(folded, slots).identities


def test_files_of_the_split_and_of_the_merge() -> None:
    one = StateFile("1", StateFileKind.SNAPSHOT, 800, 1, "c", 1)
    two = StateFile("2", StateFileKind.DELTA, 80, 1, "c", 2)
    low, high = Slots(0, 512), Slots(512, 1024)
    first, second = recut([Head(2, (one, two))], 2)
    part = {"slots": low, "whole": GLOBAL}
    assert first == Head(2, (replace(one, **part), replace(two, **part)), low)
    assert [file.counted_bytes for file in first.files] == [400, 40]
    own = StateFile("3", StateFileKind.DELTA, 8, 1, "c", 3, covers=low)
    written = Head(3, (*first.files, own), low)
    assert recut([written, second], 1) == [Head(3, (one, two, own))]
    assert recut([Head(3, (own,), low), None], 1) == [Head(3, (own,))]
    assert recut([Head(3, (own,), low), second], 1) == [
        Head(3, (replace(one, slots=high, whole=GLOBAL), replace(two, slots=high, whole=GLOBAL), own))
    ]


def test_what_others_wrote_is_replaced_and_never_folded_in_part() -> None:
    megabytes = 1024 * 1024
    large = StateFile("1", StateFileKind.SNAPSHOT, 7 * megabytes, 1, "c", 1)
    tiny = [StateFile(f"{n}", StateFileKind.DELTA, 10, 1, "c", n) for n in range(2, 5)]
    half, _ = recut([Head(4, (large, *tiny))], 2)
    assert half is not None
    assert list(borrowed(half)) == list(half.files)
    assert is_snapshot_due(half)
    half, _ = recut([Head(4, (replace(large, bytes=9 * megabytes), *tiny))], 2)
    assert half is not None
    assert not is_snapshot_due(half)
    own = [StateFile(f"{n}", StateFileKind.DELTA, 10, 1, "c", n, covers=half.slots) for n in range(5, 10)]
    assert [fold_start(Head(4 + n, (*half.files, *own[:n]), half.slots)) for n in range(6)] == [None] * 4 + [4, 4]
    grown = replace(own[0], bytes=5 * megabytes)
    assert fold_start(Head(5, (*half.files, grown), half.slots)) == 0
    assert not is_snapshot_due(None)
    assert not is_snapshot_due(Head(4, (large, *tiny)))


def test_a_merge_of_very_many_is_said_to_be_too_long() -> None:
    writer = Writer()
    parts: list[Head | None] = []
    for slots in buckets(1024):
        head: Head | None = None
        for _ in range(2):
            head = writer.delta(head, slots)
        parts.append(head)
    (merged,) = recut(parts, 1)
    assert merged is not None
    assert len(merged.files) == 2048 > FILES_MAX
    assert is_too_long(merged)
    assert is_snapshot_due(merged)
    assert not is_too_long(parts[0])
    assert not is_too_long(None)


def of_each_slot(files: Sequence[StateFile]) -> list[list[StateFile]]:
    found: list[list[StateFile]] = [[] for _ in range(1024)]
    for file in files:
        for slot in range(file.counted.low, file.counted.high):
            found[slot].append(replace(file, slots=None, whole=()))
    return found


@given(histories, histories, FACTORS)
def test_what_is_added_goes_on_from_what_was_there_in_each_slot(
    first: list[tuple[str, int]], then: list[tuple[str, int]], factor: int
) -> None:
    heads, writer = after(first)
    before = recut(heads, factor)
    slots, is_folded = buckets(len(heads)), False
    for step, number in then:
        at, head = number % len(heads), heads[number % len(heads)]
        if step == "delta":
            heads[at] = writer.delta(head, slots[at])
        elif step == "snapshot" and head is not None:
            heads[at], is_folded = writer.snapshot(head, slots[at]), True
    for held, wanted in zip(before, recut(heads, factor), strict=True):
        if held is None or wanted is None:
            continue
        added = added_files(held, wanted)
        if added is None:
            assert is_folded
            continue
        goes_on = zip(of_each_slot(held.files), of_each_slot(added), of_each_slot(wanted.files), strict=True)
        assert all(there + more == wanted_there for there, more, wanted_there in goes_on)


def test_nothing_is_added_to_what_was_taken_back() -> None:
    writer = Writer()
    first = writer.delta(None, None)
    left, taken = writer.delta(first, None), writer.delta(first, None)
    assert added_files(first, taken) == taken.files[1:]
    assert added_files(left, taken) is None
    assert added_files(left, first) is None
    assert added_files(first, writer.snapshot(left, None)) is None
    low, high = recut([left], 2)
    assert low is not None and high is not None
    assert added_files(low, high) is None
    own = writer.delta(low, low.slots)
    assert added_files(low, own) == own.files[2:]
    (merged,) = recut([own, high], 1)
    assert merged is not None
    assert added_files(left, merged) == own.files[2:]


def test_files_without_a_common_slot_are_read_by_slot() -> None:
    parts = [StateFile(str(n), StateFileKind.SNAPSHOT, 1, 1, "c", n, covers=slots) for n, slots in enumerate(buckets(4), 1)]
    both = StateFile("5", StateFileKind.DELTA, 1, 1, "c", 5)
    assert [file.counted.low for file in apart_at_first([*parts, both])] == [0, 256, 512, 768]
    assert apart_at_first([both, *parts]) == (both,)
    assert apart_at_first([replace(both, slots=Slots(0, 2), whole=GLOBAL)]) == ()
    assert apart_at_first([]) == ()
