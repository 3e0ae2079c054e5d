"""The API page: its tables are what the code says, it leaves nothing public out, and its code runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import headrace as hr

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_page_is_what_the_code_says() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "api_page.py"))
    assert script["page"](TEXT) == TEXT, "docs/api.md is out of date: run `make docs`"
    assert set(re.findall(r"<!-- table: ([\w ]+) -->", TEXT)) == set(script["TABLES"])


def test_every_public_name_but_the_errors_is_on_the_page() -> None:
    errors = {name for name in hr.__all__ if name.endswith("Error")}
    for name in set(hr.__all__) - errors - {"__version__"}:
        assert re.search(rf"\b{name}\b", TEXT), name


def test_every_operator_is_on_the_page_with_its_arguments() -> None:
    for kind in (*hr.App.__mro__[:-2], *hr.KStream.__mro__[:-1], hr.KGrouped, *hr.KTable.__mro__[:-1]):
        for name in [name for name in vars(kind) if not name.startswith("_") and name != "preview_of"]:
            assert re.search(rf"^\| `{name}\b", TEXT, re.MULTILINE), f"{kind.__name__}.{name}"


def marks_of(block: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.spark, pytest.mark.timeout(300)] if "for_each_round" in block else []


@pytest.mark.parametrize("number", [pytest.param(i, marks=marks_of(block)) for i, block in enumerate(BLOCKS)])
def test_the_examples_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], f"docs/api.md, example {number}", "exec"), {"__name__": "__main__"})


def test_there_are_examples_that_say_what_comes_out() -> None:
    assert len(BLOCKS) >= 7
    assert all("assert " in block for block in BLOCKS)
