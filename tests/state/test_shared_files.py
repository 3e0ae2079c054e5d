"""Random lives of virtual tasks that share state files, through changes of the elasticity factor, against a dict."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from state_place import Changes, Contents, HeldProcess, Place, after, make_changes

from headrace.adapters.lmdb import close_idle, opening, prepare_task_store
from headrace.client.state_reader import entries_of
from headrace.core.keys import compaction, heads
from headrace.core.keys.compaction import is_snapshot_due
from headrace.core.keys.heads import head_of
from headrace.core.keys.key_layout import slots_of, state_key, time_key
from headrace.driver.maintenance.state_garbage import StateGarbage
from headrace.errors import StateError
from headrace.model.checkpoint import Checkpoint, Head, RoundId, Slots, StateFile
from headrace.model.tasks import KeyBucket, PartitionGroup, TaskName
from headrace.state_files import files as state_files
from headrace.state_files.files import FilePlace, StateFiles, task_folder_of
from headrace.wiring.worker.background_folds import BackgroundFolds
from headrace.worker.state.task_state import TaskState

GLOBAL = "rates"
KEYS = [b"%d" % number for number in range(20)] + [b"long" * 200, b"", b"x" * 500]
Heads = dict[TaskName, Head | None]


def bucket_of(key: bytes, factor: int) -> int:
    """Counted here again."""
    return xxhash.xxh64_intdigest(key, 42) & (factor - 1)


def names(factor: int) -> list[TaskName]:
    return [TaskName(PartitionGroup(0), None, KeyBucket(i, factor) if factor > 1 else None) for i in range(factor)]


def index_of(task: TaskName) -> tuple[int, int]:
    return (0, 1) if task.bucket is None else (task.bucket.index, task.bucket.factor)


def recut(old: Heads, factor: int) -> Heads:
    """Each new task's head from those of the tasks with a common bucket."""
    found: Heads = {}
    for new in names(factor):
        index, _ = index_of(new)
        common = min(len(old), factor)
        parents = [head for task, head in old.items() if index_of(task)[0] % common == index % common]
        found[new] = head_of(parents, slots_of(new.bucket), (GLOBAL,))
    return found


Entry = tuple[str, bytes, int]  # database, user's key, and what comes below it
ENTRIES = [("counts", key, sub) for key in KEYS for sub in (0, 1)]
ENTRIES += [(index, key, at) for index in ("~expiry", "~timers.event", "~timers.wall") for key in KEYS[:9] for at in (-1, 7)]


def layout_of(entry: Entry) -> tuple[str, bytes]:
    db, key, number = entry
    return db, time_key(key, number, key[:9]) if db.startswith("~") else state_key(key, b"%d" % number)


OWNER = {layout_of(entry): entry[1] for entry in ENTRIES}
values = st.none() | st.integers(0, 200).map(lambda size: b"v" * size)
changes_of_a_round = st.dictionaries(st.sampled_from(ENTRIES), values, min_size=1, max_size=10)
changes_of_all = st.dictionaries(st.sampled_from(KEYS), values, min_size=1, max_size=4)
FACTORS = st.sampled_from([1, 2, 4, 8])


def as_changes(drawn: Iterable[tuple[tuple[str, bytes], bytes | None]]) -> Changes:
    found: dict[str, dict[bytes, bytes | None]] = {}
    for (db, layout), value in drawn:
        found.setdefault(db, {})[layout] = value
    return found


class Lives(RuleBasedStateMachine):
    """`contents`: all entries of the whole task, layout to value. The global store is in each task whole, the rest by key."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(compaction, "SNAPSHOT_BYTES_MIN", 6_000)  # so that short lives see all kinds of folds
        self.patch.setattr(compaction, "SNAPSHOT_BYTES_MAX", 4_000)
        self.patch.setattr(compaction, "ROUND_BYTES_MAX", 2_000)
        self.process = HeldProcess()
        self.root = Path(tempfile.mkdtemp())
        self.places: dict[TaskName, Place] = {}
        self.contents: Contents = {}
        self.heads: Heads = dict.fromkeys(names(1))
        self.kept: list[tuple[Heads, Contents]] = []
        self.held: dict[TaskName, int] = {}  # files that no round folds
        self.runs, self.plans, self.states = 0, 0, dict[str, Contents]()
        self.garbage = StateGarbage(StateFiles(str(self.root / "state")), "app")

    @initialize(factor=FACTORS)
    def begin(self, factor: int) -> None:
        self.heads = dict.fromkeys(names(factor))

    @rule(changes=changes_of_a_round, number=st.integers(0, 7), fails=st.booleans(), is_turn=st.booleans())
    def work(self, changes: dict[Entry, bytes | None], number: int, fails: bool, is_turn: bool) -> None:
        task = list(self.heads)[number % len(self.heads)]
        index, factor = index_of(task)
        mine = as_changes((layout_of(entry), value) for entry, value in changes.items() if bucket_of(entry[1], factor) == index)
        if not mine:
            return
        head = self.round_of(task, mine, is_turn=is_turn)
        if not fails:
            self.heads[task], self.contents = head, after(self.contents, mine)
            self.committed()

    @rule(all_changes=st.lists(changes_of_all, min_size=1, max_size=3), cuts=st.integers(0, 255))
    def broadcast(self, all_changes: list[dict[bytes, bytes | None]], cuts: int) -> None:
        """All tasks work the same records of a stream that is broadcast: some in one round, some in one for each change."""
        each = [{GLOBAL: {state_key(key): value for key, value in changes.items()}} for changes in all_changes]
        for number, task in enumerate(self.heads):
            together: dict[str, dict[bytes, bytes | None]] = {GLOBAL: {}}
            for changes in each:
                together[GLOBAL] |= changes[GLOBAL]
            for changes in [together] if cuts >> number & 1 else each:
                self.heads[task] = self.round_of(task, changes)
        for changes in each:
            self.contents = after(self.contents, changes)
        self.committed()

    @rule(factor=FACTORS)
    def change(self, factor: int) -> None:
        self.heads, self.held = recut(self.heads, factor), {}
        self.plans += 1
        self.committed()

    @rule(is_made=st.booleans())
    def end_a_background_fold(self, is_made: bool) -> None:
        self.process.end(is_made=is_made)

    @rule(factor=FACTORS, holds=st.booleans())
    def prepare(self, factor: int, holds: bool) -> None:
        """Make the stores that the tasks of another factor would have now; what is written since they get when they open it."""
        for task, head in recut(self.heads, factor).items():
            if head is not None and task not in self.heads:
                place = self.place_of(task)
                prepare_task_store(place.local, head, place.files, run_id=place.run_id, boot_id=place.boot_id)
        self.held = {task: len(head.files) for task, head in self.heads.items() if head is not None and holds}

    @rule(through=FACTORS, to=FACTORS)
    def cut_as_one_value(self, through: int, to: int) -> None:
        assert recut(self.heads, len(self.heads)) == self.heads
        assert recut(recut(self.heads, through), len(self.heads)) == self.heads
        assert recut(recut(self.heads, through), to) == recut(self.heads, to)

    @rule()
    def keep(self) -> None:
        self.kept.append((dict(self.heads), self.contents))
        self.garbage.hold(self.checkpoints(self.heads))

    @rule(number=st.integers(0, 9))
    def rewind(self, number: int) -> None:
        """To a kept version, of whatever factor it is, under the factor of now."""
        if not self.kept:
            return
        kept, self.contents = self.kept[number % len(self.kept)]
        self.heads, self.held = recut(kept, len(self.heads)), {}
        self.plans += 1
        self.committed()

    @rule()
    def forget_the_oldest(self) -> None:
        del self.kept[:1]
        held = [checkpoint for kept, _ in self.kept for checkpoint in self.checkpoints(kept)]
        self.garbage.delete(self.garbage.hold_only(held))

    @rule(folder_is_lost=st.booleans())
    def new_run(self, folder_is_lost: bool) -> None:
        self.runs += 1
        close_idle()
        if folder_is_lost:
            shutil.rmtree(self.root / "stores", ignore_errors=True)
        self.places.clear()
        self.committed()
        self.garbage.collect_orphans(lambda: None)
        live = {file.name for checkpoint in self.live() for file in (checkpoint.head.files if checkpoint.head else ())}
        assert set(StateFiles(str(self.root / "state")).list("app")) == live, "no file is missing, and none is left over"

    # --- in here --------------------------------------------------------------------------------------------------

    def place_of(self, task: TaskName) -> Place:
        if task not in self.places:
            place = self.places[task] = Place(self.root, f"run-{self.runs}")
            place.local = self.root / "stores" / task_folder_of("app", task)
        return self.places[task]

    def round_of(self, task: TaskName, changes: Changes, *, is_turn: bool = False) -> Head | None:
        place, head = self.place_of(task), self.heads[task]
        with place.open(head) as store:
            state = TaskState(store, head, slots_of(task.bucket))
            state.held_files = self.held.get(task, 0)
            state.is_snapshot_due = is_turn and not state.held_files and is_snapshot_due(head)
            make_changes(state, changes)
            files = FilePlace(task_folder_of("app", task), self.plans)
            folds = BackgroundFolds(place.local, f"{self.runs}:{self.plans}", str(self.root / "state"), files, self.process)
            return state.write(place.files, files, folds)

    def checkpoints(self, heads: Heads) -> list[Checkpoint]:
        return [Checkpoint(task, RoundId(1, None, 1), 1, {}, head) for task, head in heads.items()]

    def live(self) -> Iterator[Checkpoint]:
        yield from self.checkpoints(self.heads)
        for kept, _ in self.kept:
            yield from self.checkpoints(kept)

    def committed(self) -> None:
        self.garbage.committed(None, self.checkpoints(self.heads))

    def contents_of(self, task: TaskName) -> Contents:
        index, factor = index_of(task)

        def is_mine(db: str, layout: bytes) -> bool:
            return db == GLOBAL or bucket_of(OWNER[db, layout], factor) == index

        found = {
            db: {layout: value for layout, value in entries.items() if is_mine(db, layout)}
            for db, entries in self.contents.items()
        }
        return {db: entries for db, entries in found.items() if entries}

    @invariant()
    def every_store_and_every_reader_has_the_entries_of_the_task(self) -> None:
        for task, head in self.heads.items():
            expected = self.contents_of(task)
            with self.place_of(task).open(head) as store:
                state = TaskState(store, head, slots_of(task.bucket))
                found = {db: dict(state.database(db).scan()) for db in store.databases()}
            assert {db: entries for db, entries in found.items() if entries} == expected
            files = StateFiles(str(self.root / "state"))
            for db in (GLOBAL, "counts", "~expiry"):
                assert dict(entries_of([head], files, db)) == expected.get(db, {})
            if head is not None:
                assert self.states.setdefault(f"{task} {head.identity}", expected) == expected

    def teardown(self) -> None:
        self.process.end(is_made=False)
        close_idle()
        self.patch.undo()
        shutil.rmtree(self.root)


Lives.TestCase.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLives = Lives.TestCase


# --- longer lives, and the faults that they find ------------------------------------------------------------------------------


STEPS = ("work",) * 10 + ("change",) * 6 + ("broadcast",) * 2 + ("prepare",) * 3 + ("keep", "rewind", "new run", "cut")
STEPS_WITH_FOLDS = ("work",) * 16 + ("fold",) * 5 + ("new run",) * 2 + ("change", "prepare", "keep", "rewind")


def live(seed: int, steps: tuple[str, ...] = STEPS) -> bool:
    """A long life with many changes of a low factor, or with many background folds; True. `AssertionError` or `StateError`:
    something was wrong in it."""
    chosen, life = random.Random(seed), Lives()
    try:
        life.begin(chosen.choice([1, 2]))
        for _ in range(40):
            step = chosen.choice(steps)
            if step == "work":
                drawn = {entry: chosen.choice([None, b"v" * chosen.randint(0, 200)]) for entry in chosen.sample(ENTRIES, 12)}
                life.work(drawn, chosen.randrange(8), chosen.random() < 0.1, chosen.random() < 0.3)
            elif step == "change":
                life.change(chosen.choice([1, 1, 2, 2, 4]))
            elif step == "prepare":
                life.prepare(chosen.choice([1, 2, 4]), chosen.random() < 0.7)
            elif step == "broadcast":
                drawn_each = [{key: chosen.choice([None, b"x", b"y"]) for key in chosen.sample(KEYS, 3)} for _ in range(3)]
                life.broadcast(drawn_each, chosen.randrange(256))
            elif step == "fold":
                life.end_a_background_fold(chosen.random() < 0.8)
            elif step == "keep":
                life.keep()
            elif step == "rewind":
                life.rewind(chosen.randrange(10))
            elif step == "new run":
                life.new_run(chosen.random() < 0.5)
            else:
                life.cut_as_one_value(chosen.choice([1, 2, 8]), chosen.choice([1, 4]))
            life.every_store_and_every_reader_has_the_entries_of_the_task()
    finally:
        life.teardown()
    return True


@pytest.mark.parametrize("seed", range(6))
def test_a_long_life(seed: int) -> None:
    assert live(seed)
    assert live(seed, STEPS_WITH_FOLDS)


def without_the_filter(patch: pytest.MonkeyPatch) -> None:
    def unfiltered(batches: Iterable[pa.RecordBatch], slots: Slots, whole: Any) -> Iterable[pa.RecordBatch]:
        return batches

    patch.setattr(state_files, "batches_within", unfiltered)


def filtered_by_the_union(patch: pytest.MonkeyPatch) -> None:
    right = Slots.within

    def union(self: Slots, other: Slots) -> Slots | None:
        return None if right(self, other) is None else Slots(min(self.low, other.low), max(self.high, other.high))

    patch.setattr(Slots, "within", union)


def named_after_the_newest_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Head, "identities", property(lambda head: tuple(file.identity for file in head.files)))
    patch.setattr(Head, "identity", property(lambda head: head.files[-1].identity))


def global_stores_cut_by_key(patch: pytest.MonkeyPatch) -> None:
    right = state_files.batches_within
    patch.setattr(state_files, "batches_within", lambda batches, slots, whole: right(batches, slots, ()))


def time_indexes_cut_as_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headrace.core.keys.key_layout.TIME_INDEXES", frozenset[str]())


def rounds_that_say_nothing_of_their_slots(patch: pytest.MonkeyPatch) -> None:
    right = TaskState.__init__
    patch.setattr(TaskState, "__init__", lambda self, store, base, slots=None: right(self, store, base))


def remembered_as_it_was_cut(patch: pytest.MonkeyPatch) -> None:
    cut: dict[str, list[pa.RecordBatch]] = {}
    right = StateFiles.batches

    def batches(self: StateFiles, file: StateFile) -> Iterator[pa.RecordBatch]:
        if file.name not in cut:
            cut[file.name] = list(right(self, file))
        return iter(cut[file.name])

    patch.setattr(StateFiles, "batches", batches)


def a_merge_without_the_first_parent(patch: pytest.MonkeyPatch) -> None:
    right = heads.head_of
    lost = lambda parents, slots, whole=(): right(parents[1:] or parents, slots, whole)  # noqa: E731
    patch.setitem(recut.__globals__, "head_of", lost)


def added_to_what_was_folded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "added_files", lambda held, wanted: [file for file in wanted.files if file not in held.files])


def folds_of_any_run(patch: pytest.MonkeyPatch) -> None:
    right = BackgroundFolds.__init__
    patch.setattr(BackgroundFolds, "__init__", lambda self, folder, plan, *given: right(self, folder, "any", *given))


def folds_of_files_that_are_not_there(patch: pytest.MonkeyPatch) -> None:
    def anyhow(head: Head, replaced: Any, fold: StateFile, held: int = 0) -> Head:
        return Head(head.version, (fold, *head.files[len(replaced) :]), head.slots)

    patch.setattr("headrace.wiring.worker.background_folds.with_fold", anyhow)


FAULTS = (
    added_to_what_was_folded,
    without_the_filter,
    filtered_by_the_union,
    named_after_the_newest_file,
    global_stores_cut_by_key,
    time_indexes_cut_as_state,
    rounds_that_say_nothing_of_their_slots,
    remembered_as_it_was_cut,
    a_merge_without_the_first_parent,
)


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, StateError)):
        all(map(live, range(40)))


@pytest.mark.parametrize(("plant", "seed"), [(folds_of_any_run, 0), (folds_of_files_that_are_not_there, 26)])
def test_a_planted_fault_of_background_folds_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, StateError)):
        all(live(one, STEPS_WITH_FOLDS) for one in range(seed, seed + 20))
