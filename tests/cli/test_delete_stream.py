"""`headrace stream delete`: whom it would break is asked as `stream expand` asks it, and answered alike."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.holders import this_process

Run = Callable[..., Any]


@pytest.fixture
def shop(fresh: Run, place: Path, tmp_path: Path) -> Run:
    """A copy of the log on which the application `shop` has run: it reads `sales`."""
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    with hr.open_system("log:./data") as log:
        log.create_stream("other", 1)
    return fresh


@pytest.fixture
def running(shop: Run) -> Iterator[None]:
    with hr.open_system("log:./data") as log:
        now_us = time.time_ns() // 1000
        epoch = log.job_store("shop").acquire(this_process("run", now_us), now_us)
        yield
        log.job_store("shop").release(epoch)


def streams() -> set[str]:
    with hr.open_system("log:./data") as log:
        return {stream.name for stream in log.streams()}


def test_the_input_of_a_job_that_runs_is_not_deleted(shop: Run, running: None) -> None:
    for options in (("--yes",), ("--yes", "--json"), ()):
        result = shop("stream", "delete", "sales", *options)
        assert result.exit_code == 1
        assert result.stderr == (
            "error: deleting stream 'sales' breaks what reads it; nothing was changed. application 'shop' reads it and runs: "
            "it fails as soon as the stream is deleted\nhint: `headrace stream delete sales --force` deletes it all the same, "
            "where the application is given up or the stream is created again\n"
        )
    assert "sales" in streams()


def test_nor_that_of_a_job_that_does_not_run(shop: Run) -> None:
    result = shop("stream", "delete", "sales", "--yes", "--system", "log:./data")
    assert result.exit_code == 1
    assert "application 'shop' reads it: its next start is refused without the stream" in result.stderr
    assert "`headrace stream delete sales --force --system log:./data`" in result.stderr
    assert "sales" in streams()


def test_expand_and_delete_find_the_same_readers(shop: Run, running: None) -> None:
    expanded = json.loads(shop("stream", "expand", "sales", "--partitions", "8", "--json").stdout)
    deleted = json.loads(shop("stream", "delete", "sales", "--yes", "--force", "--json").stdout)
    assert [(one["application"], one["running"]) for one in expanded["applications"]] == [("shop", True)]
    assert deleted["applications"] == [{"application": "shop", "running": True}]


def test_forced_it_warns_and_deletes(shop: Run, running: None) -> None:
    result = shop("stream", "delete", "sales", "--yes", "--force")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: stream 'sales': application 'shop' reads it and runs: it fails")
    assert result.stdout == "deleted stream sales\n"
    assert "sales" not in streams()


def test_what_no_application_reads_is_deleted_as_ever(shop: Run) -> None:
    assert shop("stream", "delete", "other", "--yes").exit_code == 0
    assert streams() >= {"sales"} and "other" not in streams()


def test_a_stream_of_that_name_that_came_later_is_nobodys_input(shop: Run) -> None:
    """As for `stream expand`: by its id the application knows that it is another one."""
    assert shop("stream", "delete", "sales", "--yes", "--force").exit_code == 0
    with hr.open_system("log:./data") as log:
        log.create_stream("sales", 4)
    assert shop("stream", "delete", "sales", "--yes").exit_code == 0
