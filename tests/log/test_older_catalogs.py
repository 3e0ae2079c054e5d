"""A catalog that is not the newest one of its folder: whichever way it comes there it is refused, and no data file is lost."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.adapters.log import catalog, chunks, commits, data_files
from headrace.adapters.log.commit_marks import marks_of
from headrace.adapters.log.commits import PRODUCER_FILE_AGE_S
from headrace.adapters.log.repairing import take
from headrace.adapters.log.system import LogSystem, open_system
from headrace.adapters.log.verifying import verify
from headrace.errors import SetupError, StorageError

Start = Callable[..., Any]  # see `start` in conftest.py
CATALOG = ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm")

WRITER = """
import os, signal, sys
from headrace.adapters.log.system import open_system
system = open_system(f"log:{sys.argv[1]}")
for number in range(int(sys.argv[2])):
    system.produce("s", [(b"k", b"killed %d" % number)])
print("written", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def produce(folder: Path, first: int, calls: int = 3) -> None:
    with open_system(f"log:{folder}") as system:
        if "s" not in [stream.name for stream in system.streams()]:
            system.create_stream("s", 2)
        for number in range(first, first + calls):
            system.produce("s", [(b"k%d" % number, b"v%d" % number)])


def records(folder: Path) -> list[tuple[Any, Any, Any]]:
    with open_system(f"log:{folder}", create=False) as system:
        return [(record.partition, record.offset, record.value) for record in system.consume("s")]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in (folder / "data").rglob("*.arrow")}


def copy_catalog(source: Path, target: Path) -> None:
    """Catalog, -wal and -shm, as they are."""
    target.mkdir(parents=True, exist_ok=True)
    for name in CATALOG:
        (target / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy(source / name, target / name)


def much_later_us() -> int:
    return time.time_ns() // 1000 + 10 * PRODUCER_FILE_AGE_S * 1_000_000


# --- the ways by which an older catalog comes back; the right one is kept in `tmp_path / "right"` ---------------------------


def closed_copy(folder: Path, tmp_path: Path) -> None:
    produce(folder, 0)
    copy_catalog(folder, tmp_path / "old")
    produce(folder, 3)
    copy_catalog(folder, tmp_path / "right")
    copy_catalog(tmp_path / "old", folder)


def copy_before_any_data(folder: Path, tmp_path: Path) -> None:
    with open_system(f"log:{folder}") as system:
        system.create_stream("s", 2)
    copy_catalog(folder, tmp_path / "old")
    produce(folder, 0)
    copy_catalog(folder, tmp_path / "right")
    copy_catalog(tmp_path / "old", folder)


def copy_while_open(folder: Path, tmp_path: Path) -> None:
    produce(folder, 0)
    with open_system(f"log:{folder}") as system:
        system.produce("s", [(b"k", b"in the -wal file")])
        copy_catalog(folder, tmp_path / "old")
        assert (tmp_path / "old" / CATALOG[1]).stat().st_size > 0
        system.produce("s", [(b"k", b"later")])
    copy_catalog(folder, tmp_path / "right")
    copy_catalog(tmp_path / "old", folder)


def copy_while_open_without_its_wal(folder: Path, tmp_path: Path) -> None:
    copy_while_open(folder, tmp_path)
    for name in CATALOG[1:]:
        (folder / name).unlink(missing_ok=True)


def whole_folder_copied_over(folder: Path, tmp_path: Path) -> None:
    produce(folder, 0)
    shutil.copytree(folder, tmp_path / "old")
    produce(folder, 3)
    copy_catalog(folder, tmp_path / "right")
    shutil.copytree(tmp_path / "old", folder, dirs_exist_ok=True)


def of_another_log(folder: Path, tmp_path: Path) -> None:
    produce(folder, 0)
    produce(tmp_path / "other", 0, calls=9)
    copy_catalog(folder, tmp_path / "right")
    copy_catalog(tmp_path / "other", folder)


def of_a_copy_that_went_its_own_way(folder: Path, tmp_path: Path) -> None:
    produce(folder, 0)
    shutil.copytree(folder, tmp_path / "twin")
    produce(folder, 3)
    produce(tmp_path / "twin", 10, calls=8)  # newer, by its number
    copy_catalog(folder, tmp_path / "right")
    copy_catalog(tmp_path / "twin", folder)


def of_an_older_headrace(folder: Path, tmp_path: Path) -> None:
    closed_copy(folder, tmp_path)
    with closing(sqlite3.connect(folder / CATALOG[0])) as db:
        db.execute("DROP TABLE log")
        db.commit()


REFUSED = r"does not match its data files: it is .*\n.*headrace doctor --system log:"
WAYS = [
    closed_copy,
    copy_before_any_data,
    copy_while_open,
    copy_while_open_without_its_wal,
    whole_folder_copied_over,
    of_another_log,
    of_a_copy_that_went_its_own_way,
    of_an_older_headrace,
]
USES: dict[str, Callable[[LogSystem], object]] = {
    "streams": lambda system: system.streams(),
    "consume": lambda system: list(system.consume("s")),
    "produce": lambda system: system.produce("s", [(b"k", b"v")]),
    "create": lambda system: system.create_stream("another", 1),
    "status": lambda system: system.job_store("app").publish_status(None, {}),
    "garbage": lambda system: system.collect_garbage(much_later_us()),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused_by_all_that_uses_the_log_and_nothing_is_lost(
    folder: Path, tmp_path: Path, way: Callable[[Path, Path], None]
) -> None:
    way(folder, tmp_path)
    before = files(folder)
    for use in USES.values():
        with pytest.raises(StorageError, match=REFUSED), open_system(f"log:{folder}") as system:
            use(system)
    assert not verify(folder).is_whole
    assert files(folder) == before
    copy_catalog(tmp_path / "right", folder)
    values = {value for _, _, value in records(folder)}
    assert values and before <= files(folder)
    produce(folder, 50)
    assert {value for _, _, value in records(folder)} == values | {b"v50", b"v51", b"v52"}
    with open_system(f"log:{folder}") as system:
        assert system.collect_garbage(much_later_us()) == ()
    assert verify(folder).is_whole


@pytest.mark.parametrize("calls", [1, 400], ids=["all of it in the -wal file", "-wal file begun again"])
def test_a_wal_file_of_another_state_is_not_written_into_an_older_catalog(
    folder: Path, tmp_path: Path, start: Start, calls: int
) -> None:
    produce(folder, 0)
    copy_catalog(folder, tmp_path / "old")
    process = start(WRITER, folder, calls)
    assert process.stdout.readline() == "written\n"
    process.wait()
    copy_catalog(folder, tmp_path / "right")
    shutil.copy(tmp_path / "old" / CATALOG[0], folder / CATALOG[0])  # beside the newer -wal
    old, wal = (folder / CATALOG[0]).read_bytes(), (folder / CATALOG[1]).read_bytes()
    if calls == 1:
        assert len(records(folder)) == 4  # the -wal file holds all that has changed since: that is the newest state
    else:
        with pytest.raises(StorageError, match=r"is damaged, after catalog.sqlite-wal was applied to it"):
            records(folder)
        assert not verify(folder).is_whole
        assert ((folder / CATALOG[0]).read_bytes(), (folder / CATALOG[1]).read_bytes()) == (old, wal)
    copy_catalog(tmp_path / "right", folder)
    assert len(records(folder)) == 3 + calls


@pytest.mark.parametrize("create", [True, False])
def test_a_missing_catalog_beside_data_files_is_no_empty_log(folder: Path, tmp_path: Path, create: bool) -> None:
    produce(folder, 0)
    copy_catalog(folder, tmp_path / "right")
    with open_system(f"log:{folder}") as is_open:
        is_open.streams()
        for name in CATALOG:
            (folder / name).unlink(missing_ok=True)
        for use in USES.values():
            with pytest.raises(StorageError, match=r"is missing, but|was deleted or moved while it was open"):
                use(is_open)
    for name in CATALOG:
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(StorageError, match=r"is missing, but .*/data has 3 data files of a log.*\n.*headrace doctor --system"):
        open_system(f"log:{folder}", create=create)
    assert not (folder / CATALOG[0]).exists()
    copy_catalog(tmp_path / "right", folder)
    assert len(records(folder)) == 3


def test_a_log_that_was_open_and_empty_is_not_made_over_data_files(folder: Path, tmp_path: Path) -> None:
    with open_system(f"log:{folder}") as looked_into:
        assert looked_into.streams() == []
        produce(folder, 0)
        copy_catalog(folder, tmp_path / "right")
        (folder / CATALOG[0]).unlink()
        for use in USES.values():
            with pytest.raises(StorageError, match="is missing, but"):
                use(looked_into)


def test_a_catalog_that_is_replaced_while_it_is_open_takes_no_more_commits(folder: Path, tmp_path: Path) -> None:
    produce(folder, 0)
    copy_catalog(folder, tmp_path / "old")
    with open_system(f"log:{folder}") as system:
        system.produce("s", [(b"k", b"v")])
        (tmp_path / "old" / CATALOG[0]).rename(folder / CATALOG[0])
        for use in USES.values():
            with pytest.raises(StorageError, match="was replaced while it was open"):
                use(system)


def test_a_copy_written_over_an_open_catalog_names_doctor(folder: Path, tmp_path: Path) -> None:
    with open_system(f"log:{folder}") as system:
        for number in range(30):
            system.create_stream(f"t{number}", 4)
    produce(folder, 0, calls=30)
    (tmp_path / "old").mkdir()
    shutil.copy(folder / CATALOG[0], tmp_path / "old")
    with open_system(f"log:{folder}") as system:
        for number in range(150):
            system.produce(f"t{number % 30}", [(b"%d" % (number * n), b"v") for n in range(4)])
    with open_system(f"log:{folder}") as system:
        system.produce("s", [(b"k", b"v")])
        with (folder / CATALOG[0]).open("r+b") as same, (tmp_path / "old" / CATALOG[0]).open("rb") as old:
            shutil.copyfileobj(old, same)
            same.truncate()

        def use_it() -> None:
            for number in range(100):
                system.produce(f"t{number % 30}", [(b"%d" % (number * n), b"v") for n in range(4)])

        with pytest.raises(StorageError, match=r"is damaged: .*\n.*stop all that uses the log.*headrace doctor --system log:"):
            use_it()
    assert not verify(folder).is_whole


def test_data_of_others_beside_it_does_not_hinder_a_new_log(folder: Path) -> None:
    (folder / "data" / "produced").mkdir(parents=True)
    (folder / "data" / "flights.csv").write_text("a,b")
    (folder / "data" / "produced" / "sales.arrow").write_text("not ours")
    with pytest.raises(SetupError, match="there is no log in"):
        open_system(f"log:{folder}", create=False)
    produce(folder, 0)
    assert len(records(folder)) == 3


class TestWithoutMarks:
    """A log of an older Headrace, or one whose marks were removed: nothing can be compared, so nothing strange is deleted."""

    @staticmethod
    def as_before(folder: Path) -> None:
        with closing(sqlite3.connect(folder / CATALOG[0])) as db:
            db.execute("DROP TABLE log")
            db.commit()
        shutil.rmtree(folder / "data" / "commits")

    def test_a_log_of_an_older_headrace_opens_and_continues(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(data_files, "header_of", lambda chunk, position, _: (b"", chunk))
            with open_system(f"log:{folder}") as system:
                system.create_stream("s", 2)
                system.produce("s", [(b"k", b"old")])
        self.as_before(folder)
        assert [value for _, _, value in records(folder)] == [b"old"]
        assert verify(folder).is_whole
        produce(folder, 0)
        assert sorted(value for _, _, value in records(folder)) == [b"old", b"v0", b"v1", b"v2"]
        with open_system(f"log:{folder}") as system:
            assert system.collect_garbage(much_later_us()) == ()
            system.delete_stream("s")
            assert len(system.collect_garbage(much_later_us())) == 4  # of its own files it knows
        assert verify(folder).is_whole

    def test_files_that_it_does_not_know_stay(self, folder: Path, tmp_path: Path) -> None:
        closed_copy(folder, tmp_path)
        self.as_before(folder)
        before = files(folder)
        produce(folder, 20)
        with open_system(f"log:{folder}") as system:
            assert system.collect_garbage(much_later_us()) == ()
        assert before < files(folder)
        assert len(verify(folder).unknown) == 3
        copy_catalog(tmp_path / "right", folder)  # which is older than the marks by now
        with pytest.raises(StorageError, match="it is of another log"):
            records(folder)

    def test_a_log_of_an_older_headrace_deletes_no_file_that_it_does_not_know(self, folder: Path, tmp_path: Path) -> None:
        closed_copy(folder, tmp_path)
        self.as_before(folder)
        assert len(verify(folder).unknown) == 3
        with open_system(f"log:{folder}") as system:
            assert system.collect_garbage(much_later_us()) == ()
        assert len(verify(folder).unknown) == 3

    @pytest.mark.parametrize("way", [closed_copy, None], ids=["older", "right"])
    def test_removed_marks_are_a_refusal(
        self, folder: Path, tmp_path: Path, way: Callable[[Path, Path], None] | None
    ) -> None:
        (way or (lambda folder, _: produce(folder, 0)))(folder, tmp_path)
        shutil.rmtree(folder / "data" / "commits")
        before = files(folder)
        for use in USES.values():
            with (
                pytest.raises(StorageError, match=r"marks of its commits in data/commits are missing.*\n.*headrace doctor"),
                open_system(f"log:{folder}") as system,
            ):
                use(system)
        assert files(folder) == before
        assert "are missing" in str(verify(folder).catalog)
        done = take(verify(folder), datetime(2026, 5, 4, tzinfo=UTC))
        assert len(done.moved) == (0 if way is None else 3)
        assert len(records(folder)) == 3
        assert verify(folder).is_whole
        produce(folder, 20)

    def test_the_first_mark_is_not_missed_by_those_who_looked_before_it(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_system(f"log:{folder}") as system:
            system.create_stream("s", 2)
            with monkeypatch.context() as patch:
                looks = iter([lambda: produce(folder, 0)])

                def looked(root: Path) -> list[Any]:
                    found = marks_of(root)
                    if root == folder:  # a thread of an earlier test may look at its own log, and must not write here meanwhile
                        next(looks, lambda: None)()  # the first marked commit comes right after the look
                    return found

                patch.setattr(catalog, "marks_of", looked)
                system.produce("s", [(b"k", b"v")])
        assert len(records(folder)) == 4

    def test_a_run_that_it_does_not_know_shows_an_older_copy(self, folder: Path) -> None:
        produce(folder, 0)
        self.as_before(folder)
        newer = folder / "data" / "jobs" / "app" / "3" / "source" / f"1-{'0' * 32}.arrow"
        newer.parent.mkdir(parents=True)
        newer.write_bytes(b"x")
        with pytest.raises(StorageError, match="it does not know the run that wrote data/jobs/app/3/source/1-"):
            produce(folder, 3)
        assert newer.exists()


def test_a_commit_that_cannot_be_marked_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(folder, 0)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", full)
        with pytest.raises(StorageError, match=r"mark of a commit cannot be put into .*: No space left.*nothing was committed"):
            produce(folder, 3)
    produce(folder, 6)
    assert sorted(value for _, _, value in records(folder)) == [b"v0", b"v1", b"v2", b"v6", b"v7", b"v8"]
    assert verify(folder).is_whole


KILLED = """
import os, signal, sys
from headrace.adapters.log import catalog
from headrace.adapters.log.system import open_system
if sys.argv[2] == "before the mark":
    catalog.begin_mark = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[2] == "after the commit":
    catalog.finish_mark = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    begin = catalog.begin_mark
    catalog.begin_mark = lambda *a, **k: (begin(*a, **k), os.kill(os.getpid(), signal.SIGKILL))
open_system(f"log:{sys.argv[1]}").produce("s", [(b"k", b"killed")])
"""


class TestKilledInACommit:
    @staticmethod
    def kill(folder: Path, start: Start, step: str) -> None:
        process = start(KILLED, folder, step)
        assert process.wait() == -9

    @pytest.mark.parametrize("step", ["before the mark", "before the commit", "after the commit"])
    def test_the_log_opens_and_continues(self, folder: Path, start: Start, step: str) -> None:
        produce(folder, 0)
        self.kill(folder, start, step)
        is_there = step == "after the commit"
        assert verify(folder).is_whole
        assert len(records(folder)) == 3 + is_there
        produce(folder, 10)
        self.kill(folder, start, step)
        produce(folder, 20)
        values = [value for _, _, value in records(folder)]
        assert len(values) == 9 + 2 * is_there
        with open_system(f"log:{folder}") as system:
            system.collect_garbage(much_later_us())
        assert [value for _, _, value in records(folder)] == values
        assert verify(folder).is_whole
        assert [mark.is_done for mark in marks_of(folder)] == [True]

    def test_an_older_copy_is_refused_once_the_log_was_opened(self, folder: Path, tmp_path: Path, start: Start) -> None:
        produce(folder, 0)
        copy_catalog(folder, tmp_path / "old")
        self.kill(folder, start, "after the commit")
        assert len(records(folder)) == 4
        copy_catalog(tmp_path / "old", folder)
        with pytest.raises(StorageError, match="it is an older copy"):
            records(folder)

    @pytest.mark.parametrize("step", ["before the commit", "after the commit"])
    @pytest.mark.parametrize("collects_first", [True, False])
    def test_a_copy_from_just_before_it_deletes_nothing(
        self, folder: Path, tmp_path: Path, start: Start, step: str, collects_first: bool
    ) -> None:
        produce(folder, 0)
        copy_catalog(folder, tmp_path / "old")
        self.kill(folder, start, step)
        copy_catalog(folder, tmp_path / "right")
        copy_catalog(tmp_path / "old", folder)
        before = files(folder)
        for again in range(2):
            if again or not collects_first:
                produce(folder, 10 * (1 + again))
            with open_system(f"log:{folder}") as system:
                assert system.collect_garbage(much_later_us()) == ()
            assert verify(folder).is_whole  # the file of the commit waits
        assert before <= files(folder)
        if step == "after the commit":
            copy_catalog(tmp_path / "right", folder)
            with pytest.raises(StorageError, match=REFUSED):
                records(folder)
            take(verify(folder), datetime(2026, 5, 4, tzinfo=UTC))
            assert b"killed" in [value for _, _, value in records(folder)]


def test_a_copy_that_is_so_far_ahead_that_it_has_forgotten_the_last_common_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_TOKENS_KEPT", 20)
    produce(folder, 0)
    shutil.copytree(folder, tmp_path / "twin")
    produce(folder, 3)
    copy_catalog(folder, tmp_path / "right")
    with open_system(f"log:{tmp_path / 'twin'}") as twin:
        for _ in range(30):
            twin.purge("s", {0: 0})
    copy_catalog(tmp_path / "twin", folder)
    before = files(folder)
    for use in USES.values():
        with pytest.raises(StorageError, match=REFUSED), open_system(f"log:{folder}") as system:
            use(system)
    assert files(folder) == before
    copy_catalog(tmp_path / "right", folder)
    assert len(records(folder)) == 6


def test_a_data_file_shows_what_it_holds(folder: Path) -> None:
    produce(folder, 0)
    (name, *_) = sorted(files(folder))
    with open_system(f"log:{folder}") as system:
        named = [chunk for partition, end in system.end_offsets("s").items() for chunk in system.chunks("s", partition, 0, end)]
    found = chunks.chunks_in(folder, name)
    assert found is not None
    for chunk, _ in found:
        (same,) = [one for one in named if one.file == name and one.position == chunk.position]
        assert (chunk.stream, chunk.partition, chunk.records, chunk.checksum, chunk.max_timestamp_us) == (
            same.stream,
            same.partition,
            same.records,
            same.checksum,
            same.max_timestamp_us,
        )
    whole = (folder / name).read_bytes()
    for cut in range(len(whole) - 1, 0, -97):
        (folder / name).write_bytes(whole[:cut])
        assert chunks.chunks_in(folder, name) is None
    for at in range(0, len(whole), 31):
        (folder / name).write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        found = chunks.chunks_in(folder, name)
        assert found is None or [chunk.checksum for chunk, _ in found]
