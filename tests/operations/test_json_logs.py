"""The log as JSON lines: each can be read, and says of which job and which round it is."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.driver.json_logs import JsonLog
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine


class Telling(InlineEngine):
    """Logs something in each round."""

    def run(self, *arguments: Any) -> list[bytes]:
        logging.getLogger("headrace.engine").info("it \n says %s", "ä")
        return super().run(*arguments)


def test_each_line_says_of_which_job_and_round_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = {"system": f"log:{tmp_path / 'log'}", "local_store_dir": str(tmp_path / "s"), "state_uri": str(tmp_path / "state")}
    app = hr.App("shop", config={**places, "log_format": "json"})
    by = app.stream("in", key=hr.String(), value=hr.String()).repartition(hr.Repartitioned(name="by"))
    by.group_by_key().count(store="counts")
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 1)
        log.produce("in", [("k", "v")], key=hr.String(), value=hr.String())
    wiring.run(app, until="caught-up", engine=Telling(run_container))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines and all(line["job"] == "shop" and line["level"] == "info" for line in lines), "no progress among them"
    told = [line for line in lines if line["logger"] == "headrace.engine"]
    assert {(line["sub_topology"], line["epoch"], line["round"]) for line in told} == {("source", 1, 1), ("by", 1, 1)}
    assert {line["message"] for line in told} == {"it \n says ä"}
    before = logging.getLogger("headrace").handlers
    assert not before, "the job has ended"


def test_an_error_has_its_stack_trace_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = JsonLog("shop")
    try:
        try:
            raise ValueError("bad")
        except ValueError:
            logging.getLogger("headrace.job").exception("it failed")
    finally:
        log.close()
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found["message"] == "it failed" and "ValueError: bad" in found["error"] and "round" not in found
