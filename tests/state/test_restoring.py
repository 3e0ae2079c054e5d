"""Stores that are restored in the background: what an opening would read, making one on from where its maker was killed, and
the process that does it. State files are real, and so are the processes that are killed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_place import FILES, Contents, Place, head_to_json

from headrace.adapters.lmdb import close_idle, environments
from headrace.adapters.lmdb.ownership import owned
from headrace.adapters.lmdb.store_status import held_state, read_status
from headrace.core.keys.heads import chain_of, files_to_read
from headrace.errors import StateError
from headrace.exchange.messages import ContainerPlan, TaskPlan
from headrace.exchange.store_restoring import (
    RestoreAnswer,
    StoresToRestore,
    decoded_answer,
    encoded_stores_to_restore,
)
from headrace.model.checkpoint import Head, StateFile, StateFileKind
from headrace.state_files.batches import batches_of, binary_array
from headrace.wiring.worker import store_restoring
from headrace.wiring.worker.location import location_of
from headrace.wiring.worker.restore_folder import RestoreFolder
from headrace.wiring.worker.store_restoring import missing_bytes, restore

ROWS = 16_384  # of a batch
Ask = Callable[..., StoresToRestore]


class Large:
    """States of several files with four batches each, and what they make: each is written once, and copied."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[int, tuple[Place, Head, Contents]] = {}

    def __call__(self, place: Place, files: int = 3) -> tuple[Head, Contents]:
        if files not in self._made:
            self._made[files] = self._written(files)
        source, head, contents = self._made[files]
        shutil.copytree(source.root / "state", place.root / "state")
        return head, contents

    def _written(self, files: int) -> tuple[Place, Head, Contents]:
        place, written, contents = Place(self._root / str(files)), list[StateFile](), Contents()
        for number in range(files):
            changes = {b"%d-%08d" % (number, key): os.urandom(16).hex().encode() for key in range(4 * ROWS)}
            changes |= {b"0-%08d" % key: b"again" for key in range(number)}
            keys = sorted(changes)
            batches = batches_of("a", binary_array(keys), binary_array([changes[key] for key in keys]))
            written.append(place.files.write_batches(FILES, StateFileKind.DELTA, number + 1, batches))
            contents.setdefault("a", {}).update(changes)
        return place, Head(files, tuple(written)), contents


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    yield Large(tmp_path_factory.mktemp("large"))
    close_idle()


def lost(place: Place) -> None:
    """The store, as on a machine that never had it."""
    close_idle()
    environments.remove(place.local)


def size_of(files: tuple[StateFile, ...]) -> int:
    return sum(file.bytes for file in files)


# --- what an opening would read ----------------------------------------------------------------------------------------------


def judged(place: Place, head: Head) -> int:
    held = held_state(place.local, place.boot_id)
    return size_of(files_to_read(head, None if held is None else held.identity, None if held is None else held.prepared))


def opened(place: Place, head: Head) -> int:
    with place.open(head) as store:
        return store.read_bytes


def nothing(place: Place) -> None:
    """The store is as it was left."""


def another_boot(place: Place) -> None:
    place.boot_id = "boot-2"


def another_boot_of_a_sealed_one(place: Place) -> None:
    assert place.seal()
    place.boot_id, place.run_id = "boot-2", "run-2"


def damaged(place: Place) -> None:
    path = place.local / "mark.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"damaged": True}))


def cut_off(place: Place) -> None:
    close_idle()
    os.truncate(place.data_file(), 4096)


CHANGES: dict[str, Callable[[Place], None]] = {
    change.__name__: change for change in (nothing, lost, another_boot, another_boot_of_a_sealed_one, damaged, cut_off)
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("held", [0, 1, 3])
def test_what_is_judged_is_what_the_opening_reads(place: Place, change: str, held: int) -> None:
    heads: list[Head | None] = [None]
    for number in range(3):
        heads.append(place.round(heads[-1], {"a": {b"%d" % number: b"x" * 100}}))
    head = heads[3]
    assert head is not None
    lost(place)
    place.read(heads[held])
    place.forget_written()
    CHANGES[change](place)
    is_kept = change in ("nothing", "another_boot_of_a_sealed_one")
    expected = size_of(head.files[held:] if is_kept else head.files)
    before = {path: path.read_bytes() for path in place.local.rglob("*") if path.is_file()}
    assert judged(place, head) == expected
    assert {path: path.read_bytes() for path in place.local.rglob("*") if path.is_file()} == before, "it changes nothing"
    assert opened(place, head) == expected
    assert (judged(place, head), opened(place, head)) == (0, 0)


def test_a_store_whose_user_was_killed_is_judged_by_what_it_held_before(place: Place) -> None:
    first = place.round(None, {"a": {b"1": b"one"}})
    head = place.round(first, {"a": {b"2": b"two"}})
    with place.open(head):
        assert judged(place, head) == head.files[1].bytes, "its status says what it held when it was closed last"
    assert judged(place, head) == 0


_files = st.lists(st.sampled_from([StateFileKind.DELTA, StateFileKind.SNAPSHOT]), min_size=1, max_size=6)


@given(_files, st.data())
@settings(deadline=None)
def test_what_is_to_be_read_makes_the_state_of_the_head(kinds: list[StateFileKind], data: st.DataObject) -> None:
    """Against a dumb store: a dictionary that takes the files one after the other."""
    files = tuple(StateFile(f"f{n}", kind, 1, 1, "c", n + 1) for n, kind in enumerate(kinds))
    head = Head(len(files), files)
    held = data.draw(st.integers(0, len(files)))
    names = ["0", *head.identities]
    read = files_to_read(head, names[held])
    is_prefix_enough = all(kind is StateFileKind.DELTA for kind in kinds[held:])
    assert read == (files[held:] if is_prefix_enough else files)
    assert files_to_read(head, "another state") == files_to_read(head, None) == files
    chain = chain_of(files)
    assert len(set(chain)) == len(files) + 1
    assert chain_of(files[:held]) == chain[: held + 1]


def plan_of(place: Place, head: Head, bound: int | None, system: str = "kafka") -> ContainerPlan:
    root = str(place.root / "stores")
    tasks, state = [TaskPlan("Partition_0", {}, head)], place.files.uri
    ids = {"run_id": place.run_id, "local_store_dir": root, "state_uri": state, "job_model_version": 1}
    plan = ContainerPlan("1:source:1", 1, 0, [], tasks, [], 0, 1.0, system=system, **ids)  # type: ignore[arg-type]
    return plan.__class__(**{name: getattr(plan, name) for name in plan.__struct_fields__} | {"restore_inline_bytes": bound})


def test_a_container_declines_where_more_is_missing_than_a_round_may_restore(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_restoring.holders, "boot_id", lambda: place.boot_id)
    first = place.round(None, {"a": {b"1": b"one"}})
    head = place.round(first, {"a": {b"2": b"two"}})
    place.read(first)
    all_bytes, last = size_of(head.files), head.files[1].bytes
    assert missing_bytes(plan_of(place, head, None), "app") == {}
    lost(place)
    assert missing_bytes(plan_of(place, head, all_bytes), "app") == {}
    assert missing_bytes(plan_of(place, head, all_bytes - 1), "app") == {"Partition_0": all_bytes}
    place.read(first)
    assert missing_bytes(plan_of(place, head, last), "app") == {}
    assert missing_bytes(plan_of(place, head, last - 1), "app") == {"Partition_0": last}
    assert missing_bytes(plan_of(place, head, last - 1, "log"), "app") == {}, "the round applies what the last one has written"
    lost(place)
    assert missing_bytes(plan_of(place, head, last - 1, "log"), "app") == {"Partition_0": all_bytes}
    place.read(None)
    assert missing_bytes(plan_of(place, first, 0, "log"), "app") == {}, "so it is from the first round on"
    assert missing_bytes(plan_of(place, head, last - 1, "log"), "app") == {"Partition_0": all_bytes}


def test_where_another_process_holds_a_store_the_sibling_that_is_used_is_judged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_restoring.holders, "boot_id", lambda: place.boot_id)
    first = place.round(None, {"a": {b"1": b"one"}})
    place.read(first)

    def declined(head: Head) -> dict[str, int]:
        return missing_bytes(plan_of(place, head, 0), "app")

    with owned(place.local):  # as a stopped process does
        before = sorted(place.local.parent.iterdir())
        assert declined(first) == {} and sorted(place.local.parent.iterdir()) == before
        head = place.round(first, {"a": {b"2": b"two"}})
        place.read(head)
        assert declined(head) == {}, "its sibling is at the head"
        with owned(place.local, 0.0) as (sibling, _):
            assert sibling.name == "Partition_0~1"
            assert declined(head) == {"Partition_0": size_of(head.files)}, "the next sibling would be made"
    assert declined(head) == {"Partition_0": head.files[1].bytes}, "the first folder is used again, and is behind"
    place.forget_written()
    assert opened(place, head) == head.files[1].bytes


# --- made on from where the maker was killed ---------------------------------------------------------------------------------

_MAKER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from state_place import Place, head_from_json
from headrace.adapters.lmdb import prepare_task_store
from headrace.exchange.fault_injection import reached
place = Place(Path(sys.argv[2]))
head = head_from_json(json.loads(sys.stdin.read()))
found = []
def progress(now):
    found.append(now)
    reached("restore", 1)
prepare_task_store(place.local, head, place.files, run_id="run-1", boot_id=sys.argv[3], progress=progress)
print(json.dumps([len(found), found[-1].read_bytes if found else 0, found[-1].done_bytes if found else 0]))
"""


def made(place: Place, head: Head, steps: str = "", boot_id: str = "boot-1") -> tuple[int, list[int]]:
    """A process that makes the store: its exit code, and how many batches and bytes it has read and come to."""
    command = [sys.executable, "-c", _MAKER, str(Path(__file__).parent), str(place.root), boot_id]
    environ = {**os.environ, "HEADRACE_TEST_STEPS": steps}
    request = json.dumps(head_to_json(head))
    done = subprocess.run(command, input=request, capture_output=True, text=True, env=environ, check=False, timeout=100)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else []


def test_a_store_is_made_on_from_where_its_maker_was_killed(place: Place, large: Large) -> None:
    head, contents = large(place)
    batches = [count for file in head.files for _, count, _ in [next(place.files.numbered_batches(file))]]
    assert made(place, head, "kill:restore:1:6")[0] == -signal.SIGKILL
    status = read_status(place.local)
    assert status is not None and status.building and held_state(place.local, "boot-1") is None
    assert made(place, head, "kill:restore:1:2")[0] == -signal.SIGKILL
    code, (read, read_bytes, done_bytes) = made(place, head)
    assert (code, read) == (0, sum(batches) - 8), "what was made before the kills is not read again"
    assert done_bytes == size_of(head.files) and read_bytes < done_bytes * 0.6
    assert place.read(head) == (contents, [])
    assert len([path for path in place.local.iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize("cause", ["another boot", "another head", "a flipped bit", "a kill while it is verified", "no data"])
def test_what_was_half_made_counts_only_where_it_can(place: Place, large: Large, cause: str) -> None:
    head, contents = large(place, 2)
    assert made(place, head, "kill:restore:1:5")[0] == -signal.SIGKILL
    boot_id, mark = "boot-1", place.local / "mark.json"
    match cause:
        case "another boot":
            boot_id = place.boot_id = "boot-2"
        case "another head":
            back = place.root / "aside"
            place.local.rename(back)
            first = Head(1, head.files[:1])
            head = place.round(first, {"a": {b"0-00000001": None}})
            contents = place.read(head)[0]
            lost(place)
            back.rename(place.local)
        case "a flipped bit":
            data = bytearray(place.data_file().read_bytes())
            at = data.index(b"0-00000100") + 20
            data[at] ^= 1
            place.data_file().write_bytes(data)
        case "a kill while it is verified":
            mark.write_text(json.dumps(json.loads(mark.read_text()) | {"verifying": 4321}))
        case _:
            place.data_file().unlink()
    code, (_, read, done) = made(place, head, boot_id=boot_id)
    assert code == 0 and read == done == size_of(head.files), "it is made from the beginning"
    assert place.read(head)[0] == contents


def test_a_round_that_opens_a_half_made_store_makes_it_on(place: Place, large: Large) -> None:
    head, contents = large(place, 2)
    assert made(place, head, "kill:restore:1:5")[0] == -signal.SIGKILL
    with place.open(head) as store:
        assert store.is_restored and 0 < store.read_bytes < size_of(head.files) * 0.7
    assert place.read(head)[0] == contents


def test_a_large_file_is_not_checked_again_and_a_small_one_is(place: Place, large: Large) -> None:
    head, _ = large(place, 1)
    (file,) = head.files
    wrong = replace(file, checksum="0" * 16)
    place.files._in_memory_bytes_max = file.bytes - 1
    numbers = [number for number, _, _ in place.files.numbered_batches(wrong, 2)]
    assert numbers == [number for number, _, _ in place.files.numbered_batches(file)][2:]
    with pytest.raises(StateError, match="expected checksum"):
        next(place.files.numbered_batches(wrong))
    place.files._in_memory_bytes_max = file.bytes
    with pytest.raises(StateError, match="expected checksum"):
        next(place.files.numbered_batches(wrong, 2))


# --- the process -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """What a driver asks; the processes are ended when the test is."""
    made: list[StoresToRestore] = []

    def ask(head: Head, **more: object) -> StoresToRestore:
        common = {"application": "app", "sub_topology": "source", "lane": 0, "epoch": 3, "run_id": "run-1"}
        paths = {"local_store_dir": str(place.root / "stores"), "state_uri": place.files.uri, "has_other_machines": False}
        where = {"location": location_of(None), "location_id": None, "heads": {"Partition_0": head}}
        made.append(StoresToRestore(**common | paths | where | more))  # type: ignore[arg-type]
        return made[-1]

    yield ask
    for one in made:
        pid = holder_of(one)
        if pid is not None and state_of(pid) == "T":
            os.kill(pid, signal.SIGKILL)
        assert folder_of(one).end()


def answer(asked: StoresToRestore) -> RestoreAnswer:
    return decoded_answer(restore(encoded_stores_to_restore(asked)))


def until(look: Callable[[], object], within_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not look():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def finished(asked: StoresToRestore) -> RestoreAnswer:
    found = [answer(asked)]
    until(lambda: found.append(answer(asked)) or found[-1].is_done or found[-1].error)
    return found[-1]


def test_a_process_restores_and_says_how_far_it_is(place: Place, asked: Ask, large: Large) -> None:
    place.boot_id = store_restoring.holders.boot_id()
    head, contents = large(place)
    one = asked(head)
    began_s = time.monotonic()
    assert answer(one) == RestoreAnswer()
    assert time.monotonic() - began_s < 5.0, "it is not waited for"
    done = finished(one)
    (store,) = done.stores
    assert (store.task, store.done_bytes, done.read_bytes) == ("Partition_0", size_of(head.files), size_of(head.files))
    assert store.entries >= len(contents["a"])
    assert place.read(head) == (contents, []), "the opening restores nothing"
    again = finished(one)  # where that answer was lost
    assert (again.is_done, again.read_bytes) == (True, 0)


def folder_of(one: StoresToRestore) -> RestoreFolder:
    return RestoreFolder(one.local_store_dir, one.application, one.sub_topology, one.lane)


def holder_of(one: StoresToRestore) -> int | None:
    """The process that restores, as its answer says."""
    process = folder_of(one).answer().process
    return None if process is None else int(process.partition("@")[0])


def at_work(one: StoresToRestore) -> int:
    """The same, once it has begun."""
    until(lambda: holder_of(one) is not None)
    pid = holder_of(one)
    assert pid is not None and not folder_of(one).answer().is_done
    return pid


def state_of(pid: int) -> str | None:
    """The kernel's letter for what a process does; None where it has ended."""
    fields = store_restoring.holders.stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else fields[0]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes stop at their third batch."""
    monkeypatch.setenv("HEADRACE_TEST_STEPS", "stop:restore:1:3")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes come no further than their third batch, and look about them all the same."""
    monkeypatch.setenv("HEADRACE_TEST_STEPS", "hold:restore:1:3")


def test_killed_in_the_midst_it_is_made_on(
    place: Place, asked: Ask, large: Large, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.boot_id = store_restoring.holders.boot_id()
    head, contents = large(place)
    one = asked(head)
    answer(one)
    pid = at_work(one)
    until(lambda: state_of(pid) == "T")
    monkeypatch.delenv("HEADRACE_TEST_STEPS")
    os.kill(pid, signal.SIGKILL)
    done = finished(one)
    assert done.is_done and done.stores[0].done_bytes == size_of(head.files)
    assert 0 < done.read_bytes < size_of(head.files), "the second process has not read what the first had"
    assert place.read(head) == (contents, [])


@pytest.mark.parametrize("cause", ["told to end", "another plan", "a round opens the stores"])
def test_a_process_that_is_not_wanted_ends_and_leaves_the_store_to_others(
    place: Place, asked: Ask, large: Large, cause: str, held: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.boot_id = store_restoring.holders.boot_id()
    head, contents = large(place)
    one = asked(head)
    answer(one)
    pid = at_work(one)
    monkeypatch.delenv("HEADRACE_TEST_STEPS")
    match cause:
        case "told to end":
            answer(asked(head, is_wanted=False))
        case "another plan":
            answer(asked(head, epoch=4))
        case _:
            store_restoring.end_restore(plan_of(place, head, None), "app", "source")
    until(lambda: state_of(pid) is None, 5.0)
    assert not folder_of(one).answer().is_done, "it ended in the midst"
    if cause == "another plan":
        assert finished(asked(head, epoch=4)).is_done
    assert place.read(head)[0] == contents


def test_who_asks_for_another_plan_ends_no_other(place: Place, asked: Ask, large: Large, slow: None) -> None:
    place.boot_id = store_restoring.holders.boot_id()
    head, _ = large(place)
    one = asked(head)
    answer(one)
    pid = at_work(one)
    until(lambda: state_of(pid) == "T")
    answer(asked(head, epoch=2, is_wanted=False))  # it comes late
    assert folder_of(one).wanted == one.token and folder_of(one).locked() is None


def test_it_ends_where_no_driver_asks_any_more(place: Place, asked: Ask, large: Large, held: None) -> None:
    place.boot_id = store_restoring.holders.boot_id()
    head, _ = large(place)
    one = asked(head)
    answer(one)
    pid = at_work(one)
    long_ago_s = time.time() - 61.0
    os.utime(folder_of(one).path / "wanted", (long_ago_s, long_ago_s))
    until(lambda: state_of(pid) is None, 5.0)
    assert not folder_of(one).answer().is_done, "it ended in the midst"


_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
child.stdin.write(sys.stdin.buffer.read())
child.stdin.close()
print(child.pid, flush=True)
child.wait()
"""
_WORKER = """
import sys, time
from headrace.wiring.worker.store_restoring import restore
restore(sys.stdin.buffer.read())
time.sleep(100)
"""


def test_it_ends_with_the_executor_and_not_with_the_worker(
    place: Place, asked: Ask, large: Large, held: None
) -> None:
    """Started by a worker, whose parent lives as long as an executor does."""
    place.boot_id = store_restoring.holders.boot_id()
    head, _ = large(place)
    one = asked(head)
    command = [sys.executable, "-c", _PARENT, _WORKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.write(encoded_stores_to_restore(one))
        parent.stdin.close()
        worker = int(parent.stdout.readline())
        pid = at_work(one)
        os.kill(parent.pid, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        time.sleep(0.3)  # three looks
        assert state_of(pid) is not None, "it outlives the worker that has started it"
        parent.kill()
        until(lambda: state_of(pid) is None, 5.0)
    assert not folder_of(one).answer().is_done, "it ended in the midst"


def test_at_another_location_nothing_is_done(place: Place, asked: Ask, large: Large) -> None:
    head, _ = large(place, 1)
    one = asked(head, location="elsewhere")
    assert answer(one) == RestoreAnswer(elsewhere=location_of(None))
    assert not folder_of(one).path.exists()


def test_why_a_store_cannot_be_made_is_in_the_answer(place: Place, asked: Ask, large: Large) -> None:
    head, _ = large(place, 2)
    gone = replace(head.files[0], name=head.files[0].name + "x")
    assert "found no such file" in finished(asked(replace(head, files=(gone, head.files[1])))).error


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that restore, as they are started."""
    made: list[int] = []
    popen = subprocess.Popen

    def starting(*args: Any, **keys: Any) -> Any:
        process = popen(*args, **keys)
        made.append(process.pid)
        return process

    monkeypatch.setattr(store_restoring.subprocess, "Popen", starting)
    return made


def test_processes_that_die_without_a_word_are_an_error_and_not_tried_for_ever(
    place: Place, asked: Ask, large: Large, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.boot_id = store_restoring.holders.boot_id()
    monkeypatch.setenv("HEADRACE_TEST_STEPS", "kill:restore:1:1")
    head, contents = large(place)
    one = asked(head)
    found = finished(one)
    assert (found.token, found.is_done, len(started)) == (one.token, False, 3)
    assert "found that 3 in a row ended without one" in found.error
    monkeypatch.delenv("HEADRACE_TEST_STEPS")
    assert finished(one).is_done, "asked once more, it is tried once more"
    assert place.read(head) == (contents, [])


def test_processes_that_die_and_come_further_are_tried_on(
    place: Place, asked: Ask, large: Large, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight batches each makes two, and says the first."""
    place.boot_id = store_restoring.holders.boot_id()
    monkeypatch.setenv("HEADRACE_TEST_STEPS", "kill:restore:1:2")
    head, contents = large(place, 2)
    assert finished(asked(head)).is_done
    assert len(started) == 5
    assert place.read(head) == (contents, [])


def test_what_a_power_cut_has_left_of_a_request_is_no_request(place: Place, asked: Ask, large: Large) -> None:
    place.boot_id = store_restoring.holders.boot_id()
    head, _ = large(place, 1)
    one = asked(head)
    folder_of(one).path.mkdir(parents=True)
    (folder_of(one).path / "wanted").write_bytes(b"\xff\x00")
    assert finished(one).is_done


def test_a_worker_that_cannot_ask_for_a_process_says_why(
    place: Place, asked: Ask, large: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, _ = large(place, 1)
    one = asked(head)

    def full(path: Any, *_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", full)
        found = answer(one)
    assert (found.token, found.is_done) == (one.token, False)
    assert str(folder_of(one).path) in found.error and "No space left" in found.error
