"""State files on a file system that is not this machine's, as pyarrow opens it by a URI: no fsync, and no path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.errors import StateError
from headrace.model.checkpoint import StateFileKind
from headrace.state_files.files import StateFiles
from headrace.wiring.folders import check_sign, is_signed, sign
from state.tables import table_in, write_table

ROWS = {"db": ["a", "a", "b"], "key": [b"1", b"2", b"1"], "value": [b"x", None, b""]}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"fsspec+file://{tmp_path}/state"


def test_what_is_written_is_read_listed_and_deleted(uri: str, tmp_path: Path) -> None:
    files = StateFiles(uri)
    assert files.list("app") == []
    with files.together():
        file = write_table(files, "app/Partition_0", StateFileKind.DELTA, 7, ROWS)
    again = StateFiles(uri)
    assert table_in(again, file).to_pydict() == ROWS
    assert again.list("app") == [file.name] and again.local_path(file.name) is None
    assert (tmp_path / "state" / file.name).stat().st_size == file.bytes
    again.delete(file.name)
    again.delete(file.name)
    assert again.list("app") == []
    with pytest.raises(StateError, match="found no such file"):
        table_in(again, file)


def test_a_damaged_file_is_named(uri: str, tmp_path: Path) -> None:
    file = write_table(StateFiles(uri), "app/Partition_0", StateFileKind.DELTA, 7, ROWS)
    path = tmp_path / "state" / file.name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateError, match=f"{file.name}.* expected {file.bytes} bytes, found {file.bytes - 1}"):
        table_in(StateFiles(uri), file)


def test_the_sign_of_a_run_is_seen_by_others_and_is_the_last_ones(uri: str) -> None:
    assert not is_signed(StateFiles(uri), "app", "run-1")
    sign(StateFiles(uri), "app", "run-1", "state-1")
    assert is_signed(StateFiles(uri), "app", "run-1")
    sign(StateFiles(uri), "app", "run-2", "state-1")
    check_sign(StateFiles(uri), "app", "run-2", "host-1")
    with pytest.raises(StateError, match="on host host-1 this is not the folder that the driver writes to"):
        check_sign(StateFiles(uri), "app", "run-1", "host-1")
    with pytest.raises(StateError, match="on host host-1"):
        check_sign(StateFiles(f"{uri}/another"), "app", "run-2", "host-1")


def test_a_sign_replaces_that_of_a_run_of_the_same_state_and_no_other(uri: str, tmp_path: Path) -> None:
    for one in (uri, str(tmp_path / "local")):
        for run in range(3):
            for application, state in (("app", "state-1"), ("app", "state-2"), ("other", "state-1")):
                sign(StateFiles(one), application, f"{state}-run-{run}", state)
        for state in ("state-1", "state-2"):
            check_sign(StateFiles(one), "app", f"{state}-run-2", "host-1")
        there = [f".runs-of-app/{state}-run-2" for state in ("state-1", "state-2")]
        assert StateFiles(one).list(".runs-of-app") == there and StateFiles(one).list("app") == []
        assert StateFiles(one).list(".runs-of-other") == [".runs-of-other/state-1-run-2"]


def test_a_sign_that_cannot_be_read_is_of_another_and_holds_up_no_start(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for state in ("state-1", "state-2"):
        sign(StateFiles(uri), "app", f"{state}-run-1", state)
    note = StateFiles.note

    def refused(self: StateFiles, name: str) -> str:
        if "state-1" in name:
            raise PermissionError(13, "Permission denied", name)
        return note(self, name)

    monkeypatch.setattr(StateFiles, "note", refused)
    sign(StateFiles(uri), "app", "state-2-run-2", "state-2")
    assert StateFiles(uri).list(".runs-of-app") == [".runs-of-app/state-1-run-1", ".runs-of-app/state-2-run-2"]


def test_a_sign_that_cannot_be_left_is_an_error(uri: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".runs-of-app").write_text("")
    with pytest.raises(StateError, match=f"state_uri {re.escape(uri)} cannot be written"):
        sign(StateFiles(uri), "app", "run-1", "state-1")


def test_a_mark_is_listed_in_its_own_folder_and_stays_as_it_is(uri: str, tmp_path: Path) -> None:
    for one in (uri, str(tmp_path / "local")):
        files = StateFiles(one)
        for _ in range(2):
            files.mark(".states-of-app/7", "7")
        assert files.list(".states-of-app") == [".states-of-app/7"] and files.list("app") == []
        assert files.note(".states-of-app/7") == "7"


@pytest.mark.parametrize("uri", ["s4://bucket/state", "fsspec+nothing://x/y", "hdfs://:no-port/x"])
def test_a_place_that_cannot_be_opened_is_named(uri: str) -> None:
    with pytest.raises(StateError, match=re.escape(uri)) as refused:
        StateFiles(uri)
    assert refused.value.hint is not None and "s3://" in refused.value.hint
