"""Pages that are made from the code say what it says now."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["metrics", "errors"])
def test_a_page_is_as_the_code_is(name: str) -> None:
    page = runpy.run_path(str(ROOT / "scripts" / f"{name}_page.py"))["page"]()
    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert written == page, f"docs/{name}.md is out of date: run `make docs`"


def test_the_page_of_errors_has_each_class_with_its_hints() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    row = "| stream STREAM has no dead letter … of these | `headrace dead-letters list` shows their ids |"
    assert row in page and "## FencedError" in page and "## Commands" in page
    assert page.count("\n| ") > 700
