"""When state files are folded: simulated chains stay short, are written cheaply and restored cheaply."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.keys.compaction import (
    FOLD_FILES_MIN,
    ROUND_BYTES_MAX,
    SNAPSHOT_BYTES_MIN,
    DueFolds,
    due_folds,
    files_until,
    fold_start,
    is_large,
    with_fold,
)
from headrace.model.checkpoint import Head, StateFile, StateFileKind

KIB = 1024


def delta(size: int) -> StateFile:
    return StateFile("d", StateFileKind.DELTA, size, 1, "0")


def snapshot(size: int) -> StateFile:
    return StateFile("s", StateFileKind.SNAPSHOT, size, 1, "0")


def sizes(files: list[StateFile]) -> list[int]:
    return [file.bytes for file in files]


class Chain:
    """A simulated head. Entry sizes are 1 byte per key; a delta is the set of keys it changes."""

    def __init__(self, unit: int = 1) -> None:
        self.unit = unit
        self.files: list[tuple[StateFile, frozenset[int]]] = []
        self.written = 0  # bytes
        self.appended = 0  # bytes of deltas before any folding
        self.longest = 0

    @property
    def state_files(self) -> list[StateFile]:
        return [file for file, _ in self.files]

    def round(self, keys: frozenset[int]) -> None:
        start = fold_start(Head(1, tuple(self.state_files)))
        if start is not None:
            merged = frozenset[int]().union(*(found for _, found in self.files[start:]))
            make = snapshot if start == 0 else delta
            self.files[start:] = [(make(len(merged) * self.unit), merged)]
            self.written += len(merged) * self.unit
        assert fold_start(Head(1, tuple(self.state_files))) is None, "one fold is enough"
        assert self.bytes <= 2 * self.files[0][0].bytes + SNAPSHOT_BYTES_MIN if self.files else True
        self.files.append((delta(len(keys) * self.unit), keys))
        self.written += len(keys) * self.unit
        self.appended += len(keys) * self.unit
        self.longest = max(self.longest, len(self.files))

    @property
    def bytes(self) -> int:
        return sum(sizes(self.state_files))

    @property
    def state_bytes(self) -> int:
        return self.unit * len(frozenset[int]().union(*(keys for _, keys in self.files)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], None),
        ([snapshot(1000)], None),
        ([delta(10**9)], None),  # the first delta is as good as a snapshot
        ([snapshot(1000), delta(1), delta(1), delta(1)], None),
        ([snapshot(1000), delta(1), delta(1), delta(1), delta(1)], 1),
        ([snapshot(1000), delta(4), delta(1), delta(1), delta(1)], None),
        ([snapshot(1000), delta(4), delta(1), delta(1), delta(1), delta(1)], 1),
        ([snapshot(1000), delta(8), delta(1), delta(1), delta(1), delta(1)], 2),
        ([snapshot(10), delta(4), delta(3), delta(3)], 0),  # small, but four files
        ([snapshot(SNAPSHOT_BYTES_MIN), delta(SNAPSHOT_BYTES_MIN)], 0),
        ([snapshot(1), delta(SNAPSHOT_BYTES_MIN)], 0),
        ([snapshot(1), delta(SNAPSHOT_BYTES_MIN - 1)], None),
        ([snapshot(10**9), delta(10**9 - 1)], None),
    ],
    ids=lambda value: "-".join(map(str, sizes(value))) if isinstance(value, list) else str(value),
)
def test_examples(files: list[StateFile], expected: int | None) -> None:
    assert fold_start(Head(1, tuple(files))) == expected


def test_ten_thousand_tiny_deltas() -> None:
    """Of keys that never come again: the state only grows."""
    chain: list[StateFile] = []
    reads = 0
    written = 0
    for _ in range(10_000):
        start = fold_start(Head(1, tuple(chain)))
        if start is not None:
            total = sum(sizes(chain[start:]))
            chain[start:] = [snapshot(total) if start == 0 else delta(total)]
            written += total
        chain.append(delta(100))
        written += 100
        reads = max(reads, len(chain))
    assert reads <= 16
    assert written <= 100 * 10_000 * (2 + log2(10_000))


def test_a_small_state_is_not_folded_in_every_round() -> None:
    """The same 200 bytes over and over: at most one fold in three rounds."""
    chain, folds = Chain(), 0
    keys = frozenset(range(200))
    for _ in range(300):
        folds += fold_start(Head(1, tuple(chain.state_files))) is not None
        chain.round(keys)
    assert folds <= 100
    assert chain.longest <= FOLD_FILES_MIN
    assert chain.written <= 2 * chain.appended


def test_a_large_state_that_changes_a_little_is_seldom_written_anew() -> None:
    chain = Chain(unit=KIB)
    chain.round(frozenset(range(20_000)))
    first = chain.written
    for number in range(400):
        chain.round(frozenset(range(number * 7 % 19_000, number * 7 % 19_000 + 25)))
    assert chain.state_files[0].bytes == first  # 10 MB of changes do not make 20 MB anew
    assert chain.written - first <= 25 * 400 * KIB * (2 + log2(400))


rounds = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(1, 8) | st.integers(1, 1500)), min_size=1, max_size=120
).map(lambda spans: [frozenset(range(start, start + width)) for start, width in spans])


@given(rounds, st.sampled_from([1, 100, 4 * KIB]))
def test_random_rounds(changes: list[frozenset[int]], unit: int) -> None:
    chain = Chain(unit)
    expected: frozenset[int] = frozenset()
    for keys in changes:
        chain.round(keys)
        expected |= keys
        # Read on a restore: the files before the newest delta are bounded, and the newest is no larger than the state.
        assert chain.bytes <= 2 * chain.state_bytes + SNAPSHOT_BYTES_MIN + chain.state_files[-1].bytes
    assert chain.state_bytes == len(expected) * unit, "a fold lost a key"
    assert chain.longest <= 16
    assert chain.written <= chain.appended * (2 + log2(chain.appended + 1))


@given(st.lists(st.integers(0, 10**9), max_size=40))
def test_any_chain_is_short_after_one_fold(found: list[int]) -> None:
    """Also one that these rules did not make, such as after a change of them."""
    files = [delta(size) for size in found]
    start = fold_start(Head(1, tuple(files)))
    if start is not None:
        total = sum(sizes(files[start:]))
        files[start:] = [snapshot(total) if start == 0 else delta(total)]
    assert fold_start(Head(1, tuple(files))) is None
    assert len(files) <= 32 + FOLD_FILES_MIN
    assert sum(sizes(files)) <= 2 * sum(sizes(files[:1])) + SNAPSHOT_BYTES_MIN


def test_files_that_are_held_stay_and_the_others_are_folded_among_themselves() -> None:
    chain = [snapshot(1000), delta(600), delta(300)]
    held = list(chain)
    for _ in range(2_000):
        start = fold_start(Head(1, tuple(chain)), len(held))
        if start is not None:
            chain[start:] = [delta(sum(sizes(chain[start:])))]
        assert chain[: len(held)] == held
        chain.append(delta(100))
        assert len(chain) <= len(held) + 16
    assert fold_start(Head(1, tuple(chain))) == 0  # when nothing is held any more


MIB = 1024 * KIB
assert ROUND_BYTES_MAX == 2 * MIB


@pytest.mark.parametrize(
    ("files", "held", "expected"),
    [
        ([snapshot(100), delta(1), delta(1), delta(1), delta(1)], 0, DueFolds(1, None)),
        ([snapshot(3 * MIB), delta(3 * MIB)], 0, DueFolds(None, 0)),
        ([snapshot(3 * MIB), delta(3 * MIB), *[delta(1)] * 4], 0, DueFolds(2, 0)),  # the newest ones do not wait for it
        ([snapshot(9 * MIB), delta(3 * MIB), delta(MIB), delta(MIB), delta(MIB)], 0, DueFolds(None, 1)),
        ([snapshot(3 * MIB), delta(3 * MIB)], 2, DueFolds(None, None)),
        ([snapshot(3 * MIB), delta(3 * MIB), *[delta(1)] * 4], 2, DueFolds(2, None)),
    ],
    ids=str,
)
def test_background_folds_are_not_for_a_round(files: list[StateFile], held: int, expected: DueFolds) -> None:
    assert due_folds(Head(1, tuple(files)), held) == expected


@given(st.lists(st.integers(1, 4 * MIB), min_size=1, max_size=12), st.integers(0, 12), st.booleans())
def test_what_a_round_folds_is_small_and_all_is_folded_in_the_end(sizes_: list[int], held: int, all_: bool) -> None:
    head = Head(1, (snapshot(sizes_[0]), *map(delta, sizes_[1:])))
    due = due_folds(head, held, all_=all_)
    assert due.now is None or sum(sizes(list(head.files[due.now :]))) <= ROUND_BYTES_MAX
    wanted = 0 if all_ else fold_start(head, held)
    assert wanted in (due.now, due.background)
    assert due.background is None or is_large(head)


@given(st.integers(2, 8), st.data())
def test_a_fold_takes_the_place_of_the_files_that_it_was_made_of(count: int, data: st.DataObject) -> None:
    files = tuple(StateFile(f"f{number}", StateFileKind.DELTA, 1, 1, "0", number) for number in range(count))
    start = data.draw(st.integers(0, count - 2))
    stop = data.draw(st.integers(start + 1, count))
    held = data.draw(st.integers(0, count))
    fold = StateFile("fold", StateFileKind.DELTA if start else StateFileKind.SNAPSHOT, 1, 1, "0", stop - 1, "reached")
    head = Head(count, files)
    found = with_fold(head, files[start:stop], fold, held)
    assert files_until(head, files[start:stop]) == stop
    if held > start:
        assert found is None
    else:
        assert found == Head(count, (*files[:start], fold, *files[stop:]))
        assert with_fold(found, files[start:stop], fold) is None, "it was taken"
        assert files_until(found, files[start:stop]) == 0


def test_a_snapshot_takes_the_place_of_the_first_files_only() -> None:
    files = tuple(StateFile(f"f{number}", StateFileKind.DELTA, 1, 1, "0", number) for number in range(3))
    assert with_fold(Head(3, files), files[1:], snapshot(1)) is None
