"""What texts refer to is there: sections of docs/protocol.md, and modules, classes and functions by their dotted names."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"
PAGES = [
    path
    for folder in ("src", "tests", "docs", "bench", "scripts", "examples")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md") and "testdata" not in path.parts
]
_PACKAGES = "|".join(sorted(path.stem for path in SOURCE.iterdir() if path.is_dir() or path.suffix == ".py"))
# Keys of Kafka's and of Kafka Streams', and fields of a configuration.
NO_NAMES = frozenset({
    "application.id", "application.server", "client.id", "dsl.store.suppliers.class", "group.protocol", "config.KEY",
    "config.max_round_ms",
})  # fmt: skip
_DOTTED = re.compile(rf"`(?:headrace\.)?((?:{_PACKAGES})(?:\.\w+)+)(?:\(\))?`")


@cache
def names_in(module: Path) -> frozenset[str]:
    """What a module defines or imports, and the members of its classes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return frozenset(found)


def resolves(dotted: str) -> bool:
    """Whether a name below `headrace` is a module, or what follows the module is in it.

    >>> resolves("core.keys.hashing.murmur2"), resolves("core.keys"), resolves("core.keys.hashing.murmur4")
    (True, True, False)
    """
    place, parts = SOURCE, dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        place = place / f"{parts.pop(0)}.py"
    module = place if place.is_file() else place / "__init__.py"
    return all(part in names_in(module) for part in parts)


def test_every_section_of_the_protocol_that_a_text_names_is_there() -> None:
    sections = set(re.findall(r"^## (.+)$", (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        (str(path.relative_to(ROOT)), section)
        for path in PAGES
        for section in re.findall(r"protocol\.md, \"?([A-Z][\w ]*)", path.read_text(encoding="utf-8"))
    }
    assert named, "the pattern finds them"
    assert {(path, section) for path, section in named if section not in sections} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_dotted_name_is_there(path: Path) -> None:
    named = {name for name in _DOTTED.findall(path.read_text(encoding="utf-8")) if not name.endswith(".py")}
    assert sorted(name for name in named - NO_NAMES if not resolves(name)) == []
