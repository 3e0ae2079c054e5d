"""Cuts through the tasks of what writes to repartition streams are kept, with the versions that they are of: on record, as a
checker that knows nothing of how they are taken reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log.job_store import LogJobStore
from headrace.adapters.log.system import LogSystem
from headrace.driver import job as jobs
from headrace.driver.maintenance.state_versions import versions_of
from headrace.errors import UnavailableError
from headrace.testing import Driver
from support.world import started, waited
from versions.checked_cuts import FIRST, SECOND, Checker, application, cuts_on_record, named_versions, value_of
from versions.going_back import files_named, files_on_disk

NAME = "cuts"
A, B = FIRST.format(NAME), SECOND.format(NAME)


def driver_in(folder: Path, most: int = 100, interval_s: float = 0) -> Driver:
    kept = [f"keep_state_versions={most}", "keep_state_versions_s=0", f"state_version_interval_s={interval_s}"]
    return Driver(application(NAME, "in"), directory=folder, overrides=kept, partitions=2)


def send(driver: Driver, start: int, count: int) -> None:
    for number in range(start, start + count):
        driver.send("in", str(number), value_of(number), partition=number % 2)


def work(driver: Driver, checker: Checker, start: int, runs: int = 4, count: int = 5) -> None:
    """Some runs, and whatever goes on beside rounds; the checker sees all records before they may be purged."""
    for nth in range(runs):
        send(driver, start + nth * count, count)
        driver.run()
        checker.look(A, B)
        driver._opened.maintenance.tidy()


def places(driver: Driver, name: str | None = None) -> list[int]:
    """How many records a sub-topology had read at each of its cuts."""
    return [sum(cut.positions.values()) for cut in cuts_on_record(driver._system, NAME, name)]


def test_the_driver_for_tests_keeps_them_and_they_part_what_was_written(tmp_path: Path) -> None:
    for start in range(2):
        with driver_in(tmp_path) as driver:
            checker = Checker(driver._system)
            work(driver, checker, 20 * start)
            for name in (None, "first"):
                assert places(driver, name) == list(range(0, 20 * start + 21, 5)), "also after a start"
                for cut in cuts_on_record(driver._system, NAME, name):
                    checker.judge(cut)
            assert cuts_on_record(driver._system, NAME, "second") == [], "nothing is behind it"
            assert sum(driver.store("counts").all().values()) == 20 * start + 20


def test_no_more_often_than_the_interval(tmp_path: Path) -> None:
    with driver_in(tmp_path, interval_s=60) as driver:
        checker = Checker(driver._system)
        work(driver, checker, 0)
        driver.advance("59 seconds")
        work(driver, checker, 20)
        assert places(driver) == [0]
        driver.advance("1 second")
        work(driver, checker, 40)
        assert places(driver) == [0, 45], "after the first round since"
        driver.advance("60 seconds")
        driver.run()  # nothing to read: the source stands at 60
        assert places(driver) == [0, 45, 60]


def test_what_is_too_much_goes_and_takes_its_versions_and_files_along(tmp_path: Path) -> None:
    with driver_in(tmp_path, most=3) as driver:
        checker = Checker(driver._system)
        for start in range(0, 60, 20):
            work(driver, checker, start)
            cuts = cuts_on_record(driver._system, NAME)
            assert [cut.sub_topology for cut in cuts].count(None) == [cut.sub_topology for cut in cuts].count("first") == 2
            for cut in cuts:
                checker.judge(cut)
            kept = versions_of(driver._system.metadata_store(NAME))
            mine = {one.key for task, ones in kept.items() if task.sub_topology != "second" for one in ones}
            assert mine == named_versions(driver._system, NAME)
            root = driver._root
            assert root is not None
            assert files_named(driver._system, NAME) == files_on_disk(root / "state", NAME)
    with driver_in(tmp_path, most=1) as driver:
        driver._opened.maintenance.tidy()
        assert cuts_on_record(driver._system, NAME) == [] and versions_of(driver._system.metadata_store(NAME)) == {}


def test_streams_keep_what_follows_the_oldest_version_of_a_cut(tmp_path: Path) -> None:
    with driver_in(tmp_path, most=3) as driver:
        checker = Checker(driver._system)
        work(driver, checker, 0, runs=6)
        for stream, reader in ((A, "first"), (B, "second")):
            kept = versions_of(driver._system.metadata_store(NAME))
            positions = [
                (ssp.partition, at)
                for task, ones in kept.items()
                if task.sub_topology == reader
                for one in ones
                for ssp, at in one.checkpoint.positions.items()
            ]
            lowest = {partition: min(at for p, at in positions if p == partition) for partition in range(2)}
            assert driver._system.beginning_offsets(stream) == lowest
            assert 0 < sum(lowest.values()) < 30, "something is purged, and something is there"


def test_in_the_midst_of_a_round_the_driver_for_tests_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = LogJobStore.commit_round
    with driver_in(tmp_path, interval_s=60) as driver:

        def then_keep(self: Any, given: Any) -> None:
            commit(self, given)
            driver.advance("60 seconds")
            driver._opened.maintenance.keep()

        checker = Checker(driver._system)
        work(driver, checker, 0, runs=1)
        monkeypatch.setattr(LogJobStore, "commit_round", then_keep)
        work(driver, checker, 5, runs=1)
        assert places(driver) == [0, 10], "behind the commit"
        for cut in cuts_on_record(driver._system, NAME):
            checker.judge(cut)


# --- a job, whose rounds go on in threads of their own --------------------------------------------------------------


@contextmanager
def running(log: Any, folder: Path, **settings: Any) -> Iterator[Any]:
    places = {"local_store_dir": str(folder / "stores"), "state_uri": str(folder / "state"), "trigger_interval_ms": 10}
    app = application(NAME, "in", system=f"log:{folder / 'log'}", **places, **settings)
    job = started(app)
    try:
        yield job
    finally:
        job.stop()


def test_while_a_job_has_one_round_after_the_other_and_when_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is purged the checker could not see: all versions are kept, so nothing is."""
    monkeypatch.setattr(jobs, "TIDY_S", 0.05)
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 2)
        every = {"keep_state_versions": 1000, "keep_state_versions_s": 0, "state_version_interval_s": 0}
        log.produce("in", [(b"k%d" % number, value_of(number).encode()) for number in range(300)])
        with running(log, tmp_path, max_records_per_round=10, **every) as job:
            for name in (None, "first"):

                def is_cut_at_the_end(name: str | None = name) -> bool:
                    cuts = cuts_on_record(log, NAME, name)
                    return bool(cuts) and sum(cuts[-1].positions.values()) == 300

                waited(is_cut_at_the_end, job)
        checker, cuts = Checker(log), cuts_on_record(log, NAME)
        busy = [cut for cut in cuts if cut.sub_topology is None and 0 < sum(cut.positions.values()) < 300]
        assert len(busy) >= 20, "one per round"
        for cut in cuts:
            checker.judge(cut)


def test_a_job_that_has_become_idle_is_cut_when_it_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TIDY_S", 0.05)
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 2)
        with running(log, tmp_path, keep_state_versions_s=0, state_version_interval_s=2) as job:
            waited(lambda: len(cuts_on_record(log, NAME)) == 2, job)
            begun_us = cuts_on_record(log, NAME)[0].kept_us
            log.produce("in", [(b"k%d" % number, value_of(number).encode()) for number in range(30)])
            waited(lambda: len(cuts_on_record(log, NAME)) == 4, job)
        cuts = cuts_on_record(log, NAME)
        for cut in cuts:
            Checker(log).judge(cut)
        last = [cut for cut in cuts if sum(cut.positions.values()) == 30]
        assert {cut.sub_topology for cut in last} == {None, "first"}
        assert all(cut.kept_us >= begun_us + 2_000_000 for cut in last), "the rounds are over by then"


def test_while_a_round_of_a_job_is_committed_the_thread_that_keeps_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round's own thread is kept from taking any, so that there would be something to take."""
    commit, ends = LogJobStore.commit_round, LogSystem.high_watermarks
    running_job: list[Any] = []

    def not_in_the_rounds_thread(self: Any, stream: str) -> Any:
        if threading.current_thread().name == "headrace-source":
            raise UnavailableError("no answer")
        return ends(self, stream)

    def tidy() -> None:
        with running_job[0]._tidying:
            running_job[0]._generation.maintenance.tidy()

    def then_keep(self: Any, given: Any) -> None:
        commit(self, given)
        if given.round_id.sub_topology is None:
            thread = threading.Thread(target=tidy)
            thread.start()
            thread.join(30)

    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 2)
        every = {"keep_state_versions": 1000, "keep_state_versions_s": 0, "state_version_interval_s": 0}
        with running(log, tmp_path, max_records_per_round=10, **every) as job:
            running_job.append(job)
            monkeypatch.setattr(LogSystem, "high_watermarks", not_in_the_rounds_thread)
            monkeypatch.setattr(LogJobStore, "commit_round", then_keep)
            log.produce("in", [(b"k%d" % number, value_of(number).encode()) for number in range(50)])
            waited(lambda: job.status()["sub_topologies"]["second"]["records"] == 50, job)
            tidy()
        cuts = cuts_on_record(log, NAME)
        assert [sum(cut.positions.values()) for cut in cuts if cut.sub_topology is None][-1] == 50
        for cut in cuts:
            Checker(log).judge(cut)


def test_what_rounds_have_taken_is_on_record_before_another_plan_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TIDY_S", 600)
    monkeypatch.setattr(jobs, "LOOK_S", 0.05)
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 2)
        every = {"keep_state_versions": 1000, "keep_state_versions_s": 0, "state_version_interval_s": 0}
        with running(log, tmp_path, partition_check_interval_s=0.05, **every) as job:
            waited(lambda: len(cuts_on_record(log, NAME)) == 2, job)  # those that the job began with: the only ones for long
            log.produce("in", [(b"k%d" % number, value_of(number).encode()) for number in range(50)])
            waited(lambda: job.status()["sub_topologies"]["second"]["records"] == 50, job)
            epoch = job.status()["epoch"]
            log.expand_stream("in", 3)
            waited(lambda: job.status()["epoch"] > epoch, job)
            cuts = cuts_on_record(log, NAME)
        assert sum([cut for cut in cuts if cut.sub_topology is None][-1].positions.values()) == 50
        for cut in cuts:
            Checker(log).judge(cut)
