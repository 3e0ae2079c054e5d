"""The README's code runs as it stands, each block in a process and a folder of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_has_code() -> None:
    assert len(BLOCKS) >= 3
    assert "app.run(until=" in BLOCKS[0]


@pytest.mark.spark
def test_the_first_job_runs_and_prints_its_results(tmp_path: Path) -> None:
    done = run_block(BLOCKS[0], tmp_path)
    again = subprocess.run(
        [sys.executable, "-c", "from headrace.cli import main; main()", "describe", "block.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert again.returncode == 0 and "by-carrier" in again.stdout, again.stderr
    lines = sorted(line.split(" ")[0] for line in done.stdout.splitlines())
    assert lines == ["B6", "UA"], done.stdout + done.stderr
    assert "{'flights': 2, 'mean_delay': 3.0}" in done.stdout


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_the_other_blocks_run(tmp_path: Path, number: int) -> None:
    done = run_block(BLOCKS[number], tmp_path)
    assert done.returncode == 0, done.stderr


def run_block(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "block.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "block.py"], cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done
