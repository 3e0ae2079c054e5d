"""State files: named once, checked when read, never taken as empty (protocol.md 20)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import StateError, UnavailableError
from headrace.model.checkpoint import StateFile, StateFileKind
from headrace.state_files import files as state_files
from headrace.state_files.batches import batches_of, binary_array
from headrace.state_files.files import FilePlace, StateFiles, task_folder_of
from state.tables import table_in, write_table

ROWS = {"db": ["a", "a", "b"], "key": [b"1", b"2", b"1"], "value": [b"x", None, b""]}


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(str(tmp_path / "state"))


def written(files: StateFiles) -> StateFile:
    return write_table(files, "app/Partition_0", StateFileKind.DELTA, 7, ROWS)


def fresh(files: StateFiles) -> StateFiles:
    return StateFiles(files.uri)


def test_reads_what_was_written_by_another_process(files: StateFiles) -> None:
    file = written(files)
    assert table_in(fresh(files), file).to_pydict() == ROWS
    assert table_in(files, file).to_pydict() == ROWS
    assert (file.kind, file.version, file.entries) == (StateFileKind.DELTA, 7, 3)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what is made durable from now on."""
    seen: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def durable(files: StateFiles, file: StateFile, synced: list[str]) -> bool:
    path = files.local_path(file.name)
    assert path is not None
    return str(path) in synced and str(path.parent) in synced[synced.index(str(path)) :]


def test_a_file_is_durable_before_its_folder_and_when_it_is_written(files: StateFiles, synced: list[str]) -> None:
    assert durable(files, written(files), synced)


def test_files_that_are_written_together_are_durable_together(files: StateFiles, synced: list[str]) -> None:
    with files.together():
        many = [
            write_table(files, f"app/Partition_{number}", StateFileKind.DELTA, 1, ROWS)
            for number in range(3 * state_files._PENDING_MAX)
        ]
        with ThreadPoolExecutor(1) as other:
            assert durable(files, other.submit(written, files).result(), synced), "another thread's write waits for this one"
    assert all(durable(files, file, synced) for file in many)
    assert table_in(fresh(files), many[-1]).to_pydict() == ROWS
    assert durable(files, written(files), synced)


@pytest.mark.parametrize("count", [1, 3 * state_files._PENDING_MAX])
def test_what_cannot_be_made_durable_is_said_before_it_counts(
    files: StateFiles, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def write_together(version: int) -> None:
        with files.together():
            for number in range(count):
                write_table(files, f"app/Partition_{number}", StateFileKind.DELTA, version, ROWS)

    write_together(1)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnavailableError, match=f"{files.uri}: on host .* in {files.uri}: the disk is full: it has room"):
        write_together(2)
    monkeypatch.undo()
    write_together(3)
    assert table_in(fresh(files), written(files)).to_pydict() == ROWS


def full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_batches_hold_one_database_each(files: StateFiles) -> None:
    dbs = [set(batch["db"].to_pylist()) for batch in fresh(files).batches(written(files))]
    assert dbs == [{"a"}, {"b"}]


def test_two_writes_of_one_version_have_two_names_and_identities(files: StateFiles) -> None:
    one, two = written(files), written(files)
    assert one.name != two.name and one.identity != two.identity
    assert one.checksum == two.checksum
    assert files.list("app") == sorted([one.name, two.name])
    assert files.list("application") == []


def test_a_plain_path_and_a_file_uri_are_the_same_place(files: StateFiles) -> None:
    file = written(files)
    assert table_in(StateFiles(f"file://{files.uri}"), file).to_pydict() == ROWS
    assert files.local_path(file.name) == Path(files.uri) / file.name


def test_delete_is_final_and_may_be_repeated(files: StateFiles) -> None:
    file = written(files)
    assert file.name in files.list("app")
    files.delete(file.name)
    files.delete(file.name)
    assert file.name not in files.list("app")
    with pytest.raises(StateError, match="found no such file"):
        table_in(files, file)


@pytest.mark.parametrize("in_memory_max", [0, 1 << 20])  # small files are read once, large ones twice
@pytest.mark.parametrize("damage", ["missing", "shorter", "longer", "flipped", "emptied"])
def test_a_damaged_file_is_named(
    files: StateFiles, damage: str, in_memory_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "_IN_MEMORY_BYTES_MAX", in_memory_max)
    file = written(files)
    path = Path(files.uri) / file.name
    data = path.read_bytes()
    middle = len(data) // 2
    match damage:
        case "missing":
            path.unlink()
        case "shorter":
            path.write_bytes(data[:-1])
        case "longer":
            path.write_bytes(data + b"\0")
        case "flipped":
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        case "emptied":
            path.write_bytes(b"")
    with pytest.raises(StateError) as error:
        table_in(fresh(files), file)
    assert file.name in str(error.value) and "version 7" in str(error.value)


def test_a_file_that_is_no_arrow_file_is_named(files: StateFiles) -> None:
    file = written(files)
    garbage = b"x" * file.bytes
    (Path(files.uri) / file.name).write_bytes(garbage)
    import xxhash

    with pytest.raises(StateError, match="cannot be read"):
        table_in(fresh(files), replace(file, checksum=xxhash.xxh3_64_hexdigest(garbage)))


def test_large_files_are_read_in_batches(files: StateFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "_IN_MEMORY_BYTES_MAX", 1000)
    keys = [b"%06d" % number for number in range(40_000)]
    batches = batches_of("a", binary_array(keys), binary_array(keys))
    file = files.write_batches(FilePlace("app/P", 1), StateFileKind.SNAPSHOT, 1, batches)
    found = list(fresh(files).batches(file))
    assert len(found) == 3
    assert [key for batch in found for key in batch["key"].to_pylist()] == keys


def test_what_is_remembered_is_bounded(files: StateFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "_REMEMBERED_BYTES_MAX", 1000)
    written_files = [written(files) for _ in range(100)]
    assert 1 <= len(files._remembered) < 100
    assert all(table_in(files, file).to_pydict() == ROWS for file in written_files)


def test_task_folders_are_single_folders_and_differ() -> None:
    names = ["Partition_1", "a/Partition_1", "a%2FPartition_1", "SystemStreamPartition_[log:./d,views,3]-1-4", "a~1"]
    folders = [task_folder_of("app", name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(folder.count("/") == 1 and "~" not in folder for folder in folders)


def test_reading_by_key_loads_no_more_than_it_needs() -> None:
    """`headrace state get` is to be quick: a part of Arrow that only folds need is left out."""
    code = "import sys, headrace.client.state_reader, headrace.state_files.files; print('pyarrow.compute' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
