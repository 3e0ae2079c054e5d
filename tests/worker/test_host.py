"""What a worker knows of its machine it asks that machine: a driver on another one cannot know it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace.adapters.common import lease_holder as holders
from headrace.model.commits import DriverLease
from headrace.testing import Driver


def counting() -> hr.App:
    app = hr.App("counting")
    app.stream("words", key=hr.String(), value=hr.String()).group_by_key().count(store="counts").to_stream().to("out")
    return app


def test_the_machine_is_the_one_of_this_process() -> None:
    assert holders.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_machine_that_was_started_again_rebuilds_its_stores_though_the_driver_was_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with Driver(counting()) as driver, caplog.at_level(logging.INFO, "headrace.state_files"):
        driver.send("words", "k", "a")
        driver.run()
        monkeypatch.setattr(holders, "BOOT_ID_FILE", tmp_path / "boot_id")
        (tmp_path / "boot_id").write_text("after-a-power-cut\n")
        driver.send("words", "k", "b")
        driver.run()
        assert [(one.key, one.value) for one in driver.read("out", value=hr.Long())][-1] == ("k", 2)
    assert "the machine was restarted" in caplog.text


def test_a_driver_on_another_host_makes_no_store_rebuild(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The driver's boot id is in its lease only: what is known of a store's machine comes from there."""
    with Driver(counting(), directory=tmp_path) as driver:
        driver.send("words", "k", "a")
        driver.run()
    before = holders.this_process

    def elsewhere(run_id: str, now_us: int) -> DriverLease:
        return replace(before(run_id, now_us), host="another", boot_id="another-boot")

    monkeypatch.setattr(holders, "this_process", elsewhere)
    with Driver(counting(), directory=tmp_path) as driver, caplog.at_level(logging.INFO, "headrace.state_files"):
        driver.send("words", "k", "b")
        driver.run()
        assert [(one.key, one.value) for one in driver.read("out", value=hr.Long())][-1] == ("k", 2)
    assert "rebuilt" not in caplog.text and "restarted" not in caplog.text
