"""A local store is a cache: from wherever it stands, it is brought to the committed head (protocol.md 17-20)."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from state_place import Changes, Contents, Place, after, contents_of

from headrace.adapters.lmdb import TaskStore, close_idle, environments, opening
from headrace.adapters.lmdb import store_status as marks
from headrace.adapters.lmdb.store_status import StoreStatus, read_status, write_status
from headrace.errors import StateError, StoreDamagedError
from headrace.model.checkpoint import EMPTY, Head, identity_of
from headrace.state_files.batches import batch_of
from headrace.worker.state.task_state import TaskState

ROUNDS: list[Changes] = [
    {"a": {b"1": b"one", b"2": b"two"}},
    {"a": {b"2": None, b"3": b"three"}, "b": {b"1": b"other"}},
    {"b": {b"1": None}, "c": {b"1": b"c"}},
    {"a": {b"1": b"uno"}},
]


def history(place: Place, count: int = len(ROUNDS)) -> list[tuple[Head | None, Contents]]:
    """The heads and contents after 0, 1, … rounds; the store is left one behind the last."""
    states: list[tuple[Head | None, Contents]] = [(None, {})]
    for changes in ROUNDS[:count]:
        head, contents = states[-1]
        states.append((place.round(head, changes), after(contents, changes)))
    return states


def test_each_round_sees_what_was_committed_before(place: Place) -> None:
    head, contents = history(place)[-1]
    assert place.read(head) == (contents, [])


@pytest.mark.parametrize("held", range(len(ROUNDS) + 1))
@pytest.mark.parametrize("wanted", range(len(ROUNDS) + 1))
def test_from_any_state_to_any_other(place: Place, held: int, wanted: int) -> None:
    states = history(place)
    place.read(states[held][0])
    place.forget_written()
    head, contents = states[wanted]
    found, notes = place.read(head)
    assert found == contents
    rebuilt = any(note.startswith("rebuilt") for note in notes)
    assert rebuilt == (wanted < held)  # ahead
    assert place.read(head) == (contents, [])


def test_foreign_state_of_the_same_version_is_not_taken_for_ours(place: Place) -> None:
    base = place.round(None, ROUNDS[0])
    ours = place.round(base, {"a": {b"5": b"ours"}})
    theirs = place.round(base, {"a": {b"5": b"theirs"}, "z": {b"1": b"z"}})
    assert ours.version == theirs.version
    assert place.read(theirs)[0]["a"][b"5"] == b"theirs"
    found, notes = place.read(ours)
    assert found == {"a": {b"1": b"one", b"2": b"two", b"5": b"ours"}}
    assert theirs.identity in notes[0]


def test_a_state_that_is_restored_as_it_should_be_is_no_trouble(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """After a rewind, after a restart of the machine and on another machine: not in the status, and no warning."""
    states = history(place)
    place.read(states[-1][0])
    causes = {
        "as after a rewind, or where its task was elsewhere; nothing is damaged": lambda: place.open(states[1][0]),
        "the machine was restarted": lambda: place.open(states[1][0], boot_id="boot-2"),
    }
    for said, opened in causes.items():
        with caplog.at_level(logging.INFO, "headrace.state_files"), opened() as store:
            assert store.notes[0].startswith("rebuilt from its state files")
            assert said in store.notes[0]
            assert store.notes[1].startswith("restored 2 entries from 1 state file in ")
            assert (store.troubles, store.is_restored) == ([], True)
    assert {record.levelname for record in caplog.records} == {"INFO"}
    with place.open(states[1][0], boot_id="boot-2") as store:
        assert (store.notes, store.is_restored) == ([], False)


def test_a_damaged_store_is_a_trouble(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    head, _ = history(place)[-1]
    with pytest.raises(StoreDamagedError), place.open(head):
        raise StoreDamagedError("page 7 is not there")
    with place.open(head) as store:
        assert store.troubles == store.notes[:1] == ["rebuilt: the last round found it damaged"]
        assert store.is_restored
    (warned,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned.endswith("Partition_0: rebuilt: the last round found it damaged")


def test_the_local_folder_may_be_lost(place: Place) -> None:
    head, contents = history(place)[-1]
    close_idle()
    shutil.rmtree(place.local)
    place.forget_written()
    found, notes = place.read(head)
    assert found == contents
    assert notes[0].startswith("restored")


def test_losing_the_folder_under_an_open_environment_is_noticed(place: Place) -> None:
    head, contents = history(place)[-1]
    shutil.rmtree(place.local)  # while this process has it open
    assert place.read(head)[0] == contents
    assert [folder for folder in environments._open if folder.parent == place.local] == [place.data_file().parent]


def test_what_another_process_removes_gives_its_room_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_LOOK_S", 0.0)
    place.round(None, ROUNDS[0])
    removed, place.local = place.local, place.local.with_name("Partition_1")
    shutil.rmtree(removed)
    place.read(None)
    held = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    assert [file for file in held if str(removed) in file] == []


def test_an_old_generation_is_removed(place: Place) -> None:
    head, contents = history(place)[-1]
    for boot in ("boot-2", "boot-3"):
        found, notes = place.read(head, boot_id=boot)
        assert found == contents and "the machine was restarted" in notes[0]
    assert place.data_file().exists()  # there is exactly one


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"damaged": True}, "found it damaged"),
        ({"verifying": 4321}, "process 4321 ended while it verified"),
        ({"txnid": 9999}, "expected transaction 9999"),
        ({"bytes": 1 << 40}, "expected at least"),
        ({"generation": "../elsewhere"}, None),
        ({"generation": "gone"}, None),
        ({"run_id": 5}, None),
        ({"unknown": 5}, None),
    ],
)
def test_what_the_mark_says_is_believed(place: Place, change: dict, reason: str | None) -> None:
    head, contents = history(place)[-1]
    place.read(head)
    mark = place.local / "mark.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), **change}))
    found, notes = place.read(head)
    assert found == contents
    assert "restored" in notes[-1]
    assert reason is None or reason in notes[0]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00" * 50])
def test_a_mark_that_makes_no_sense_means_rebuild(place: Place, text: str) -> None:
    head, contents = history(place)[-1]
    (place.local / "mark.json").write_text(text)
    found, notes = place.read(head)
    assert found == contents and "restored" in notes[-1]


def test_nothing_is_left_of_a_longer_mark(tmp_path: Path) -> None:
    long, short = StoreStatus("g", "boot", "run" * 200, in_use=1), StoreStatus("g", "boot", "run")
    for mark in (short, long, short):
        write_status(tmp_path, mark)
        assert read_status(tmp_path) == mark
    assert [path.name for path in tmp_path.iterdir()] == ["mark.json"]


def verifications(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are verified from now on."""
    seen: list[str] = []
    check = opening.check_entries
    monkeypatch.setattr(opening, "check_entries", lambda env: (seen.append(env.folder.name), check(env)))
    return seen


def test_a_store_is_verified_once_per_run_and_after_a_user_that_died(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = verifications(monkeypatch)
    head, contents = history(place)[-1]
    assert seen == []
    for expected in (1, 1, 1):
        assert place.read(head, run_id="run-2") == (contents, [])
        assert len(seen) == expected
    mark = place.local / "mark.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "in_use": 4321}))
    assert place.read(head, run_id="run-2") == (contents, [])
    assert len(seen) == 2


def test_a_sealed_store_is_not_scanned_and_breaks_its_seal_when_used(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = verifications(monkeypatch)
    head, contents = history(place)[-1]
    assert place.seal()
    assert not place.seal()  # it is sealed already
    assert place.read(head, run_id="run-2") == (contents, [])
    assert seen == []
    close_idle()
    assert place.read(head, run_id="run-3") == (contents, [])  # run-2 was killed: it sealed nothing
    assert len(seen) == 1


def test_a_seal_is_not_given_to_what_is_not_in_order(place: Place) -> None:
    head, contents = history(place)[-1]
    assert not place.seal(run_id="run-2")  # which has not proved it whole
    assert not place.seal(boot_id="boot-2")
    assert not place.seal(deadline_s=0.0)
    with place.open(head):
        assert not place.seal()
    mark = place.local / "mark.json"
    kept = mark.read_text()
    for change in ({"in_use": 1}, {"verifying": 1}, {"damaged": True}, {"generation": "gone"}):
        mark.write_text(json.dumps({**json.loads(kept), **change}))
        assert not place.seal()
    mark.unlink()
    assert not place.seal()
    mark.write_text(kept)
    assert place.seal()
    assert place.read(head, run_id="run-2") == (contents, [])


def test_a_store_that_is_used_while_it_is_hashed_gets_no_seal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    head, contents = history(place)[-1]
    hashed = marks._content

    def content(*arguments: object) -> str | None:
        found = hashed(*arguments)
        place.read(head)  # a worker that the end of the job does not wait for applies the last delta
        return found

    monkeypatch.setattr(marks, "_content", content)
    assert not place.seal()
    monkeypatch.undo()
    assert place.read(head, run_id="run-2")[0] == contents


def test_a_sealed_store_that_changed_is_rebuilt(place: Place) -> None:
    head, contents = history(place)[-1]
    assert place.seal()
    close_idle()
    data = place.data_file()
    content = bytearray(data.read_bytes())
    content[-1] ^= 1  # in a page that nothing refers to, perhaps: but it was not so
    data.write_bytes(content)
    found, notes = place.read(head, run_id="run-2")
    assert found == contents
    assert "it changed after it was closed" in notes[0]


def test_a_round_that_fails_leaves_the_store_in_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = verifications(monkeypatch)
    head, contents = history(place)[-1]
    with pytest.raises(ZeroDivisionError), place.open(head):
        _ = 1 / 0
    assert place.read(head) == (contents, [])
    assert seen == []


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get("a", b"1"),
        lambda store: store.get_many("a", [b"3", b"1"]),
        lambda store: list(store.scan("a")),
    ],
)
def test_damage_met_in_a_round_makes_the_next_opening_rebuild(
    place: Place, read: Callable[[TaskStore], object]
) -> None:
    head, contents = history(place)[-1]
    with place.open(head) as store:
        environment = store._environment
        with environment.lmdb.begin(write=True) as txn:
            txn.put(b"1", b"\0\0\0\0uno", db=environment.handles["a"])
    with pytest.raises(StoreDamagedError, match="key 31"), place.open(head) as store:
        read(store)
    found, notes = place.read(head)
    assert found == contents
    assert "found it damaged" in notes[0]


def test_a_store_that_is_found_damaged_without_an_error_is_rebuilt_too(place: Place) -> None:
    head, contents = history(place)[-1]
    with place.open(head) as store:
        store.found_damaged(StoreDamagedError("its page 7 is not there"))
        assert store.notes[-1] == "to be rebuilt: its page 7 is not there"
    found, notes = place.read(head)
    assert found == contents
    assert "found it damaged" in notes[0]


def test_a_missing_state_file_stops_the_task_by_name_and_spares_the_store(place: Place) -> None:
    states = history(place)
    place.read(states[3][0])
    place.forget_written()
    newest = states[4][0].files[-1]
    path = place.files.local_path(newest.name)
    path.rename(path.with_suffix(".away"))
    with pytest.raises(StateError, match=newest.name):
        place.read(states[4][0])
    assert place.read(states[3][0]) == (states[3][1], [])
    path.with_suffix(".away").rename(path)
    assert place.read(states[4][0]) == (states[4][1], [])


def test_a_missing_file_of_a_lost_store_is_an_error_never_an_empty_store(place: Place) -> None:
    head, contents = history(place)[-1]
    close_idle()
    shutil.rmtree(place.local)
    place.forget_written()
    path = place.files.local_path(head.files[1].name)
    data = path.read_bytes()
    path.write_bytes(data[:100])
    for _ in range(2):
        with pytest.raises(StateError, match=head.files[1].name):
            place.read(head)
    path.write_bytes(data)
    assert place.read(head)[0] == contents


def test_apply_is_a_compare_and_set(place: Place) -> None:
    states = history(place, 2)
    (head, contents) = states[2]
    with place.open(head) as store:
        changes = [batch_of("a", [b"1", b"9"], [None, b"nine"])]
        assert not store.apply(EMPTY, "other", lambda: changes)
        assert not store.apply(identity_of(states[1][0]), "other", lambda: changes)
        assert contents_of(store) == contents
        assert store.apply(head.identity, "next", lambda: changes)
        assert store.identity == "next"
        assert contents_of(store) == after(contents, {"a": {b"1": None, b"9": b"nine"}})
        assert not store.apply(head.identity, "next", lambda: changes)  # twice
    found, notes = place.read(head)
    assert found == contents and "holds state next" in notes[0]


def test_an_apply_that_is_cut_changes_nothing(place: Place) -> None:
    head, contents = history(place, 2)[-1]

    def cut() -> None:
        raise KeyboardInterrupt

    with place.open(head) as store:
        with pytest.raises(KeyboardInterrupt):
            store.apply(head.identity, "next", lambda: [batch_of("new", [b"1"], [b"x"])], cut)
        assert (store.identity, contents_of(store)) == (head.identity, contents)
        assert store.apply(head.identity, "next", lambda: [batch_of("new", [b"1"], [b"x"])])
        assert contents_of(store) == {**contents, "new": {b"1": b"x"}}


def test_deleting_what_is_not_there_is_no_change(place: Place) -> None:
    head = place.round(None, {"a": {b"1": None, b"2": b"x"}, "b": {b"1": None}})
    assert place.read(head) == ({"a": {b"2": b"x"}}, [])
    close_idle()
    shutil.rmtree(place.local)
    assert place.read(head)[0] == {"a": {b"2": b"x"}}


def test_the_map_grows_on_apply_and_on_restore(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "MAP_BYTES", 256 * 1024)
    changes = {"a": {b"%06d" % number: b"v" * 100 for number in range(20_000)}}
    head = place.round(None, changes)
    assert place.read(head) == (changes, [])
    close_idle()
    shutil.rmtree(place.local)
    place.forget_written()
    assert place.read(head)[0] == changes


def test_scan_takes_low_and_leaves_high(place: Place) -> None:
    head = place.round(None, {"a": {b"%d" % number: b"" for number in range(10)}})
    with place.open(head) as store:
        assert [key for key, _ in store.scan("a", b"3", b"6")] == [b"3", b"4", b"5"]
        assert [key for key, _ in store.scan("a", b"35")] == [b"4", b"5", b"6", b"7", b"8", b"9"]
        assert [key for key, _ in store.scan("a", None, b"0")] == []
        assert list(store.scan("a", b"x")) == list(store.scan("none")) == []
        assert store.get_many("a", [b"9", b"1", b"9", b"x"]) == {b"1": b"", b"9": b""}
        assert store.get_many("none", [b"1"]) == {} and store.get("none", b"1") is None


def test_too_many_databases_are_refused_with_the_number(place: Place) -> None:
    changes = {f"db{number:03}": {b"1": b"x"} for number in range(70)}
    head = place.round(None, changes)
    with pytest.raises(StateError, match="room for 63"):
        place.read(head)


def test_many_tasks_in_turn(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_IDLE_MAX", 3)
    local = place.local
    heads, busy = {}, sum(environment.busy for environment in environments._open.values())
    for turn in range(3):
        for task in range(6):
            place.local = local.with_name(f"Partition_{task}")
            heads[task] = place.round(heads.get(task), {"a": {b"%d" % turn: b"%d" % task}})
            assert place.read(heads[task]) == ({"a": {b"%d" % t: b"%d" % task for t in range(turn + 1)}}, [])
    assert busy == 0
    assert len(environments._open) == 3


def test_reads_come_from_one_transaction(place: Place) -> None:
    head = place.round(None, {"a": {b"1": b"x"}})
    with place.open(head) as store:
        environment = store._environment
        environment.apply(head.identity, "next", lambda: [batch_of("a", [b"1"], [b"y"])])
        assert store.get("a", b"1") == b"x" and store.identity == head.identity
        assert TaskState(store, head).database("a").get_many([b"1"]) == [b"x"]
