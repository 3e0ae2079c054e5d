"""A job whose JVM ends: it says so in a line and a hint, at once, and the same process can run the job again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("dying_jvm.py")


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_job_whose_jvm_was_killed_says_so_and_the_next_one_in_this_process_goes_on(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    first, second = told["ends"]
    line, hint = first.splitlines()
    assert re.fullmatch(
        r"RoundFailedError: round 1:source:1 cannot end: Spark's JVM, process \d+, was killed by SIGKILL", line
    ), first
    assert hint.startswith("  hint: earlier commits are unaffected: restart the job")
    assert second == "caught up"
    assert told["values"] == list(range(20))
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 3, done.stderr
