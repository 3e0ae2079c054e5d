"""A driver that is killed between the function of `for_each_round` and the commit: a sink that replaces what it wrote under
an id has each record exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import headrace as hr

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(600)]
CHILD = Path(__file__).with_name("for_each_child.py")
RECORDS = 27


def run(folder: Path, kill_at: int) -> int:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (folder / "child.txt").open("ab") as said:
        command = [sys.executable, str(CHILD), str(folder), str(kill_at)]
        child = subprocess.run(command, check=False, stdout=said, stderr=said, env=environ, timeout=280)
    return child.returncode


def test_a_sink_that_replaces_by_id_has_each_record_once_though_the_driver_was_killed(tmp_path: Path) -> None:
    with hr.open_system(f"log:{tmp_path / 'data'}") as system:
        system.create_stream("in", 1)
        system.produce("in", [(f"k{i}".encode(), json.dumps({"id": i}).encode()) for i in range(RECORDS)])
    assert run(tmp_path, kill_at=2) == -signal.SIGKILL, (tmp_path / "child.txt").read_text()
    assert run(tmp_path, kill_at=0) == 0, (tmp_path / "child.txt").read_text()
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call["round"] for call in calls] == [0, 1, 1, 2]
    assert calls[1] == calls[2], "the same id came with other records"
    written = [
        number
        for file in sorted((tmp_path / "out").glob("round=*/*.parquet"))
        for number in pq.read_table(file).column("id").to_pylist()
    ]
    assert sorted(written) == list(range(RECORDS))
