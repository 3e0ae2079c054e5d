"""A request for startpoints that cannot be read does not end a job, nor keep it from starting."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import headrace as hr
from support.world import caught_up, started


def test_the_job_goes_on_and_says_which_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    url = f"log:{tmp_path / 'log'}"
    app = hr.App("app", system=url, local_store_dir=str(tmp_path / "stores"), state_uri=str(tmp_path / "state"))
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")
    with hr.open_system(url) as log:
        log.create_stream("in", 1)
        log.produce("in", [(b"k", b"v")])
        job = started(app)
        try:
            id_ = log.metadata_store("app").request("startpoints", b"{")
            deadline_s = time.monotonic() + 30
            while f"startpoint request {id_} is ignored" not in caplog.text:
                assert job.is_running and time.monotonic() < deadline_s, caplog.text
                time.sleep(0.05)
            epoch = job.status()["epoch"]
            time.sleep(1.5)
            assert job.status()["epoch"] == epoch, "it is not planned again and again"
            log.produce("in", [(b"k", b"v")])
            while len(list(log.consume("out"))) < 2:
                assert job.is_running and time.monotonic() < deadline_s
                time.sleep(0.05)
        finally:
            job.stop()
        caught_up(app)
        assert log.metadata_store("app").requests("startpoints") == {id_: b"{"}
