"""The demonstration's folder: it is recreated, with nothing lost that is not the demonstration's own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.adapters.common import lease_holder as processes
from headrace.demo.run import APPLICATION, EXAMPLE, Place, own_folder, prepare
from headrace.errors import JobHeldError, SetupError


def prepared(path: Path, partitions: int = 4) -> tuple[Place, str | None]:
    place = Place(own_folder(path))
    return place, prepare(place, partitions, own_cluster=False)


def filled(path: Path) -> Place:
    """What a run leaves: a log, state, the example."""
    place, _ = prepared(path)
    (place.path / ".headrace" / "stores" / "x").mkdir(parents=True)
    with place.opened() as system:
        system.create_stream("flights", 1)
    return place


def has_run(place: Place) -> bool:
    return (place.path / "data").exists() or (place.path / ".headrace").exists()


def test_a_fresh_folder(tmp_path: Path) -> None:
    place, found = prepared(tmp_path / "a" / "b")
    assert found is None
    assert "number_of_partitions=4" in (place.path / EXAMPLE).read_text()
    assert place.system == f"log:{tmp_path}/a/b/data"
    (tmp_path / "empty").mkdir()
    assert prepared(tmp_path / "empty")[1] is None


def test_again_keeps_what_is_not_ours(tmp_path: Path) -> None:
    place = filled(tmp_path / "demo")
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    _, found = prepared(tmp_path / "demo", partitions=2)
    assert found == "demo holds an earlier demonstration; it is recreated"
    assert not has_run(place)
    assert "number_of_partitions=2" in (place.path / EXAMPLE).read_text()
    assert (place.path / "notes.txt").read_text() == "mine"


def test_an_edited_example_stays(tmp_path: Path) -> None:
    place = filled(tmp_path)
    (tmp_path / EXAMPLE).write_text("edited")
    for _ in range(2):
        _, found = prepared(tmp_path, partitions=2)
        assert not has_run(place)
        assert found is not None and found.endswith("flight_delays.py was edited, and stays as it is")
        assert (place.path / EXAMPLE).read_text() == "edited"


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("x")
    with pytest.raises(SetupError, match="is not empty, and no demonstration made it"):
        own_folder(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "precious"]


def test_a_job_that_runs_on_it_is_not_pulled_away(tmp_path: Path) -> None:
    place = filled(tmp_path)
    now_us = time.time_ns() // 1000
    with place.opened() as system:
        store = system.job_store(APPLICATION)
        epoch = store.acquire(processes.this_process("run", now_us), now_us)
        with pytest.raises(JobHeldError, match=rf"application '{APPLICATION}' runs on .*: process {os.getpid()} on"):
            prepared(tmp_path)
        assert [stream.name for stream in system.streams()] == ["flights"]
        store.release(epoch)
    prepared(tmp_path)
    assert not has_run(place)


def test_a_damaged_log_is_recreated(tmp_path: Path) -> None:
    place = filled(tmp_path)
    for file in (tmp_path / "data").iterdir():
        if file.is_file():
            file.write_bytes(b"garbage" * 1000)
    prepared(tmp_path)
    assert not has_run(place)
