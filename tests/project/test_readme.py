"""The README's code runs as it stands, each block in a process and a folder of its own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = "from headrace.cli import main; main()"
ASKS = {("startpoint", "set"), ("startpoint", "delete"), ("checkpoint", "import")}


def test_the_readme_has_code() -> None:
    assert len(BLOCKS) >= 3
    assert "app.run(until=" in BLOCKS[0]


@pytest.mark.spark
def test_the_first_job_runs_and_prints_its_results(tmp_path: Path) -> None:
    done = run_block(BLOCKS[0], tmp_path)
    again = run_command(["describe", "block.py"], tmp_path)
    assert "by-carrier" in again.stdout
    lines = sorted(line.split(" ")[0] for line in done.stdout.splitlines())
    assert lines == ["B6", "UA"], done.stdout + done.stderr
    assert "{'flights': 2, 'mean_delay': 3.0}" in done.stdout
    for command in commands_of("Rewind, skip, replay"):  # of the same job, which has run
        run_command([*command, *(["--yes"] if tuple(command[:2]) in ASKS else [])], tmp_path)


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_the_other_blocks_run(tmp_path: Path, number: int) -> None:
    done = run_block(BLOCKS[number], tmp_path)
    assert done.returncode == 0, done.stderr


def commands_of(section: str) -> list[list[str]]:
    """The `headrace` commands of a section, about the file that the first block is run as."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("flight_delays.py", "block.py").splitlines()
    found = [shlex.split(line, comments=True)[1:] for line in lines]
    assert len(found) >= 5
    return found


def run_command(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done


def run_block(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "block.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "block.py"], cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done
