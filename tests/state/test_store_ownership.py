"""One process at a time uses a store folder; one that is stopped or slow does not hold up the rest (protocol.md 18)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from state_place import Contents, Place, Worker, after, head_from_json, head_to_json

from headrace.adapters.lmdb import environments, opening, ownership, remove_store
from headrace.adapters.lmdb.opening import file_system_of, refuse_network_file_system
from headrace.adapters.lmdb.ownership import owned
from headrace.errors import StateError
from headrace.model.checkpoint import Head


@pytest.mark.chaos
def test_a_store_held_by_a_stopped_process_gets_a_sibling(place: Place, start_worker: Callable[..., Worker]) -> None:
    """Stopped inside LMDB's write transaction, whose lock it keeps; when it wakes, its apply does no harm."""
    first = place.round(None, {"a": {b"1": b"x"}})
    worker = start_worker("stop:log:3:1")
    worker.send(head=head_to_json(first), changes={"a": {"1": "of the sleeper"}})
    worker.wait_until_stopped()

    second = place.round(first, {"a": {b"2": b"y"}})
    found, notes = place.read(second)
    assert found == {"a": {b"1": b"x", b"2": b"y"}}
    assert f"held by process {worker.process.pid}, which is stopped" in notes[0]
    assert notes[0].startswith("using Partition_0~1")

    os.kill(worker.process.pid, signal.SIGCONT)
    answer = worker.answer()
    assert answer["before"] == {"a": {"1": "x"}}
    worker.close()
    assert place.read(second) == ({"a": {b"1": b"x", b"2": b"y"}}, [])
    assert [path.name for path in place.local.parent.iterdir()] == ["Partition_0"]  # the sibling is gone


def test_a_store_held_by_a_running_process_is_waited_for(place: Place) -> None:
    head = place.round(None, {"a": {b"1": b"x"}})
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with owned(place.local):
            entered.set()
            leave.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait(20)
    threading.Timer(0.2, leave.set).start()
    assert place.read(head) == ({"a": {b"1": b"x"}}, [])
    holder.join()


def test_a_store_held_for_long_gets_a_sibling(place: Place) -> None:
    head = place.round(None, {"a": {b"1": b"x"}})
    with owned(place.local):
        found, notes = place.read(head)
    assert found == {"a": {b"1": b"x"}}
    assert f"held by process {os.getpid()}, which is running" in notes[0]
    assert place.read(head) == (found, [])


def test_siblings_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_SIBLINGS_MAX", 2)
    task = tmp_path / "P"
    with owned(task) as (one, _), owned(task, 0) as (two, _):
        assert (one.name, two.name) == ("P", "P~1")
        with pytest.raises(StateError, match="held by other processes"), owned(task, 0):
            pass


def test_siblings_go_when_nobody_uses_one_behind_them(tmp_path: Path) -> None:
    task = tmp_path / "P"

    def folders() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir())

    with owned(task), ExitStack() as others:
        siblings = [others.enter_context(owned(task, 0.0))[0].name for _ in range(2)]
        third = ExitStack()
        siblings.append(third.enter_context(owned(task, 0.0))[0].name)
        others.close()
    assert siblings == ["P~1", "P~2", "P~3"]
    with owned(task):
        assert folders() == ["P", "P~1", "P~2", "P~3"]
    third.close()
    with owned(task) as (_, notes):
        assert (folders(), notes) == (["P"], [])


def test_a_lock_file_that_was_removed_meanwhile_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, removed = ownership.fcntl.flock, []

    def removing(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append((tmp_path / "P" / "owner").unlink())
        flock(descriptor, operation)

    monkeypatch.setattr(ownership.fcntl, "flock", removing)
    with owned(tmp_path / "P"):
        monkeypatch.undo()
        with owned(tmp_path / "P", 0) as (place, _):
            assert place.name == "P~1"


def test_two_processes_in_turn_on_one_folder(place: Place, start_worker: Callable[..., Worker]) -> None:
    """A task moves between worker processes from round to round; both keep the environment open all the while."""
    workers = [start_worker(), start_worker()]
    head: Head | None = None
    contents: Contents = {}
    for number in range(24):
        db = "ab"[number // 7 % 2]  # databases that the other process has not seen come up
        changes = {db: {f"{key}": None if key % 5 == number % 5 else f"{number}-{key}" for key in range(number, 40)}}
        answer = workers[number * number % 3 % 2].ask(head=head_to_json(head), changes=changes)
        assert answer["notes"] == []
        assert answer["folder"] == "Partition_0"
        assert answer["before"] == {
            name: {key.decode(): value.decode() for key, value in found.items()} for name, found in contents.items()
        }
        head = head_from_json(answer["head"])
        as_bytes = {
            name: {key.encode(): None if value is None else value.encode() for key, value in values.items()}
            for name, values in changes.items()
        }
        contents = after(contents, as_bytes)
    assert place.read(head) == (contents, [])


def test_a_process_that_died_leaves_its_store_to_the_next(place: Place, start_worker: Callable[..., Worker]) -> None:
    worker = start_worker("kill:log:5:2")
    first = worker.ask(head=None, changes={"a": {"1": "x"}})
    assert worker.ask(head=first["head"], changes={"a": {"1": "lost"}}) is None
    assert place.read(head_from_json(first["head"])) == ({"a": {b"1": b"x"}}, [])


def test_a_forked_child_opens_its_own(place: Place) -> None:
    head = place.round(None, {"a": {b"1": b"x"}})
    place.read(head)
    pid = os.fork()
    if pid == 0:
        same = place.read(head) == ({"a": {b"1": b"x"}}, [])
        own = all(environment.pid == os.getpid() for environment in environments._open.values())
        os._exit(0 if same and own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert place.read(head) == ({"a": {b"1": b"x"}}, [])


MOUNTS = r"""/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/user/scratch tmpfs rw 0 0
share /mnt/with\040space cifs rw 0 0
host /srv 9p rw 0 0
/dev/vdb /over ext4 rw 0 0
me@there: /over fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/stores", "ext4"),
        ("/home/user", "nfs4"),
        ("/home/user/scratch/stores", "tmpfs"),
        ("/homely", "ext4"),
        ("/mnt/with space/stores", "cifs"),
        ("/srv/stores", "9p"),
        ("/over/stores", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind


def test_network_file_systems_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_network_file_system.cache_clear()
    monkeypatch.setattr(opening, "file_system_of", lambda folder, text: "nfs4")
    try:
        with pytest.raises(StateError, match=r"\(nfs4\); expected a local disk"), place.open(None):
            pass
    finally:
        refuse_network_file_system.cache_clear()
    assert not place.local.exists()


def test_a_child_that_was_forked_meanwhile_does_not_keep_a_store(place: Place) -> None:
    """Of a pool of processes that a function of the user has made, say: it has the descriptor of the lock."""
    head = place.round(None, {"a": {b"1": b"x"}})
    with place.open(head):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
    try:
        assert place.read(head) == ({"a": {b"1": b"x"}}, [])
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_no_store_is_found_by_who_makes_the_lock_of_one_that_is_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.round(None, {"a": {b"1": b"x"}})
    environments.close_idle()
    seen: list[list[str]] = []

    def unlink(path: Path, missing_ok: bool = False) -> None:
        os.unlink(path)
        if path.name == ownership.LOCK_FILE:
            with owned(place.local) as (folder, _):  # by another one, as of now
                seen.append([one.name for one in folder.iterdir()])

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        assert remove_store(place.local)
    assert seen == [[ownership.LOCK_FILE]]
    assert place.local.is_dir(), "it is that one's now"
    assert remove_store(place.local) and not place.local.exists()
