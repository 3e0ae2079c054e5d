"""What a disk or a crash does to LMDB's file is found, or does no harm (protocol.md 18, 19)."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from state_place import Contents, Place, Worker, after, head_to_json

from headrace.adapters.lmdb import close_idle, scanning
from headrace.adapters.lmdb.environments import give_back, take
from headrace.adapters.lmdb.scanning import check_entries, check_structure
from headrace.errors import StoreDamagedError
from headrace.model.checkpoint import Head

FLIPS = 60
_PAGE = 4096
_BRANCH, _LEAF = 1, 2  # flags of a page


def grown_store(place: Place) -> tuple[Head, Contents]:
    """A store of several levels with freed pages in it, closed; it holds the head."""
    changes: dict[str, dict[bytes, bytes | None]] = {
        "a": {b"key-%05d" % number: b"%d" % number * 7 for number in range(2_500)},
        "b": {b"other-%03d" % number: b"x" * number for number in range(100)},
    }
    head, contents = place.round(None, changes), after({}, changes)
    for start in (100, 1_000):
        changes = {"a": {b"key-%05d" % n: None if n % 2 else b"new-%d" % n for n in range(start, start + 300, 3)}}
        head, contents = place.round(head, changes), after(contents, changes)
    place.read(head)
    close_idle()
    return head, contents


def text_of(contents: Contents) -> dict[str, dict[str, str]]:
    return {db: {key.decode(): value.decode() for key, value in found.items()} for db, found in contents.items()}


@pytest.mark.parametrize("sealed", [False, True])
def test_flipped_bits_are_found_or_harmless(
    place: Place, tmp_path: Path, start_worker: Callable[..., Worker], sealed: bool
) -> None:
    """A run that was killed leaves no seal: then flips in pages that nobody uses are not found, and need not be."""
    head, contents = grown_store(place)
    assert not sealed or place.seal()
    copy = shutil.copytree(place.local, tmp_path / "copy")
    expected = text_of(contents)
    worker, rebuilt, deaths = start_worker(), 0, 0
    for seed in range(FLIPS):
        request = {"seed": seed, "head": head_to_json(head), "copy": str(copy), "again": False}
        answer = worker.ask(**request)
        if answer is None:  # the flip ended the process: the next one must find it
            deaths += 1
            worker = start_worker()
            answer = worker.ask(**request | {"again": True})
            assert "rebuilt" in answer["notes"][0], seed
        assert answer["before"] == expected, f"seed {seed}: {answer['notes']}"
        rebuilt += bool(answer["notes"])
    assert rebuilt > FLIPS // 3, f"only {rebuilt} of {FLIPS} flips were found, {deaths} ended the process"
    if sealed:
        assert (rebuilt, deaths) == (FLIPS, 0)


@pytest.mark.parametrize("pages_left", [0, 1, 3, -4, -1])
@pytest.mark.parametrize("run_id", ["run-1", "run-2"])
def test_a_truncated_file_is_rebuilt(place: Place, pages_left: int, run_id: str) -> None:
    head, contents = grown_store(place)
    data = place.data_file()
    pages = data.stat().st_size // _PAGE
    os.truncate(data, (pages_left if pages_left >= 0 else pages + pages_left) * _PAGE)
    found, notes = place.read(head, run_id=run_id)
    assert found == contents
    assert "rebuilt" in notes[0]


def test_a_file_from_elsewhere_is_rebuilt(place: Place) -> None:
    head, contents = grown_store(place)
    data = place.data_file()
    data.write_bytes(b"\xff" * data.stat().st_size)
    found, notes = place.read(head, run_id="run-2")
    assert found == contents
    assert "rebuilt" in notes[0]


@pytest.mark.parametrize("change", ["gone", "new", "other value", "moved to another database"])
def test_entries_that_lmdb_finds_nothing_wrong_with_are_counted(place: Place, change: str) -> None:
    """Each of these is a sound LMDB file whose single values all have their checksums, but for the third."""
    grown_store(place)
    environment = take(place.data_file().parent)
    give_back(environment)
    with environment.lmdb.begin(write=True) as txn:
        handle, other = environment.handles["a"], environment.handles["b"]
        stored = txn.get(b"key-00001", db=handle)
        match change:
            case "gone":
                txn.delete(b"key-00001", db=handle)
            case "new":
                txn.put(b"extra", b"\0\0\0\0", db=handle)
            case "other value":
                txn.put(b"key-00001", stored[:-1] + b"?", db=handle)
            case _:
                txn.put(b"key-00001", stored, db=other)
    with pytest.raises(StoreDamagedError):
        check_entries(environment)


def test_a_damaged_free_list_is_found_although_all_entries_are_right(place: Place) -> None:
    """LMDB would write over a live page that the list calls free; only a look at all pages tells."""
    head, contents = grown_store(place)
    data = place.data_file()
    content = bytearray(data.read_bytes())
    metas = [content[start + 16 :][:152] for start in (0, _PAGE)]  # behind a page header of 16 bytes
    newest = max(metas, key=lambda meta: int.from_bytes(meta[128:136], "little"))
    root = int.from_bytes(newest[64:72], "little")
    assert content[root * _PAGE + 10] == _LEAF
    content[(root + 1) * _PAGE - 8] ^= 1  # the page number at the end of a list of them
    data.write_bytes(content)
    environment = take(data.parent)
    give_back(environment)
    check_entries(environment)
    close_idle()
    with pytest.raises(StoreDamagedError):
        check_structure(data.parent)
    found, notes = place.read(head, run_id="run-2")
    assert found == contents
    assert "rebuilt" in notes[0]


def test_a_damaged_separator_is_found_although_a_scan_finds_all(place: Place) -> None:
    """A branch page holds a key per leaf: one that is too high or too low hides keys of a neighbouring leaf."""
    grown_store(place)
    data = place.data_file()
    original = data.read_bytes()
    separators = [
        found.start()
        for page in range(2, len(original) // _PAGE)
        if int.from_bytes(original[page * _PAGE + 10 : page * _PAGE + 12], "little") == _BRANCH
        for found in re.compile(rb"key-\d{5}").finditer(original, page * _PAGE, (page + 1) * _PAGE)
    ]
    assert len(separators) > 10
    reasons = []
    for position in separators[:: len(separators) // 8]:
        for digit in b"059":
            content = bytearray(original)
            content[position + 8] = digit
            data.write_bytes(content)
            check_structure(data.parent)
            environment = take(data.parent)
            give_back(environment)
            try:
                check_entries(environment)
            except StoreDamagedError as error:
                reasons.append(str(error))
            close_idle()
    assert len(reasons) > 4
    assert all("not found where they are" in reason for reason in reasons)


def test_a_process_that_dies_while_verifying_is_remembered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    head, contents = grown_store(place)
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(scanning, "unpacked_many", lambda *arguments: os._exit(7))
        place.read(head, run_id="run-2")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    monkeypatch.undo()
    found, notes = place.read(head, run_id="run-2")
    assert found == contents
    assert f"process {pid} ended while it verified" in notes[0]


@pytest.mark.chaos
@pytest.mark.parametrize("count", [1, 2, 3])
def test_killed_inside_the_write_transaction(place: Place, start_worker: Callable[..., Worker], count: int) -> None:
    """The n-th apply of a process is cut by SIGKILL; the next one finds the state before it, and goes on."""
    contents: Contents = {}
    head: Head | None = None
    heads = [(head, contents)]
    for number in range(3):
        changes = {"a": {b"%d" % key: b"%d" % number for key in range(number, 300 + number)}}
        head, contents = place.round(head, changes), after(contents, changes)
        heads.append((head, contents))
    close_idle()
    shutil.rmtree(place.local)
    worker = start_worker(f"kill:log:3:{count}")
    for index in range(count):  # the first one builds an empty store
        answer = worker.ask(head=head_to_json(heads[index][0]), changes={})
    assert answer is None
    found, _ = place.read(heads[-1][0])
    assert found == heads[-1][1]
