"""A plan whose system is gone in the midst of it: the driver has an epoch already, and is fenced by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver import job as driver_job
from headrace.driver.job_preparer import JobPreparer
from headrace.errors import UnavailableError
from support.world import started, waited


def application(folder: Path) -> hr.App:
    """One that copies ten records."""
    url = f"log:{folder / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
        system.produce("in", [hr.Record(b"k%d" % n, b"v", 0) for n in range(10)])
    app = hr.App("interrupted", url, state_uri=str(folder / "state"), local_store_dir=str(folder / "stores"))
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")
    return app


def test_the_driver_does_not_take_its_own_epoch_for_another_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = application(tmp_path)
    monkeypatch.setattr(driver_job, "HEARTBEAT_S", 0.02)
    right, failures = JobPreparer.prepare, list[int]()

    def prepare(self: JobPreparer, epoch: int, before: Any = None, requests: Any = ()) -> Any:
        if before is not None and not failures:
            failures.append(epoch)
            raise UnavailableError("the broker is gone")
        return right(self, epoch, before, requests)

    monkeypatch.setattr(JobPreparer, "prepare", prepare)
    job = started(app)
    try:
        job.set_elasticity(2)
        waited(lambda: job.status()["sub_topologies"]["source"]["elasticity_factor"] == 2, job)
        assert failures and job.status()["epoch"] > failures[0]
    finally:
        job.stop()
    job.wait(0)  # which raises what has ended it


@pytest.mark.parametrize("has_committed", [False, True])
def test_a_start_outlives_a_system_that_is_gone_while_it_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_committed: bool
) -> None:
    app = application(tmp_path)
    right, epochs = JobPreparer.prepare, list[int]()

    def prepare(self: JobPreparer, epoch: int, before: Any = None, requests: Any = ()) -> Any:
        epochs.append(epoch)
        plan = right(self, epoch, before, requests) if has_committed or len(epochs) > 1 else None
        if len(epochs) == 1:
            raise UnavailableError("the broker is gone")
        return plan

    monkeypatch.setattr(JobPreparer, "prepare", prepare)
    job = started(app, until="caught-up")
    job.wait(30)
    assert epochs[1] > epochs[0], "what the broker may still do for the first is fenced"
    assert job.status()["epoch"] == epochs[1]
    assert "waiting for the system, to make the first job model: the broker is gone" in caplog.text
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        assert sum(1 for _ in system.consume("out", key=hr.Bytes(), value=hr.Bytes())) == 10
    started(app, until="caught-up").wait(30)  # it was given back
