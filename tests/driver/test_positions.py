"""A position that its stream does not reach, or does not hold any more, stops the job before anything is consumed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import headrace as hr
from headrace.core.rounds.offset_ranges import check_positions, lags_of
from headrace.errors import OffsetOutOfRangeError
from headrace.model.streams import SSP
from headrace.testing import Driver
from support.world import started

A, B = SSP("log", "in", 0), SSP("log", "in", 1)
BEHIND_THE_END = r"stream 'in' partition 0: the position is 3, but the end offset is 2"


def application(folder: Path | None = None) -> hr.App:
    places = {} if folder is None else {"system": f"log:{folder / 'log'}", "local_store_dir": str(folder / "stores")}
    app = hr.App("reading", **places)
    app.stream("in", key=hr.String()).to("out")
    return app


def cut_off(folder: Path, end: int) -> None:
    """The stream as an older copy of the catalog would have it: the same stream, with fewer records."""
    with sqlite3.connect(next(folder.rglob("catalog.sqlite"))) as db:
        (number,) = db.execute("SELECT number FROM streams WHERE name = 'in'").fetchone()
        db.execute("UPDATE partitions SET end_offset = ? WHERE stream = ?", (end, number))
        db.execute("DELETE FROM chunks WHERE stream = ? AND base_offset >= ?", (number, end))


def send(driver: Driver, count: int) -> None:
    for number in range(count):
        driver.send("in", str(number), b"v")
        driver.run()


def test_lags_count_what_can_be_read_and_refuse_what_cannot_be() -> None:
    assert lags_of({A: 3, B: 5}, {A: 9, B: 5}) == {A: 6}
    for positions, words in [
        ({A: 3}, BEHIND_THE_END),
        ({B: 1}, r"stream 'in' has no partition 1, but the job has position 1 in it"),
    ]:
        with pytest.raises(OffsetOutOfRangeError, match=words):
            lags_of(positions, {A: 2})
    with pytest.raises(OffsetOutOfRangeError, match=r"position is 3, but the first offset is 5: 2 offsets were deleted"):
        check_positions({A: 3}, {A: 5}, {A: 9})


def test_a_stream_that_was_cut_off_is_refused_at_the_start(tmp_path: Path) -> None:
    with Driver(application(), directory=tmp_path) as driver:
        send(driver, 3)
    cut_off(tmp_path, 2)
    with pytest.raises(OffsetOutOfRangeError, match=BEHIND_THE_END):
        Driver(application(), directory=tmp_path).open()


def test_what_was_never_read_and_is_gone_is_named_at_the_start(tmp_path: Path) -> None:
    with Driver(application(), directory=tmp_path) as driver:
        send(driver, 1)
        for number in range(4):
            driver.send("in", str(number), b"v")
    with hr.open_system(f"log:{next(tmp_path.rglob('catalog.sqlite')).parent}") as log:
        log.purge("in", {0: 3})
    with pytest.raises(OffsetOutOfRangeError, match=r"'in' partition 0: the position is 1, but the first offset is 3: 2"):
        Driver(application(), directory=tmp_path).open()


def test_a_stream_that_is_cut_off_while_the_job_runs_ends_it(tmp_path: Path) -> None:
    with Driver(application(), directory=tmp_path) as driver:
        send(driver, 3)
        cut_off(tmp_path, 2)
        with pytest.raises(OffsetOutOfRangeError, match=BEHIND_THE_END):
            driver.run()


def test_a_limit_does_not_hide_it(tmp_path: Path) -> None:
    """A job that runs until it is caught up bounds its rounds: by an end that lies before its position, too."""
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 1)
        log.produce("in", [(b"k", b"v")] * 3)
        job = started(application(tmp_path))
        with pytest.raises(TimeoutError):
            job.wait(1.0)
        assert log.end_offsets("out") == {0: 3}
        cut_off(tmp_path, 2)
        job.wake()
        with pytest.raises(OffsetOutOfRangeError, match=BEHIND_THE_END):
            job.wait(30)
    with pytest.raises(OffsetOutOfRangeError, match=BEHIND_THE_END):
        started(application(tmp_path), "caught-up")


def test_a_stream_that_grows_again_behind_a_position_is_still_another_one(tmp_path: Path) -> None:
    """Deleted, made anew and filled past the old position: by offsets it looks whole, and its id says that it is not."""
    with Driver(application(), directory=tmp_path) as driver:
        send(driver, 3)
    with hr.open_system(f"log:{next(tmp_path.rglob('catalog.sqlite')).parent}") as log:
        log.delete_stream("in")
        log.create_stream("in", 1)
        log.produce("in", [(b"k", b"v")] * 9)
    with pytest.raises(hr.IncompatibleChangeError, match=r"'in' was deleted and recreated"):
        Driver(application(), directory=tmp_path).open()
