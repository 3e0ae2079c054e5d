"""The pictures of the docs: small, read on a light and on a dark page alike, and described for who cannot see them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from project.page_blocks import ROOT

PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())
SVG = "{http://www.w3.org/2000/svg}"
BYTES_MAX = 12_000
CONTRAST_MIN = 4.5  # of text and its ground: WCAG AA
_SHOWN = re.compile(r"!\[([^\]]*)\]\(pictures/([^)]+)\)")


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, as WCAG defines it: 0 is black, 1 white."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_described_and_can_be_read_on_any_page(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    title, desc, _, ground = list(root)[:4]
    assert title.tag == f"{SVG}title" and desc.tag == f"{SVG}desc" and title.text and len(desc.text or "") > 80
    assert root.get("role") == "img" and root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    # The whole picture has a ground of its own, so the colour of the page does not matter.
    assert ground.tag == f"{SVG}rect" and (ground.get("width"), ground.get("height")) == (root.get("width"), root.get("height"))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    (ink,) = {group.get("fill") or "" for group in root.iter(f"{SVG}g")}
    fills = {rect.get("fill") or "none" for rect in root.iter(f"{SVG}rect")} - {"none"}
    assert len(texts) > 10 and min(contrast(ink, fill) for fill in fills) > CONTRAST_MIN
    assert path.stat().st_size < BYTES_MAX


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_runs_and_fetches_nothing(path: Path) -> None:
    names = {node.tag.removeprefix(SVG) for node in ElementTree.parse(path).getroot().iter()}
    assert names <= {"svg", "title", "desc", "defs", "marker", "path", "rect", "g", "text"}
    assert re.findall(r"https?://[^\"]+|href", path.read_text(encoding="utf-8")) == ["http://www.w3.org/2000/svg"]


def test_each_picture_is_shown_with_words_in_its_place() -> None:
    shown = [found for page in (ROOT / "docs").glob("*.md") for found in _SHOWN.findall(page.read_text(encoding="utf-8"))]
    assert {name for _, name in shown} == {path.name for path in PICTURES} and len(PICTURES) > 5
    assert [name for words, name in shown if len(words) < 60] == []
