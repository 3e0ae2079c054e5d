"""What can be done where the newest catalog is lost: take an older one, or rebuild one from the data files."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log import repairing
from headrace.adapters.log.repairing import rebuild, take
from headrace.adapters.log.system import open_system
from headrace.adapters.log.verifying import verify
from headrace.errors import StorageError
from headrace.model.commits import DriverLease
from headrace.record import Record
from headrace.testing import Driver
from log.test_older_catalogs import CATALOG, copy_catalog, files, much_later_us, produce, records

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
HOLDER = DriverLease("run-1", "another-host", 17, "1@1", "boot", 0)
LATER = datetime(2026, 5, 4, 3, 2, 2, tzinfo=UTC)


def older(folder: Path, tmp_path: Path) -> None:
    produce(folder, 0)
    copy_catalog(folder, tmp_path / "old")
    produce(folder, 3)
    copy_catalog(folder, tmp_path / "right")
    copy_catalog(tmp_path / "old", folder)


def values(folder: Path) -> list[bytes]:
    return sorted(value for _, _, value in records(folder))


def test_an_older_catalog_is_taken_and_the_right_one_again_after_it(folder: Path, tmp_path: Path) -> None:
    older(folder, tmp_path)
    before = files(folder)
    done = take(verify(folder), NOW)
    assert len(done.moved) == 3 and done.restored == []
    assert verify(folder).is_whole and values(folder) == [b"v0", b"v1", b"v2"]
    assert {str(path.relative_to(folder / done.quarantine)) for path in (folder / "quarantine").rglob("*.arrow")} < before
    produce(folder, 20)
    with open_system(f"log:{folder}") as system:
        assert system.collect_garbage(much_later_us()) == ()
    copy_catalog(folder, tmp_path / "its own way")
    copy_catalog(tmp_path / "right", folder)
    with pytest.raises(StorageError, match="it is of another log"):
        records(folder)
    assert len(verify(folder).missing) == 3
    done = take(verify(folder), LATER)
    assert (len(done.moved), len(done.restored)) == (3, 3)
    assert values(folder) == [b"v%d" % number for number in range(6)]
    assert verify(folder).is_whole
    copy_catalog(tmp_path / "its own way", folder)
    take(verify(folder), datetime(2026, 5, 4, 3, 2, 3, tzinfo=UTC))
    assert values(folder) == [b"v0", b"v1", b"v2", b"v20", b"v21", b"v22"]


def test_with_an_older_catalog_what_producers_wrote_since_is_appended_in_its_order(folder: Path, tmp_path: Path) -> None:
    older(folder, tmp_path)
    right = tmp_path / "whole"
    shutil.copytree(folder, right)
    copy_catalog(tmp_path / "right", right)
    done = rebuild(verify(folder), NOW)
    assert done.added == {"s": 3} and done.moved == []
    assert records(folder) == records(right)
    assert verify(folder).is_whole


def test_without_a_catalog_streams_and_records_are_as_before(folder: Path) -> None:
    with open_system(f"log:{folder}") as system:
        system.create_stream("s", 3)
        system.create_stream("t", 1)
        for number in range(20):
            system.produce("s", [Record(b"k", b"%d" % (number * 10 + i), i, (("h", b"x"),), i % 3) for i in range(9)])
            system.produce("t", [(b"k", b"t%d" % number)])
        before = [list(system.consume(name)) for name in ("s", "t")]
    for name in CATALOG:
        (folder / name).unlink(missing_ok=True)
    found = verify(folder)
    assert (found.catalog, found.is_usable, found.rebuildable) == ("it is missing", False, Counter(s=180, t=20))
    with pytest.raises(StorageError, match="cannot be taken: it is missing"):
        take(found, NOW)
    assert rebuild(found, NOW).added == {"s": 180, "t": 20}
    with open_system(f"log:{folder}", create=False) as system:
        assert [list(system.consume(name)) for name in ("s", "t")] == before
        assert system.collect_garbage(much_later_us()) == ()
    assert verify(folder).is_whole


def test_a_catalog_that_is_no_database_is_kept_and_rebuilt(folder: Path) -> None:
    produce(folder, 0)
    (folder / CATALOG[0]).write_bytes(b"something else" * 100)
    found = verify(folder)
    assert not found.is_usable and "not a database" in str(found.catalog)
    done = rebuild(found, NOW)
    assert (folder / done.quarantine / CATALOG[0]).read_bytes() == b"something else" * 100
    assert values(folder) == [b"v0", b"v1", b"v2"]


def test_files_that_do_not_show_what_they_hold_are_moved_and_kept(folder: Path) -> None:
    produce(folder, 0)
    cut, *_ = sorted(files(folder))
    (folder / cut).write_bytes((folder / cut).read_bytes()[:-1])
    (folder / CATALOG[0]).unlink()
    done = rebuild(verify(folder), NOW)
    assert done.moved == [cut] and (folder / done.quarantine / cut).exists()
    assert len(values(folder)) == 2
    assert verify(folder).is_whole


def test_a_failure_in_between_loses_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older(folder, tmp_path)

    def broken(*_: object) -> None:
        raise StorageError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(repairing, "_new_history", broken)
        with pytest.raises(StorageError, match="disk is full"):
            take(verify(folder), NOW)
    copy_catalog(tmp_path / "right", folder)
    assert len(verify(folder).missing) == 3
    take(verify(folder), LATER)
    assert values(folder) == [b"v%d" % number for number in range(6)]


def test_damage_and_missing_files_are_found(folder: Path) -> None:
    produce(folder, 0)
    first, second, _ = sorted(files(folder))
    data = bytearray((folder / first).read_bytes())
    data[-1] ^= 255
    (folder / first).write_bytes(bytes(data))
    (folder / second).unlink()
    found = verify(folder)
    assert not found.is_whole and found.is_usable and found.catalog is None
    assert found.missing == [second]
    (damaged,) = found.damaged
    assert first in damaged and "expected checksum" in damaged


def counting() -> hr.App:
    app = hr.App("words")
    words = app.stream("words", key=hr.String(), value=hr.String())
    counts = words.repartition(hr.Repartitioned(name="again")).group_by_key().count(store="counts")
    counts.to_stream().to("counts-out")
    return app


def test_an_application_works_off_again_what_the_older_catalog_does_not_know(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with Driver(counting(), directory=folder) as d:
        for number in range(30):
            d.send("words", f"k{number % 3}", "x")
        d.run()
    copy_catalog(folder / "log", tmp_path / "old")
    with Driver(counting(), directory=folder) as d:
        for number in range(30):
            d.send("words", f"k{number % 3}", "y")
        d.run()
        assert d.store("counts").get("k0") == 20
        outputs = len(d.read("counts-out", from_start=True))
    copy_catalog(tmp_path / "old", folder / "log")
    with pytest.raises(StorageError, match="it is an older copy"):
        Driver(counting(), directory=folder).open()
    done = rebuild(verify(folder / "log"), NOW)
    assert done.added == {"words": 30} and done.moved
    with Driver(counting(), directory=folder) as d:
        d.run()
        assert [d.store("counts").get(f"k{key}") for key in range(3)] == [20, 20, 20]
        assert len(d.read("counts-out", from_start=True)) == outputs


@pytest.mark.parametrize("has_catalog", [True, False])
@pytest.mark.parametrize("has_stores", [True, False])
def test_the_newest_catalog_finds_its_state_files_after_an_older_one_was_used(
    tmp_path: Path, has_catalog: bool, has_stores: bool
) -> None:
    folder = tmp_path / "job"

    def run(count: int, key: str) -> dict[Any, Any]:
        with Driver(counting(), directory=folder) as d:
            for _ in range(count):
                d.send("words", key, "x")
            d.run()  # one round: the older files are still there
            return dict(d.store("counts").all())

    def use(catalog: str, now: datetime) -> str:
        for name in CATALOG:
            (folder / "log" / name).unlink(missing_ok=True)
        if catalog != "old" or has_catalog:
            copy_catalog(tmp_path / catalog, folder / "log")
        found = verify(folder / "log")
        if not has_stores:
            shutil.rmtree(folder / "stores", ignore_errors=True)
        return (take if found.is_usable else rebuild)(found, now).quarantine

    def state_files() -> set[Path]:
        return {path for path in (folder / "state").rglob("*") if path.is_file()}

    run(10, "k0")
    copy_catalog(folder / "log", tmp_path / "old")
    newest = run(5, "k1")
    assert newest == {"k0": 10, "k1": 5}
    copy_catalog(folder / "log", tmp_path / "newest")
    quarantine = use("old", NOW)
    of_newest = state_files()
    assert of_newest
    for _ in range(3):
        run(3, "k2")
        assert of_newest <= state_files()
    last = use("newest", LATER)
    assert run(1, "k1") == {"k0": 10, "k1": 6}
    assert of_newest <= state_files()
    for name in (quarantine, last):
        shutil.rmtree(folder / "log" / name)
    for _ in range(3):  # the repairs end, then what was kept for them is deleted
        run(1, "k1")
    assert not of_newest <= state_files()
    assert run(1, "k1") == {"k0": 10, "k1": 10}


def test_without_a_catalog_an_application_begins_again(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with Driver(counting(), directory=folder) as d:
        for number in range(30):
            d.send("words", f"k{number % 3}", "x")
        d.run()
    for name in CATALOG:
        (folder / "log" / name).unlink(missing_ok=True)
    rebuild(verify(folder / "log"), NOW)
    with open_system(f"log:{folder / 'log'}") as system:
        assert [stream.name for stream in system.streams()] == ["counts-out", "words"]
    with Driver(counting(), directory=folder) as d:
        d.run()
        assert [d.store("counts").get(f"k{key}") for key in range(3)] == [10, 10, 10]


@pytest.mark.chaos
class TestKilled:
    """A rebuild that is killed at any step: the next one makes what an unbroken one makes, and in between nothing opens."""

    STEPS = ("os.rename", "os.link", "os.remove", "os.mkdir", "sqlite3.connect")  # audited by Python itself

    def killed_at(self, step: int, work: Callable[[], object]) -> bool:
        """Whether `work` was killed, in a process of its own, before its `step`-th change; False if it came to its end."""
        pid = os.fork()
        if pid == 0:
            seen = 0

            def count(event: str, arguments: Any) -> None:
                nonlocal seen
                if event in self.STEPS or (event == "open" and (arguments[2] or 0) & os.O_CREAT):
                    seen += 1
                    if seen == step:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            for name in ("_append", "_keep_epochs", "replace_marks"):
                called = getattr(repairing, name)
                setattr(repairing, name, lambda *given, called=called: (sys.audit("os.link"), called(*given))[1])
            try:
                work()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)

    @staticmethod
    def content(folder: Path) -> dict[str, Any]:
        with open_system(f"log:{folder}", create=False) as system:
            return {
                stream.name: (stream.partitions, sorted((one.partition, one.value) for one in system.consume(stream.name)))
                for stream in system.streams()
            }

    @pytest.mark.parametrize("with_marks", [True, False])
    @pytest.mark.parametrize("catalog", ["missing", "damaged"])
    def test_without_a_catalog(self, tmp_path: Path, catalog: str, with_marks: bool) -> None:
        job = tmp_path / "job"
        with Driver(counting(), directory=job) as d:
            for number in range(6):
                d.send("words", f"k{number % 3}", "x")
                d.run()
        log = job / "log"
        whole = self.content(log)
        cut = log / max(name for name in files(log) if "produced" in name)
        shutil.copy(cut, cut.with_name(f"batch-{'0' * 32}.arrow"))
        os.truncate(cut.with_name(f"batch-{'0' * 32}.arrow"), 100)
        if not with_marks:
            shutil.rmtree(log / "data" / "commits")
        for name in CATALOG:
            (log / name).unlink(missing_ok=True)
        if catalog == "damaged":
            (log / CATALOG[0]).write_bytes(b"something else" * 1000)
        step = 0
        while True:
            step += 1
            broken = tmp_path / f"at {step}"
            shutil.copytree(log, broken)
            was_killed = self.killed_at(step, lambda broken=broken: rebuild(verify(broken), NOW))
            if not verify(broken).is_whole:
                assert was_killed
                with pytest.raises(StorageError):
                    produce(broken, 0)
                rebuild(verify(broken), LATER)
            assert verify(broken).is_whole
            with open_system(f"log:{broken}") as system:
                assert system.collect_garbage(much_later_us()) == ()
            found = self.content(broken)
            assert {name: found[name] for name in ("words", "counts-out")} == {
                name: whole[name] for name in ("words", "counts-out")
            }, step
            with open_system(f"log:{broken}") as system:
                epoch = system.job_store("words").acquire(HOLDER, 1)
            assert epoch == 2, step
            if not was_killed:
                break
        assert step > 10
