"""What a job needs of a Spark cluster's machines, and which of them its tasks come home to. The cluster is this process, see
`test_store_restoration`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import headrace as hr
from driver.test_store_restoration import Clustered, Place, engine, job_model, source_of, until
from headrace import wiring
from headrace.driver.planning.stored_locality import StoredLocality
from support.located import LOCATIONS

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


def homes_of(place: Place) -> dict[str, str]:
    """By task the location that the job model gives it."""
    return {task: one["location"] for one in job_model(place) for task in one["tasks"]}


def test_tasks_come_home_to_a_location_that_was_lost_soon_after_they_came_to_it(
    tmp_path: Path, engine: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sooner than a job stores by the clock where its tasks have run."""
    there = dict(LOCATIONS)

    def locations(self: Clustered) -> Mapping[str, int]:
        return dict(there)

    monkeypatch.setattr(Clustered, "locations", locations)
    place = Place(tmp_path, 4)
    place.produce()
    job = place.start(engine, processor_return_wait_s=0.2)
    try:
        until(lambda: source_of(job)["counters"].get("records") == 100)
        first = homes_of(place)
        assert sorted(first.values()) == ["east", "east", "west", "west"]
        del there["west"]
        until(lambda: set(homes_of(place).values()) == {"east"})
        with hr.open_system(place.url) as log:
            kept = StoredLocality(log.metadata_store("restored")).read_processor_locality().get_locality()
        assert {str(task): location for task, location in kept.items()} == first
        place.produce()
        until(lambda: source_of(job)["counters"].get("records") == 200)
        there["west"] = 1
        until(lambda: "west" in homes_of(place).values())
        assert homes_of(place) == first
    finally:
        job.stop()
