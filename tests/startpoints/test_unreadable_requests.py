"""A request for startpoints that cannot be read does not end a job, nor keep it from starting."""

from __future__ import annotations

import logging
import time

import pytest

import headrace as hr
from support.fixtures import only_on
from support.world import World, caught_up, waited

place = only_on("log")


def test_the_job_goes_on_and_says_which_it_is(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log, app, metadata = world.system, world.app(), world.system.metadata_store(world.name)
    app.stream(world.stream("in"), key=hr.Bytes(), value=hr.Bytes()).to(world.stream("out"))
    log.create_stream(world.stream("in"), 1)
    log.produce(world.stream("in"), [(b"k", b"v")])
    with world.running(app) as job:
        id_ = metadata.request("startpoints", b"{")
        waited(lambda: f"startpoint request {id_} is ignored" in caplog.text, job)
        waited(lambda: job.status()["epoch"] == 2, job)  # of the plan that has seen it
        epoch = job.status()["epoch"]
        time.sleep(1.5)
        assert job.status()["epoch"] == epoch, "it is not planned again and again"
        log.produce(world.stream("in"), [(b"k", b"v")])
        waited(lambda: len(world.rows("out")) >= 2, job)
    caught_up(app)
    assert metadata.requests("startpoints") == {id_: b"{"}
