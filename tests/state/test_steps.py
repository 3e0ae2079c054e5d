"""The hook that only tests use: acts at the numbered step, the counted time, and says so first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.exchange import fault_injection as steps

CODE = """
import sys
from headrace.exchange.fault_injection import StepReached, reached
for number in range(3):
    try:
        reached("log", 4); reached("kafka", 5); reached("log", 5)
    except StepReached as error:
        print("raised", error)
print("done")
"""


def run(tmp_path: Path, traps: str | None) -> tuple[int, str, str]:
    log = tmp_path / "steps.log"
    environ = {**os.environ, "HEADRACE_TEST_STEPS_LOG": str(log)} | ({"HEADRACE_TEST_STEPS": traps} if traps else {})
    found = subprocess.run([sys.executable, "-c", CODE], env=environ, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout, log.read_text() if log.exists() else ""


def test_nothing_happens_unless_asked_for(tmp_path: Path) -> None:
    assert run(tmp_path, None) == (0, "done\n", "")
    assert run(tmp_path, "kill:log:6:1,exit:log:5:4") == (0, "done\n", "")


def test_kill_and_exit_and_raise_at_the_counted_time(tmp_path: Path) -> None:
    code, _, log = run(tmp_path, "raise:kafka:5:1,kill:log:5:2")
    assert code == -signal.SIGKILL
    assert [line.split()[:3] for line in log.splitlines()] == [["raise", "kafka", "5"], ["kill", "log", "5"]]
    assert run(tmp_path, "exit:log:4:3")[0] == 3
    assert run(tmp_path, "raise:log:5:3")[1] == "raised step 5 of log\ndone\n"


def test_a_shared_count_acts_once_over_all_processes(tmp_path: Path) -> None:
    traps = f"exit:log:5:4@{tmp_path / 'count'}"
    assert [run(tmp_path, traps)[0] for _ in range(3)] == [0, 3, 0]
    assert len(run(tmp_path, traps)[2].splitlines()) == 1


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="'maim'"):
        steps._traps_of({"HEADRACE_TEST_STEPS": "maim:log:5:1"})
