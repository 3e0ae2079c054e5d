"""Pages that are made from the code say what it says now."""

from __future__ import annotations

import ast
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
    assert "| say which: ids, --reason, --operator, --stream, --since, --until; or --all | as the message says |" in page
    assert page.count("\n| ") > 700


def test_no_message_is_without_an_explanation() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "errors_page.py"))
    rows = [(name, row) for name, found in made["rows"]().items() for row in found]
    assert len(rows) > 700
    assert [row for row in rows if not made["is_told"](row[1][1])] == [], "give the error a hint: what can its reader do?"
    # Rules stand in for hints where a message says all: they are not to become the usual answer.
    own = [row for _, row in rows if row[1] not in (made["AS_IT_SAYS"], made["CAUSE"], made["BY_CASE"])]
    assert len(own) > 0.8 * len(rows)


def explanation(source: str) -> list[tuple[str, str]]:
    """What the page would say of the errors in `source`."""
    made = runpy.run_path(str(ROOT / "scripts" / "errors_page.py"))
    return [made["explained"](name, row) for name, row in made["made"](ast.parse(source), {})]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("StateError('it is full')", ("it is full", "")),
        ("StateError('it is full', 'empty it')", ("it is full", "empty it")),
        ("StateError('limit: expected 1 or more')", ("limit: expected 1 or more", "as the message says")),
        ("StateError(f'it cannot be read: {error}')", ("it cannot be read: ERROR", "its cause is in the message")),
        ("StateError('it is full', hint_of(disk))", ("it is full", "its hint says it, by the case")),
        ("StateError('it is full', error.hint)", ("it is full", "")),
        ("typer.BadParameter('--a goes with --b')", ("--a goes with --b", "as the message says")),
    ],
)
def test_a_message_is_explained_by_its_hint_or_by_itself(source: str, told: tuple[str, str]) -> None:
    assert explanation(source) == [told]
