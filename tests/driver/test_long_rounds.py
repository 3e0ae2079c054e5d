"""Rounds that take long: when they are said to, and when they are given up."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver import generation
from headrace.driver import job as jobs
from headrace.driver.generation import Generation
from headrace.worker.inline_engine import InlineEngine
from support.world import source_of, started, waited


def application(tmp_path: Path, function: Any, **keys: Any) -> hr.App:
    url = f"log:{tmp_path / 'log'}"
    with hr.open_system(url) as system:
        system.create_stream("in", 1)
    app = hr.App("long", url, state_uri=str(tmp_path / "state"), local_store_dir=str(tmp_path / "stores"), config=keys)
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).map_values(function, value=hr.Bytes()).to("out")
    return app


def send(tmp_path: Path) -> None:
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        system.produce("in", [hr.Record(b"k", b"v", 0)])


def test_the_status_says_when_a_long_round_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "LONG_SHARE", 0.0)
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 0.05)
    gate = threading.Event()

    def held(record: Any) -> bytes:
        gate.wait(20)
        return bytes(record.value)

    job = started(application(tmp_path, held))
    try:
        send(tmp_path)
        waited(lambda: "given up" in source_of(job)["waiting_for"], job)
        told = source_of(job)["waiting_for"]
        assert told.startswith("round 1, 1:source:1 in messages, which has run for ")
        assert told.endswith(" s, and is given up after 600 s")
    finally:
        gate.set()
        job.stop()


def test_a_round_is_not_given_up_for_the_time_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which the sub-topology had nothing to do, say."""
    monkeypatch.setattr(generation, "ROUND_WAIT_S", 0.5)
    cancelled, publish, looks = list[str](), Generation.publish, threading.local()

    def looked_at(self: Any, *given: Any, **more: Any) -> bool:
        if self._current and not getattr(looks, "inside", False):  # as the driver looks from time to time
            looks.inside = True
            self.look_at_long_rounds()
            looks.inside = False
        return publish(self, *given, **more)

    monkeypatch.setattr(InlineEngine, "cancel", lambda self, round_id: cancelled.append(round_id))
    monkeypatch.setattr(Generation, "publish", looked_at)
    job = started(application(tmp_path, lambda record: record.value, max_round_ms=1))
    try:
        for rounds in (1, 2):
            send(tmp_path)
            waited(lambda rounds=rounds: source_of(job)["round"] >= rounds, job)
            time.sleep(0.6)
        assert not cancelled
    finally:
        job.stop()
