"""The demonstration's folder: begun anew, with nothing lost that is not the demonstration's own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace import wiring
from headrace.adapters.common import lease_holder as processes
from headrace.demo import folder as folders
from headrace.demo.folder import DemoFolder, begun_anew
from headrace.errors import JobHeldError, SetupError

TEXT = "app = 1\n"


def filled(path: Path, text: str = TEXT) -> None:
    """What a run leaves: a log, state, the example."""
    with begun_anew(path, "app", text) as place:
        (place.local_stores / "x").mkdir(parents=True)
        with wiring.open_system(place.system) as system:
            system.create_stream("flights", 1)


def has_run(place: DemoFolder) -> bool:
    return place.log.exists() or place.local_stores.exists()


def test_a_fresh_folder(tmp_path: Path) -> None:
    with begun_anew(tmp_path / "a" / "b", "app", TEXT) as place:
        assert place.found is None
        assert place.example.read_text() == TEXT
        assert place.system == f"log:{tmp_path}/a/b/data"
    (tmp_path / "empty").mkdir()
    with begun_anew(tmp_path / "empty", "app", TEXT) as place:
        assert place.found is None


def test_again_keeps_what_is_not_ours(tmp_path: Path) -> None:
    filled(tmp_path / "demo")
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    with begun_anew(tmp_path / "demo", "app", "app = 2\n") as place:
        assert place.found == "demo holds an earlier demonstration; it is recreated"
        assert not has_run(place)
        assert place.example.read_text() == "app = 2\n"
        assert (place.path / "notes.txt").read_text() == "mine"


def test_an_edited_example_stays(tmp_path: Path) -> None:
    filled(tmp_path)
    example = tmp_path / folders.EXAMPLE
    example.write_text("edited")
    for _ in range(2):
        with begun_anew(tmp_path, "app", TEXT) as place:
            assert not has_run(place)
            assert place.found is not None and place.found.endswith("flight_delays.py was edited, and stays as it is")
            assert example.read_text() == "edited"


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("x")
    with pytest.raises(SetupError, match="is not empty, and no demonstration made it"), begun_anew(tmp_path, "app", TEXT):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "precious"]


def test_two_at_once(tmp_path: Path) -> None:
    second = begun_anew(tmp_path, "app", TEXT)
    with begun_anew(tmp_path, "app", TEXT) as place:
        place.log.mkdir()
        with pytest.raises(JobHeldError, match="another demonstration runs in"):
            second.__enter__()
        assert place.log.is_dir()


def test_a_job_that_runs_on_it_is_not_pulled_away(tmp_path: Path) -> None:
    filled(tmp_path)
    now_us = time.time_ns() // 1000
    with wiring.open_system(f"log:{tmp_path}/data") as system:
        store = system.job_store("app")
        epoch = store.acquire(processes.this_process("run", now_us), now_us)
        text = rf"application 'app' runs on .*: process {os.getpid()} on"
        with pytest.raises(JobHeldError, match=text), begun_anew(tmp_path, "app", TEXT):
            pass
        assert [stream.name for stream in system.streams()] == ["flights"]
        store.release(epoch)
    with begun_anew(tmp_path, "app", TEXT) as place:
        assert not has_run(place)


def test_a_damaged_log_is_made_anew(tmp_path: Path) -> None:
    filled(tmp_path)
    for file in (tmp_path / "data").iterdir():
        if file.is_file():
            file.write_bytes(b"garbage" * 1000)
    with begun_anew(tmp_path, "app", TEXT) as place:
        assert not has_run(place)
