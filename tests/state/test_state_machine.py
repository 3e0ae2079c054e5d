"""Random lives of a task's state against a dict: rounds that commit or do not, folds, moves, losses, roll-backs."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from state_place import FILES, Contents, HeldProcess, Place, after, make_changes

from headrace.adapters.lmdb import close_idle
from headrace.core.keys import compaction as folding
from headrace.model.checkpoint import Head, StateFileKind
from headrace.wiring.worker.background_folds import BackgroundFolds
from headrace.worker.state.task_state import TaskState

changes_of_a_round = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.binary(min_size=1, max_size=1), st.none() | st.binary(max_size=300), min_size=1, max_size=12),
)


class Lives(RuleBasedStateMachine):
    """`history`: every state ever committed. Two machines hold local folders; the task runs on one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(folding, "SNAPSHOT_BYTES_MIN", 6_000)  # so that short lives see snapshots
        self.patch.setattr(folding, "ROUND_BYTES_MAX", 4_000)
        self.process = HeldProcess()
        self.root = Path(tempfile.mkdtemp())
        self.history: list[tuple[Head | None, Contents]] = [(None, {})]
        self.runs = 0
        self.expected_notes: list[str] = []

    @initialize()
    def begin(self) -> None:
        self.places = [Place(self.root), Place(self.root)]
        self.places[1].local = self.root / "elsewhere" / "Partition_0"
        self.place = self.places[0]

    @rule(changes=changes_of_a_round)
    def commit(self, changes: dict[str, dict[bytes, bytes | None]]) -> None:
        head, contents = self.history[-1]
        self.history.append((self.work(head, changes), after(contents, changes)))

    @rule(changes=changes_of_a_round)
    def fail_before_the_commit(self, changes: dict[str, dict[bytes, bytes | None]]) -> None:
        self.work(self.history[-1][0], changes)

    @rule()
    def move(self) -> None:
        self.place = self.places[self.place is self.places[0]]

    @rule()
    def new_run(self) -> None:
        self.runs += 1
        for place in self.places:
            place.run_id = f"run-{self.runs}"
            place.forget_written()
        close_idle()

    @rule(started_anew=st.booleans())
    def lose_the_folder(self, started_anew: bool) -> None:
        if started_anew:
            self.place.boot_id += "'"
            return
        close_idle()
        shutil.rmtree(self.place.local, ignore_errors=True)

    @rule(is_made=st.booleans())
    def a_background_fold_ends(self, is_made: bool) -> None:
        self.process.end(is_made=is_made)

    @rule(back=st.integers(1, 3))
    def roll_back(self, back: int) -> None:
        self.history = self.history[: max(1, len(self.history) - back)]

    def work(self, head: Head | None, changes: dict[str, dict[bytes, bytes | None]]) -> Head | None:
        with self.place.open(head) as store:
            state = TaskState(store, head)
            make_changes(state, changes)
            contents = self.history[-1][1]
            expected = after(contents, changes)
            for db in ("a", "b"):
                assert dict(state.database(db).scan()) == expected.get(db, {})
            folds = BackgroundFolds(self.place.local, str(self.runs), str(self.root / "state"), FILES, self.process)
            return state.write(self.place.files, FILES, folds)

    @invariant()
    def the_store_holds_what_was_committed(self) -> None:
        head, contents = self.history[-1]
        found, _ = self.place.read(head)
        assert found == contents

    @invariant()
    def versions_rise_by_one_through_a_short_chain(self) -> None:
        heads = [head for head, _ in self.history if head is not None]
        versions = [head.version for head in heads]
        assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(versions))
        for head in heads:
            of_files = [file.version for file in head.files]
            assert of_files == sorted(set(of_files))
            assert of_files[-1] == head.version

    def teardown(self) -> None:
        self.process.end(is_made=False)
        close_idle()
        self.patch.undo()
        shutil.rmtree(self.root)


Lives.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLives = Lives.TestCase


def test_a_long_life_folds_and_stays_short(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 rounds on a large state: another machine that comes back every third round is behind, and catches up."""
    monkeypatch.setattr(folding, "SNAPSHOT_BYTES_MIN", 8_000)
    head: Head | None = None
    contents: Contents = {}
    behind = Place(place.root)
    behind.local = place.root / "behind" / "Partition_0"
    changes = {"a": {b"%d" % number: random.randbytes(8) for number in range(2_000)}}
    folds_of_deltas, snapshots, catch_ups = set(), set(), 0
    for number in range(120):
        head, contents = place.round(head, changes), after(contents, changes)
        snapshots |= {file.name for file in head.files if file.kind is StateFileKind.SNAPSHOT}
        folds_of_deltas |= {file.name for file in head.files[1:] if file.reaches}
        if number % 3 == 0:
            found, notes = behind.read(head)
            assert found == contents
            catch_ups += not notes
        assert len(head.files) <= 16
        changes = {"a": {b"%d" % (number * k % 400): None if k == 3 else random.randbytes(200) for k in range(1, 5)}}
    assert place.read(head) == (contents, [])
    assert len(snapshots) >= 1
    assert len(folds_of_deltas) >= 3
    assert catch_ups >= 3
