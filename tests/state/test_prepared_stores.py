"""A local store that was made before its task was there: brought on by what was written since, or rebuilt; never trusted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from state_place import Contents, Place, after

from headrace.adapters.lmdb import close_idle, environments, prepare_task_store
from headrace.adapters.lmdb.ownership import owned
from headrace.core.keys.heads import head_of
from headrace.core.keys.key_layout import slots_of, state_key
from headrace.errors import StateError
from headrace.model.checkpoint import Head, Slots
from headrace.model.tasks import KeyBucket
from headrace.state_files.files import FilePlace
from headrace.wiring.worker import worker_state
from headrace.wiring.worker.worker_state import WorkerState
from headrace.worker.state.task_state import TaskState

HALF = slots_of(KeyBucket(0, 2))
assert HALF is not None
KEYS = [state_key(b"%d" % number) for number in range(300)]
MINE = [key for key in KEYS if key < b"\x80"]


def grown(place: Place) -> tuple[Head, Contents]:
    """The head of a whole task, and what its first half has."""
    changes: dict[str, dict[bytes, bytes | None]] = {"a": {key: key[:4] for key in KEYS}}
    head = place.round(None, changes)
    changes = {"a": {key: None if number % 3 else b"new" for number, key in enumerate(KEYS[::2])}}
    head = place.round(head, changes)
    first: dict[str, dict[bytes, bytes | None]] = {"a": {key: key[:4] for key in KEYS}}
    entries = after(after({}, first), changes)["a"]
    return head, {"a": {key: value for key, value in entries.items() if key in MINE}}


def half_of(head: Head) -> Head:
    made = head_of([head], HALF)
    assert made is not None
    return made


def prepared(place: Place, head: Head) -> int:
    place.local = place.root / "stores" / "app" / "Partition_0-0-2"
    return prepare_task_store(place.local, head, place.files, run_id=place.run_id, boot_id=place.boot_id)


def test_the_first_opening_adds_what_was_written_since(place: Place) -> None:
    head, contents = grown(place)
    whole = place.local
    assert prepared(place, half_of(head)) == len(contents["a"])
    ours, place.local = place.local, whole
    late: dict[str, dict[bytes, bytes | None]] = {"a": {MINE[0]: b"late", MINE[1]: None}}
    head = place.round(head, late)
    place.local = ours
    found, notes = place.read(half_of(head))
    assert (found, notes) == (after(contents, late), [])
    found, notes = place.read(half_of(head))
    assert (found, notes) == (after(contents, late), [])


def test_a_merged_store_takes_files_that_lie_among_those_it_has(place: Place) -> None:
    halves: list[Head | None] = []
    for index in range(2):
        slots = slots_of(KeyBucket(index, 2))
        mine = MINE if index == 0 else [key for key in KEYS if key not in MINE]
        halves.append(written(place, None, slots, dict.fromkeys(mine, b"first"), index))
    second = slots_of(KeyBucket(1, 2))
    theirs = [key for key in KEYS if key not in MINE]
    for turn in range(3):  # its versions rise above those of the first
        halves[1] = written(place, halves[1], second, {theirs[turn]: b"%d" % turn}, 1)
    merged = head_of(halves, None)
    assert merged is not None
    ours = place.local = place.root / "stores" / "app" / "Partition_0"
    assert prepare_task_store(place.local, merged, place.files, run_id=place.run_id, boot_id=place.boot_id) == len(KEYS)
    halves[0] = written(place, halves[0], HALF, {MINE[0]: b"late", MINE[1]: None}, 0)
    now = head_of(halves, None)
    assert now is not None and halves[0] is not None and halves[0].files[-1] in now.files[:-1]
    place.local = ours
    found, notes = place.read(now)
    assert notes == []
    expected = dict.fromkeys(KEYS, b"first") | {theirs[turn]: b"%d" % turn for turn in range(3)} | {MINE[0]: b"late"}
    del expected[MINE[1]]
    assert found == {"a": expected}


def written(place: Place, head: Head | None, slots: Slots | None, changes: dict[bytes, bytes | None], index: int) -> Head:
    place.local = place.root / "stores" / "app" / f"Partition_0-{index}-2"
    with place.open(head) as store:
        state = TaskState(store, head, slots)
        for key, value in changes.items():
            state.database("a").put(key, value)
        new = state.write(place.files, FilePlace(f"app/Partition_0-{index}-2", 1))
    assert new is not None
    return new


def flipped(place: Place) -> None:
    """Each value's first bytes, in place: no structure is damaged."""
    close_idle()
    data = place.data_file().read_bytes()
    place.data_file().write_bytes(data.replace(b"new", b"now"))


def another_boot(place: Place) -> None:
    place.boot_id = "boot-2"


def deleted(place: Place) -> None:
    close_idle()
    shutil.rmtree(place.local)


def data_deleted(place: Place) -> None:
    close_idle()
    place.data_file().unlink()


def cut_off(place: Place) -> None:
    close_idle()
    os.truncate(place.data_file(), 4096)


def not_marked(place: Place) -> None:
    """As a process that is killed before it has written the status leaves it."""
    (place.local / "mark.json").unlink()


def without_its_head(place: Place) -> None:
    """And of a head that it does not have."""
    path = place.local / "mark.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prepared": None}))


DAMAGES = [flipped, another_boot, deleted, data_deleted, cut_off, not_marked, without_its_head]


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_happens_to_it_the_task_has_its_state(place: Place, damage: Callable[[Place], None]) -> None:
    head, contents = grown(place)
    prepared(place, half_of(head))
    damage(place)
    try:
        found, _ = place.read(half_of(head))
    except StateError:  # a value that differs from its checksum: the next opening rebuilds the store
        assert damage is flipped
        found, _ = place.read(half_of(head))
    assert found == contents


def test_one_that_was_rewound_since_is_rebuilt(place: Place) -> None:
    head, _ = grown(place)
    prepared(place, half_of(head))
    back = Head(1, head.files[:1])
    found, notes = place.read(half_of(back))
    assert found == {"a": {key: key[:4] for key in MINE}}
    assert any("as after a rewind" in note for note in notes)


def test_a_process_that_is_killed_while_it_makes_one_leaves_nothing_that_counts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, contents = grown(place)
    right, calls = environments.Environment.load, []

    def dies(self: environments.Environment, *arguments: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        right(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(environments.Environment, "load", dies)
        with pytest.raises(KeyboardInterrupt):
            prepared(place, half_of(head))
    assert place.read(half_of(head))[0] == contents


def test_one_that_a_task_uses_is_left_alone(place: Place) -> None:
    head, _ = grown(place)
    place.local = place.root / "stores" / "app" / "Partition_0-0-2"
    with owned(place.local), pytest.raises(StateError, match="another process uses it"):
        prepared(place, half_of(head))


def test_a_missing_state_file_is_an_error_and_the_store_counts_for_nothing(place: Place) -> None:
    head, contents = grown(place)
    gone = replace(head.files[0], name=head.files[0].name + "x")
    with pytest.raises(StateError, match="found no such file"):
        prepared(place, half_of(replace(head, files=(gone, head.files[1]))))
    assert place.read(half_of(head))[0] == contents


def test_made_again_it_is_brought_on(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    head, contents = grown(place)
    prepared(place, half_of(Head(1, head.files[:1])))
    caplog.set_level("INFO", "headrace")
    assert prepared(place, half_of(head)) == len(contents["a"])
    assert not caplog.messages, "it was not rebuilt"
    assert place.read(half_of(head)) == (contents, [])


def test_it_stays_while_files_are_held_for_it_whichever_task_of_the_container_has_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task without state no file is held; the former stores are those of all tasks of its container."""
    monkeypatch.setattr(worker_state, "_tidied", {})
    head, _ = grown(place)
    root = place.local.parent
    prepared(place, half_of(head))
    tasks = [SimpleNamespace(name=f"Partition_{number}", held_files=1 - number, round_id="3:source:5") for number in (0, 1)]
    state = WorkerState.__new__(WorkerState)
    state._program = SimpleNamespace(sub_topology=None)  # type: ignore[assignment]
    state._plan = SimpleNamespace(tasks=tasks, lane=0, epoch=3)  # type: ignore[assignment]
    for task in tasks:
        state._remove_former_stores(root, task)  # type: ignore[arg-type]
    assert place.local.is_dir()
    tasks[0].held_files = 0
    close_idle()
    state._remove_former_stores(root, tasks[0])  # type: ignore[arg-type]
    assert not place.local.exists()
