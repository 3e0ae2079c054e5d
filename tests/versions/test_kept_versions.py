"""Versions of tasks' states are kept: on record, with their files, until they are dropped; and a task can go back to one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log.job_store import LogJobStore
from headrace.codec.job_records import STATE_VERSIONS
from headrace.core.rewind.state_history import StateVersion, before_rewind, on_the_line, usable, version_for
from headrace.driver import job as jobs
from headrace.errors import StateError, UnavailableError
from headrace.model.checkpoint import Checkpoint
from headrace.model.streams import SSP
from headrace.state_files.files import StateFiles
from headrace.testing import Driver
from headrace.testing.driver import START
from headrace.worker.state import folding
from support.world import source_of, started, waited
from versions.going_back import files_named, files_on_disk, go_back, recorded, values_of

KEYS = "abcab"
IN = SSP("log", "in", 0)


def application(counted: bool = True) -> hr.App:
    """Counts per key, and says so in `out`; if not `counted` it only passes on what comes in."""
    app = hr.App("kept")
    stream = app.stream("in", key=hr.String(), value=hr.String())
    if counted:
        stream.group_by_key().count(store="counts").to_stream().to("out")
    else:
        stream.to("passed")
    return app


def driver_in(
    folder: Path, most: int = 100, counted: bool = True, partitions: int = 1, interval_s: float = 0, start: str | int = START
) -> Driver:
    """One that keeps the newest of all states."""
    kept = [f"keep_state_versions={most}", "keep_state_versions_s=0", f"state_version_interval_s={interval_s}"]
    return Driver(application(counted), start, directory=folder, overrides=kept, partitions=partitions)


def tidy(driver: Driver) -> None:
    driver._opened.maintenance.tidy()


def work(driver: Driver, keys: str = KEYS) -> None:
    """A round per key, and whatever goes on beside rounds."""
    for key in keys:
        driver.send("in", key, "x")
        driver.run()
        tidy(driver)


def on_record(driver: Driver) -> list[StateVersion]:
    return recorded(driver._system, "kept")


def counts_in(driver: Driver, version: StateVersion) -> dict[str, int]:
    return values_of(version.checkpoint, driver._opened.runners[0].program, "counts", state_of(driver))


def state_of(driver: Driver) -> Path:
    assert driver._root is not None
    return driver._root / "state"


def all_named_are_there(driver: Driver) -> bool:
    return files_named(driver._system, "kept") <= files_on_disk(state_of(driver), "kept")


def just_what_is_named_is_there(driver: Driver) -> bool:
    return files_named(driver._system, "kept") == files_on_disk(state_of(driver), "kept")


def after(number: int) -> dict[str, int]:
    """The counts after so many records."""
    return dict(Counter(KEYS[:number]))


def oldest_but(number: int) -> Any:
    def choice(kept: Any, checkpoint: Checkpoint) -> StateVersion:
        return on_the_line(kept)[number]

    return choice


def not_after(position: int) -> Any:
    def choice(kept: Any, checkpoint: Checkpoint) -> StateVersion:
        version = version_for(usable(kept, checkpoint, dict.fromkeys(checkpoint.positions, 0)), {IN: position})
        assert version is not None
        return version

    return choice


# --- on record ------------------------------------------------------------------------------------------------------


def test_each_version_is_the_state_as_it_was_also_after_a_restart(tmp_path: Path) -> None:
    with driver_in(tmp_path) as driver:
        work(driver)
    with driver_in(tmp_path) as driver:
        kept = on_record(driver)
        assert [sum(one.checkpoint.positions.values()) for one in kept] == [0, 1, 2, 3, 4, 5]
        assert [counts_in(driver, one) for one in kept] == [after(number) for number in range(6)]
        assert just_what_is_named_is_there(driver)
        work(driver)
        assert driver.store("counts").all() == {"a": 4, "b": 4, "c": 2}
        assert [counts_in(driver, one) for one in on_record(driver)][:6] == [after(number) for number in range(6)]


def test_tasks_that_have_read_nothing_are_not_kept_again(tmp_path: Path) -> None:
    with driver_in(tmp_path, partitions=3) as driver:
        tidy(driver)
        assert len(on_record(driver)) == 3
        work(driver, "aa")  # all three are in one container, and so in every round
        kept = [one.checkpoint for one in on_record(driver)]
        assert sorted(sum(one.positions.values()) for one in kept) == [0, 0, 0, 1, 2]


def test_what_has_no_state_has_no_versions(tmp_path: Path) -> None:
    with driver_in(tmp_path, counted=False) as driver:
        work(driver)
        assert on_record(driver) == []


def test_no_more_often_than_the_interval_and_across_restarts(tmp_path: Path) -> None:
    for opened in range(2):
        with driver_in(tmp_path, interval_s=60, start=1_000_000_000 + opened * 60_000_000) as driver:
            work(driver)
            assert [one.kept_us for one in on_record(driver)] == [1_000_000_000, 1_060_000_000][: 1 + opened]
            driver.advance("59 seconds")
            work(driver)
            assert len(on_record(driver)) == 1 + opened
            driver.advance("1 second")
            work(driver)
            assert [one.kept_us for one in on_record(driver)] == [1_000_000_000, 1_060_000_000, 1_120_000_000][: 2 + opened]


def test_what_is_dropped_takes_its_files_along(tmp_path: Path) -> None:
    with driver_in(tmp_path, most=3) as driver:
        for _ in range(6):
            work(driver)
            assert [sum(one.checkpoint.positions.values()) for one in on_record(driver)][-1] % 5 == 0
            assert len(on_record(driver)) == 2
            assert just_what_is_named_is_there(driver)
    with driver_in(tmp_path, most=1) as driver:
        assert len(on_record(driver)) == 2, "nothing is dropped but by the way of all versions"
        tidy(driver)
        assert on_record(driver) == []
        work(driver)
        assert just_what_is_named_is_there(driver)
        assert driver.store("counts").get("a") == 14


def test_none_is_older_than_is_asked_for(tmp_path: Path) -> None:
    overrides = ["keep_state_versions=9", "keep_state_versions_s=100", "state_version_interval_s=0"]
    with Driver(application(), directory=tmp_path, overrides=overrides) as driver:
        work(driver)
        driver.advance("101 seconds")
        work(driver, "c")
        assert [counts_in(driver, one) for one in on_record(driver)] == [{"a": 2, "b": 2, "c": 2}]
        assert just_what_is_named_is_there(driver)


def test_versions_of_tasks_that_are_gone_go(tmp_path: Path) -> None:
    with driver_in(tmp_path) as driver:
        work(driver)
    with driver_in(tmp_path, counted=False) as driver:
        assert all_named_are_there(driver)
        tidy(driver)
        assert on_record(driver) == []
        assert just_what_is_named_is_there(driver)


def test_a_running_job_keeps_by_itself_what_it_began_with(tmp_path: Path) -> None:
    url = f"log:{tmp_path / 'log'}"
    app = application()
    with hr.open_system(url) as log:
        log.create_stream("in", 1)
        places = {"local_store_dir": str(tmp_path / "stores"), "state_uri": str(tmp_path / "state")}
        settings = [f"{name}={value}" for name, value in {"system": url, **places, "state_version_interval_s": 0}.items()]
        for number in range(3):
            before = len(recorded(log, "kept"))
            log.produce("in", [(b"k", b"v")])
            job = started(app, overrides=settings)
            waited(lambda before=before: len(recorded(log, "kept")) > before, job)
            waited(lambda job=job: source_of(job)["records"] >= 1, job)
            job.stop()
            # A slow run looks again before it ends, and may keep what it has read by then: the next one has that already.
            assert number in [sum(one.checkpoint.positions.values()) for one in recorded(log, "kept")]


# --- going back -----------------------------------------------------------------------------------------------------


def test_a_task_goes_back_and_reads_on_from_there_to_the_same_state(tmp_path: Path) -> None:
    with driver_in(tmp_path) as driver:
        work(driver)
        driver.read("out")
    go_back(f"log:{tmp_path / 'log'}", "kept", oldest_but(2))
    with driver_in(tmp_path) as driver:
        assert driver.store("counts").all() == after(2)
        assert [counts_in(driver, one) for one in on_record(driver)][-1] == after(5), "what was left is kept"
        driver.run()
        assert driver.store("counts").all() == after(5)
        assert [(r.key, r.value) for r in driver.read("out")][-3:] == [("c", 1), ("a", 2), ("b", 2)]
        tidy(driver)
        kept = on_record(driver)
        assert [counts_in(driver, one) for one in kept] == [after(0), after(1), after(2), after(5)]
        assert just_what_is_named_is_there(driver)


def test_to_the_empty_state_and_to_where_it_came_from(tmp_path: Path) -> None:
    url = f"log:{tmp_path / 'log'}"
    with driver_in(tmp_path) as driver:
        work(driver)
    go_back(url, "kept", oldest_but(0))
    with driver_in(tmp_path) as driver:
        assert driver.store("counts").all() == {}
        tidy(driver)
    go_back(url, "kept", lambda kept, checkpoint: before_rewind(kept, checkpoint) or kept[-1])
    with driver_in(tmp_path) as driver:
        assert driver.store("counts").all() == after(5)
        assert driver.run() == 0, "nothing is left to read"
        work(driver, "c")
        assert driver.store("counts").all() == {"a": 2, "b": 2, "c": 2}
        assert [counts_in(driver, one) for one in on_record(driver)][:6] == [after(number) for number in range(6)]


def test_time_after_time(tmp_path: Path) -> None:
    url = f"log:{tmp_path / 'log'}"
    for asked, found in ((3, 3), (1, 1), (2, 1), (17, 17)):
        with driver_in(tmp_path, most=40) as driver:
            work(driver)
            total = sum(driver.store("counts").all().values())
        go_back(url, "kept", not_after(asked))
        with driver_in(tmp_path, most=40) as driver:
            assert sum(driver.store("counts").all().values()) == found
            driver.run()
            assert sum(driver.store("counts").all().values()) == total
            tidy(driver)
            assert just_what_is_named_is_there(driver)


# --- what fails, and when -------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", range(1, 14))
def test_whatever_the_step_at_which_the_process_ends_no_file_that_is_named_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Steps are before and after each write of versions, and before each removal of a file; two versions are kept."""
    steps = [0]
    write, delete = LogJobStore.write_metadata, StateFiles.delete

    def passed() -> None:
        steps[0] += 1
        if steps[0] == step:
            raise Killed

    def written(self: Any, epoch: int, namespace: str, *rest: Any) -> None:
        is_of_versions = namespace == STATE_VERSIONS
        if is_of_versions:
            passed()
        write(self, epoch, namespace, *rest)
        if is_of_versions:
            passed()

    def deleted(self: Any, name: str) -> None:
        passed()
        delete(self, name)

    monkeypatch.setattr(LogJobStore, "write_metadata", written)
    monkeypatch.setattr(StateFiles, "delete", deleted)
    monkeypatch.setattr(folding, "fold_start", lambda *given: 0)  # so that every round leaves files behind
    driver = driver_in(tmp_path, most=3).open()
    with pytest.raises(Killed):
        work(driver)
    assert all_named_are_there(driver)
    monkeypatch.undo()
    driver.close()
    with driver_in(tmp_path, most=3) as driver:
        assert just_what_is_named_is_there(driver)
        kept = on_record(driver)
        read = [sum(one.checkpoint.positions.values()) for one in kept]
        assert [sum(counts_in(driver, one).values()) for one in kept] == read
        work(driver)
        assert just_what_is_named_is_there(driver)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_write_that_fails_or_may_have_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_written: bool
) -> None:
    write = LogJobStore.write_metadata

    def failing(self: Any, *given: Any) -> None:
        if is_written:
            write(self, *given)
        raise UnavailableError("no answer")

    with driver_in(tmp_path, most=3) as driver:
        work(driver)
        with monkeypatch.context() as patch:
            patch.setattr(LogJobStore, "write_metadata", failing)
            for key in "abc":
                work(driver, key)
                assert all_named_are_there(driver)
        assert "could not keep versions of the state: no answer" in caplog.text
        work(driver, "a")
        assert [sum(counts_in(driver, one).values()) for one in on_record(driver)] == [8, 9]
        assert just_what_is_named_is_there(driver)


def test_a_round_that_commits_while_a_version_is_stored_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "fold_start", lambda *given: 0)
    write = LogJobStore.write_metadata
    with driver_in(tmp_path) as driver:

        def behind_two_rounds(self: Any, *given: Any) -> None:
            for key in "bc":
                driver.send("in", key, "x")
                driver.run()
            write(self, *given)

        work(driver, "a")
        driver.send("in", "a", "x")
        driver.run()
        with monkeypatch.context() as patch:
            patch.setattr(LogJobStore, "write_metadata", behind_two_rounds)
            tidy(driver)
        assert [counts_in(driver, one) for one in on_record(driver)] == [{}, {"a": 1}, {"a": 2}]
        assert just_what_is_named_is_there(driver)


def test_no_plan_is_made_while_versions_may_be_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It might go back to one of them."""
    monkeypatch.setattr(jobs, "LOOK_S", 0.05)
    write = LogJobStore.write_metadata
    writing, may_go_on = threading.Event(), threading.Event()

    def slow(self: Any, epoch: int, namespace: str, *rest: Any, **more: Any) -> None:
        if namespace == STATE_VERSIONS:
            writing.set()
            assert may_go_on.wait(30)
        write(self, epoch, namespace, *rest, **more)

    monkeypatch.setattr(LogJobStore, "write_metadata", slow)
    url = f"log:{tmp_path / 'log'}"
    places = [f"system={url}", f"local_store_dir={tmp_path / 'stores'}", f"state_uri={tmp_path / 'state'}"]
    with hr.open_system(url) as log:
        log.create_stream("in", 1)
        job = started(application(), overrides=[*places, "partition_check_interval_s=0.05"])
        try:
            assert writing.wait(30)
            epoch = job.status()["epoch"]
            log.expand_stream("in", 2)
            time.sleep(1)
            assert log.job_store("kept").job_model().partition_counts == {"in": 1}
            may_go_on.set()
            waited(lambda: job.status()["epoch"] != epoch, job)
            assert log.job_store("kept").job_model().partition_counts == {"in": 2}
        finally:
            may_go_on.set()
            job.stop()


def test_a_former_driver_keeps_and_drops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with driver_in(tmp_path, most=2) as driver:
        work(driver)
        before = on_record(driver)
        driver.send("in", "a", "x")
        driver._flush()
        assert driver._run_rounds() == 1  # `run` would keep what came of it
        store = driver._held.backend.store
        holder = store.holder()
        store.acquire(holder, holder.heartbeat_us + 1)
        tidy(driver)
        assert on_record(driver) == before
        assert all_named_are_there(driver)
    assert "another driver took over" in caplog.text or "epoch" in caplog.text


def test_a_version_whose_file_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with driver_in(tmp_path) as driver:
        work(driver)
        version = on_record(driver)[1]
        assert version.checkpoint.head is not None
        name = version.checkpoint.head.files[0].name
        (state_of(driver) / name).unlink()
        with pytest.raises(StateError, match=name.rpartition("/")[2]):
            counts_in(driver, version)
