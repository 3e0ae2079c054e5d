"""docs/seeds.md: every place that it names is there, and each row is tested or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
TEST = r"`(tests/[\w/.]+)(?:::(?:\w+::)?(\w+)(?:\[\w+\])?)?`"
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| clause")]


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split(" | ")]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_where_and_what_tests_it_or_why_not(row: str) -> None:
    cells = cells_of(row)
    assert len(cells) in (2, 3), row
    clause, where = cells[:2]
    tests = cells[2].strip("| ") if len(cells) == 3 else ""
    assert clause != "everything else", "name it: a row that hides what is missing is no use"
    assert tests or "later" in where, row
    assert tests.count("`tests/") == len(re.findall(TEST, tests)), "a test that cannot be looked for"
    package = ROOT / "src" / "headrace"
    for place in re.findall(r"`([\w/]+(?:\.py|/))`", where):
        beside = [package / Path(other).parent / place for other in re.findall(r"`([\w/]+\.py)`", where)]
        assert any(path.exists() for path in (package / place, *beside)), place
    for place, name in re.findall(TEST, tests):
        assert (ROOT / place).exists(), place
        assert not name or f"def {name}(" in (ROOT / place).read_text(encoding="utf-8"), name
