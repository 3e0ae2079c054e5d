"""The log as JSON lines: each can be read, and says of which job and which round it is."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.exchange.json_logs import JsonLog
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


APP = """
import logging, sys
import headrace as hr

logging.getLogger("shop").warning("it is loaded")
app = hr.App("shop")

def told(sale):
    logging.getLogger("shop.prices").warning("a sale of %s", sale.value)
    print("printed", sale.value)
    print("line", file=sys.stderr)
    return sale.value

app.stream("in", key=hr.String(), value=hr.String()).map_values(told).group_by_key().count(store="counts")
"""


@pytest.mark.spark
@pytest.mark.parametrize("ends_well", [True, False])
def test_every_line_of_a_run_is_one_of_json(tmp_path: Path, ends_well: bool) -> None:
    """What Headrace and the user's code log, in the driver and in a worker, what either prints, what the JVM says, the last
    line of the command, and an error with its traceback."""
    with hr.open_system(f"log:{tmp_path / 'data'}") as log:
        log.create_stream("in", 1)
        log.produce("in", [("k", "v")], key=hr.String(), value=hr.String())
    code = APP if ends_well else APP.replace("    return sale.value", "    return sale.value + 1")
    (tmp_path / "shop.py").write_text(code)
    command = [sys.executable, "-m", "headrace", "run", "shop.py", "--until", "caught-up", "--set", "log_format=json"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, env=env, check=False)
    assert ended.returncode == (0 if ends_well else 1) and ended.stdout == ""
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert all(line["job"] == "shop" and line["message"] for line in lines)
    by_text = {line["message"]: line for line in lines}
    of_round = {"sub_topology": "source", "epoch": 1, "round": 1}
    assert by_text["a sale of v"]["logger"] == "shop.prices"
    for text in ("a sale of v", "printed v", "line"):
        assert {name: by_text[text].get(name) for name in of_round} == of_round, text
    if ends_well:
        assert lines[-1]["message"] == "shop has caught up: 1 input record read" and "round" not in lines[-1]
    else:
        assert any("TypeError" in line["message"] for line in lines) and lines[-1]["message"].startswith("hint: ")
