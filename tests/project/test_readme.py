"""The README: short, and its first job prints what it should. test_pages.py runs all of its blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from project.page_blocks import ROOT, blocks_of, run

README = ROOT / "README.md"
BLOCKS = [block for block in blocks_of(README) if block.not_run is None]
LINES_MAX = 249
WITHOUT_CODE = {"Install and try it", "Documentation"}  # the first has commands that no test can run


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_each_section_has_an_example_that_runs() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    heads = {number: line.removeprefix("## ") for number, line in enumerate(lines, 1) if line.startswith("## ")}
    with_code = {heads[max(number for number in heads if number < block.line)] for block in BLOCKS}
    assert len(heads) > 8 and set(heads.values()) - with_code == WITHOUT_CODE


@pytest.mark.spark
def test_the_first_job_runs_and_prints_its_results(tmp_path: Path) -> None:
    first = BLOCKS[0]
    assert "app.run(until=" in first.text
    printed = run(first, tmp_path)
    lines = sorted(line.split(" ")[0] for line in printed.splitlines())
    assert lines == ["B6", "UA"], printed
    assert "{'flights': 2, 'mean_delay': 3.0}" in printed
    shell = replace(BLOCKS[1], text=f"headrace describe {first.file}\n")
    assert "by-carrier" in run(shell, tmp_path)
