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
from headrace.adapters.common.lease_holder import this_process
from headrace.cli.app_loading import load_app
from support.world import caught_up

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
            "it fails as soon as the stream is deleted\nhint: `headrace stream delete sales --force` deletes it all the same; "
            "an application that reads it cannot start under its name then, also where the stream is created again: its "
            "positions and its state are of the deleted one; run it under another name\n"
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


def test_a_stream_that_is_created_again_is_no_way_to_start_again_as_the_hint_says(shop: Run) -> None:
    assert shop("stream", "delete", "sales", "--yes", "--force").exit_code == 0
    assert shop("stream", "create", "sales", "--partitions", "4").exit_code == 0
    with pytest.raises(hr.IncompatibleChangeError, match="run the application under another name"):
        started("shop.py")


def test_the_output_of_a_job_that_runs_is_not_deleted(shop: Run, running: None) -> None:
    result = shop("stream", "delete", "per-shop-out", "--yes")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: deleting stream 'per-shop-out' breaks what writes it; nothing was changed. application 'shop' writes it and "
        "runs: it fails as soon as the stream is deleted\nhint: `headrace stream delete per-shop-out --force` deletes it all "
        "the same; stop the application first, or start it again afterwards\n"
    )
    assert "per-shop-out" in streams()
    forced = shop("stream", "delete", "per-shop-out", "--yes", "--force", "--json")
    assert "warning: stream 'per-shop-out': application 'shop' writes it and runs" in forced.stderr
    deleted = json.loads(forced.stdout)
    assert (deleted["applications"], deleted["writers"]) == ([], [{"application": "shop", "running": True}])


def test_the_output_of_a_job_that_does_not_run_is_deleted_with_a_warning_that_is_true(shop: Run) -> None:
    result = shop("stream", "delete", "per-shop-out", "--yes")
    assert (result.exit_code, result.stdout) == (0, "deleted stream per-shop-out\n")
    assert result.stderr.startswith("warning: stream 'per-shop-out': application 'shop' writes it: its next start creates it")
    started("shop.py")
    assert "per-shop-out" in streams()


def started(file: str) -> None:
    caught_up(load_app(file))


def test_what_no_application_reads_is_deleted_as_ever(shop: Run) -> None:
    assert shop("stream", "delete", "other", "--yes").exit_code == 0
    assert streams() >= {"sales"} and "other" not in streams()


def test_a_stream_of_that_name_that_came_later_is_nobodys_input(shop: Run) -> None:
    """As for `stream expand`: by its id the application knows that it is another one."""
    assert shop("stream", "delete", "sales", "--yes", "--force").exit_code == 0
    with hr.open_system("log:./data") as log:
        log.create_stream("sales", 4)
    assert shop("stream", "delete", "sales", "--yes").exit_code == 0
