"""Local stores of another factor are made while the rounds go on: none is restored when its task begins."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.elasticity import preparation
from headrace.driver import store_preparation
from headrace.wiring import store_process
from headrace.wiring.store_process import StoreProcess
from support.world import kept_up, source_of, started, waited

KEYS = [b"k%03d" % number for number in range(400)]
RATES = [b"r%d" % number for number in range(5)]


@pytest.fixture(autouse=True)
def any_state_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "PREPARED_BYTES_MIN", 1)


class Counting:
    """A job that counts records by key, beside a global table; and what has been written to it."""

    def __init__(self, root: Path) -> None:
        self.url = f"log:{root / 'log'}"
        self.app = hr.App("counting", self.url, state_uri=str(root / "state"), local_store_dir=str(root / "stores"))
        rates = self.app.global_table("rates", key=hr.Bytes(), value=hr.Bytes(), store="rates")
        rows = self.app.stream("in", key=hr.Bytes(), value=hr.Bytes())
        joined = rows.left_join(rates, lambda value, rate: value, key=lambda record: RATES[0], value=hr.Bytes())
        joined.group_by_key().count(store="counts").to_stream(emit="each").to("out", value=hr.Long())
        with hr.open_system(self.url) as system:
            system.create_stream("in", 2)
            system.create_stream("rates", 1)
        self.written, self.turn = 0, 0
        self.write_all()

    def write_all(self) -> None:
        with hr.open_system(self.url) as system:
            system.produce("in", [hr.Record(key, b"", 0) for key in KEYS])
            self.written += len(KEYS)

    def write(self, system: Any) -> None:
        """Some of the keys, and a rate that comes or goes."""
        self.turn += 1
        some = KEYS[self.turn % 7 :: 7]
        system.produce("in", [hr.Record(key, b"", 0) for key in some])
        system.produce("rates", [hr.Record(RATES[self.turn % 5], None if self.turn % 3 else b"%d" % self.turn, 0)])
        self.written += len(some)

    def counts(self) -> dict[bytes, int]:
        """The highest count of each key; an error unless each count came once, in order."""
        found: dict[bytes, int] = {}
        with hr.open_system(self.url) as system:
            for record in system.consume("out", key=hr.Bytes(), value=hr.Long()):
                assert record.value == found.get(record.key, 0) + 1, f"{record.key}: {found.get(record.key)}, {record.value}"
                found[record.key] = record.value
        return found

    def is_at(self, job: Any, factor: int) -> Callable[[], bool]:
        return lambda: source_of(job)["elasticity_factor"] == factor

    def has_counted_all(self) -> bool:
        return sum(self.counts().values()) == self.written


@contextmanager
def running(counting: Counting) -> Iterator[Any]:
    job = started(counting.app)
    try:
        waited(counting.has_counted_all, job)
        yield job
    finally:
        job.stop()


def restores(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "entries from" in line or "rebuilt from" in line]


def test_no_store_is_restored_after_a_split_and_after_a_merge(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")
    counting = Counting(tmp_path)
    with running(counting) as job:
        with kept_up(counting.url, counting.write, every_s=0.02):
            for factor in (4, 8, 2, 1):
                caplog.clear()
                job.set_elasticity(factor)
                waited(counting.is_at(job, factor), job)
                rounds = source_of(job)["round"]
                waited(lambda now=rounds: source_of(job)["round"] > now + 3, job)
                assert any("local stores" in line and "turn 1" in line for line in caplog.messages)
                assert restores(caplog) == [], factor
        waited(counting.has_counted_all, job)
    with hr.elasticity(counting.app) as scales:
        assert all("local stores" in change.phases_us for change in scales.history())
    folders = {path.name for path in (tmp_path / "stores" / "counting").iterdir()}
    assert folders == {"Partition_0", "Partition_1"}


def test_while_stores_are_made_status_says_so_and_a_request_can_be_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, go_on, right = Counting(tmp_path), threading.Event(), StoreProcess.build
    monkeypatch.setattr(StoreProcess, "build", lambda *given: (go_on.wait(30), right(*given)))
    with running(counting) as job:
        job.set_elasticity(4)
        text = waited(lambda: source_of(job)["scale_waits_for"], job)
        assert text == "factor 4 waits until local stores of its tasks are made: 0 of 8 are there"
        runner = next(iter(job._generation.runners.values()))
        waited(lambda: runner.planner.held_files, job)
        job.set_elasticity(1)
        waited(lambda: not source_of(job)["scale_waits_for"], job)
        go_on.set()
        assert not runner.planner.held_files
        version = job.status()["job_model"]
        counting.write_all()
        waited(counting.has_counted_all, job)
        assert (source_of(job)["elasticity_factor"], job.status()["job_model"]) == (1, version)


def test_a_later_request_takes_the_place_of_one_whose_stores_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    counting, right = Counting(tmp_path), StoreProcess.build
    is_first = threading.Event()

    def build(self: StoreProcess, heads: Any, built: Any) -> None:
        if not is_first.is_set():
            is_first.set()
            waited(lambda: self._is_closed)
        right(self, heads, built)

    monkeypatch.setattr(StoreProcess, "build", build)
    with running(counting) as job:
        job.set_elasticity(4)
        waited(is_first.is_set, job)
        caplog.clear()
        job.set_elasticity(2)
        waited(counting.is_at(job, 2), job)
        counting.write_all()
        waited(counting.has_counted_all, job)
        assert restores(caplog) == []


@pytest.mark.parametrize("how", ["ends", "fails"])
def test_where_they_cannot_be_made_the_change_comes_all_the_same(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(tmp_path)
    if how == "ends":
        monkeypatch.setattr(store_process, "_MODULE", "this")  # which writes lines of its own, and ends
    else:
        right = store_preparation.heads_ahead

        def lost(*given: Any) -> Any:
            heads = right(*given)
            folder = tmp_path / "stores" / "counting"
            for task in heads:
                (folder / str(task)).write_text("in the way")
            return heads

        monkeypatch.setattr(store_preparation, "heads_ahead", lost)
    with running(counting) as job:
        job.set_elasticity(2)
        waited(lambda: "local stores are made when their tasks begin" in caplog.text, job)
        for place in (tmp_path / "stores" / "counting").glob("*"):
            if place.is_file():
                place.unlink()
        waited(counting.is_at(job, 2), job)
        counting.write_all()
        waited(counting.has_counted_all, job)
