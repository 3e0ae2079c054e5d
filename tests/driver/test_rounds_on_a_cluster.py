"""What a job needs of a Spark cluster's machines, and which of them its tasks come home to. The cluster is this process, see
`test_store_restoration`."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from driver.test_store_restoration import Clustered, engine
from headrace import wiring

__all__ = ["engine"]  # a fixture


def test_an_application_without_state_runs_where_no_place_for_it_is_set(
    tmp_path: Path, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither `state_uri` nor `local_store_dir`: the defaults are folders that only this machine has."""
    monkeypatch.chdir(tmp_path)
    system = f"log:{tmp_path / 'log'}"
    with hr.open_system(system) as log:
        for stream in ("in", "out"):
            log.create_stream(stream, 2)
        log.produce("in", [(f"k{n}", f"v{n}") for n in range(20)], key=hr.String(), value=hr.String())
    app = hr.App("plain", system)
    app.stream("in", key=hr.String(), value=hr.String()).filter(lambda record: record.value != "v3").to("out")
    job = wiring.start(app, "caught-up", engine=engine)
    try:
        job.wait(60)
    finally:
        job.stop()
    with hr.open_system(system) as log:
        found = sorted(record.value for record in log.consume("out", value=hr.String()))
    assert found == sorted(f"v{n}" for n in range(20) if n != 3)
