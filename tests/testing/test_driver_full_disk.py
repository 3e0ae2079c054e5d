"""The test kit where the disk is full: whatever write fails, the next run has all that was sent, once."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.log import data_files, stream_tables
from headrace.adapters.log import records as log_records
from headrace.errors import HeadraceError, StorageError
from headrace.testing import Driver

SENDS = 60


def copying() -> hr.App:
    app = hr.App("copying")
    for name in ("a", "b"):
        app.stream(name, key=hr.String(), value=hr.Long()).to(f"{name}-copy")
    app.stream("c", key=hr.String(), value=hr.Long()).group_by_key().count(store="counts")
    return app


@contextmanager
def full_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> Iterator[list[int]]:
    """From its `call`-th call on, a function finds the disk full; how often it was called."""
    whole, calls = getattr(owner, name), [0]

    def failing(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] >= call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        yield calls


@pytest.mark.parametrize("call", range(1, 8))
@pytest.mark.parametrize(
    ("owner", "name"), [(os, "fsync"), (data_files, "sync_folder"), (data_files, "make_durable_folder"), (os, "mkdir")]
)
def test_no_send_is_lost_or_doubled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: Any, name: str, call: int
) -> None:
    with Driver(copying(), directory=tmp_path) as d:
        for number in range(SENDS):
            for stream in ("a", "b", "c"):
                d.send(stream, f"k{number % 7}", number)
        with full_at(monkeypatch, owner, name, call):
            for _ in range(2):
                with suppress(HeadraceError, OSError):
                    d.run()
        d.run()
        for stream in ("a", "b"):
            assert Counter(record.value for record in d.read(f"{stream}-copy")) == Counter(range(SENDS))
        assert sum(d.store("counts").get(f"k{key}") for key in range(7)) == SENDS


def test_of_many_sends_those_that_were_committed_are_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_records, "COMMIT_RECORDS", 7)
    append, calls = stream_tables.append_chunks, []

    def third_fails(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise StorageError("database or disk is full")
        append(*arguments)

    with Driver(copying()) as d:
        for number in range(SENDS):
            d.send("a", "k", number)
        with monkeypatch.context() as patch:
            patch.setattr(stream_tables, "append_chunks", third_fails)
            with pytest.raises(StorageError, match="disk is full"):
                d.run()
        d.run()
        assert [record.value for record in d.read("a-copy")] == list(range(SENDS))


def test_a_disk_that_stays_full_fails_each_time_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    d = Driver(copying()).open()
    d.send("a", "k", 1)
    with full_at(monkeypatch, data_files, "sync_folder", 1):
        for _ in range(3):
            with pytest.raises(StorageError, match="No space left on device"):
                d.run()
        with pytest.raises(StorageError, match="No space left on device"):
            d.close()
    d.close()


def test_a_record_that_cannot_be_written_is_refused_each_time_and_not_at_the_end() -> None:
    with Driver(copying()) as d:
        d.send("a", "k", 1)
        with pytest.raises(hr.SerdeError, match="the key of a record for stream 'a' is str; with raw=True bytes are taken"):
            d.send("a", "not bytes", None, raw=True)
        d.send("a", "k", 1, partition=99)
        for _ in range(2):
            with pytest.raises(hr.OffsetOutOfRangeError):
                d.run()
