"""The catalog as a file: made whole, refused when it is none, all or nothing, and clear when it is locked."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.adapters.log.catalog import open_catalog
from headrace.adapters.log.system import LogSystem, open_system
from headrace.errors import ConfigError, SetupError, StorageError, StreamExistsError, StreamNotFoundError

Start = Callable[..., Any]  # see `start` in conftest.py


@pytest.mark.parametrize("url", ["", "log", "log:", "kafka://localhost", "./data"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected log: and a folder"):
        open_system(url)


def test_a_log_is_made_once_and_found_again(folder: Path) -> None:
    for number in range(3):
        with open_system(f"log:{folder}") as system:
            assert len(system.streams()) == number
            system.create_stream(f"s{number}", 1)
    assert [path.name for path in folder.iterdir()] == ["catalog.sqlite"]


def test_commands_that_only_look_make_no_log(folder: Path) -> None:
    with pytest.raises(SetupError, match="there is no log in"):
        open_system(f"log:{folder}", create=False)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    for path in (in_the_way, in_the_way / "log"):
        with pytest.raises(SetupError, match=f"the folder {path} for the log cannot be made and written: "):
            open_system(f"log:{path}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SetupError, match="cannot be made and written"):
        open_system(f"log:{tmp_path}")


def test_more_partitions_than_a_catalog_can_hold_are_refused(folder: Path) -> None:
    with open_system(f"log:{folder}") as system:
        for partitions in (0, 100_001, 1_000_000_000):
            with pytest.raises(ConfigError, match="at least 1, at most 100,000"):
                system.create_stream("s", partitions)
        assert system.streams() == []


def test_a_newer_catalog_is_refused(folder: Path) -> None:
    with open_system(f"log:{folder}") as system:
        system.create_stream("s", 1)
    with sqlite3.connect(folder / "catalog.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StorageError, match="has schema version 99, this version of Headrace knows 1"):
        open_system(f"log:{folder}")


def test_what_is_no_catalog_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "catalog.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(StorageError, match="cannot be used: file is not a database"):
        open_system(f"log:{folder}")
    (folder / "catalog.sqlite").write_bytes(b"")
    with pytest.raises(StorageError, match="is not a catalog of Headrace"):
        open_system(f"log:{folder}")


def test_looking_into_a_log_that_is_not_there_makes_nothing(folder: Path) -> None:
    with open_system(f"log:{folder}") as system:
        assert (system.streams(), system.applications()) == ([], [])
        with pytest.raises(StreamNotFoundError, match="stream 's' does not exist"):
            system.consume("s")
        with pytest.raises(StreamNotFoundError, match="stream 's' does not exist"):
            system.produce("s", [(b"k", b"v")])
        assert not folder.exists()
        with open_system(f"log:{folder}") as other:
            other.create_stream("s", 1)
        assert [stream.name for stream in system.streams()] == ["s"]
        assert system.produce("s", [(b"k", b"v")]) == 1


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="file is no folder"):
        open_system(f"log:{tmp_path}/file/log")


@pytest.mark.parametrize("url", ["log:~nobody-of-this-name/x", "log://data", "log://", "log:"])
def test_urls_that_name_no_folder_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="system 'log:"):
        open_system(url)


def test_a_closed_log_says_so(system: LogSystem) -> None:
    system.close()
    with pytest.raises(StorageError, match="was closed"):
        system.streams()
    system.close()


def test_a_transaction_that_raises_changes_nothing(folder: Path) -> None:
    catalog = open_catalog(folder)
    with suppress(KeyError), catalog.write() as db:
        db.execute("INSERT INTO metadata VALUES ('a', 'b', x'00')")
        raise KeyError
    with catalog.read() as db:
        assert db.execute("SELECT count(*) FROM metadata").fetchone() == (0,)
    catalog.close()


def test_every_write_that_counts_is_synced(folder: Path) -> None:
    catalog = open_catalog(folder)
    with catalog.write(durable=False) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (1,)
    with catalog.write() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    catalog.close()


def test_readers_see_one_state_while_others_write(system: LogSystem, folder: Path) -> None:
    system.create_stream("a", 1)
    catalog = open_catalog(folder)
    with catalog.read() as db:
        before = db.execute("SELECT count(*) FROM streams").fetchone()
        system.create_stream("b", 1)
        assert db.execute("SELECT count(*) FROM streams").fetchone() == before
    catalog.close()


def test_threads_share_a_log(system: LogSystem) -> None:
    refused = []

    def work(number: int) -> None:
        for i in range(20):
            system.metadata_store("app").request(f"n{number}", b"%d" % i)
            try:
                system.create_stream(f"s{i}", 1)
            except StreamExistsError:
                refused.append(i)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(system.streams()) == 20
    assert len(refused) == 60
    requests = [system.metadata_store("app").requests(f"n{number}") for number in range(4)]
    assert all(list(made.values()) == [b"%d" % i for i in range(20)] for made in requests)


def test_processes_may_make_one_log_at_once(folder: Path, start: Start) -> None:
    code = """
import sys
from headrace.adapters.log.system import open_system
sys.stdin.readline()
with open_system(f"log:{sys.argv[1]}") as system:
    system.create_stream(sys.argv[2], 1)
"""
    makers = [start(code, folder, f"s{number}") for number in range(4)]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("\n")
        maker.stdin.flush()
    assert [maker.wait(60) for maker in makers] == [0, 0, 0, 0]
    with open_system(f"log:{folder}", create=False) as system:
        assert len(system.streams()) == 4


def test_a_lock_that_stays_is_named_with_its_stopped_process(system: LogSystem, folder: Path, start: Start) -> None:
    code = """
import sys
from contextlib import suppress
from pathlib import Path
from headrace.adapters.log.catalog import open_catalog
with open_catalog(Path(sys.argv[1])).write() as db:
    print("locked", flush=True)
    sys.stdin.readline()
"""
    holder = start(code, folder)
    assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
    os.kill(holder.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
    catalog = open_catalog(folder, lock_wait_s=0.2)
    locked = rf"stayed locked by process {holder.pid} \(which is stopped\)\n.*kill -CONT {holder.pid}"
    with pytest.raises(StorageError, match=locked), catalog.write():
        pass
    assert system.streams() == []  # readers are not held up
    holder.kill()
    holder.wait()
    with catalog.write():
        pass
    catalog.close()


def test_looking_needs_no_arrow() -> None:
    code = """
import sys, tempfile
from headrace.adapters.log.system import open_system
with tempfile.TemporaryDirectory() as folder, open_system(f"log:{folder}") as system:
    system.create_stream("s", 1)
    store = system.job_store("app")
    store.holder(), store.status(), store.checkpoints(), store.job_model()
    system.end_offsets("s"), system.metadata_store("app").all("n")
assert not {"pyarrow", "numpy"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
