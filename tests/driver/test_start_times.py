"""How long a start took is on record once something is committed, with its parts."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.adapters.spark.class_archive import LATER_OPTIMIZED, archive_of, archive_options
from headrace.driver.progress_display import line_of
from headrace.driver.start_times import StartTimes, start_metrics
from headrace.environment import process_age_s
from support.world import caught_up


@given(st.lists(st.floats(0, 100), min_size=2, max_size=2), st.floats(0, 5), st.floats(0, 100), st.floats(0, 100))
def test_the_parts_are_the_whole(parts: list[float], python_s: float, wait_s: float, round_s: float) -> None:
    times, now_s = StartTimes(7.0, python_s), 7.0
    for name, seconds in zip(("Spark", "plan"), parts, strict=True):
        now_s += seconds
        times.ended(name, now_s)
    found = times.with_first_round(now_s + wait_s, round_s)
    assert list(found) == ["Python", "Spark", "plan", "wait", "first round"]
    assert sum(found.values()) == pytest.approx(python_s + now_s - 7.0 + wait_s + round_s, abs=1e-6)
    assert start_metrics(found)["start-ns"][""] == pytest.approx(sum(found.values()) * 1e9, abs=1e3)


def test_a_job_says_how_long_it_took_to_its_first_commit(tmp_path: Path, caplog: Any) -> None:
    url = f"log:{tmp_path / 'log'}"
    app = hr.App("starting", url, state_uri=f"{tmp_path}/state", local_store_dir=f"{tmp_path}/stores")
    app.stream("in", key=hr.String(), value=hr.Long()).to("out")
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
    with caplog.at_level(logging.INFO, "headrace"):
        idle = caught_up(app)
        assert "start-ns" not in idle.status()["metrics"] and "first commit" not in line_of(idle.status())
        with hr.open_system(url) as system:
            system.produce("in", [("k", 1)], hr.String(), hr.Long())
        began_s = time.monotonic()
        job = caught_up(app, python_s=50.0)
    took_s = time.monotonic() - began_s
    parts = job.status()["metrics"]["start-phase-ns"]
    assert parts.keys() == {"Python", "plan", "wait", "first round"} and all(ns > 0 for ns in parts.values())
    whole_ns = job.status()["metrics"]["start-ns"]
    assert whole_ns == pytest.approx(sum(parts.values())) and 50e9 < whole_ns < (50 + took_s) * 1e9
    said = [record.message for record in caplog.records if record.message.startswith("first commit after 5")]
    assert len(said) == 1 and "Python 50.0 s" in said[0]
    assert line_of(job.status()).endswith(said[0])


def test_the_age_of_this_process_is_known() -> None:
    first = process_age_s()
    assert first is not None and 0 < first < 24 * 3600
    time.sleep(0.05)
    second = process_age_s()
    assert second is not None and second - first == pytest.approx(0.05, abs=1.0) and second > first


def test_an_archive_that_others_could_have_written_is_not_used(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    archive = archive_of("17.0.1", environ)
    assert archive_options("17.0.1", environ) == ""
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"x")
    archive.chmod(0o600)
    assert f"-XX:SharedArchiveFile={archive} " in archive_options("17.0.1", environ)
    assert archive_options("17.0.2", environ) == ""
    for path, mode, back in ((archive, 0o620, 0o600), (archive, 0o602, 0o600), (archive.parent, 0o777, 0o755)):
        path.chmod(mode)
        assert archive_options("17.0.1", environ) == ""
        path.chmod(back)
    archive.rename(archive.with_suffix(".other"))
    os.symlink(archive.with_suffix(".other"), archive)
    assert archive_options("17.0.1", environ) == ""
    assert all(option.startswith("-XX:Tier4") for option in LATER_OPTIMIZED.split())
