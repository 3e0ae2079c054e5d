"""The project's texts use the words of its field: source, docs and messages have none of the words below."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("src", "examples", "scripts") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted(one for one in (ROOT / "src/headrace/adapters/http/static").iterdir() if "uPlot" not in one.name)
PAGES += [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "pictures").iterdir())]
OWNS = "Owns"  # only as a docstring's first word

# Term, what takes its place, and where it is found: a regular expression, in which a space is any white space.
TABLE = (
    ("anew", "again; recreated, restarted, rebuilt", r"\banew\b"),
    ("go on", "continue, resume, keep running", r"\b(?:go|goes|going|went|gone) on\b"),
    ("gone", "deleted, expired, removed, missing", r"\bgone\b(?!:)"),
    ("passed over", "skipped", r"\bpass(?:es|ed|ing)? over\b"),
    ("taken up", "applied, picked up", r"\b(?:take|takes|taken|taking|took) (?:\w+ )?up\b(?! to\b)"),
    ("worked off", "processed", r"\bwork(?:s|ed|ing)? (?:\w+ ){0,2}off\b"),
    ("let go", "deleted, released", r"\blet(?:s|ting)? (?:\w+ )?go\b"),
    ("put aside", "sent to the dead-letter stream", r"\b(?:put|puts|putting|set|sets|setting) (?:\w+ )?aside\b"),
    ("told of", "reports, is notified, logs", r"\b(?:tells?|told|telling) of\b|\b(?:is|are|was|were|be|been) told\b"),
    ("says so", "reports, logs", r"\b(?:says?|said|saying) so\b"),
    ("stands", "position, state, status", r"\b(?:stands?|stood)\b(?! (?:for|in for)\b)"),
    ("ways out", "how to recover, undo, override", r"\bways? (?:out|back)\b|\bway past\b"),
    ("mend", "fix", r"\bmend(?:s|ed|ing)?\b"),
    ("noted", "recorded", r"\bnoted\b(?![-`])|\b(?:take|takes|took|taken|taking) note\b"),
    ("nobody", "name the actor: the driver, a producer, another process", r"\b(?:nobody|whoever)\b"),
    ("whatever is", "name the actor, or the thing", r"\bwhatever (?:is|was|has|reads|writes|ends|dies)\b"),
    ("what is read", "the input, the records, the output", r"\bwhat (?:is|was|are|were|has been) (?:read|written)\b"),
    ("asked for", "requested", r"\basked for\b"),
    ("beside the rounds", "in the background, concurrently with", r"\bbeside (?:the |a |its )?(?:rounds?|job)\b"),
    ("put in by itself", "automatically", r"\b(?:put in|looks|comes|made) by (?:itself|themselves)\b"),
    ("not for several threads", "not thread-safe", r"\bfor (?:several|many|more) threads\b"),
    ("room is given back", "space is reclaimed", r"\broom (?:is |was )?(?:given )?back\b|\bback room\b"),
)
CEILINGS = {"CHANGELOG.md": 19}  # hits that a file still has, in its old lines; a number here only goes down
PATTERNS = [(term, better, re.compile(found.replace(" ", r"\s+"), re.IGNORECASE)) for term, better, found in TABLE]


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """What people read in a file, each with its first line: a page, or docstrings, string literals and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    tree = ast.parse(text)
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def hits_in(path: Path) -> Iterator[str]:
    place = path.relative_to(ROOT)
    for line, text in texts_of(path):
        for term, better, pattern in PATTERNS:
            for found in pattern.finditer(text):
                yield f"{place}:{line + text.count(chr(10), 0, found.start())}: {found[0]!r} ({term}): say {better}"
        if path.suffix == ".py" and text.startswith(OWNS):
            yield f"{place}:{line}: {OWNS!r}: begin with what the thing is or does"


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_has_no_word_of_the_table(path: Path) -> None:
    hits = sorted(set(hits_in(path)))
    most = CEILINGS.get(str(path.relative_to(ROOT)), 0)
    assert len(hits) <= most, "\n".join(["", *hits])
    assert len(hits) == most, f"{path.relative_to(ROOT)} has {len(hits)} hits left: lower its ceiling to that"


def test_the_table_finds_its_own_terms() -> None:
    for term, _, pattern in PATTERNS:
        assert pattern.search(term), term


def test_words_that_only_look_alike_are_no_hits() -> None:
    for text in ("it stands for a key", "takes up to 3 s", "understands", "noted-0-1.json", "amends", "what it reads"):
        assert not [term for term, _, pattern in PATTERNS if pattern.search(text)], text
