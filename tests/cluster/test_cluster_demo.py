"""`make cluster-demo`: it shows what it says, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import headrace as hr
from cluster.machines import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
ROOT = Path(__file__).parents[2]
WAIT_S = 400.0
# What a shell starts in its background ignores SIGINT, and so would what the tests start.
AS_AT_A_TERMINAL = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextmanager
def demonstration(temporary: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    source = str(Path(hr.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", AS_AT_A_TERMINAL, str(ROOT / "scripts" / "cluster_demo.py"), *arguments],
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def left_behind(temporary: Path) -> list[str]:
    """The command lines of processes that have the folder in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(temporary).encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
    return found


@pytest.mark.soak
def test_a_worker_is_lost_and_comes_back_and_the_results_are_those_of_plain_python(tmp_path: Path) -> None:
    with demonstration(tmp_path, "--flights", "8000") as process:
        output = process.communicate(timeout=WAIT_S)[0]
        assert process.returncode == 0, output
    assert re.search(r"8,000 flights, \S+ windows: equal to plain Python", output)
    (left, came), *_ = re.findall(r"(\d+) tasks left node-2 when it was lost, (\d+) came home", output)
    assert left == came == "4", output
    assert re.search(r"tasks per location: node-1 6, node-3 6\n", output)
    until(lambda: left_behind(tmp_path) == [], 10, lambda: str(left_behind(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_ctrl_c_ends_all_that_was_started(tmp_path: Path) -> None:
    with demonstration(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "starting the job" in line:
                break
        assert len(left_behind(tmp_path)) > 4, "a broker, a master, three workers"
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 130, output
    assert "Traceback" not in output
    until(lambda: left_behind(tmp_path) == [], 10, lambda: str(left_behind(tmp_path)))
    assert list(tmp_path.iterdir()) == []
