"""docs/protocol.md: every reference to a clause or a step resolves, and its numbers are those of seeds.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.worker.ports import STEPS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
CLAUSES = {int(number) for number in re.findall(r"^### (\d+)\. \S", TEXT, re.MULTILINE)}
_ROWS = re.findall(r"^\| (\d+) \|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$", TEXT, re.MULTILINE)
DESCRIBED = {
    protocol: {int(row[0]) for row in _ROWS if row[column].strip()}
    for column, protocol in enumerate(("log", "kafka", "start", "scale"), start=1)
}
PAGES = [
    path
    for folder in ("src", "tests", "docs", "bench", "scripts", "examples")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md") and path.name != "protocol.md"
] + [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_NUMBERS = re.compile(r"protocol\.md[,:]? (\d+(?:(?:, | and | to )\d+)*)")


def numbers_of(text: str) -> set[int]:
    """The clauses that a text refers to.

    >>> sorted(numbers_of("protocol.md 6 to 8 and 12; protocol.md, 15"))
    [6, 7, 8, 12, 15]
    """
    found: set[int] = set()
    for reference in _NUMBERS.findall(text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", reference):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def test_a_clause_has_a_heading_of_its_own_in_order() -> None:
    assert sorted(CLAUSES) == list(range(1, len(CLAUSES) + 1)) and len(CLAUSES) >= 25


def test_every_reference_to_a_clause_resolves() -> None:
    referred = {path: numbers_of(path.read_text(encoding="utf-8")) for path in PAGES}
    assert sum(map(len, referred.values())) > 50, "the pattern finds them"
    assert not {str(path): numbers - CLAUSES for path, numbers in referred.items() if numbers - CLAUSES}


def test_the_page_is_there_under_the_name_that_texts_give() -> None:
    named = [path for path in PAGES if "protocol.md" in path.read_text(encoding="utf-8")]
    assert len(named) > 30 and (ROOT / "docs" / "protocol.md").is_file()


@pytest.mark.parametrize("protocol", ["log", "kafka", "start", "scale"])
def test_every_step_that_the_code_reaches_is_described(protocol: str) -> None:
    reached = re.compile(rf"reached\(\"{protocol}\", (\d+)\)")
    found = {int(n) for path in (ROOT / "src").rglob("*.py") for n in reached.findall(path.read_text(encoding="utf-8"))}
    found |= set(STEPS.get(protocol, {}).values())
    assert found and found <= DESCRIBED[protocol]


def test_every_clause_of_the_page_has_a_row_in_seeds() -> None:
    rows = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8").partition("## The commit protocol")[2]
    found: set[int] = set()
    for first, last in re.findall(r"^\| (\d+)(?: to (\d+))? ", rows, re.MULTILINE):
        found |= set(range(int(first), int(last or first) + 1))
    assert found == CLAUSES
