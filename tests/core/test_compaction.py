"""When state files are folded: simulated chains stay short, are written cheaply and restored cheaply."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.keys.compaction import FOLD_FILES_MIN, SNAPSHOT_BYTES_MIN, fold_start
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
