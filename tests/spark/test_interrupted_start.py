"""A signal while Spark starts, or while a job runs on it: a line, an exit code, and nothing that is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import headrace as hr
from support.world import waited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
SOURCE = str(Path(hr.__file__).parents[1])
APP = """
import headrace as hr

app = hr.App("interrupted", system="log:./data")
app.stream("in", key=hr.String(), value=hr.String()).filter("value <> 'x'").to("out")
"""
WAIT_S = 100.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    with hr.open_system(f"log:{tmp_path / 'data'}") as system:
        system.create_stream("in", 2)
        system.produce("in", [("a", "b")], key=hr.String(), value=hr.String())
    return tmp_path


@pytest.mark.parametrize(("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")])
def test_while_spark_starts(place: Path, number: signal.Signals, code: int, word: str) -> None:
    mark = uuid.uuid4().hex
    process = started(place, mark)
    waited(lambda: any(b"SparkSubmit" in line for line in family(mark)), wait_s=WAIT_S, otherwise="no JVM was started")
    os.killpg(process.pid, number)
    said = process.communicate(timeout=WAIT_S)[0]
    assert (process.returncode, said) == (code, f"starting Spark\n{word}\n")
    waited(lambda: not family(mark), wait_s=WAIT_S, otherwise="something was left behind")


def test_while_the_job_runs(place: Path) -> None:
    mark = uuid.uuid4().hex
    process = started(place, mark)
    with hr.open_system(f"log:{place / 'data'}") as system:
        names = lambda: [stream.name for stream in system.streams()]  # noqa: E731
        waited(
            lambda: "out" in names() and system.end_offsets("out") != {0: 0, 1: 0}, wait_s=WAIT_S, otherwise="no output"
        )
    os.killpg(process.pid, signal.SIGTERM)  # as `timeout` does: to all of the group
    said = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 0
    assert said.splitlines()[-1] == "stopped interrupted: committed rounds are kept, the next run resumes from there"
    assert "Error" not in said and "Traceback" not in said
    waited(lambda: not family(mark), wait_s=WAIT_S, otherwise="something was left behind")


def started(place: Path, mark: str) -> subprocess.Popen[str]:
    as_in_a_terminal = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    return subprocess.Popen(
        [sys.executable, "-c", as_in_a_terminal + "from headrace.cli import main; main()", "run", "app.py"],
        cwd=place,
        env=os.environ | {"PYTHONPATH": SOURCE, "HEADRACE_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def family(mark: str) -> list[bytes]:
    """The command lines of all processes that come of the one with this mark in its environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes())
        except OSError:
            continue
    return [line for line in found if line]
