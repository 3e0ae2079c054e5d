"""Room is given back while a job runs: a repartition stream keeps what somebody may still read, and no more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.rounds.purging import lowest_positions, purge_offsets
from headrace.driver import job as jobs
from headrace.model.checkpoint import Checkpoint, RoundId
from headrace.model.streams import SSP
from headrace.model.tasks import PartitionGroup, TaskName
from headrace.testing import Driver
from support.world import started

PAYLOAD = "x" * 1_000
STREAM = "tidy-by-first-repartition"


def application(copied: bool = False, **settings: Any) -> hr.App:
    """Its only outputs are a repartition stream and a table of counts, and if `copied` what comes in.

    Its tasks cannot go back to former states: those keep what follows them.
    """
    app = hr.App("tidy", **{"keep_state_versions": 1, **settings})
    stream = app.stream("in", key=hr.String(), value=hr.String())
    if copied:
        stream.to("copy")
    keyed = stream.select_key(lambda r: r.value[0], key=hr.String()).repartition(name="by-first")
    keyed.group_by_key().count(store="counts")
    return app


def job_bytes(root: Path) -> int:
    """What the job's rounds have on disk."""
    return sum(path.stat().st_size for path in root.rglob("data/jobs/tidy/**/*") if path.is_file())


def work(driver: Driver, rounds: int) -> None:
    for number in range(rounds):
        for letter in "abc":
            driver.send("in", str(number), letter + PAYLOAD)
        driver.run()


def opened(driver: Driver) -> Any:
    assert driver._job is not None
    return driver._job.prepared


class TestWhatIsPurged:
    def test_offsets_are_the_lowest_of_all_tasks_and_versions(self) -> None:
        a, b = SSP("log", "s", 0), SSP("log", "s", 1)
        one = Checkpoint(TaskName(PartitionGroup(0)), RoundId(1, None, 1), 1, {a: 5, b: 9})
        other = Checkpoint(TaskName(PartitionGroup(1)), RoundId(1, None, 1), 1, {b: 7})
        assert lowest_positions([one, other]) == {a: 5, b: 7}
        assert purge_offsets({a: 5, b: 7}, {a: 5}) == {"s": {1: 7}}
        assert purge_offsets({a: 0}, {}) == {}

    def test_disk_use_stays_bounded_over_many_rounds(self, tmp_path: Path) -> None:
        with Driver(application(), directory=tmp_path) as driver:
            sizes = []
            for _ in range(6):
                work(driver, 5)
                opened(driver).maintenance.tidy()
                sizes.append(job_bytes(tmp_path))
            assert driver.store("counts").all() == {"a": 30, "b": 30, "c": 30}
        assert sizes[0] < 2 * 3 * len(PAYLOAD), "more than the last round is kept"
        assert max(sizes) <= 1.2 * sizes[0]

    def test_outputs_that_stay_do_not_hold_what_goes(self, tmp_path: Path) -> None:
        with Driver(application(copied=True), directory=tmp_path) as driver:
            work(driver, 10)
            before = job_bytes(tmp_path)
            opened(driver).maintenance.tidy()
            assert [record.value[0] for record in driver.read("copy")] == list("abc" * 10)
            assert job_bytes(tmp_path) < 0.7 * before, "what was written twice is there once"

    def test_nothing_needed_is_gone_after_a_restart(self, tmp_path: Path) -> None:
        with Driver(application(), directory=tmp_path) as driver:
            work(driver, 5)
            opened(driver).maintenance.tidy()
        shutil.rmtree(tmp_path / "stores")  # the state is made anew from its files alone
        with Driver(application(), directory=tmp_path) as driver:
            work(driver, 5)
            opened(driver).maintenance.tidy()
            assert driver.store("counts").all() == {"a": 10, "b": 10, "c": 10}
            assert driver._system.end_offsets(STREAM) == driver._system.beginning_offsets(STREAM) == {0: 30}

    def test_records_that_nobody_has_read_stay(self, tmp_path: Path) -> None:
        with Driver(application(), directory=tmp_path) as driver:
            work(driver, 2)
            job = opened(driver)
            source, _reader = job.runners
            driver.send("in", "k", "a" + PAYLOAD)
            driver._flush()
            planned = driver._scheduler.next(source, 0.0, driver.now_us)
            assert planned is not None and source.sub.name is None
            driver._run_round(source, planned)
            job.maintenance.tidy()
            assert driver._system.beginning_offsets(STREAM) == {0: 6}
            assert driver._system.end_offsets(STREAM) == {0: 7}
        with Driver(application(), directory=tmp_path) as driver:
            driver.run()
            assert driver.store("counts").get("a") == 3

    def test_a_plan_that_has_not_committed_yet_purges_nothing(self, tmp_path: Path) -> None:
        with Driver(application(), directory=tmp_path) as driver:
            work(driver, 2)
        with Driver(application(), directory=tmp_path) as driver:
            opened(driver).maintenance.tidy()
            assert driver._system.beginning_offsets(STREAM) == {0: 0}
            work(driver, 1)
            opened(driver).maintenance.tidy()
            assert driver._system.beginning_offsets(STREAM) == {0: 9}

    def test_kept_versions_of_the_state_keep_what_follows_them(self, tmp_path: Path) -> None:
        kept = ["keep_state_versions=4", "keep_state_versions_s=0", "state_version_interval_s=0"]
        with Driver(application(), directory=tmp_path, overrides=kept) as driver:
            for _ in range(5):
                work(driver, 1)
                opened(driver).maintenance.tidy()
            assert driver._system.beginning_offsets(STREAM) == {0: 9}  # rounds 4 and 5 lead on from version 3
        with Driver(application(), directory=tmp_path, overrides=[*kept, "state_version_interval_s=60"]) as driver:
            work(driver, 1)
            opened(driver).maintenance.tidy()  # what is on record counts, and it is too soon for another one
            assert driver._system.beginning_offsets(STREAM) == {0: 9}

    def test_a_former_driver_purges_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with Driver(application(), directory=tmp_path) as driver:
            work(driver, 2)
            store = driver._held.backend.store
            holder = store.holder()
            store.acquire(holder, holder.heartbeat_us + 1)
            opened(driver).maintenance.tidy()
            assert driver._system.beginning_offsets(STREAM) == {0: 0}
        assert "another driver took over" in caplog.text


def test_a_running_job_tidies_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TIDY_S", 0.05)
    app = application(
        system=f"log:{tmp_path / 'log'}", local_store_dir=str(tmp_path / "stores"), state_uri=str(tmp_path / "state")
    )
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 1)
        job = started(app)
        try:
            for number in range(100):
                log.produce("in", [(b"k", b"a%d" % number)])
                job.wake()
                with pytest.raises(TimeoutError):
                    job.wait(0.1)
                if log.beginning_offsets(STREAM)[0] >= 3:
                    break
            assert log.beginning_offsets(STREAM)[0] >= 3
        finally:
            job.stop()
